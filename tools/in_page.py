"""Find which blocks of each page run in a reader's browser, and write it down for the site.

    python -m tools.in_page [docs/positions/masks.md ...]

Each page runs in the small torch, under Node, and every output is held against what the page shows. A block that asks
for something that the small torch lacks does not run, nor does a block that needs what that one makes; why not is
written into `small_torch/runs.json`: {page: {number of the block: why}}, of a page that has such blocks. Any other
difference is an error.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from literate import compare
from literate.page import Block, Page, pages, read

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "small_torch"
RECORD = SMALL / "runs.json"
PYODIDE = ROOT / "docs/assets/vendor/pyodide"
NEEDS = "needs what a block above makes, which does not run here"


class Node:
    """A process of Node in which pages run, one after the other."""

    @cached_property
    def process(self) -> subprocess.Popen:
        command = ["node", SMALL / "run_pages.mjs", PYODIDE, ROOT / "docs/files"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, page: Page, steps: Iterable[Block]) -> list[dict[str, Any]]:
        """Run `steps` of a page, in a torch of their own; return what each did."""
        return self._asked(page, steps, again=False)["results"]

    def run_again(self, page: Page, steps: Iterable[Block]) -> tuple[list[Any], list[Any]]:
        """Run `steps`, and then each once more from the moment before it; return what they did, both times."""
        said = self._asked(page, steps, again=True)
        return said["results"], said["again"]

    def _asked(self, page: Page, steps: Iterable[Block], again: bool) -> dict[str, Any]:
        blocks = [{"code": step.code, "start": step.start} for step in steps]
        asked = {"path": page.name, "source": page.source, "blocks": blocks, "again": again}
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{page.name}: Node ended with status {self.process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        if "process" in vars(self):
            self.process.kill()
            self.process.communicate()


def found(page: Page, node: Node) -> tuple[dict[int, str], list[str]]:
    """Return which steps of a page do not run here, and why not; and what else differs from the page, as reports.

    The page runs again without them, until all that is left runs: a reader's page leaves them out, too.
    """
    steps = page.steps
    needs = {at: step.fence.options.get("needs") for at, step in enumerate(steps)}
    unrun = {at: f"{needed} does not run in a browser" for at, needed in needs.items() if needed}
    while True:
        kept = [at for at in range(len(steps)) if at not in unrun]
        results = node.run(page, [steps[at] for at in kept])
        failed = {
            at: failure(page, steps[at], said) for at, said in zip(kept, results, strict=True)
        }
        lacks = {at: said["lacks"] for at, said in zip(kept, results, strict=True) if said["lacks"]}
        if not lacks:
            lacks = {at: NEEDS for at in _robbed(steps, unrun) if failed.get(at)}
        if not lacks:
            return dict(sorted(unrun.items())), [report for report in failed.values() if report]
        unrun |= lacks


def failure(page: Page, step: Block, said: dict[str, Any]) -> str:
    """Say how what a block did differs from what the page shows; "" where it does not."""
    result: Any = SimpleNamespace(**said, unshown=0, line=step.line)
    if step.fill and not said["raised"]:
        result.printed = step.fill(step.fence.text, json.loads(result.printed))
    failed = compare.check(page, step, result)
    excused = step.output and "varies" in step.output.options and not said["raised"]
    return failed.report if failed and not excused else ""


def _robbed(steps: list[Block], unrun: dict[int, str]) -> Iterator[int]:
    """Return the steps that use a name which a step that does not run makes, by themselves or in what they call."""
    gone, there = set[str](), set[str]()
    for at, step in enumerate(steps):
        makes, uses, imports = _names(step.code)
        if at in unrun or uses & gone:
            gone |= makes - (imports & there)
        else:
            gone -= makes
        if at not in unrun:
            there |= makes
            if uses & gone:
                yield at


def _names(code: str) -> tuple[set[str], set[str], set[str]]:
    """Return the names that a block makes or changes, those that it uses, and those that it imports."""
    makes, uses, imports = set[str](), set[str](), set[str]()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (uses if isinstance(node.ctx, ast.Load) else makes).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            makes.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports |= {(name.asname or name.name).partition(".")[0] for name in node.names}
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            makes |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return makes | imports, uses, imports


def unrun_blocks(page: Page, unrun: dict[int, str]) -> dict[str, str]:
    """Return the same by the number of a block among those that the page shows as code."""
    numbers = {id(block): number for number, block in enumerate(page.blocks)}
    steps = page.steps
    return {
        str(numbers[id(steps[at])]): why for at, why in unrun.items() if id(steps[at]) in numbers
    }


def all_pages() -> Iterator[Page]:
    """Return the pages of the book that have code."""
    return (page for page in map(read, pages(ROOT)) if page.blocks)


def recorded() -> dict[str, dict[str, str]]:
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def main(names: list[str]) -> int:
    node, record, wrong = Node(), recorded(), 0
    chosen = [read(ROOT / name) for name in names] or [*all_pages()]
    for page in chosen:
        unrun, reports = found(page, node)
        record[page.key] = unrun_blocks(page, unrun)
        print(f"{page.name}: {len(page.blocks) - len(record[page.key])} of {len(page.blocks)}")
        for report in reports:
            print(report)
        wrong += len(reports)
    node.close()
    there = {page.key for page in all_pages()}
    kept = {name: record[name] for name in sorted(record) if record[name] and name in there}
    RECORD.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
