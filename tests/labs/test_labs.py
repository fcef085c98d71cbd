"""The labs: do they run from nothing, and are they stored as a reader is promised?"""

import re
from collections import Counter

import nbformat
import pytest
from bs4 import BeautifulSoup

from book.numerals import Numbers, numerals
from book.prose import stale_in_notebook
from literate.page import text_at
from tools import labs

NAMES = (
    "bound",
    "checker",
    "fewer-bits",
    "gpt",
    "guesses",
    "heads",
    "kernel",
    "load",
    "nine-ways",
    "scaling",
    "serving",
    "sinks",
    "steps",
    "time-and-memory",
    "translator",
    "waiting",
)
QUANTITY = re.compile(r"\d\s?(?:ms|milliseconds?|s|seconds?|minutes?|[KMG]iB|[KMG]B|%)(?![\w])")
PAGE_LIMIT = 120_000  # bytes of what a lab says and shows


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def stored(name):
    """One lab as it lies in the repository."""
    return nbformat.read(labs.FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def drawn(notebook):
    """All HTML that the lab's cells displayed, in one document."""
    html = [o.data.get("text/html", "") for o in outputs(notebook) if "data" in o]
    return BeautifulSoup("".join(html), "html.parser")


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def test_the_labs_are_there_and_share_their_set_up_cells():
    assert tuple(sorted(path.stem for path in labs.FOLDER.glob("*.ipynb"))) == NAMES
    every = [nbformat.read(labs.FOLDER / f"{name}.ipynb", as_version=4) for name in NAMES]
    set_up = {tuple(cell.source for cell in tagged(notebook, "setup")) for notebook in every}
    assert [len(cells) for cells in set_up] == [2]


def test_a_lab_is_stored_as_it_was_measured_and_its_text_quotes_what_its_cells_hold(name):
    assert labs.edited(labs.FOLDER / f"{name}.ipynb") == []
    assert stale_in_notebook(labs.FOLDER / f"{name}.ipynb", text_at) == []


@pytest.mark.lab
def test_a_lab_runs_from_a_clean_kernel_at_a_reduced_size(name):
    if name == "kernel":
        pytest.importorskip("triton")
    executed = labs.execute(labs.FOLDER / f"{name}.ipynb", reduced=True)
    assert "size         reduced" in outputs(executed)[0].text
    assert [o.text for o in outputs(executed) if o.get("name") == "stderr"] == []


def test_a_lab_is_stored_whole_in_order_without_complaints_and_small(stored):
    numbers = [cell.execution_count for cell in code_cells(stored)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {o.output_type for o in outputs(stored)} <= {"stream", "display_data"}
    assert [o.text for o in outputs(stored) if o.get("name") == "stderr"] == []
    plain = [o.data["text/plain"] for o in outputs(stored) if "data" in o]
    assert plain
    assert not [text for text in plain if text.startswith("<")]  # for readers without HTML
    shown = "".join(cell.source for cell in stored.cells)
    shown += "".join(o.get("text", "") or o.data.get("text/html", "") for o in outputs(stored))
    assert len(shown.encode()) < PAGE_LIMIT


def test_a_lab_begins_with_a_question_its_finding_and_then_the_machine_and_the_date(stored):
    first, second = (cell.source for cell in stored.cells[:2])
    assert first.startswith(f"# {stored.metadata.title}\n")
    assert "?" in first.split("\n\n")[1]
    assert [second] == [cell.source for cell in tagged(stored, "finding")]
    assert len(second.split()) <= 65
    machine = dict(line.split(maxsplit=1) for line in outputs(stored)[0].text.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", machine["date"])
    assert machine["size"] == "full"
    assert re.search(r"\d cores", machine["processor"])
    assert int(machine["threads"]) > 0
    assert machine["memory"].endswith("GiB")
    assert re.search(r"Python 3\.\d+.*torch \d.*matplotlib \d", machine["versions"])
    assert machine["accelerator"]


def test_a_figure_is_said_in_words_has_numbers_on_its_axes_and_follows_the_colour_scheme(stored):
    figures = drawn(stored).select("figure.lab-figure")
    assert figures
    for figure in figures:
        assert figure.svg["role"] == "img"
        assert len(figure.svg["aria-label"]) > 40
        assert len(figure.figcaption.get_text()) > 40
        written = [text.get_text() for text in figure.select("svg text")]
        assert len([text for text in written if re.fullmatch(r"[\d.,]+", text)]) >= 3
        text = str(figure).lower()
        assert "currentcolor" in text
        assert not re.search(r"#000000|#ffffff|fill: black|<style|font-family|<tspan", text)
    ids = Counter(element["id"] for element in drawn(stored).select("[id]"))
    assert [name for name, count in ids.items() if count > 1] == []


def test_a_table_has_a_caption_and_scoped_headers(stored):
    for table in drawn(stored).select("table.lab-table"):
        assert table.caption.get_text()
        assert {th.get("scope") for th in table.select("thead th")} == {"col"}
        assert all(th.get_text() for th in table.select("th"))
        assert all(row.th["scope"] == "row" for row in table.select("tbody tr"))


def test_what_was_measured_is_said_by_the_finding_alone_in_numbers_that_the_lab_printed(stored):
    (finding,) = (cell.source for cell in tagged(stored, "finding"))
    texts = [cell.source for cell in stored.cells if cell.cell_type == "markdown"]
    paragraphs = [p for text in texts if text != finding for p in text.split("\n\n")]
    assert [p for p in paragraphs if QUANTITY.search(p) and "target" not in p] == []
    printed = Numbers([o.get("text") or o.data["text/plain"] for o in outputs(stored)])
    quoted = list(numerals(finding))
    assert len(quoted) >= 3
    assert [one.text for one in quoted if not printed.hold(one)] == []
    rows = (labs.FOLDER / "index.md").read_text(encoding="utf-8").splitlines()
    (row,) = [row for row in rows if row.startswith(f"| [{stored.metadata.title}]")]
    said, known = list(numerals(row.split("|")[2])), Numbers([finding])
    assert said
    assert [one.text for one in said if not known.hold(one)] == []


PROOF = re.compile(r"^\s*(assert gap|assert max\(gaps|torch\.testing\.)", re.M)
CLOCK = re.compile(r"Timer\($|Timer\(\S|optimizer\.step|process_time\(|began = time", re.M)


def test_equality_is_proven_before_anything_is_timed_or_trained(name, stored):
    if name in ("bound", "checker", "gpt", "steps"):
        return  # they compare nothing
    sources = [cell.source for cell in code_cells(stored)][2:]
    proof, clock = (
        next(place for place, source in enumerate(sources) if pattern.search(source))
        for pattern in (PROOF, CLOCK)
    )
    assert proof <= clock  # a cell may prove the very function that holds the clock
