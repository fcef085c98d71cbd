"""A lab is a page in the book's own markup that answers first; what wrapped its notebook goes."""

import re
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_markdown_cell, new_notebook

from book import lab
from literate import site_markdown

FILES = ("foundations/scaling.md", "labs/index.md", "labs/heads.ipynb")


def whole(*cells):
    """Return the lab made from cells as mkdocs-jupyter draws them."""
    html = (
        f'<style>.x {{}}</style><div class="jp-Notebook">{"".join(cells)}</div><script>1</script>'
    )
    return BeautifulSoup(str(lab.clean(html, "labs/heads.ipynb", FILES)), "html.parser")


def clean(*cells):
    """Return what a lab that has all it needs makes of these cells, without what it has beside them."""
    text = str(whole(*SOUND, prose("<hr>"), *cells))
    beside = text.partition("<hr/>\n")[2].rpartition('<figure class="output"')[0]
    return BeautifulSoup(beside.removesuffix("\n"), "html.parser")


def prose(html, tag=""):
    output = f'<div class="jp-MarkdownOutput {tag}">{html}</div>'
    return f'<div class="jp-Cell jp-MarkdownCell">{output}</div>'


def code(source, *outputs, tag=""):
    """Return a cell of code; each output is the HTML of one child of its output area."""
    shown = "".join(f'<div class="jp-OutputArea-child">{output}</div>' for output in outputs)
    listing = f'<div class="highlight-ipynb"><pre><span></span>{source}</pre></div>'
    return (
        f'<div class="jp-Cell jp-CodeCell"><div class="jp-Cell {tag}">{listing}'
        f"<clipboard-copy>copy</clipboard-copy>{shown}</div></div>"
    )


def text(printed):
    return f'<div class="jp-RenderedText"><pre>{printed}</pre></div>'


def drawing(html):
    return f'<div class="jp-OutputArea-output">{html}</div>'


FIGURE = '<figure class="lab-figure"></figure>'
TABLE = '<table class="lab-table"></table>'
TITLE = prose("<h1>Title</h1>")
FINDING = prose("<p>Found.</p>", tag="celltag_finding")
DRAWN = code("draw", drawing(FIGURE), tag="celltag_figure")
TABLED = code("tabulate", drawing(TABLE), tag="celltag_table")
MEASURED = code("import torch", text("2 cores"), tag="celltag_setup celltag_machine")
SOUND = (TITLE, FINDING, MEASURED, DRAWN, TABLED)


def order(soup, *selectors):
    """The selectors in the order in which what they select stands on the page."""
    every = soup.find_all(True)
    return sorted(
        selectors, key=lambda one: [soup.select_one(one) is tag for tag in every].index(True)
    )


def test_a_lab_answers_first_and_names_its_machine_last():
    wanted = ["h1", "#finding", ".lab-figure", ".lab-table", "h2", "details", "h3", "figure.output"]
    cells = [TITLE, prose("<h2>How</h2>"), MEASURED, TABLED, DRAWN, prose("<h3>End</h3>"), FINDING]
    assert order(whole(*cells), *wanted) == wanted


def test_one_cell_may_show_both_the_figure_and_the_table():
    both = code("x", drawing(TABLE), drawing(FIGURE), tag="celltag_figure celltag_table")
    soup = whole(TITLE, FINDING, MEASURED, both)
    assert order(soup, ".lab-table", ".lab-figure") == [".lab-figure", ".lab-table"]
    assert (
        soup.select("summary")[1].get_text()
        == "Code of the figure and the table at the top, 1 line"
    )


def test_only_the_first_figure_of_its_cell_moves_and_what_else_it_showed_stays():
    cell = code("x", text("1"), drawing(FIGURE), drawing(FIGURE), tag="celltag_figure")
    soup = whole(TITLE, FINDING, MEASURED, cell, TABLED)
    assert len(soup.select("#finding + .lab-figure")) == 1
    assert [tag.get("class") for tag in soup.find(string="1").find_parents("figure")] == [
        ["output"]
    ]
    assert len(soup.select("details ~ .lab-figure")) == 1


@pytest.mark.parametrize("missing", ["finding", "figure", "table", "machine"])
def test_a_lab_without_what_it_needs_is_refused(missing):
    cells = [cell for cell in SOUND if f"celltag_{missing}" not in cell]
    with pytest.raises(lab.LabError, match=f"no cell is tagged `{missing}`"):
        whole(*cells)


