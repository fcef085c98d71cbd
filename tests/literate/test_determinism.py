"""The unchanged book passes on any processor, with any thread count, in any page order."""

import os
import random
import re
import subprocess
import sys

import pytest
import torch

from literate.page import pages, shown
from tools.mutants import ROOT

SETTINGS = {
    "no vector instructions, one thread, random order": ("default", "1", ()),
    "AVX2, two threads, random order": ("avx2", "2", ()),
    "AVX-512, on two workers": ("avx512", "1", ("-n", "2")),
}
NEEDS = {"default": "", "avx2": "AVX2", "avx512": "AVX512"}


@pytest.mark.parametrize(("capability", "threads", "options"), SETTINGS.values(), ids=SETTINGS)
def test_the_unchanged_book_passes(capability, threads, options):
    if capability == "avx512" and torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        pytest.skip("this processor has no AVX-512")
    if capability == "avx2" and torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this processor has no AVX2")
    book = [shown(path, ROOT) for path in pages(ROOT)]
    seed = random.randrange(10**6)
    random.Random(seed).shuffle(book)
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *book],
        cwd=ROOT,
        env=environment | {"ATEN_CPU_CAPABILITY": capability, "LITERATE_THREADS": threads},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
    assert re.search(r"[1-9]\d* passed", done.stdout)


@pytest.mark.parametrize("capability", NEEDS)
def test_the_setting_reaches_torch(capability):
    """So that the runs above are three different runs."""
    if (
        NEEDS[capability] not in (own := torch.backends.cpu.get_cpu_capability())
        and own != "AVX512"
    ):
        pytest.skip(f"this processor has no {NEEDS[capability]}")
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ATEN_CPU_CAPABILITY": capability},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (NEEDS[capability] or "DEFAULT")
