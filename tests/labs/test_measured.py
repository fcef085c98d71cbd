"""A chapter shows a table of a lab by a line, and what it shows is what the notebook holds."""

import json
import re
import shutil

import nbformat
import pytest
from bs4 import BeautifulSoup

from book import measured, prepare, search
from literate import export, record
from literate.page import PageError
from literate.site import markdown
from tests.projects import ROOT, unsupported_numbers

LINE = '[table: One step](labs/one.ipynb "rows 8,192 | 64; columns time")'
PAGE = f"# A page\n\n{LINE}\n\nA step takes 9.93 ms.\n"
ON = "On NVIDIA H200"


def table(caption, *rows):
    head, *body = [row.split(" | ") for row in rows]
    cells = [
        f"<tr><th scope='row'>{n}</th>{''.join(f'<td>{c}</td>' for c in cs)}</tr>"
        for n, *cs in body
    ]
    names = "".join(f"<th scope='col'>{name}</th>" for name in head)
    html = (
        f'<div><table class="lab-table"><caption>{caption}</caption><thead><tr>{names}</tr></thead>'
    )
    html += f"<tbody>{''.join(cells)}</tbody></table></div>"
    return nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": caption})


def printed(text):
    return nbformat.v4.new_output("stream", text=text)


def heading():
    return nbformat.v4.new_output("display_data", {"text/html": f"<p>{ON}</p>", "text/plain": ON})


ROWS = ["tokens | time | share", "64 | 3.79 | 2", "8,192 | 9.93 | 184"]
THERE = ["tokens | time | share", "64 | 5.38 | 1", "8,192 | 6.13 | 2"]
MACHINE = "date         {}\nprocessor    An Old One, 2 cores\n"


@pytest.fixture
def lab(book):
    """A lab that ran on two devices; `lab(old, new)` writes it with a text of it replaced."""

    def write(old="", new=""):
        machine = [
            printed(MACHINE.format("2026-11-24")),
            heading(),
            printed(MACHINE.format("2026-11-27")),
        ]
        shown = [
            table("One step, in ms", *ROWS),
            heading(),
            table("One step, in ms", *THERE),
        ]
        cells = [
            nbformat.v4.new_code_cell("1", outputs=machine, metadata={"tags": ["machine"]}, id="a"),
            nbformat.v4.new_code_cell("2", outputs=shown, id="b"),
            nbformat.v4.new_code_cell(
                "3", outputs=[table("Two | steps", "a | b", "1 | 2")], id="c"
            ),
        ]
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"title": "What a step costs"})
        text = nbformat.writes(notebook)
        assert old in text
        book.page(text.replace(old, new).encode(), "docs/labs/one.ipynb")

    write()
    return write


def shown(page):
    return BeautifulSoup(markdown(page.root).convert(page.shown), "html.parser").find(
        class_="measured"
    )


def test_the_rows_and_columns_that_a_line_names_stand_in_its_place(book, lab):
    figure = shown(book.read(PAGE))
    rows = [[cell.text for cell in row(["th", "td"])] for row in figure.select("tr")]
    assert rows == [["tokens", "time"], ["8,192", "9.93"], ["64", "3.79"]]
    assert figure.caption.text == "One step, in ms¶"  # with an address, as each table
    assert {cell["scope"] for cell in figure.select("tbody th")} == {"row"}


def test_the_machine_the_day_and_the_lab_stand_under_it(book, lab):
    under = shown(book.read(PAGE)).p
    assert (
        under.text
        == "Measured on An Old One, 2 cores, on 2026-11-24, in the lab What a step costs."
    )
    assert under.a["href"] == "labs/one.html"


def test_a_second_device_is_asked_for_by_its_name(book, lab):
    figure = shown(
        book.read('# P\n\n[table: One step](labs/one.ipynb "on NVIDIA H200; rows 64")\n')
    )
    assert [cell.text for cell in figure.select("td")] == ["5.38", "1"]
    assert figure.p.text.startswith("Measured on NVIDIA H200, on 2026-11-27,")


def test_each_line_of_the_page_keeps_its_number(book, lab):
    page = book.read(PAGE)
    pairs = zip(page.text.split("\n"), page.shown.split("\n"), strict=True)
    assert [n for n, (a, b) in enumerate(pairs, 1) if a != b] == [3]


def test_a_number_of_the_text_is_held_by_the_rows_that_are_shown_and_moves_with_the_lab(book, lab):
    assert unsupported_numbers(book.read(PAGE)) == []
    lab("9.93", "9.94")
    (report,) = unsupported_numbers(book.read(PAGE))
    assert report.startswith("docs/page.md:5: 9.93 stands in no output or code")
    lab()
    (report,) = unsupported_numbers(book.read(PAGE.replace("9.93 ms", "184 ms")))
    assert "184 stands in no output or code" in report  # that column is not shown


