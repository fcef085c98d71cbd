"""The gallery counts with the facts of its files, and these agree with what is published."""

import json
import re

import pytest

from book.figures import FigureError, gallery
from snippets.attention_of import attention_of
from snippets.cost import model_of
from tools.gallery import FOLDER, PAGE, models, size, written

MODELS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
ROOT = PAGE.parents[2]
ROW = "Any 1B | Any | 2025 | 1.00 | 0.50 | WWF | grouped 4 : 2 × 8, window 16 | 64 | 32 | 1.5"
TITLES = " | ".join("abcdefghij")


def described():
    for name, model in MODELS.items():
        try:
            yield name, model, attention_of(model["config"])
        except ValueError:
            continue


def test_the_page_counts_with_the_facts_of_the_files():
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "make gallery"
    assert [one["name"] for one in models()] == re.findall(r'^ *\{"name": "([^"]*)"', page, re.M)


@pytest.mark.parametrize("name", MODELS)
def test_a_file_says_what_a_model_is_and_where_that_stands(name):
    model = MODELS[name]
    assert set(model) - {"active"} == {
        *("name", "family", "year", "parameters", "sources", "looked_at", "config")
    }
    assert set(model["sources"]) == {"config", "parameters"}
    assert all(re.match(r"https://\S+$", source) for source in model["sources"].values())
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", model["looked_at"])
    assert name == gallery.file(model["name"])


def near(counted, published, units):
    """Whether a count is off by 6 in 100 at most, or by so many units of the last published digit."""
    number, digits = float(published.removesuffix("B")), len(published.partition(".")[2]) - 1
    return abs(counted / 1e9 - number) <= max(units * 10 ** -max(0, digits), 0.06 * number)


def test_counted_weights_are_those_that_are_published():
    for name, model, layers in described():
        counted = model_of(model["config"], layers)
        assert near(counted.total, model["parameters"], 0.5), f"{name}: {counted.total}"
        if "active" in model:  # some count the embeddings of all words among them
            assert near(counted.active, model["active"], 1), f"{name}: {counted.active}"


def test_a_model_with_experts_names_what_one_token_meets():
    for name, model, layers in described():
        assert ("active" in model) == (model_of(model["config"], layers).mlps[-1].experts > 0), name


def test_each_line_is_a_row_that_leads_to_its_file_and_each_word_to_a_chapter():
    page = PAGE.read_text(encoding="utf-8")
    printed = re.search(r"^```output gallery[^\n]*\n(.*?)^```", page, re.M | re.S)[1]
    drawn = gallery.html(printed, {})
    files = re.findall(r'<th scope="row"><a href="models/(.*?)\.json"', drawn)
    assert sorted(files) == sorted(MODELS)
    chapters = set(re.findall(r'<td data-name="Attention">(.*?)</td>', drawn))
    for cell in chapters:
        unlinked = re.sub(r"<a href.*?</a>", "", cell)
        assert not unlinked.strip(", "), f"no chapter for {unlinked}"
    for address in gallery.CHAPTERS.values():
        file, _, heading = address.removeprefix("../").partition("#")
        text = (ROOT / "docs" / file.replace(".html", ".md")).read_text(encoding="utf-8")
        assert not heading or f"#{heading} }}" in text, address


def test_a_row_says_its_kinds_in_words_and_in_a_strip():
    drawn = gallery.html(f"{TITLES}\n{ROW}", {})
    assert 'data-family="Any" data-year="2025" data-kind="full window" data-size="1.0"' in drawn
    assert 'aria-label="2 window, 1 full"' in drawn
    assert '<path class="window" d="M0 0h2v1h-2z"/><path class="full" d="M2 0h1v1h-1z"/>' in drawn
    assert '<a href="../cache/grouped-query.html">grouped 4 : 2 × 8</a>' in drawn


def test_a_model_that_is_refused_says_why():
    drawn = gallery.html(f"{TITLES}\nAny | Any | 2025 | 9B | it has <no> layers", {})
    assert 'class="refused">it has &lt;no&gt; layers</td>' in drawn
    assert 'data-kind="refused" data-size="9.0"' in drawn


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Any | Any | 2025", "line 2 of the fence: wanted 10 cells, or 5: .*, got 3"),
        (ROW.replace("WWF", "WXF"), "line 2 of the fence: layers of F/W/L/M: WXF"),
    ],
)
def test_a_line_that_is_no_row_is_an_error(line, why):
    with pytest.raises(FigureError, match=why):
        gallery.check(f"{TITLES}\n{line}", {})


def test_models_stand_by_family_year_and_size():
    order = [(one["family"].lower(), one["year"], size(one)) for one in models()]
    assert order == sorted(order)
