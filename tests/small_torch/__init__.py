"""The small torch, compared with PyTorch."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "small_torch"
PYODIDE = Path(os.environ.get("PYODIDE", ROOT / "docs" / "assets" / "vendor" / "pyodide"))


def module(name):
    """A module of the small torch that needs nothing of its core, beside the PyTorch of this Python."""
    spec = importlib.util.spec_from_file_location(
        f"small_torch_{name}", FOLDER / "torch" / f"{name}.py"
    )
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def in_page(blocks):
    """Run these blocks as one page in the small torch under Node; return what each printed."""
    if not (PYODIDE / "pyodide.mjs").exists():
        pytest.skip(f"there is no Pyodide in {PYODIDE}")
    page = {"path": "page.md", "source": "", "blocks": [{"code": b, "start": 1} for b in blocks]}
    asked = {"pyodide": str(PYODIDE), "files": str(ROOT / "docs" / "files"), "pages": [page]}
    done = subprocess.run(
        ["node", FOLDER / "run_page.mjs"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    for result in results:
        assert not result["raised"], result["traceback"]
    return [result["printed"] for result in results]
