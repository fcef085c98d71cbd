"""Each page on paper, as a browser prints it: what stands on which sheet, read from the PDF."""

import ctypes
import math
import re
import unicodedata
from operator import itemgetter

import pypdfium2
from pypdfium2 import raw

from tests.site import book

A4 = {"width": 642, "height": 900}  # pixels: what the margins leave of 210 mm
COLUMNS = 97  # of code that fit there
LINES = 5  # on a sheet that is worth its paper

# What the page holds, as text without blanks: a sheet is searched for it.
HELD = """() => {
  const bare = (node) => node.textContent.normalize("NFKC").replace(/[¶\\s]/g, "");
  const article = document.querySelector(".md-content article");
  const shown = (selector) => [...article.querySelectorAll(selector)].filter((node) => node.checkVisibility({ contentVisibilityAuto: true }));
  const size = (selector) => Math.max(...shown(selector).map((node) => parseFloat(getComputedStyle(node).fontSize)), 0);
  return {
    address: document.querySelector("link[rel=canonical]").getAttribute("href"),
    // Cells and labels of a heatmap, of a table of a lab and of a picture: none is on another sheet.
    whole: [
      ...shown(".heatmap").map((map) => Array.from(map.rows, bare)),
      ...shown(".lab-table, .diagram").map((figure) => [...figure.querySelectorAll("td, th, text")].flatMap((cell) => cell.textContent.normalize("NFKC").match(/\\S+/g) ?? [])),
    ],
    headings: shown("h1, h2, h3").map(bare),
    printed: shown(".output pre").flatMap((pre) => pre.textContent.split("\\n")),
    code: shown(".highlight pre").flatMap((pre) => pre.textContent.split("\\n")),
    outside: shown("a[href^=http]").filter((link) => link.origin !== location.origin).map((link) => link.getAttribute("href")),
    buttons: shown("button:not(.word), .md-button, .page-bar").length,
    smaller: size(".output pre") <= size(".highlight code") || !size(".highlight code"),
    wide: shown("*").filter((node) => getComputedStyle(node).display !== "inline" && node.getBoundingClientRect().right > innerWidth + 1 || node.scrollWidth > node.clientWidth + 1
      && /auto|scroll|hidden|clip/.test(getComputedStyle(node).overflowX)).map((node) => node.outerHTML.slice(0, 120)),
  };
}"""


def bare(text):
    return "".join(unicodedata.normalize("NFKC", text).split())


def sheet(page):
    """One sheet of a PDF: its lines from the top, without blanks, and the inks they are set in."""
    level, turned, inks = [], [], set()
    for x, y, angle, letter, ink in letters(page.get_textpage()):
        inks.add(ink)
        if angle:  # the title of an axis
            turned.append((y, x, letter))
        else:
            level.append((y, x, letter))
    lines, at = [], None
    for y, x, letter in sorted(level, key=lambda one: -one[0]):
        if at is None or at - y > 2.5:  # points: an index stands lower than its line
            lines.append([])
            at = y
        lines[-1].append((x, letter))
    words = ["".join(letter for _, letter in sorted(line, key=itemgetter(0))) for line in lines]
    words[1:1] = ["".join(letter for *_, letter in sorted(turned))] if turned else []
    # A letter beyond the first 65,536, as those of formulas are, comes in two halves.
    whole = [line.encode("utf-16", "surrogatepass").decode("utf-16") for line in words]
    return [bare(line) for line in whole], inks


def letters(text):
    """Yield what is set on a sheet, blanks apart: `(x, y, angle, letter, ink)`, in points."""
    x, y = ctypes.c_double(), ctypes.c_double()
    ink = [ctypes.c_uint() for _ in "rgba"]
    for i in range(text.count_chars()):
        hyphen = raw.FPDFText_IsHyphen(text, i) == 1  # at the end of a line
        letter = "-" if hyphen else chr(raw.FPDFText_GetUnicode(text, i))
        if letter.strip() and (hyphen or not raw.FPDFText_IsGenerated(text, i)):
            raw.FPDFText_GetCharOrigin(text, i, x, y)
            raw.FPDFText_GetFillColor(text, i, *ink)
            angle = round(math.degrees(raw.FPDFText_GetCharAngle(text, i)))
            yield x.value, y.value, angle, letter, tuple(part.value / 255 for part in ink[:3])


def sheets(pdf):
    return [sheet(page) for page in pypdfium2.PdfDocument(pdf)]