@pytest.mark.parametrize("twice", ["finding", "figure", "table", "machine"])
def test_a_lab_that_has_two_of_what_it_needs_is_refused(twice):
    again = [cell for cell in SOUND if f"celltag_{twice}" in cell]
    with pytest.raises(lab.LabError, match=f"two cells are tagged `{twice}`"):
        whole(*SOUND, *again)


@pytest.mark.parametrize("kind", ["figure", "table"])
def test_a_tag_on_a_cell_that_shows_no_such_thing_is_refused(kind):
    with pytest.raises(lab.LabError, match=f"the cell tagged `{kind}` shows none"):
        whole(code("x", text("1"), tag=f"celltag_{kind}"))


def test_code_is_folded_and_nothing_of_the_notebook_stays():
    assert str(clean(code("<b>x</b> = 1\ny = 2\n"))) == (
        '<details class="folded"><summary>Code, 2 lines</summary><div class="language-python highlight">'
        "<pre><span></span><code><b>x</b> = 1\ny = 2\n</code></pre></div></details>"
    )


def test_code_has_one_element_for_each_stretch_of_a_colour():
    tokens = [
        *(("kn", "from"), ("w", " "), ("nn", "a"), ("w", " "), ("kn", "import"), ("w", " ")),
        *(("n", "b"), ("w", "\n"), ("c1", "# One"), ("w", "\n"), ("c1", "# two"), ("w", "\n")),
        *(
            ("nb", "print"),
            ("p", "("),
            ("sa", "f"),
            ("s2", '"'),
            ("si", "{"),
            ("mi", "1"),
            ("si", "}"),
        ),
        *(("se", r"\n"), ("s2", '"'), ("p", ")")),
    ]
    source = "".join(f'<span class="{kind}">{token}</span>' for kind, token in tokens)
    shown = clean(code(source)).code
    assert shown.get_text() == "".join(token for _, token in tokens) + "\n"
    assert [(span["class"][0], span.get_text()) for span in shown.select("span")] == [
        *(("k", "from"), ("k", "import"), ("c1", "# One\n# two"), ("s2", 'f"{'), ("s2", r'}\n"')),
    ]


def test_cells_stand_in_their_order():
    soup = clean(prose("<p>One.</p>"), code("two"), prose("<p>Three.</p>"))
    assert soup.get_text() == "One.\nCode, 1 linetwo\n\nThree."


def test_a_listing_in_prose_is_text():
    soup = clean(prose('<div class="highlight"><pre><span></span>$ make labs\n</pre></div>'))
    assert soup.select_one(".language-text code").get_text() == "$ make labs\n"


def test_set_up_is_named_and_not_searched():
    soup = clean(code("import torch", text("2.13"), tag="celltag_setup"), code("x", text("1")))
    set_up, other = soup.select("details")
    assert set_up.summary.get_text() == "Set-up that the cells below lean on, 1 line"
    assert set_up.code.get_text() == "import torch\n"
    assert [samp.get_text() for samp in soup.select("details ~ .output samp")] == ["2.13", "1"]
    assert "data-search-exclude" in set_up.attrs
    assert "data-search-exclude" not in other.attrs


def test_a_cell_without_code_shows_its_output_alone():
    assert not clean(code("  ", text("1"), tag="celltag_setup")).select("details, .highlight")


def test_prints_are_one_output_up_to_a_drawing():
    soup = clean(code("x", text("a\n"), text("b"), drawing("<table></table>"), text("c &lt; d")))
    assert [samp.get_text() for samp in soup.select("samp")] == ["a\nb", "c < d"]
    assert soup.get_text().index("b") < str(soup).index("<table>") < str(soup).index("c &lt; d")


def test_a_table_can_scroll_and_what_is_drawn_is_named_a_picture():
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


def test_an_output_brings_neither_styles_nor_scripts():
    table = "<style>td {}</style><table><td>1</td></table><script>run()</script>"
    assert str(clean(code("", drawing(table)))) == "<table><td>1</td></table>"


def test_the_role_of_a_drawing_is_kept():
    assert clean(code("x", drawing('<svg role="figure"></svg>'))).svg["role"] == "figure"


