"""A lab is a page in the book's own markup that answers first, made from the cells of its notebook."""

import re
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from book import lab
from literate import site

ROOT = Path(__file__).parents[2]
LABS = sorted(ROOT.glob("docs/labs/*.ipynb"))


@pytest.fixture
def whole(tmp_path):
    """Return, as drawn by the site, the lab that is made from these cells."""

    def draw(*cells):
        path = tmp_path / "heads.ipynb"
        nbformat.write(new_notebook(cells=list(cells)), path)
        return drawn(lab.markdown(path))

    return draw


@pytest.fixture
def clean(whole):
    """Return what a lab that has all it needs makes of these cells, without what it has beside them."""

    def draw(*cells):
        text = str(whole(*SOUND, prose("---"), *cells))
        beside = text.partition("<hr/>\n")[2].rpartition('<figure class="output"')[0]
        return BeautifulSoup(beside.removesuffix("\n"), "html.parser")

    return draw


def drawn(text):
    html = site.markdown(ROOT).convert(text)
    return BeautifulSoup(re.sub("<a class=.headerlink.*?</a>", "", html), "html.parser")


def prose(text, *tags):
    return new_markdown_cell(text, metadata={"tags": list(tags)})


def code(source, *outputs, tags=()):
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)})


def text(printed):
    return new_output("stream", text=printed)


def drawing(html):
    return new_output("display_data", {"text/html": html, "text/plain": "<object>"})


FIGURE = '<figure class="lab-figure"></figure>'
COLUMNS = "<th>measured</th>" * 7  # so many stand upright on a phone
TABLE = f'<table class="lab-table"><thead><tr>{COLUMNS}</tr></thead></table>'
TITLE = prose("# Title")
FINDING = prose("Found.", "finding")
DRAWN = code("draw", drawing(FIGURE), tags=["figure"])
TABLED = code("tabulate", drawing(TABLE), tags=["table"])
MEASURED = code("import torch", text("2 cores"), tags=["setup", "machine"])
SOUND = (TITLE, FINDING, MEASURED, DRAWN, TABLED)


def order(soup, *selectors):
    """The selectors in the order in which what they select stands on the page."""
    every = soup.find_all(True)
    return sorted(
        selectors, key=lambda one: [soup.select_one(one) is tag for tag in every].index(True)
    )


def test_a_lab_answers_first_and_names_its_machine_last(whole):
    wanted = ["h1", "#finding", ".lab-figure", ".lab-table", "h2", "details", "h3", "figure.output"]
    cells = [TITLE, prose("## How"), MEASURED, TABLED, DRAWN, prose("### End"), FINDING]
    assert order(whole(*cells), *wanted) == wanted


def test_one_cell_may_show_both_the_figure_and_the_table(whole):
    both = code("x", drawing(TABLE), drawing(FIGURE), tags=["figure", "table"])
    soup = whole(TITLE, FINDING, MEASURED, both)
    assert order(soup, ".lab-table", ".lab-figure") == [".lab-figure", ".lab-table"]
    said = soup.select("summary")[1].get_text()
    assert said == "Code of the figure and the table at the top, 1 line"


def test_only_the_first_figure_of_its_cell_moves_and_what_else_it_showed_stays(whole):
    cell = code("x", text("1"), drawing(FIGURE), drawing(FIGURE), tags=["figure"])
    soup = whole(TITLE, FINDING, MEASURED, cell, TABLED)
    assert len(soup.select("#finding + .lab-figure")) == 1
    kinds = [tag["class"] for tag in soup.find(string="1").find_parents("figure")]
    assert kinds == [["output"]]
    assert len(soup.select("details ~ .lab-figure")) == 1


@pytest.mark.parametrize("missing", ["finding", "machine"])
def test_a_lab_without_what_it_needs_is_refused(missing, whole):
    cells = [cell for cell in SOUND if missing not in cell.metadata.get("tags", [])]
    with pytest.raises(lab.LabError, match=f"no cell is tagged `{missing}`"):
        whole(*cells)


@pytest.mark.parametrize("kind", ["figure", "table"])
def test_a_tag_on_a_cell_that_shows_no_such_thing_is_refused(kind, whole):
    with pytest.raises(lab.LabError, match=f"the cell tagged `{kind}` shows none"):
        whole(code("x", text("1"), tags=[kind]))


def test_code_is_folded_and_shown_as_it_is(clean):
    details = clean(code("x = 1 < 2\n\n\n`~#_y_\t*z*\n")).details
    assert details["class"] == ["folded"]
    assert details.summary.get_text() == "Code, 4 lines"
    assert details.select_one("div.language-python.highlight > pre > code").get_text() == (
        "x = 1 < 2\n\n\n`~#_y_\t*z*\n"
    )


