"""Trims the theme's stylesheets to what the built pages use.

Material ships the styles of every component it has; a book uses half. A selector goes only if it
needs a class or an attribute value that occurs in no page and no script of the site, so nothing
that a page shows, now or after a click, can lose its look.
"""

from __future__ import annotations

import re
from pathlib import Path

import tinycss2

NAME = re.compile(r"[A-Za-z_][\w-]*")
NEEDED = re.compile(r"\.(?P<class>[A-Za-z_][\w-]*)|\[[\w-]+[$^*~|]?=[\"']?(?P<value>[\w-]+)")
ALTERNATIVES = re.compile(r":(?:not|is|where)\((?:[^()]|\([^()]*\))*\)")
PROPERTY = re.compile(r"var\(\s*(--[\w-]+)")


def trim(site: Path) -> None:
    """Rewrite `site`/assets/stylesheets/*.css without what no page or script names."""
    names = set()
    for pattern in ("**/*.html", "assets/**/*.js"):
        for file in site.glob(pattern):
            names |= set(NAME.findall(file.read_text(encoding="utf-8")))
    sheets = {
        path: path.read_text(encoding="utf-8") for path in site.glob("assets/stylesheets/*.css")
    }
    trimmed = {path: _kept(_rules(text), names) for path, text in sheets.items()}
    every = [
        *trimmed.values(),
        *(path.read_text(encoding="utf-8") for path in site.glob("assets/*.css")),
    ]
    properties = {name for text in every for name in PROPERTY.findall(text)}
    for path, text in trimmed.items():
        path.write_text(_without_icons(text, properties), encoding="utf-8")


def _rules(text):
    return tinycss2.parse_rule_list(text, skip_whitespace=True, skip_comments=True)


def _kept(rules, names: set[str]) -> str:
    """Return the rules that can still match something, as CSS."""
    css = ""
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = _split(tinycss2.serialize(rule.prelude))
            used = [selector for selector in selectors if _can_match(selector, names)]
            css += f"{','.join(used)}{{{tinycss2.serialize(rule.content)}}}" if used else ""
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inner = _kept(_rules(tinycss2.serialize(rule.content)), names)
            css += (
                f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}" if inner else ""
            )
        else:
            css += tinycss2.serialize([rule])
    return css


def _can_match(selector: str, names: set[str]) -> bool:
    """Say whether every class and attribute value that `selector` needs occurs somewhere."""
    needed = NEEDED.finditer(ALTERNATIVES.sub("", selector))
    return all((match["class"] or match["value"]) in names for match in needed)


def _split(prelude: str) -> list[str]:
    """Split a list of selectors at its own commas, not at those within parentheses."""
    selectors, depth, start = [], 0, 0
    for at, character in enumerate(prelude):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            selectors.append(prelude[start:at])
            start = at + 1
    return [*selectors, prelude[start:]]


def _without_icons(css: str, properties: set[str]) -> str:
    """Drop the pictures kept in custom properties that no rule reads any more."""
    picture = re.compile(r"(?P<name>--[\w-]+):url\((?:\"[^\"]*\"|'[^']*'|[^)]*)\);?")
    return picture.sub(lambda match: match[0] if match["name"] in properties else "", css)
