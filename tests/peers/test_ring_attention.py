"""The ring on real processes, with gloo: equal to one device and to PyTorch's own ring."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.on_a_ring import BATCH, HEAD_DIM, HEADS, KV_HEADS, T

ROOT = Path(__file__).resolve().parents[2]


def torchrun(size, *arguments, folder=ROOT, path=ROOT):
    """Run a command by so many processes; whatever does not end by itself is ended."""
    told = os.environ | {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*command, "--nproc-per-node", str(size), *arguments],
        cwd=folder,
        env=told,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    """How many processes there were, and what each of them found."""
    size, folder = request.param, tmp_path_factory.mktemp("ring")
    done = torchrun(size, "-m", "tests.peers.on_a_ring", str(folder))
    assert done.returncode == 0, done.stderr
    return size, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


def cases(found, start):
    return [(name, case) for rank in found for name, case in rank.items() if name.startswith(start)]


def test_outputs_and_gradients_are_those_of_one_device(found):
    size, ranks = found
    assert len(cases(ranks, "causal=")) == 4 * size
    for name, case in cases(ranks, "causal="):
        assert max(case["output"], case["gradients"]) < 1e-10, name


def test_the_bytes_that_were_sent_are_those_of_the_formula(found):
    size, ranks = found
    for name, case in cases(ranks, "causal="):
        kv_heads = KV_HEADS if f"kv_heads={KV_HEADS}" in name else HEADS
        block = 8 * BATCH * kv_heads * T // size * HEAD_DIM  # bytes of the keys of one device
        assert case["forward"] == 2 * (size - 1) * block, name
        assert case["backward"] == 2 * (size - 1) * block + 2 * size * block, name


def test_two_rings_do_not_disturb_each_other(found):
    size, ranks = found
    assert len(cases(ranks, "beside")) == (4 if size == 4 else 0)
    for _, case in cases(ranks, "beside"):
        assert max(case["output"], case["gradients"]) < 1e-10
        assert case["forward"] == 8 * BATCH * HEADS * T * HEAD_DIM  # half of the keys and values


def test_pytorchs_own_ring_gives_the_same(found):
    size, ranks = found
    assert len(cases(ranks, "theirs")) == 2 * size
    for name, case in cases(ranks, "theirs"):
        assert max(case["output"], case["gradients"]) < 1e-5, name


def test_pytorchs_context_parallel_still_refuses_a_processor(found):
    """When this fails, the chapter can compare with it directly, and its sentence must go."""
    for rank in found[1]:
        assert "does not have a sharding strategy registered" in rank["public"]


@pytest.mark.parametrize("size", [2, 4])
def test_the_program_of_the_chapter_prints_what_the_chapter_shows(size, tmp_path):
    page = (ROOT / "docs/production/many-devices.md").read_text(encoding="utf-8")
    program = page.partition('```text title="check_ring.py"\n')[2].partition("```\n")[0]
    shown = page.partition("```console\n")[2].partition("```\n")[0]
    command = f"$ torchrun --nproc-per-node {size} check_ring.py\n"
    (tmp_path / "check_ring.py").write_text(program, encoding="utf-8")
    done = torchrun(size, "check_ring.py", folder=tmp_path, path=ROOT / "snippets")
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert command + done.stdout in shown