def test_set_up_is_named_and_not_searched(clean):
    soup = clean(code("import torch", text("2.13"), tags=["setup"]), code("x", text("1")))
    set_up, other = soup.select("details")
    assert set_up.summary.get_text() == "Set-up that the cells below lean on, 1 line"
    assert set_up.code.get_text() == "import torch\n"
    assert [samp.get_text() for samp in soup.select("details ~ .output samp")] == ["2.13", "1"]
    assert "data-search-exclude" in set_up.attrs
    assert "data-search-exclude" not in other.attrs


def test_prints_are_one_output_up_to_a_drawing(clean):
    soup = clean(code("x", text("a\n"), text("b"), drawing("<table></table>"), text("c < d")))
    assert [samp.get_text() for samp in soup.select("samp")] == ["a\nb", "c < d"]
    assert soup.get_text().index("b") < str(soup).index("<table>") < str(soup).index("c &lt; d")


@pytest.mark.parametrize("kind", ["image/png", "application/json"])
def test_what_no_page_can_show_is_refused(kind, whole):
    shown = new_output("display_data", {kind: "x", "text/plain": "x"})
    with pytest.raises(lab.LabError, match=rf"cell 6 shows {kind}, text/plain; wanted text"):
        whole(*SOUND, code("x", shown))


def test_a_cell_that_ended_in_an_error_is_refused(whole):
    with pytest.raises(lab.LabError, match="cell 6 shows error; wanted text"):
        whole(*SOUND, code("x", new_output("error", ename="NameError", evalue="x")))


def test_a_table_can_scroll_and_what_is_drawn_is_named_a_picture(clean):
    soup = clean(
        code(
            "x",
            drawing('<div style="overflow: auto"><table class="lab-table"></table></div>'),
            drawing('<div class="lab-figure"><svg></svg></div>'),
        )
    )
    assert soup.select_one(".book-scroll > table.lab-table")
    assert soup.select_one(".lab-figure > svg[role=img]")
    assert not soup.select("[style*=overflow]")


def test_an_output_brings_neither_styles_nor_scripts(clean):
    table = "<style>td {}</style><table><td>1</td></table><script>run()</script>"
    assert str(clean(code("", drawing(table)))).strip() == "<table><td>1</td></table>"


@pytest.mark.parametrize("alt", ["", 'alt=""'])
def test_an_image_without_a_text_is_refused(alt, clean):
    with pytest.raises(lab.LabError, match="cell 7 shows an image that has no text"):
        clean(code("x", drawing(f"<img {alt}>")))


def test_dollars_in_code_and_outputs_are_no_math(clean):
    soup = clean(prose("`$x$`, $y$"), code("a = '$x$'", text("$y$")))
    assert [note.get_text() for note in soup.select("annotation")] == ["y"]


def test_a_drawing_has_its_size_in_pixels(clean):
    svg = '<svg viewBox="0 0 400 200" style="width: 100%; max-width: 600px"><path/></svg>'
    drawn = clean(code("x", drawing(svg))).svg
    assert (drawn["width"], drawn["height"], drawn.get("style")) == ("600", "300", None)


def test_the_ids_of_two_drawings_never_meet_and_still_lead_where_they_did(clean):
    svg = '<svg><defs><path id="m"/></defs><use xlink:href="#m"/><g clip-path="url(#m)"/></svg>'
    soup = clean(code("x", drawing(svg), drawing(svg + '<a href="https://example.org">x</a>')))
    for number, drawn in enumerate(soup.select("svg"), 1):
        assert drawn.path["id"] == f"drawing-{number}-m"
        assert drawn.use["xlink:href"] == f"#drawing-{number}-m"
        assert drawn.g["clip-path"] == f"url(#drawing-{number}-m)"


PRINTED = """\
```python
   \n--8<-- "gpt.py"
~~~ # no heading _x_ *y* $z$\t.
# two"""


def test_markdown_draws_what_a_cell_printed_as_it_stands(clean):
    assert clean(code("x", text(PRINTED))).samp.get_text() == PRINTED


@pytest.mark.lab
@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_mkdocs_jupyter_finds_the_same_code_and_the_same_text_in_a_lab(path):
    from mkdocs_jupyter.nbconvert2 import nb2html  # takes a second to import

    ours = drawn(lab.markdown(path))
    theirs = BeautifulSoup(nb2html(str(path)), "html.parser")
    listings = [one.get_text().strip() for one in theirs.select(".highlight-ipynb pre")]
    assert [one.get_text().strip() for one in ours.select("details.folded code")] == listings
    shown = "\n".join(one.get_text() for one in ours.select("samp"))
    printed = [one.get_text().strip("\n") for one in theirs.select(".jp-RenderedText pre")]
    assert printed
    assert [one for one in printed if one not in shown] == []
    said = {" ".join(one.get_text().split()) for one in theirs.select(".jp-MarkdownOutput code")}
    assert said <= {" ".join(one.get_text().split()) for one in ours.select("code")}
