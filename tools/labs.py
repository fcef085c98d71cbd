"""Executes the labs: notebooks whose measurements are stored with the machine that made them.

    python -m tools.labs                    every lab, executed and stored
    python -m tools.labs nine-ways heads    these labs
    python -m tools.labs --reduced          small sizes; nothing is stored
    python -m tools.labs --seal             the stored outputs as they are, with new digests

A lab runs from a clean kernel in an empty folder. It reads two environment variables: `LAB_REDUCED=1` asks for small
sizes, `LAB_DEVICE` names the device. Where an accelerator is at hand, a lab whose metadata say that it can use one is
executed a second time, and each cell then shows both sets of outputs. A stored notebook carries a digest of each code
cell and of its outputs, so an edit by hand is seen; after one that changes nothing, such as a new layout, seal it.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "labs"
CELL_SECONDS = 1800


class LabError(Exception):
    """A lab did not run to its end: says which lab, which cell, and what happened."""


def execute(path: Path, *, reduced: bool = False, device: str = "cpu") -> NotebookNode:
    """Run the notebook at `path` in a new kernel and return it with its outputs; the file stays as it is.

    Raises LabError where a cell raised, ran out of time or ended the kernel.
    """
    notebook, running = nbformat.read(path, as_version=4), [0]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    environment |= {"LAB_REDUCED": "1", "OMP_NUM_THREADS": "1"} if reduced else {}
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_SECONDS,
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],  # the kernel warns of its ports at every start
            resources={"metadata": {"path": folder}},
            on_cell_execute=lambda cell_index, **_: running.append(cell_index),
        )
        try:
            client.execute(
                env=environment | {"LAB_DEVICE": device, "IPYTHONDIR": f"{folder}/.ipython"}
            )
        except (CellExecutionError, RuntimeError, TimeoutError) as error:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
            raise LabError(f"{path.name}: {_where(notebook, running[-1])}: {plain}") from error
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def _where(notebook: NotebookNode, index: int) -> str:
    """A cell as people find it: its number, from 1, and its first line."""
    first_line = notebook.cells[index].source.strip().partition("\n")[0]
    return f"cell {index + 1} ({first_line[:60]})"


def merge(first: NotebookNode, second: NotebookNode, device: str) -> NotebookNode:
    """Put the outputs of `second` below those of `first`, cell by cell, under the device's name."""
    for cell, other in zip(first.cells, second.cells, strict=True):
        if cell.cell_type == "code" and other.outputs:
            html = f"<p><strong>On {device}</strong></p>"  # a page shows HTML, and no Markdown
            heading = {"text/html": html, "text/plain": f"On {device}"}
            cell.outputs += [nbformat.v4.new_output("display_data", data=heading), *other.outputs]
    return first


def second_device(notebook: NotebookNode) -> tuple[str, str] | None:
    """The accelerator that this lab can be run on too: its torch name and its full name."""
    import torch  # imported late: `--help` needs no torch

    if (
        not notebook.metadata.get("lab", {}).get("accelerator")
        or not torch.accelerator.is_available()
    ):
        return None
    kind = torch.accelerator.current_accelerator().type
    known = getattr(torch, kind, None)
    return kind, known.get_device_name() if hasattr(known, "get_device_name") else kind


def digests(notebook: NotebookNode) -> list[str]:
    """A digest of each code cell: its source and its outputs."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    texts = (json.dumps([cell.source, cell.outputs], sort_keys=True) for cell in cells)
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
    """Seal `notebook` with its digests and write it to `path`."""
    notebook.metadata["digests"] = digests(notebook)
    path.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")


def measure(path: Path, *, reduced: bool) -> None:
    """Execute the lab at `path` on every device that it can use, and store it unless it is reduced."""
    notebook = execute(path, reduced=reduced)
    if accelerator := second_device(notebook):
        device, name = accelerator
        notebook = merge(notebook, execute(path, reduced=reduced, device=device), name)
    if not reduced:
        store(notebook, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 when every lab ran to its end, 1 when one did not, 2 on a wrong name."""
    known = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser = argparse.ArgumentParser(
        prog="python -m tools.labs", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help=f"some of {', '.join(known)}; all by default"
    )
    parser.add_argument("--reduced", action="store_true", help="run small sizes and store nothing")
    parser.add_argument("--seal", action="store_true", help="run nothing; write the digests anew")
    options = parser.parse_args(arguments)
    if unknown := set(options.labs) - set(known):
        parser.error(
            f"no lab is named {', '.join(sorted(unknown))}; the labs are {', '.join(known)}"
        )
    for path in [FOLDER / f"{name}.ipynb" for name in options.labs or known]:
        try:
            if options.seal:
                store(nbformat.read(path, as_version=4), path)
            else:
                print(f"{path.stem} …", flush=True)
                measure(path, reduced=options.reduced)
        except LabError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
