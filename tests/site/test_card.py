"""The picture of a page that is shared: its title, its heatmap, the colours of the site."""

import io

import pytest
from PIL import Image

from book import card
from tests.site import book

FONTS = book.DOCS / "assets/fonts"


def drawn(title, html=""):
    return Image.open(io.BytesIO(card.draw(title, "A book", html, FONTS))).convert("RGB")


def test_a_card_shows_the_heatmap_of_its_page_or_the_books_mark():
    row = '<tr><th>a</th><td style="--v:1">1</td><td class="n" style="--v:1">-1</td></tr>'
    picture = drawn("A title", f'<table class="heatmap"><tbody>{row}{row}</tbody></table>')
    more, less = picture.getpixel((800, 200)), picture.getpixel((1050, 400))
    assert (more, less) == ((0x3F, 0xB0, 0xA1), (0xE5, 0x8F, 0x3E))
    plain = drawn("A title")
    assert plain.getpixel((780, 180)) == (0x0A, 0x6B, 0x63)
    assert plain.getpixel((1100, 180)) == (0xFD, 0xFC, 0xFA)


def test_the_colours_of_a_card_are_those_of_the_site():
    styles = book.DOCS / "assets/book.css", book.ROOT / "book/figures/figures.css"
    sheets = [path.read_text() for path in styles]
    light = "".join(sheet.partition('"slate"')[0] for sheet in sheets)
    colours = (card.PAPER, card.INK, card.QUIET, card.ACCENT, card.ZERO, card.MORE, card.LESS)
    assert [colour for colour in colours if f": {colour};" not in light] == []


@pytest.mark.parametrize("title", ["Where " * 12, "One word beside a river and beside money", "Ab"])
def test_a_title_of_any_length_stands_clear_of_the_rest_of_its_card(title):
    grey = drawn(title).convert("L")
    for above_the_books_name_and_beside_the_heatmap in ((80, 440, 720, 505), (645, 0, 715, 630)):
        assert grey.crop(above_the_books_name_and_beside_the_heatmap).getextrema()[0] > 200
