"""What a reader copies, run as they would run it: the last block with everything above it, in a file of its own.

That each block is copied with everything above it, `tests/site/test_pages.py` asks of the pages.
"""

import os
import subprocess
import sys

import pytest

from literate import compare, export
from literate.run import fetched
from tests.pages import ROOT, RUNNING, each

pytestmark = pytest.mark.lab  # it runs the book once more


def full_lines(text):
    """The lines of `text` that are not empty: a page does not show those that an output ends with."""
    return "".join(f"{line}\n" for line in text.split("\n") if line.strip())


@each([page for page in RUNNING if page.name != "README.md"])
def test_what_is_copied_prints_what_the_page_shows(page, tmp_path):
    varies = any(block.output and "varies" in block.output.options for block in page.blocks)
    if varies and not compare.on_reference_platform(ROOT):
        pytest.skip("the page prints what PyTorch promises on the reference platform alone")
    shown = [block.output.text.rstrip("\n") for block in page.blocks if block.output]
    # An error that the page shows does not end what is copied below it.
    (tmp_path / "copied.py").write_text("\n".join(export.pieces(page)), encoding="utf-8")
    environment = os.environ | fetched(ROOT, tmp_path / "torch") | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "copied.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert compare.agree(full_lines("\n".join(shown)), full_lines(done.stdout)), done.stdout
