"""A page on paper, as a browser prints it: what stands on which sheet, read from the PDF."""

import ctypes
import math
import unicodedata
from operator import itemgetter

import pypdfium2
from pypdfium2 import raw

from tests.site import browsers

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
    browsers.show(page, A4, media="print", color_scheme=scheme)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    browsers.show(page)
    held = page.evaluate(HELD)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    return held, sheets(page.pdf(**{"format": "A4"} | paper))


def faint(ink):
    """Whether an ink has less contrast on white than text needs, by WCAG 2.2."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (ink * 3)[:3]
    )
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) < 4.5