@pytest.mark.parametrize("alt", ["", f'alt="{lab.UNDESCRIBED}"'])
def test_an_image_without_a_text_is_refused(alt):
    with pytest.raises(lab.LabError, match="an image has no text"):
        clean(code("x", drawing(f"<img {alt}>")))


def test_an_image_with_a_text_is_kept():
    assert clean(code("x", drawing('<img alt="Loss falls">'))).img["alt"] == "Loss falls"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("See <figure class='output'>", r"cell 1 writes HTML, \"<figure class='output'>\""),
        ("So\n<pre>0.52</pre>", "cell 1 writes HTML, '<pre>'"),
        ("A <!-- word", "cell 1 writes HTML, '<!'"),
        ("A\u202eB", r"cell 1 holds the control character U\+202E"),
    ],
)
def test_html_in_the_text_of_a_lab_is_refused(tmp_path, text, what):
    path = tmp_path / "heads.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell(text)]), path)
    with pytest.raises(lab.LabError, match=what):
        lab.markdown(path, "labs/heads.ipynb", FILES)


def test_code_in_the_text_of_a_lab_may_show_html(tmp_path):
    path = tmp_path / "heads.ipynb"
    text = "Write `<pre>`:\n\n```html\n<pre></pre>\n```\n\nor 1 < 2."
    nbformat.write(new_notebook(cells=[new_markdown_cell(text)]), path)
    lab.check_text(path)


def test_a_notebook_without_cells_is_refused():
    with pytest.raises(lab.LabError, match="no cells found"):
        whole()


def test_headings_are_linked_as_in_a_chapter():
    link = clean(prose('<h2>A<a class="anchor-link" href="#a">¶</a></h2>')).a
    assert (link["class"], link["title"]) == (["headerlink"], "Link to this section")


@pytest.mark.parametrize(
    ("href", "leads"),
    [
        ("../foundations/scaling.md#why", "../foundations/scaling.html#why"),
        ("index.md", "index.html"),
        ("#here", "#here"),
        ("https://example.org/a.md", "https://example.org/a.md"),
        ("mailto:a@example.org", "mailto:a@example.org"),
        ("//example.org/a.md", "//example.org/a.md"),
    ],
)
def test_a_link_leads_to_the_page_made_from_what_it_names(href, leads):
    assert clean(prose(f'<a href="{href}">x</a>')).a["href"] == leads


def test_a_link_to_nothing_is_refused():
    with pytest.raises(lab.LabError, match=r"'gone\.md#x' leads to no file of the book"):
        clean(prose('<a href="gone.md#x">x</a>'))


def test_math_in_prose_is_drawn_and_what_stands_around_it_stays():
    soup = clean(prose("<p>&lt;a&gt;, $x_1$ &amp; $$y$$ &lt;c&gt;</p><p>It costs $5 and $6.</p>"))
    first, second = soup.select("p")
    assert [note.get_text() for note in first.select("annotation")] == ["x_1", "y"]
    assert first.select_one("span.math > math[display=block] annotation").get_text() == "y"
    assert first.get_text().startswith("<a>, ")
    assert " & " in first.get_text()
    assert first.get_text().endswith(" <c>")
    assert second.get_text() == "It costs $5 and $6."


def test_dollars_in_code_and_outputs_are_no_math():
    soup = clean(prose("<code>$x$</code>"), code("a = '$x$'", text("$y$")))
    assert not soup.select("math")


MARKS = """<svg viewBox="0 0 400 200" style="width: 100%; max-width: 600px"><defs></defs><g>
<path d="M 0 0 \nL 9 9 \nz" style="fill: none"/>
<g><g><defs><path id="m" d="M 0 0 \nL 0 3.5 \n" style="stroke: red"/></defs>
<g><use xlink:href="#m" x="1.5" y="2" style="stroke: red"/></g></g></g>
<g><use xlink:href="#m" x="3" y="4" style="stroke: red"/></g>
<g clip-path="url(#c)"><use xlink:href="#m" x="5" y="6" style="stroke: red"/></g>
<text transform="rotate(-0 1.5 9)">a</text><text transform="rotate(-90 1.5 9)">b</text></g></svg>"""