def test_a_table_need_not_keep_the_order_of_the_code_above_it(book, lab):
    code = "```python\nx = 3.79, 9.93\n```\n"  # the line shows 9.93 first
    assert unsupported_numbers(book.read(f"# A page\n\n{code}\n{LINE}\n")) == []


def test_another_measurement_is_another_page(book, lab):
    before = record.digest(book.read(PAGE))
    lab("9.93", "9.94")
    assert record.digest(book.read(PAGE)) != before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("one.ipynb", "two.ipynb", "there is no such lab; in its folder: one.ipynb"),
        ("One step", "One leap", "no table has a caption that begins `One leap`; it has: One step"),
        ("rows 8,192", "rows 8192", r"no row is named `8192`; the rows are 64 \| 8,192"),
        ("columns time", "columns clock", r"no column is named `clock`; .* are time \| share"),
        ("rows", "on NVIDIA A100; rows", "no table on NVIDIA A100 has a caption"),
        ("rows", "lines", "wanted on, rows and columns, each once; found `lines 8,192"),
        ("[table", "    [table", "a table stands alone between empty lines, as"),
        ("[table", "- [table", "a table stands alone between empty lines, as"),
        (")\n\n", ")\nmore\n", "a table stands alone between empty lines, as"),
        (".ipynb", ".md", "a table stands alone between empty lines, as"),
        ("columns time", "columns time; columns share", "each once; found `columns share`"),
    ],
)
def test_what_is_not_there_is_an_error_at_its_line_in_the_test_and_in_the_build(
    book, lab, old, new, said
):
    assert old in PAGE
    path = book.page(PAGE.replace(old, new, 1))
    with pytest.raises(PageError, match=r"page\.md:3: .*" + said):
        book.read(path.read_text())
    with pytest.raises(PageError, match=r"page\.md:3: .*" + said):
        prepare.page(path, "page.md", {"extra": {"repository": "a/b"}, "nav": []})


def test_a_table_that_an_author_wrote_passes_for_none_that_was_measured(book, lab):
    with pytest.raises(PageError, match=r"page\.md:3: a table of a lab is read from its notebook"):
        book.read(f"# P\n\n{measured.FIGURE}<table><tr><td>1</td></tr></table></div>\n")
    with pytest.raises(PageError, match="a drawing or a table in a fence"):
        book.read(f"# P\n\n```text\n\n{LINE}\n\n```\n")


def test_a_lab_that_does_not_name_its_machine_shows_no_table(book, lab):
    lab('"machine"', '"setup"')
    with pytest.raises(
        PageError, match=r"page\.md:3: labs/one\.ipynb: no cell says on which machine"
    ):
        book.read(PAGE)


def test_who_takes_a_page_away_has_the_table(book, lab):
    page = book.read(
        PAGE.replace("One step", "Two").replace(' "rows 8,192 | 64; columns time"', "")
    )
    rows = "*Two | steps*\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n"
    assert f"\n{rows}\n*Measured on" in export.markdown(page, "https://book.org/")
    notebook = json.loads(export.notebook(page, "https://book.org/"))
    text = "".join("".join(cell["source"]) for cell in notebook["cells"])
    assert f"\n{rows}\n*Measured on An Old One" in text
    assert "[What a step costs](https://book.org/labs/one.html).*\n\nA step takes" in text
    assert "| 1 | 2 |" in export.script(page)


def test_the_search_finds_the_words_of_a_table(book, lab):
    page = book.read(PAGE)
    (section,) = search.sections(markdown(page.root).convert(page.shown))
    assert {"9.93"} <= set(re.findall(r"[\d.]+", section.text))
    assert {"step", "measured"} <= search.words(section.text).keys()


def test_a_page_with_a_table_holds_every_rule_of_the_book(book, lab):
    book.read(PAGE).check_drawn()


def test_chapters_show_tables_and_a_lab_that_is_measured_again_moves_them(book):
    text = (ROOT / "docs/cache/kv-cache.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.split("\n") if measured.BEGINS.match(line)]
    shutil.copytree(ROOT / "docs/labs", book.root / "docs/labs")
    stored = book.root / "docs/labs/steps.ipynb"
    assert "1,831.3" in book.read(f"# P\n\n{line}\n", "docs/cache/p.md").shown
    stored.write_text(stored.read_text().replace("<td>1,831.3</td>", "<td>1,831.4</td>"))
    assert "1,831.4" in book.read(f"# P\n\n{line}\n", "docs/cache/p.md").shown
