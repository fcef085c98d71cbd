"""A file of the book is the one in this folder, or the book's own, and always the one that is meant."""

import hashlib
import shutil

import pytest
import torch
import yaml

from snippets import book_file as module
from snippets.book_file import book_file
from tests.snippets.problems import SNIPPETS

FILES = SNIPPETS.parent / "docs" / "files"
DIGEST = hashlib.sha256(b"weights").hexdigest()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Stand in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """Return the addresses that were asked for; each holds the word "weights"."""
    addresses = []

    def download(url, name, progress):
        addresses.append(url)
        with open(name, "wb") as file:
            file.write(b"weights")

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    return addresses


def test_a_file_that_lies_here_is_taken_from_here(folder, asked):
    (folder / "bank.pt").write_bytes(b"weights")
    assert book_file("bank.pt", DIGEST).read_bytes() == b"weights"
    assert asked == []


def test_a_file_that_is_not_here_is_fetched_once_from_the_book(asked):
    for _ in range(2):
        assert book_file("bank.pt", DIGEST).read_bytes() == b"weights"
    assert asked == [module.BOOK + "bank.pt"]


def test_other_bytes_are_refused_with_both_digests(folder, asked):
    (folder / "bank.pt").write_bytes(b"other")
    with pytest.raises(
        ValueError, match=f"bank.pt must have the sha256 {DIGEST}, got [0-9a-f]{{64}}"
    ):
        book_file("bank.pt", DIGEST)


def test_the_address_is_where_the_site_publishes_its_files():
    text = (SNIPPETS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    site = next(line for line in text.splitlines() if line.startswith("site_url:"))
    assert yaml.safe_load(site)["site_url"] + "files/" == module.BOOK


@pytest.mark.parametrize("file", sorted(FILES.glob("*.pt")), ids=lambda file: file.name)
def test_stored_weights_hold_tensors_and_plain_values_alone(file, folder):
    shutil.copy(file, folder)
    torch.load(file.name, weights_only=True)
