"""The small torch reads the files that PyTorch writes, and the book's."""

import io
import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from tests.small_torch import module

FILES = sorted((Path(__file__).parents[2] / "docs" / "files").glob("*.pt"))


@pytest.fixture
def ours():
    """The module, which makes tensors of PyTorch here."""
    loaded = module("_load")

    def rebuild(storage, offset, shape, strides, requires_grad):
        if not hasattr(storage, "tensor"):
            kind = getattr(torch, storage.dtype_name)
            storage.tensor = torch.tensor(storage.numbers, dtype=kind)
        return storage.tensor.as_strided(shape, strides, offset).requires_grad_(requires_grad)

    loaded.rebuild = rebuild
    return loaded


def assert_same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        assert found.dtype == wanted.dtype
        assert found.stride() == wanted.stride()
        assert found.requires_grad == wanted.requires_grad
        assert torch.equal(found, wanted)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key, value in wanted.items():
            assert_same(found[key], value)
    elif isinstance(wanted, (list, tuple)):
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    else:
        assert found == wanted


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_books_files_hold_what_pytorch_finds_in_them(ours, file):
    ours.fetch = lambda name: (file.parent / name).read_bytes()
    url = f"https://attention-executed.github.io/files/{file.name}"
    found = ours.load_state_dict_from_url(url, check_hash=True, weights_only=True)
    assert_same(found, torch.load(file, weights_only=True))


def test_every_kind_of_data_is_read(ours, tmp_path):
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
    rows = torch.randn(5, 4) * 30
    value = OrderedDict(
        {str(kind): rows.to(kind) for kind in [*kinds, torch.bool]},
        bytes=torch.arange(9, dtype=torch.uint8),
        empty=torch.zeros(0, 3),
        shared=[rows, rows.T, rows[1:, ::2], rows[2, 2]],
        leaf=torch.ones(2, requires_grad=True),
        plain=[1, 2.5, "word", None, True, (1, "two"), {"a": {}}],
    )
    assert_same(ours.load(saved(value)), value)
    path = tmp_path / "value.pt"
    torch.save(value, path)
    assert_same(ours.load(path), value)


def test_tensors_that_share_numbers_still_share_them(ours):
    rows = torch.zeros(2, 3)
    whole, part = ours.load(saved([rows, rows[1]]))
    part += 1
    assert whole[1].tolist() == [1, 1, 1]


def test_a_wrong_digest_is_refused_as_pytorch_refuses_it(ours):
    ours.fetch = lambda name: b"other bytes"
    with pytest.raises(
        RuntimeError, match=r'invalid hash value \(expected "c9b02ad1", got "[0-9a-f]{64}"'
    ):
        ours.load_state_dict_from_url("https://x/files/bank-c9b02ad1.pt", check_hash=True)


@pytest.mark.parametrize("thing", [os.getcwd, pickle.Unpickler, Path("x")], ids=repr)
def test_a_file_that_would_run_code_is_refused(ours, thing):
    file = saved({"weights": thing})
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        ours.load(file)


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04"])
def test_other_bytes_are_refused(ours, data):
    with pytest.raises(RuntimeError, match=r"no file that torch\.save has written"):
        ours.load(io.BytesIO(data))
