"""Each file of the book says in its name what its bytes are, and pages load it by that name."""

import hashlib
import re

import pytest
import torch
import yaml

from tests.files import FILES
from tests.pages import PAGES, ROOT, RUNNING, each

NAMES = sorted(path.name for path in FILES.iterdir())
CALL = re.compile(r"load_state_dict_from_url\((.*?)\n? *\)", re.DOTALL)
LOADING = [page for page in RUNNING if CALL.search("".join(b.code for b in page.blocks))]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_ends_in_the_first_digits_of_the_digest(name):
    digest = re.fullmatch(r"[a-z]+-([0-9a-f]{8})\.pt", name)[1]
    assert hashlib.sha256((FILES / name).read_bytes()).hexdigest().startswith(digest)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_holds_tensors_and_plain_values_alone(name):
    torch.load(FILES / name, weights_only=True)


@each(LOADING)
def test_a_page_asks_the_site_for_files_that_are_there_and_checks_them(page):
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    site = yaml.safe_load(re.search(r"^site_url:.*$", settings, re.MULTILINE)[0])["site_url"]
    code = "".join(block.code for block in page.blocks)
    assert set(re.findall(r"https?://[^\s\"]*/", code)) == {site + "files/"}
    assert set(re.findall(r"[\w-]+-[0-9a-f]{8}\.pt", code)) <= set(NAMES)
    for call in CALL.findall(code):
        assert "check_hash=True" in call
        assert "weights_only=True" in call


def test_every_file_is_loaded_by_a_page():
    text = "".join(page.text for page in PAGES)
    assert [name for name in NAMES if name not in text] == []
