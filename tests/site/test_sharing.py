"""What a page is to those who share it: a title, a description, an address and a picture."""

import io
import re

import pytest
from bs4 import BeautifulSoup
from PIL import Image

from book import card
from tests.site import book

SETTINGS = (book.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
SITE = re.search(r"^site_url: (.+)$", SETTINGS, re.M)[1]
FONTS = book.DOCS / "assets/fonts"
CARD_WEIGHS = 30 * 1024  # bytes at most


@pytest.fixture(scope="session")
def heads(site):
    """The head of each page's HTML, by the page's path."""
    texts = {path: (site / path).read_text(encoding="utf-8") for path in book.PAGES}
    return {
        path: BeautifulSoup(text.partition("</head>")[0], "html.parser")
        for path, text in texts.items()
    }


def said(head, name):
    """Return what the one tag of this name says."""
    (tag,) = head.select(f"meta[property='{name}'], meta[name='{name}']")
    return tag["content"]


@pytest.mark.parametrize("path", book.PAGES)
def test_a_page_says_what_it_is_and_where(heads, path):
    head = heads[path]
    (canonical,) = head.select("link[rel=canonical]")
    assert canonical["href"] == said(head, "og:url") == SITE + path
    assert said(head, "description") == said(head, "og:description") != ""
    assert head.title.get_text().startswith(said(head, "og:title"))
    assert said(head, "og:image") == f"{SITE}{path.removesuffix('.html')}.png"
    assert said(head, "twitter:card") == "summary_large_image"


@pytest.mark.parametrize("what", ["description", "og:title"])
def test_no_two_pages_say_the_same(heads, what):
    told = [said(head, what) for head in heads.values()]
    assert sorted(text for text in set(told) if told.count(text) > 1) == []


def test_each_page_has_a_picture_of_its_own_that_is_light(site):
    pictures = [(site / path).with_suffix(".png").read_bytes() for path in book.PAGES]
    assert {Image.open(io.BytesIO(png)).size for png in pictures} == {(1200, 630)}
    assert len(set(pictures)) == len(pictures)
    assert max(map(len, pictures)) <= CARD_WEIGHS


def test_a_card_shows_the_heatmap_of_its_page_and_is_the_same_every_time():
    row = '<tr><th>a</th><td style="--v:1">1</td><td class="n" style="--v:1">-1</td></tr>'
    html = f'<table class="heatmap"><tbody>{row}{row}</tbody></table>'
    drawn = card.draw("A title", "A book", html, FONTS)
    assert drawn == card.draw("A title", "A book", html, FONTS)
    assert drawn != card.draw("Another", "A book", html, FONTS)
    picture = Image.open(io.BytesIO(drawn)).convert("RGB")
    more, less = picture.getpixel((800, 200)), picture.getpixel((1050, 400))
    assert (more, less) == ((0x3F, 0xB0, 0xA1), (0xE5, 0x8F, 0x3E))
    plain = Image.open(io.BytesIO(card.draw("A title", "A book", "", FONTS))).convert("RGB")
    assert plain.getpixel((780, 180)) == (0x0A, 0x6B, 0x63)  # the book's mark
    assert plain.getpixel((1100, 180)) == (0xFD, 0xFC, 0xFA)


def test_the_colours_of_a_card_are_those_of_the_site():
    sheets = [(book.DOCS / f"assets/{name}.css").read_text() for name in ("book", "figures")]
    light = sheets[0].partition('"slate"')[0] + sheets[1].partition('"slate"')[0]
    for colour in (
        card.PAPER,
        card.INK,
        card.QUIET,
        card.ACCENT,
        card.ZERO,
        card.MORE,
        card.LESS,
        card.HIDDEN,
    ):
        assert f": {colour};" in light


@pytest.mark.parametrize("title", ["Where " * 12, "One word beside a river and beside money", "Ab"])
def test_a_title_of_any_length_stands_clear_of_the_rest_of_its_card(title):
    picture = Image.open(io.BytesIO(card.draw(title, "A book", "", FONTS)))
    grey = picture.convert("L")
    assert (
        min(grey.crop((80, 440, 1200 - 480, 505)).get_flattened_data()) > 200
    )  # above the book's name
    assert (
        min(grey.crop((645, 0, 715, 630)).get_flattened_data()) > 200
    )  # between title and heatmap
