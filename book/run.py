"""What a page needs to be run in a reader's browser: its program, and the Python that runs and judges it.

The small torch says in `small_torch/runs.json` which blocks of a page it runs. Where a project has no small
torch, its pages offer no Run.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import python_minifier
import rjsmin

from book.figures.explorable import fence as explorable
from book.take_away import CHECK
from literate.page import Block, Page

SMALL_TORCH = "small_torch"
ROOT = Path(__file__).resolve().parents[1]
# What runs and judges a page, beside the small torch; each imports nothing else of ours.
PACKED = (
    "book/__init__.py",
    "book/figures/__init__.py",
    "book/figures/calculator/__init__.py",
    "book/figures/chart/__init__.py",
    "book/figures/gallery/__init__.py",
    "book/figures/heatmap/__init__.py",
    "book/figures/output.py",
    "book/in_page.py",
    "literate/__init__.py",
    "literate/compare.py",
)


# What few pages ask of the small torch, by how a name begins: a page fetches it all when it imports one of it.
LAZY = tuple(
    f"{SMALL_TORCH}/torch/{name}"
    for name in (
        "_complex", "_load", "_rare", "autograd/f", "autograd/gradcheck", "backends", "compiler", "cuda", "hub", "linalg", "nn/_multihead",
        "nn/attention", "nn/utils", "optim", "overrides", "testing", "utils",
    )
)  # fmt: skip
# What makes `import torch` mean the small torch, and what it imports.
ENTRY = ("start.mjs", "moments.mjs", "kernels.js", "random.js")


def known(page: Page) -> dict[str, Any] | None:
    """Return what a template says of running `page`; None where nothing of it runs.

    `code` is a digest of its code, `unrun` lists which blocks do not run in a browser, and why not.
    """
    why = unrun(page)
    if why is None or len(why) == len(page.blocks):
        return None
    return {
        "program": f"{page.path.stem}.run.json",
        "code": hashlib.sha256(page.source.encode()).hexdigest()[:8],
        "blocks": len(page.blocks),
        "runs": len(page.blocks) - len(why),
        "unrun": json.dumps(why, ensure_ascii=False, separators=(",", ":")),
    }


def unrun(page: Page) -> dict[int, str] | None:
    """Return which blocks of `page` do not run in a browser, and why not; None where nothing does."""
    record = page.root / SMALL_TORCH / "runs.json"
    if not page.blocks or not record.exists():
        return None
    return _read(record, record.stat().st_mtime_ns).get(page.key, {})


@lru_cache
def _read(record: Path, _saved: int) -> dict[str, dict[int, str]]:
    pages = json.loads(record.read_text(encoding="utf-8"))
    return {name: {int(at): why for at, why in blocks.items()} for name, blocks in pages.items()}


def program(page: Page, colab: str = "") -> str:
    """Return, as JSON, what a page says of its blocks beside their code, which stands on it.

    `colab` is the address at which Colab opens the page, for what does not run here.
    """
    labels = {step.line: step.code for step in page.steps if step.is_labels}
    blocks: list[dict[str, Any]] = []
    exercise = 0
    for block in page.blocks:
        said: dict[str, Any] = {"start": block.start}
        if block.raises:
            said["raises"] = block.raises
        if block.output:
            said["output"] = _output(block, labels)
        if check := CHECK.search(block.code):
            exercise = int(check[2])
            said["check"] = exercise
        if block.solution:
            said["solution"] = exercise
        if stub := re.search(r"^(?:def |class )?answer_(\d+)\b", block.code, re.MULTILINE):
            said.setdefault("solution" if block.solution else "stub", int(stub[1]))
        blocks.append(said)
    for number, fence in enumerate(f for f in page.fences if f.language == "attention"):
        above = [
            said for said, block in zip(blocks, page.blocks, strict=True) if block.line < fence.line
        ]
        code = explorable.program(fence)
        if above and code:
            figure = {"at": number, "code": code, "places": explorable.places(fence.text)}
            above[-1].setdefault("figures", []).append(figure)
    whole = {"page": page.path.name, "colab": colab, "blocks": blocks}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def _output(block: Block, labels: dict[int, str]) -> dict[str, Any]:
    """Return what the page shows below a block: the text, and how it is drawn."""
    output = block.output
    assert output
    said: dict[str, Any] = {"text": output.text, "options": output.options}
    if code := labels.get(output.line):
        names = [name for name in ("rows", "cols") if output.options.get(name, "").startswith("= ")]
        said["labels"] = {"code": code, "names": names}
    return said


@cache  # a preview writes all of it at each save
def slim(code: str) -> str:
    """Return Python that computes the same in fewer letters: names within functions are short, remarks are gone."""
    return python_minifier.minify(code, hoist_literals=False, remove_literal_statements=True)


def write(root: Path, assets: Path) -> None:
    """Write into the folder `assets` of a site what its pages load to be run; nothing without a small torch."""
    small = root / SMALL_TORCH
    if not (small / "runs.json").exists():
        return
    files = {name: ROOT / name for name in PACKED}
    files |= {path.relative_to(root).as_posix(): path for path in small.glob("**/*.py")}
    texts = {name: slim(files[name].read_text(encoding="utf-8")) for name in sorted(files)}
    later = {name: text for name, text in texts.items() if name.startswith(LAZY)}
    first = {name: text for name, text in texts.items() if name not in later}
    for packet, held in {"run.json": first, "run-later.json": later}.items():
        packed = json.dumps(held, ensure_ascii=False, separators=(",", ":"))
        assets.joinpath(packet).write_text(packed, encoding="utf-8")
    target = assets / SMALL_TORCH
    target.mkdir(exist_ok=True)
    for script in ENTRY:
        text = rjsmin.jsmin((small / script).read_text(encoding="utf-8"))
        (target / script).write_text(text, encoding="utf-8")