def test_a_drawing_sets_its_marks_by_one_path_and_has_a_size():
    svg = clean(code("x", drawing(MARKS))).svg
    assert (svg["width"], svg["height"], svg.get("style")) == ("600", "300", None)
    assert [tag.name for tag in svg.find_all(True)] == [
        *("defs", "path", "marker", "path", "path", "g", "use", "text", "text"),
    ]
    assert svg.marker["style"] == svg.marker.path["style"] == "stroke: red"
    assert svg.marker.path["d"] == svg.defs.path["d"] == "M0 0L0 3.5"
    marks = svg.marker.find_next_sibling("path")
    assert (marks["d"], marks["fill"]) == ("M0 0L1.5 2L3 4L0 0", "none")
    assert marks["style"] == f"marker-mid: url(#{svg.marker['id']})"
    assert svg.use["xlink:href"] == f"#{svg.defs.path['id']}"
    assert [text.get("transform") for text in svg.select("text")] == [None, "rotate(-90 1.5 9)"]


def test_the_ids_of_two_drawings_never_meet_and_still_lead_where_they_did():
    svg = '<svg><defs><path id="m"/></defs><use xlink:href="#m"/><g clip-path="url(#m)"/></svg>'
    soup = clean(code("x", drawing(svg), drawing(svg + '<a href="https://example.org">x</a>')))
    for number, drawn in enumerate(soup.select("svg"), 1):
        assert drawn.path["id"] == f"drawing-{number}-m"
        assert drawn.use["xlink:href"] == f"#drawing-{number}-m"
        assert drawn.g["clip-path"] == f"url(#drawing-{number}-m)"


ROOT = Path(__file__).parents[2]
HOSTILE = """\
<h1>A_b_c and *d* in `e` for $5 and $6 &lt;f&gt;<a class="headerlink" href="#a">¶</a></h1>
<p>_x_ *y* $z$</p>
<pre>```python
   \n--8&lt;-- "gpt.py"
~~~ # no heading\t.
</pre>
<h2>Of <code>__init__</code></h2>
<svg><title>_s_</title></svg>
<div><p>one</p>

# two

</div>"""


def test_markdown_draws_a_lab_as_it_stands():
    body = BeautifulSoup(HOSTILE, "html.parser")
    wanted = [[tag.name, tag.get_text()] for tag in body.select("p, pre, svg, h1, h2, code")]
    wanted[0][1] = wanted[0][1].removesuffix("¶")
    drawn = site_markdown.markdown(ROOT).convert(lab.passed_on(body))
    shown = BeautifulSoup(re.sub("<a class=.headerlink.*?</a>", "", drawn), "html.parser")
    assert [
        [tag.name, tag.get_text()] for tag in shown.select("p, pre, svg, h1, h2, code")
    ] == wanted


def test_the_headings_of_a_lab_are_those_of_its_menu():
    site = site_markdown.markdown(ROOT)
    site.convert(lab.passed_on(BeautifulSoup(HOSTILE, "html.parser")))
    assert [token["level"] for token in site.toc_tokens] == [1]
    assert [token["name"] for token in site.toc_tokens[0]["children"]] == ["Of __init__"]


def test_a_notebook_is_drawn_cell_by_cell(tmp_path):
    def shown(kind, text):
        output = nbformat.v4.new_output("display_data", {"text/html": text})
        return nbformat.v4.new_code_cell(kind, outputs=[output], metadata={"tags": [kind]})

    printed = nbformat.v4.new_output("stream", text="2 cores\n")
    machine = {"tags": ["setup", "machine"]}
    cells = [
        nbformat.v4.new_markdown_cell("# Lab\n\nSee [why](../foundations/scaling.md#why), $x_1$."),
        nbformat.v4.new_markdown_cell("Found.", metadata={"tags": ["finding"]}),
        nbformat.v4.new_code_cell("a = 1", outputs=[printed], metadata=machine),
        shown("figure", FIGURE),
        shown("table", TABLE),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "heads.ipynb")
    text = lab.markdown(tmp_path / "heads.ipynb", "labs/heads.ipynb", FILES)
    soup = BeautifulSoup(text, "html.parser")
    assert text.startswith("# Lab\n\n<p>")
    assert soup.p.a["href"] == "../foundations/scaling.html#why"
    assert soup.p.math
    wanted = ["#finding", ".lab-figure", ".lab-table", "details", "samp"]
    assert order(soup, *reversed(wanted)) == wanted
    assert [code.get_text() for code in soup.select("code")] == ["a = 1\n", "figure\n", "table\n"]
    assert soup.samp.get_text() == "2 cores"
