"""Trims the theme's stylesheets to what the built pages use.

Material ships the styles of every component it has; a book uses half. A selector goes only if it
needs a class or an attribute value that occurs in no page and no script of the site, so nothing
that a page shows, now or after a click, can lose its look.
"""

from __future__ import annotations

import re
from pathlib import Path

NAME = re.compile(r"[A-Za-z_][\w-]*")
STRING = r"\"[^\"]*\"|'[^']*'"
# A rule without rules inside: in a group it is read as anywhere else.
RULE = re.compile(
    rf"(?<![^{{}};])(?P<selectors>(?:{STRING}|[^{{}}@;\"'])+)(?P<body>{{(?:{STRING}|[^{{}}\"'])*}})"
)
IN_BRACKETS = r"\((?:[^()]|\([^()]*\))*\)"
SELECTOR = re.compile(rf"(?:{IN_BRACKETS}|\[[^\]]*\]|[^,(\[])+")
ALTERNATIVES = re.compile(rf":(?:not|is|where){IN_BRACKETS}")
NEEDED = re.compile(r"\.(?P<class>[A-Za-z_][\w-]*)|\[[\w-]+[$^*~|]?=[\"']?(?P<value>[\w-]+)")
PROPERTY = re.compile(r"var\(\s*(--[\w-]+)")
PICTURE = re.compile(rf"(?P<name>--[\w-]+):url\((?:{STRING}|[^)]*)\);?")


def trim(site: Path) -> None:
    """Rewrite `site`/assets/stylesheets/*.css without what no page or script names."""
    pages = [*site.glob("**/*.html"), *site.glob("assets/**/*.js")]
    names = {name for path in pages for name in NAME.findall(path.read_text(encoding="utf-8"))}
    theme = site.glob("assets/stylesheets/*.css")
    sheets = {path: _kept(path.read_text(encoding="utf-8"), names) for path in theme}
    own = [path.read_text(encoding="utf-8") for path in site.glob("assets/*.css")]
    # Pictures are kept in properties, and some of these no rule reads any more.
    shown = set(PROPERTY.findall("\n".join([*sheets.values(), *own])))
    for path, css in sheets.items():
        css = PICTURE.sub(lambda picture: picture[0] if picture["name"] in shown else "", css)
        path.write_text(css, encoding="utf-8")


def _kept(css: str, names: set[str]) -> str:
    """Return the rules that can still match something."""

    def rule(found: re.Match) -> str:
        selectors = SELECTOR.findall(found["selectors"])
        used = ",".join(selector for selector in selectors if _can_match(selector, names))
        return used and used + found["body"]

    kept = RULE.sub(rule, re.sub(r"/\*.*?\*/\s*", "", css, flags=re.S))
    return re.sub(r"@(?:media|supports)[^{}]*\{\}", "", kept)


def _can_match(selector: str, names: set[str]) -> bool:
    """Say whether every class and attribute value that `selector` needs occurs somewhere."""
    needed = NEEDED.finditer(ALTERNATIVES.sub("", selector))
    return all((match["class"] or match["value"]) in names for match in needed)
