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
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", str(size), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_one_device_and_pytorchs_own_ring_and_sends_the_bytes_of_the_formula(tmp_path):
    size = 4
    torchrun(size, "-m", "tests.peers.on_a_ring", str(tmp_path))
    for rank in range(size):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for is_causal in (True, False):
            assert max(found[f"PyTorch causal={is_causal}"].values()) < 1e-5
            for kv_heads in (HEADS, KV_HEADS):
                case = found[f"causal={is_causal} kv_heads={kv_heads}"]
                assert max(case["output"], case["gradients"]) < 1e-10
                block = 8 * BATCH * kv_heads * T // size * HEAD_DIM  # bytes of a device's keys
                assert case["forward"] == 2 * (size - 1) * block
                assert case["backward"] == 2 * (size - 1) * block + 2 * size * block
        # Where this fails, the chapter can compare with it directly, and its sentence must go.
        assert "does not have a sharding strategy registered" in found["public"]
        case = found["beside"]  # two rings of two, which do not disturb each other
        assert max(case["output"], case["gradients"]) < 1e-10
        assert case["forward"] == 8 * BATCH * HEADS * T * HEAD_DIM


@pytest.mark.parametrize("size", [2, 4])
def test_the_program_of_the_chapter_prints_what_the_chapter_shows(size, tmp_path):
    page = (ROOT / "docs/kernels/many-devices.md").read_text(encoding="utf-8")
    program = page.partition('```text title="check_ring.py"\n')[2].partition("```\n")[0]
    shown = page.partition("```console\n")[2].partition("```\n")[0]
    (tmp_path / "check_ring.py").write_text(program, encoding="utf-8")
    printed = torchrun(size, "check_ring.py", folder=tmp_path, path=ROOT / "snippets")
    assert printed
    assert f"$ torchrun --nproc-per-node {size} check_ring.py\n{printed}" in shown