def printed(page, scheme="dark", **paper):
    """Print a page as a reader would who reads it in this scheme; return what it holds, and the sheets."""
    book.show(page, A4, media="print", color_scheme=scheme)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    book.show(page)
    held = page.evaluate(HELD)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    return held, sheets(page.pdf(**{"format": "A4"} | paper))


def faint(ink):
    """Whether an ink has less contrast on white than text needs, by WCAG 2.2."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (ink * 3)[:3]
    )
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) < 4.5


@book.each_page
@book.paper
def test_a_page_is_printed_whole_and_legibly_from_the_dark_scheme(look, path):
    page = look(path)
    held, paper = printed(page)
    every = [line for lines, _ in paper for line in lines]
    text = "".join(line for lines, _ in paper for line in lines[:-1])

    assert sorted(ink for _, inks in paper for ink in inks if faint(ink)) == []
    assert held["wide"] == []
    assert held["smaller"]
    assert held["buttons"] == 0

    # No line is broken that fits: a row of a tensor stays a row.
    for kind in ("printed", "code"):
        short = {bare(line) for line in held[kind] if len(line.rstrip()) <= COLUMNS} - {""}
        broken = [line for line in short if not any(line in there for there in every)]
        assert broken == [], kind

    for figure in held["whole"]:
        assert any(all(row in "".join(lines) for row in figure) for lines, _ in paper), figure
    for lines, _ in paper[:-1]:
        assert len(lines) > LINES, lines
        assert lines[-2] not in held["headings"], "a heading stands alone at the end of a sheet"

    assert held["address"] in every[0]
    assert [lines[-1] for lines, _ in paper] == [
        f"{n}/{len(paper)}" for n in range(1, len(paper) + 1)
    ]
    assert [url for url in held["outside"] if url not in text] == []
    assert "127.0.0.1" not in text


def test_the_light_scheme_and_letter_paper_print_the_same(look):
    page = look("correctness/causal-mask.html")
    _, dark = printed(page, format="Letter")
    _, light = printed(page, "light", format="Letter")
    assert light == dark


def test_solutions_and_hints_are_printed_at_the_end_by_the_number_of_their_exercise(arrive):
    page = arrive("examples/two-banks.html")
    folded = page.locator("article details.success").count()
    numbers = range(1, folded + 1)
    answers = page.locator("article details.success pre").all_text_contents()
    _, paper = printed(page)
    text = "".join(line for lines, _ in paper for line in lines[:-1])
    body, title, end = text.rpartition("Solutions" + "Solutiontoexercise1")
    assert folded > 1
    assert title
    for kind, there in (("Hint", body), ("Solution", title + end)):
        assert re.findall(rf"{kind}toexercise(\d+)(?!:|\d)", there) == [str(n) for n in numbers]
        for number in numbers:
            assert f"{kind}toexercise{number}:attheendofthischapter" in body
    assert all(bare(line) in end for answer in answers for line in answer.split("\n"))
    assert page.locator(".book-solutions").count() == 0  # printing is over


def test_with_scripts_off_what_is_folded_is_printed_where_it_stands(visit):
    page = visit("examples/two-banks.html", java_script_enabled=False)
    every = [line for lines, _ in sheets(page.pdf()) for line in lines]
    assert "check_1(answer_1)" in every
    assert "127.0.0.1" not in "".join(every)


def test_an_explorable_prints_what_is_chosen_and_nothing_to_press(visit):
    page = visit("correctness/causal-mask.html")
    page.evaluate("""() => {
      const [bank, mask] = ["bank", "causal mask"].map((name) => [...document.querySelectorAll(".attention label")].find((label) => label.textContent === name));
      bank.click();
      mask.click();
    }""")
    figure = page.locator(".attention").first
    book.show(page, media="print")
    said = figure.inner_text()
    assert re.search(r"Query\s+bank\s", said)
    assert "causal mask" not in said
    assert not any(label in said for label in ("Scaled", "Edit", "Hide"))
    row = figure.locator("tr.on").inner_text().split()
    _, paper = printed(page)
    assert any("".join(row) in line for lines, _ in paper for line in lines)


def test_the_code_of_a_lab_is_not_printed_but_said_to_be_in_its_notebook(look):
    page = look("labs/nine-ways.html")
    folded = page.locator("article > .folded")
    said = [bare(text) for text in folded.locator("summary").all_text_contents()]
    code = max(folded.first.locator("pre").text_content().split("\n"), key=len)
    _, paper = printed(page)
    text = "".join(line for lines, _ in paper for line in lines[:-1])
    assert len(said) > 5
    assert [line for line in said if f"{line}:inthenotebookofthislab" not in text] == []
    assert bare(code) not in text
