"""Makes the built site light: leaves out styles that no page uses, comments and indentation.

Material ships the styles of every component it has; a book uses half. A selector goes only if it
needs a class or an attribute value that occurs in no page and no script of the site, so nothing
that a page shows, now or after a click, can lose its look. Of the theme's own script only names
with a hyphen count, the rest being what its minifier made up, and none of a component that the
script would make where a page asks for it, and no page does.
"""

from __future__ import annotations

import re
from pathlib import Path

import rcssmin
import rjsmin

NAME = re.compile(r"[A-Za-z_][\w-]*")
SAID_IN = re.compile(r"<script.*?</script>|<[a-zA-Z][^>]*>", re.S)  # not the text of a page
MADE = re.compile(r"[A-Za-z_]\w*-[\w-]*")
UNASKED = re.compile(r"md-(?:annotation|code__|source|status|tag|tooltip(?!2)|version)|tabbed-")
# A library for copy buttons, which the book makes itself, and how Mermaid would look.
COPYING = re.compile(r"(\(\w+,(\w+)\)=>\{)/\*!\n \* clipboard\.js.*?\.default\}\)(?=\}\);)", re.S)
MERMAID = re.compile(r'"\.node circle[^"]*"')
# Stops what moves while colours change. Each element of a page must be asked about it, twice as the page opens.
SWITCHING = re.compile(r"\[data-md-color-switching\] \*[^{}]*\{[^{}]*\}")
# Names, operators and brackets have the colour of the code around them: three in five of a page's
# elements would say so, each to be sent, laid out and checked. The parts of a string bear one name,
# so that those beside each other are one element.
COLOURS = {
    **dict.fromkeys(("fm", "kc", "n", "o", "ow", "p", "vm", "w"), ""),
    **dict.fromkeys(("s1", "sa", "si"), "s2"),
}
TOKEN = re.compile(rf'<span class="({"|".join(COLOURS)})">([^<]*)</span>')
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
ALIKE = re.compile(r'(<span class="([a-z]\w?)">[^<]*)</span>(\s*)<span class="\2">')
# Elements whose white space is part of their text.
VERBATIM = re.compile(r"(<(pre|samp|script|style|template|textarea)\b.*?</\2>)", re.S)


def minify(site: Path) -> None:
    """Rewrite the pages, scripts and styles under `site` without what changes nothing that is shown."""
    for path in site.glob("**/*.html"):
        html = close_up(coloured(path.read_text(encoding="utf-8")))
        path.write_text(html, encoding="utf-8")
    trim(site)
    for path in site.glob("assets/javascripts/bundle.*.js"):
        path.write_text(without_copying(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in site.glob("assets/*.css"):
        path.write_text(rcssmin.cssmin(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in site.glob("assets/*.js"):
        path.write_text(rjsmin.jsmin(path.read_text(encoding="utf-8")), encoding="utf-8")


def without_copying(script: str) -> str:
    """Return the theme's `script` without two parts of it that no page of this book can reach."""
    return MERMAID.sub('""', COPYING.sub(r"\1\2.exports={isSupported:()=>!1}", script))


def close_up(html: str) -> str:
    """Return `html` without white space that is not text, and without marks that say nothing."""
    parts = VERBATIM.split(html)  # text, verbatim, its tag, text, …
    parts[::3] = [re.sub(r"\s*\n\s*", "\n", text) for text in parts[::3]]
    del parts[2::3]
    return joined("".join(parts).replace("<pre><span></span>", "<pre>"))


def coloured(code: str) -> str:
    """Return highlighted `code` without elements that have no colour, or another name for the same."""

    def colour(token: re.Match) -> str:
        kind = COLOURS[token[1]]
        return f'<span class="{kind}">{token[2]}</span>' if kind else token[2]

    return TOKEN.sub(colour, code)


def joined(code: str) -> str:
    """Return highlighted `code` in which neighbours of one colour are one element."""
    while (fewer := ALIKE.sub(r"\1\3", code)) != code:
        code = fewer
    return code


def trim(site: Path) -> None:
    """Rewrite the styles in `site`/assets/stylesheets/ without what no page or script names."""
    words = site / "assets/search-index.js"  # of the book
    sources = set(site.glob("assets/*.js")) - {words}
    scripts = [path.read_text(encoding="utf-8") for path in sources]
    pages = [path.read_text(encoding="utf-8") for path in site.glob("**/*.html")]
    texts = [*scripts, *(tag for page in pages for tag in SAID_IN.findall(page))]
    names = {name for text in texts for name in NAME.findall(text)}
    for path in site.glob("assets/javascripts/*.js"):
        made = MADE.findall(path.read_text(encoding="utf-8"))
        names.update(name for name in made if not UNASKED.match(name))
    theme = site.glob("assets/stylesheets/**/*.css")
    sheets = {path: _kept(path.read_text(encoding="utf-8"), names) for path in theme}
    own = [path.read_text(encoding="utf-8") for path in site.glob("assets/*.css")]
    # Pictures are kept in properties, and some of these no rule reads any more.
    shown = set(PROPERTY.findall("\n".join([*sheets.values(), *own])))
    for path, css in sheets.items():
        css = PICTURE.sub(lambda picture: picture[0] if picture["name"] in shown else "", css)
        path.write_text(css, encoding="utf-8")


def _kept(css: str, names: set[str]) -> str:
    """Return the rules that can still match something."""

    def rule(matched: re.Match) -> str:
        selectors = SELECTOR.findall(matched["selectors"])
        used = ",".join(selector for selector in selectors if _can_match(selector, names))
        return used and used + matched["body"]

    kept = RULE.sub(rule, SWITCHING.sub("", re.sub(r"/\*.*?\*/\s*", "", css, flags=re.S)))
    return re.sub(r"@(?:media|supports)[^{}]*\{\}", "", kept)


def _can_match(selector: str, names: set[str]) -> bool:
    """Say whether every class and attribute value that `selector` needs occurs somewhere."""
    needed = NEEDED.finditer(ALTERNATIVES.sub("", selector))
    return all((match["class"] or match["value"]) in names for match in needed)
