"""A lab is a page in the book's own markup: what the notebook says stays, what wrapped it goes."""

from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

from literate.site import lab

PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="labs/heads.ipynb", url="labs/heads.html"))
URLS = {
    "foundations/scaling.md": "foundations/scaling.html",
    "labs/index.md": "labs/index.html",
}
FILES = SimpleNamespace(
    get_file_from_path=lambda path: SimpleNamespace(url=URLS[path]) if path in URLS else None
)


def clean(*cells):
    """Return the lab made from cells as mkdocs-jupyter draws them."""
    html = (
        f'<style>.x {{}}</style><div class="jp-Notebook">{"".join(cells)}</div><script>1</script>'
    )
    return BeautifulSoup(lab.clean(html, PAGE, FILES), "html.parser")


def prose(html):
    return f'<div class="jp-Cell jp-MarkdownCell"><div class="jp-MarkdownOutput">{html}</div></div>'


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


def test_code_is_drawn_as_in_a_chapter_and_nothing_of_the_notebook_stays():
    soup = clean(code("<b>x</b> = 1\n"))
    assert str(soup) == (
        '<div class="language-python highlight"><pre><span></span>'
        "<code><b>x</b> = 1\n</code></pre></div>"
    )


def test_cells_stand_in_their_order():
    soup = clean(prose("<p>One.</p>"), code("two"), prose("<p>Three.</p>"))
    assert soup.get_text() == "One.\ntwo\n\nThree."


def test_a_listing_in_prose_is_text():
    soup = clean(prose('<div class="highlight"><pre><span></span>$ make labs\n</pre></div>'))
    assert soup.select_one(".language-text code").get_text() == "$ make labs\n"


def test_set_up_is_folded_and_its_output_is_not():
    soup = clean(code("import torch", text("2.13"), tag="celltag_setup"))
    assert soup.details.summary.get_text() == "Set-up that the cells below lean on"
    assert soup.details.code.get_text() == "import torch\n"
    assert not soup.details.select("samp")
    assert soup.samp.get_text() == "2.13"
    assert not clean(code("x", text("1"))).details


def test_a_cell_without_code_shows_its_output_alone():
    assert not clean(code("  ", text("1"), tag="celltag_setup")).select("details, .highlight")


def test_prints_are_one_output_up_to_a_drawing():
    soup = clean(code("x", text("a\n"), text("b"), drawing("<table></table>"), text("c &lt; d")))
    assert [samp.get_text() for samp in soup.select("samp")] == ["a\nb", "c < d"]
    assert soup.get_text().index("b") < str(soup).index("<table>") < str(soup).index("c &lt; d")


def test_what_is_drawn_can_scroll_and_is_named_a_picture():
    soup = clean(
        code(
            "x",
            drawing('<div style="overflow: auto"><table class="lab-table"></table></div>'),
            drawing('<div class="lab-figure"><svg></svg></div>'),
        )
    )
    assert soup.select_one(".book-scroll > table.lab-table")
    assert soup.select_one(".lab-figure > .book-drawing > svg[role=img]")
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


def test_a_notebook_without_cells_is_refused():
    with pytest.raises(lab.LabError, match="no cells found"):
        clean()


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


def test_the_ids_of_two_drawings_never_meet_and_still_lead_where_they_did():
    svg = '<svg><defs><path id="m"/></defs><use xlink:href="#m"/><g clip-path="url(#m)"/></svg>'
    soup = clean(code("x", drawing(svg), drawing(svg + '<a href="https://example.org">x</a>')))
    for number, drawn in enumerate(soup.select("svg"), 1):
        assert drawn.path["id"] == f"drawing-{number}-m"
        assert drawn.use["xlink:href"] == f"#drawing-{number}-m"
        assert drawn.g["clip-path"] == f"url(#drawing-{number}-m)"
