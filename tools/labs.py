"""Executes the labs: notebooks whose measurements are stored with the machine that made them.

    python -m tools.labs                    every lab, executed and stored
    python -m tools.labs nine-ways heads    these labs
    python -m tools.labs --reduced          small sizes; nothing is stored
    python -m tools.labs --seal             the stored outputs as they are, with new digests

A lab runs from a clean kernel in an empty folder, so it can lean on nothing but its own cells and
the installed packages. It reads two environment variables: `LAB_REDUCED=1` asks for small sizes,
`LAB_DEVICE` names the device. Where an accelerator is at hand, a lab that can use one is executed a
second time, and each cell then shows both sets of outputs. A stored notebook carries a digest of what
each code cell does and of its outputs, so an edit by hand is seen, and a new layout is none.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from tqdm import tqdm

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "labs"
CELL_SECONDS = 1800
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class LabError(Exception):
    """A lab did not run to its end: says which lab, which cell, and what happened."""


def names() -> list[str]:
    """Names of the labs, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def execute(
    path: Path,
    *,
    reduced: bool = False,
    device: str = "cpu",
    on_cell: Callable[[], object] = lambda: None,
) -> NotebookNode:
    """Run the cells of the notebook at `path` in a new kernel and return it with their outputs.

    Args:
        path: the notebook; the file itself is left as it is.
        reduced: ask the lab for small sizes.
        device: name of a torch device, for the labs that can choose.
        on_cell: called after each cell that ran.

    Raises:
        LabError: a cell raised, ran out of time or ended the kernel, or no kernel would start.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    begun = [0]  # the cell that is running, to name it should it be the last
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_SECONDS,
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],  # the kernel warns of its ports at every start
            resources={"metadata": {"path": folder}},
            on_cell_execute=lambda cell_index, **_: begun.append(cell_index),
            on_cell_executed=lambda **_: on_cell(),
        )
        try:
            client.execute(env=_environment(reduced, device, folder))
        except (CellExecutionError, RuntimeError, TimeoutError) as error:
            plain = COLOURS.sub("", str(error))
            raise LabError(f"{path.name}: {_where(notebook, begun[-1])}: {plain}") from error
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def _environment(reduced: bool, device: str, folder: str) -> dict[str, str]:
    """The environment of the kernel: this one, without what would make two runs differ."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    # Small sizes gain nothing from a second thread, and beside other tests they lose by it.
    added = {"LAB_REDUCED": "1", "OMP_NUM_THREADS": "1"} if reduced else {}
    # A profile of the reader's own may run code at start-up; a lab starts from nothing.
    return kept | added | {"LAB_DEVICE": device, "IPYTHONDIR": str(Path(folder, ".ipython"))}


def _where(notebook: NotebookNode, index: int) -> str:
    """A cell as people find it: its number, from 1, and its first line."""
    first_line = next(
        (line for line in notebook.cells[index].source.splitlines() if line.strip()), ""
    )
    return f"cell {index + 1} ({first_line.strip()[:60]})"


def merge(first: NotebookNode, second: NotebookNode, device: str) -> NotebookNode:
    """Put the outputs of `second` below those of `first`, cell by cell, under the device's name.

    Both hold the same cells, executed on different devices. The cells of the result are those of
    `first`, so a lab with two sets of outputs is still one page and one notebook.
    """
    merged = copy.deepcopy(first)
    for cell, other in zip(merged.cells, second.cells, strict=True):
        if cell.source != other.source:
            raise ValueError(
                f"both notebooks must hold the same cells, got {cell.source!r} and {other.source!r}"
            )
        if cell.cell_type == "code" and other.outputs:
            heading = {"text/markdown": f"**On {device}**", "text/plain": f"On {device}"}
            cell.outputs += [nbformat.v4.new_output("display_data", data=heading), *other.outputs]
    return merged


