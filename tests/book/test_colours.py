"""What is read stands out from what is behind it, in either scheme, as far as WCAG 2.2 asks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STYLES = "".join(
    path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("docs/assets/*.css"), *ROOT.glob("book/**/*.css")]
)


def colours(scheme):
    """The colours that a scheme names, `{name: (r, g, b)}`, from 0 to 1."""
    blocks = re.findall(rf'\[data-md-color-scheme="{scheme}"\] \{{(.*?)\}}', STYLES, re.S)
    named = re.findall(r"--((?:book|heat|line)[\w-]*): #([0-9a-f]{6});", "".join(blocks))
    return {
        name: tuple(int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, value in named
    }


def contrast(one, other):
    """Contrast ratio of two colours, by WCAG 2.2."""

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize("hue", ["heat-1", "heat-minus"])
def test_the_number_in_a_cell_is_readable_at_every_shade(scheme, hue):
    named = colours(scheme)
    for shade in range(101):
        share = shade / 100
        behind = [
            share * deep + (1 - share) * pale
            for deep, pale in zip(named[hue], named["heat-0"], strict=True)
        ]
        assert contrast(named["heat-ink"], behind) >= 4.5, (scheme, hue, share)


@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    ("front", "behind"),
    [
        ("heat-ink", "heat-stripe"),
        ("book-quiet", "book-paper"),
        ("book-quiet", "book-raised"),
        ("book-accent", "book-accent-wash"),
        ("book-accent", "book-raised"),
        ("book-paper", "book-accent"),
    ],
)
def test_labels_keys_and_stripes_are_readable(scheme, front, behind):
    named = colours(scheme)
    assert contrast(named[front], named[behind]) >= 4.5


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_the_lines_of_a_chart_stand_out_from_the_page(scheme):
    named = colours(scheme)
    for line in range(1, 7):
        assert contrast(named[f"line-{line}"], named["book-paper"]) >= 3


def test_shades_grow_with_the_value_on_either_scheme():
    for scheme in ("default", "slate"):
        named = colours(scheme)
        for hue in ("heat-1", "heat-minus"):
            assert contrast(named[hue], named["heat-0"]) >= 1.9, (scheme, hue)
