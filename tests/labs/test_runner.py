"""The runner of the labs: what it stores, what it refuses, and what it says."""

from itertools import count

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book.lab import _outputs
from tools import labs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of labs."""
    monkeypatch.setattr(labs, "FOLDER", tmp_path)
    return tmp_path


def write(folder, name, *sources):
    path = folder / f"{name}.ipynb"
    cells = [new_markdown_cell(f"# {name}"), *map(new_code_cell, sources)]
    nbformat.write(new_notebook(cells=cells, metadata={"title": name}), path)
    return path


def printed(path):
    notebook = nbformat.read(path, as_version=4)
    return [o.get("text") for cell in notebook.cells for o in cell.get("outputs", [])]


def test_a_lab_is_executed_in_order_in_an_empty_folder_at_full_size_and_stored(folder, monkeypatch):
    monkeypatch.setenv("LAB_REDUCED", "1")  # left in the environment
    seen = "import os\nprint([n for n in os.listdir() if n[0] != '.'], 'LAB_REDUCED' in os.environ)"
    path = write(folder, "one", "x = 20", "print(x + 1)", seen)
    assert labs.main(["one"]) == 0
    assert printed(path) == ["21\n", "[] False\n"]
    assert list(folder.iterdir()) == [path]


def test_a_reduced_run_tells_the_cells_and_stores_nothing(folder):
    path = write(folder, "one", "import os\nassert os.environ['LAB_REDUCED'] == '1'")
    before = path.read_bytes()
    assert labs.main(["one", "--reduced"]) == 0
    assert path.read_bytes() == before


def test_a_failing_lab_keeps_its_old_outputs_and_names_its_cell(folder, capsys):
    path = write(folder, "one", "x = 1", "print(x / 1)", "print('then')")
    assert labs.main(["one"]) == 0
    path.write_text(path.read_text().replace("x / 1", "x / 0"))
    before = path.read_bytes()
    assert labs.main(["one"]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert "one.ipynb: cell 3 (print(x / 0))" in said
    assert "ZeroDivisionError" in said


def test_a_wrong_name_is_refused_with_the_right_ones(folder, capsys):
    write(folder, "one", "1")
    with pytest.raises(SystemExit) as stopped:
        labs.main(["two"])
    assert stopped.value.code == 2
    assert "no lab is named two; the labs are one" in capsys.readouterr().err


def test_an_edited_cell_is_named(folder):
    path = write(folder, "one", "x = 20", "print(x + 1)")
    assert labs.main(["one"]) == 0
    assert labs.edited(path) == []
    whole = path.read_text()
    for old, new, cell in (
        ("x = 20", "x = 30", "cell 2 (x = 30)"),
        ("x + 1", "x + 2", "cell 3 (print(x + 2))"),
        ('"21', '"22', "cell 3 (print(x + 1))"),
    ):
        path.write_text(whole.replace(old, new))
        named = f"one.ipynb: {cell}: edited since it was stored; run `make labs`"
        assert labs.edited(path) == [named]


def test_a_deleted_cell_is_noticed_and_so_is_a_lab_that_was_never_stored(folder):
    path = write(folder, "one", "x = 20", "y = 30")
    assert labs.edited(path) == ["one.ipynb: 2 code cells, 0 were stored; run `make labs`"]
    labs.main(["--seal"])
    notebook = nbformat.read(path, as_version=4)
    del notebook.cells[2]
    nbformat.write(notebook, path)
    assert labs.edited(path) == ["one.ipynb: 1 code cells, 2 were stored; run `make labs`"]


def test_text_may_be_edited_without_measuring_again(folder):
    path = write(folder, "one", "x = 20")
    labs.main(["--seal"])
    path.write_text(path.read_text().replace("# one", "# two"))
    assert labs.edited(path) == []


def test_sealing_runs_nothing_and_keeps_the_outputs(folder):
    path = write(folder, "one", "print(1 / 0)")
    assert labs.main(["one", "--seal"]) == 0
    assert (labs.edited(path), printed(path)) == ([], [])


def executed(text):
    cell = new_code_cell("print(device)", outputs=[new_output("stream", name="stdout", text=text)])
    return new_notebook(cells=[new_markdown_cell("# One"), cell, new_code_cell("x = 1")])


def test_a_second_device_stands_below_the_first_under_its_own_name():
    merged = labs.merge(executed("first"), executed("second"), "Some Device 100")
    assert [o.get("text") or o.data["text/plain"] for o in merged.cells[1].outputs] == [
        "first",
        "On Some Device 100",
        "second",
    ]
    assert "<strong>On Some Device 100" in "".join(_outputs(merged.cells[1].outputs, count()))
    assert merged.cells[2].outputs == []


def test_only_a_lab_that_can_use_an_accelerator_is_run_on_one(folder, monkeypatch):
    import torch

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    notebook = nbformat.read(write(folder, "one", "1"), as_version=4)
    assert labs.second_device(notebook) is None
    notebook.metadata["lab"] = {"accelerator": True}
    assert labs.second_device(notebook) == ("mps", "mps")