def second_device(path: Path) -> tuple[str, str] | None:
    """The accelerator that the lab at `path` can be run on too: its torch name and its full name."""
    if not nbformat.read(path, as_version=4).metadata.get("lab", {}).get("accelerator"):
        return None
    import torch  # imported late: `--help` and the list of labs need no torch

    if not torch.accelerator.is_available():
        return None
    kind = torch.accelerator.current_accelerator().type
    known = getattr(torch, kind, None)
    return kind, known.get_device_name() if hasattr(known, "get_device_name") else kind


def _meaning(part: object) -> object:
    """A part of a syntax tree as lists that JSON holds, on every Python the same.

    Two layouts of one program mean the same: places, comments and brackets do not count, nor where
    the lines of a text that stands alone, as a docstring does, are broken.
    """
    match part:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text.split()
        case ast.AST():
            fields = {name: _meaning(value) for name, value in ast.iter_fields(part)}
            # Pythons differ in which fields they leave out where nothing is in them.
            return [type(part).__name__, {k: v for k, v in fields.items() if v not in (None, [])}]
        case list():
            return [_meaning(item) for item in part]
    return None if part is None else ascii(part)


def _read(source: str) -> object:
    """What the code of a cell means; where Python alone cannot read it, its very letters."""
    try:
        return _meaning(ast.parse(source))
    except SyntaxError:
        return source


def digests(notebook: NotebookNode) -> list[str]:
    """A digest of each code cell: what its source means, and its outputs."""
    texts = [
        json.dumps([_read(cell.source), cell.outputs], sort_keys=True)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def edited(path: Path) -> list[str]:
    """Complaints about the lab at `path`: the code cells that are not as they were when stored."""
    notebook = nbformat.read(path, as_version=4)
    stored, found = notebook.metadata.get("digests", []), digests(notebook)
    if len(stored) != len(found):
        return [f"{path.name}: {len(found)} code cells, {len(stored)} were stored; run `make labs`"]
    places = [place for place, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    return [
        f"{path.name}: {_where(notebook, place)}: edited since it was stored; run `make labs`"
        for place, old, new in zip(places, stored, found, strict=True)
        if old != new
    ]


def store(notebook: NotebookNode, path: Path) -> None:
    """Seal `notebook` with its digests and write it to `path`, the old one or the new at any moment."""
    notebook.metadata["digests"] = digests(notebook)
    text = nbformat.writes(notebook, version=4)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
    ) as file:
        file.write(text + "\n")
    os.chmod(file.name, path.stat().st_mode)
    os.replace(file.name, path)


def measure(name: str, *, reduced: bool) -> None:
    """Execute the lab `name` on every device it can use, with a progress bar, and store it."""
    path = FOLDER / f"{name}.ipynb"
    devices = [("cpu", "the processor")]
    accelerator = second_device(path)
    if accelerator:
        devices.append(accelerator)
    cells = nbformat.read(path, as_version=4).cells
    count = sum(cell.cell_type == "code" for cell in cells) * len(devices)
    executed = []
    with tqdm(total=count, desc=name, unit="cell") as bar:
        for device, _ in devices:
            executed.append(execute(path, reduced=reduced, device=device, on_cell=bar.update))
    notebook = executed[0] if len(executed) == 1 else merge(*executed, device=accelerator[1])
    if not reduced:
        store(notebook, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 when every lab ran to its end, 1 when one did not, 2 on a wrong name."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.labs", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help="names of labs; all of them by default"
    )
    parser.add_argument("--reduced", action="store_true", help="run small sizes and store nothing")
    parser.add_argument("--seal", action="store_true", help="run nothing; write the digests anew")
    options = parser.parse_args(arguments)
    unknown = set(options.labs) - set(names())
    if unknown:
        parser.error(
            f"no lab is named {', '.join(sorted(unknown))}; the labs are {', '.join(names())}"
        )
    for name in options.labs or names():
        if options.seal:
            path = FOLDER / f"{name}.ipynb"
            store(nbformat.read(path, as_version=4), path)
            continue
        try:
            measure(name, reduced=options.reduced)
        except LabError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
