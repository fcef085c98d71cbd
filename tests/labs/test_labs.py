"""The labs: do they run from nothing, and are they stored as a reader is promised?"""

import re
from collections import Counter

import nbformat
import pytest
from bs4 import BeautifulSoup

from literate.numerals import Numbers, numerals
from literate.prose import stale_in_notebook
from tools import labs

NAMES = (
    "checker",
    "fewer-bits",
    "gpt",
    "heads",
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


@pytest.mark.parametrize("name", NAMES)
def test_lab_is_stored_as_it_was_measured(name):
    assert labs.edited(labs.FOLDER / f"{name}.ipynb") == []


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_lab_quotes_what_its_cells_hold(name):
    assert stale_in_notebook(labs.FOLDER / f"{name}.ipynb") == []


@pytest.fixture(params=NAMES)
def stored(request):
    """One lab as it lies in the repository."""
    return nbformat.read(labs.FOLDER / f"{request.param}.ipynb", as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def drawn(notebook):
    """All HTML that the lab's cells displayed, in one document."""
    return BeautifulSoup(
        "".join(o.data.get("text/html", "") for o in outputs(notebook) if "data" in o),
        "html.parser",
    )


def test_the_labs_are_there():
    assert tuple(sorted(path.stem for path in labs.FOLDER.glob("*.ipynb"))) == NAMES


@pytest.mark.lab
@pytest.mark.parametrize("name", NAMES)
def test_lab_runs_from_a_clean_kernel_at_a_reduced_size(name):
    executed = labs.execute(labs.FOLDER / f"{name}.ipynb", reduced=True)
    assert "size         reduced" in outputs(executed)[0].text
    complaints = [o.text for o in outputs(executed) if o.get("name") == "stderr"]
    assert complaints == []


def test_lab_is_stored_whole_and_in_order(stored):
    assert [cell.execution_count for cell in code_cells(stored)] == list(
        range(1, len(code_cells(stored)) + 1)
    )
    assert [
        o.output_type for o in outputs(stored) if o.output_type not in ("stream", "display_data")
    ] == []
    assert [o.text for o in outputs(stored) if o.get("name") == "stderr"] == []


def test_lab_begins_with_its_title_and_a_question(stored):
    first = stored.cells[0].source
    assert first.startswith(f"# {stored.metadata.title}\n")
    assert "?" in first.split("\n\n")[1]


def test_lab_names_machine_and_date_before_anything_else(stored):
    machine = dict(line.split(maxsplit=1) for line in outputs(stored)[0].text.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", machine["date"])
    assert machine["size"] == "full"
    assert re.search(r"\d cores", machine["processor"])
    assert int(machine["threads"]) > 0
    assert machine["memory"].endswith("GiB")
    assert re.search(r"Python 3\.\d+.*torch \d.*matplotlib \d", machine["versions"])
    assert machine["accelerator"]


def test_labs_share_their_set_up_cells():
    by_place = {}
    for name in NAMES:
        notebook = nbformat.read(labs.FOLDER / f"{name}.ipynb", as_version=4)
        for place, cell in enumerate(
            c for c in notebook.cells if "setup" in c.metadata.get("tags", [])
        ):
            by_place.setdefault(place, []).append(cell.source)
    assert {place: len(sources) for place, sources in by_place.items()} == {
        0: len(NAMES),
        1: len(NAMES),
    }
    assert all(len(set(sources)) == 1 for sources in by_place.values())


def test_figure_has_a_caption_and_a_text_alternative(stored):
    figures = drawn(stored).select("figure.lab-figure")
    assert figures
    for figure in figures:
        assert figure.svg["role"] == "img"
        assert len(figure.svg["aria-label"]) > 40
        assert len(figure.figcaption.get_text()) > 40


def test_figure_has_numbers_on_its_axes_as_plain_text(stored):
    for figure in drawn(stored).select("figure.lab-figure"):
        written = [text.get_text() for text in figure.select("svg text")]
        assert len([text for text in written if re.fullmatch(r"[\d.,]+", text)]) >= 3
        assert not figure.select("tspan")


def test_figure_follows_the_colour_scheme_and_styles_nothing_else(stored):
    for figure in drawn(stored).select("figure.lab-figure"):
        text = str(figure).lower()
        assert "currentcolor" in text
        assert not re.search(r"#000000|#ffffff|fill: black|<style|font-family", text)


def test_figure_ids_are_unique_in_the_lab(stored):
    ids = Counter(element["id"] for element in drawn(stored).select("[id]"))
    assert [name for name, count in ids.items() if count > 1] == []


def test_table_has_a_caption_and_scoped_headers(stored):
    for table in drawn(stored).select("table.lab-table"):
        assert table.caption.get_text()
        assert {th.get("scope") for th in table.select("thead th")} == {"col"}
        assert all(th.get_text() for th in table.select("th"))
        assert all(row.th["scope"] == "row" for row in table.select("tbody tr"))


def test_display_has_a_plain_text_for_readers_without_html(stored):
    plain = [o.data["text/plain"] for o in outputs(stored) if "data" in o]
    assert plain
    assert not [text for text in plain if text.startswith("<")]


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


@pytest.fixture
def finding(stored):
    """What the lab found: the text of the one cell that says so."""
    (cell,) = tagged(stored, "finding")
    return cell.source


def test_no_measurement_is_typed_by_hand_but_in_the_finding(stored, finding):
    paragraphs = [
        p
        for cell in stored.cells
        if cell.cell_type == "markdown" and cell.source != finding
        for p in cell.source.split("\n\n")
    ]
    assert [p for p in paragraphs if QUANTITY.search(p) and "target" not in p] == []


def test_the_finding_quotes_numbers_and_each_is_one_that_the_lab_printed(stored, finding):
    texts = [o.get("text") or o.data["text/plain"] for o in outputs(stored)]
    printed, quoted = Numbers(texts), list(numerals(finding))
    assert len(quoted) >= 3
    assert [one.text for one in quoted if not printed.hold(one)] == []


def test_the_finding_is_short_and_follows_the_question(stored, finding):
    assert stored.cells[1].source == finding
    assert len(finding.split()) <= 65


def test_the_page_of_the_labs_says_of_each_what_it_found(stored, finding):
    index = (labs.FOLDER / "index.md").read_text(encoding="utf-8")
    (row,) = [
        line for line in index.splitlines() if line.startswith(f"| [{stored.metadata.title}]")
    ]
    said = row.split("|")[2]
    known = Numbers([finding])
    assert [one.text for one in numerals(said) if not known.hold(one)] == []
    assert any(numerals(said))


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in ("checker", "gpt", "steps")]
)
def test_equality_is_proven_before_anything_is_timed_or_trained(name):
    sources = [
        c.source for c in code_cells(nbformat.read(labs.FOLDER / f"{name}.ipynb", as_version=4))
    ][2:]
    proof = next(
        place
        for place, source in enumerate(sources)
        if re.search(r"^\s*(assert gap|torch\.testing\.)", source, re.M)
    )
    clock = next(
        place
        for place, source in enumerate(sources)
        if re.search(r"Timer\($|Timer\(\S|optimizer\.step|process_time\(", source, re.M)
    )
    assert proof < clock


def test_lab_stays_small(stored):
    shown = "".join(cell.source for cell in stored.cells)
    shown += "".join(o.get("text", "") or o.data.get("text/html", "") for o in outputs(stored))
    assert len(shown.encode()) < PAGE_LIMIT
