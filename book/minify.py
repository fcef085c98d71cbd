"""Makes the built site light: fewer elements in code, and no styles, comments or indentation that nothing shows.

Material ships the styles of every component that it has; a book uses half. A rule of the theme goes if it
needs a class or an attribute's value that is a word of no page and no script: so nothing that a page shows,
now or after a click, can lose its look.
"""

from __future__ import annotations

import re
from pathlib import Path

import rcssmin
import rjsmin
import tinycss2

# Names, operators and brackets have the colour of the code around them: three in five of a page's
# elements would say so, each to be sent, laid out and checked. The parts of a string bear one name,
# so that those beside each other are one element.
COLOURS = {
    **dict.fromkeys(("fm", "kc", "n", "o", "ow", "p", "vm", "w"), ""),
    **dict.fromkeys(("s1", "sa", "si"), "s2"),
}
TOKEN = re.compile(rf'<span class="({"|".join(COLOURS)})">([^<]*)</span>')
ALIKE = re.compile(r'(<span class="([a-z]\w?)">[^<]*)</span>(\s*)<span class="\2">')
# Elements whose white space is part of their text.
VERBATIM = re.compile(r"(<(pre|samp|script|style|template|textarea)\b.*?</\2>)", re.S)
PICTURE = re.compile(r"(?P<name>--[\w-]+):url\((?:\"[^\"]*\"|'[^']*'|[^)]*)\);?")
# Components of the theme that its script makes where a page asks for them, and no page does.
UNUSED = re.compile(r"md-(?:annotation|code__|source|status|tag|tooltip(?!2)|version)|tabbed-")
# Stops what moves while colours change: each element of a page must be asked about it, twice as it opens.
SWITCHING = "[data-md-color-switching]"
# Of the theme's script, a library for copy buttons, which the book makes itself, and how Mermaid would look.
COPYING = re.compile(r"(\(\w+,(\w+)\)=>\{)/\*!\n \* clipboard\.js.*?\.default\}\)(?=\}\);)", re.S)
MERMAID = re.compile(r'"\.node circle[^"]*"')
WORD = re.compile(r"[A-Za-z_][\w-]*")
ALTERNATIVES = re.compile(r":(?:not|is|where)\((?:[^()]|\([^()]*\))*\)")
NEEDED = re.compile(r"\.([A-Za-z_][\w-]*)|\[[\w-]+[$^*~|]?=[\"']?([\w-]+)")


def minify(site: Path) -> None:
    """Rewrite the pages, scripts and styles under `site` without what changes nothing that is shown."""
    words: set[str] = set()
    for path in site.rglob("*.html"):
        html = close_up(coloured(path.read_text(encoding="utf-8")))
        path.write_text(html, encoding="utf-8")
        for tag in re.findall(r"<script.*?</script>|<[a-zA-Z][^>]*>", html, re.S):
            words.update(WORD.findall(tag))
    for path in set(site.glob("assets/*.js")) - {site / "assets/search-index.js"}:
        words.update(WORD.findall(path.read_text(encoding="utf-8")))
    for path in site.glob("assets/javascripts/*.js"):  # its other names are its minifier's
        made = re.findall(r"[A-Za-z_]\w*-[\w-]*", path.read_text(encoding="utf-8"))
        words.update(name for name in made if not UNUSED.match(name))
    own = "".join(path.read_text(encoding="utf-8") for path in site.glob("assets/*.css"))
    for path in site.glob("assets/stylesheets/*.css"):
        rules = tinycss2.parse_stylesheet(path.read_text(encoding="utf-8"), skip_comments=True)
        used = _used(rules, words)
        path.write_text(_without_pictures(used, used + own), encoding="utf-8")
    for path in site.glob("assets/javascripts/bundle.*.js"):
        script = COPYING.sub(r"\1\2.exports={isSupported:()=>!1}", path.read_text(encoding="utf-8"))
        path.write_text(MERMAID.sub('""', script), encoding="utf-8")
    for path in site.glob("assets/*.css"):
        path.write_text(rcssmin.cssmin(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in site.glob("assets/*.js"):
        path.write_text(rjsmin.jsmin(path.read_text(encoding="utf-8")), encoding="utf-8")


def close_up(html: str) -> str:
    """Return `html` without white space that is no text, and without an element that holds nothing."""
    parts = VERBATIM.split(html)  # text, verbatim, its tag, text, …
    parts[::3] = [re.sub(r"\s*\n\s*", "\n", text) for text in parts[::3]]
    del parts[2::3]
    return "".join(parts).replace("<pre><span></span>", "<pre>")


def coloured(code: str) -> str:
    """Return highlighted `code` in which each element has a colour of its own."""

    def colour(token: re.Match) -> str:
        kind = COLOURS[token[1]]
        return f'<span class="{kind}">{token[2]}</span>' if kind else token[2]

    code = TOKEN.sub(colour, code)
    while (fewer := ALIKE.sub(r"\1\3", code)) != code:
        code = fewer
    return code


def _used(rules: list, words: set[str]) -> str:
    """Return the rules that can match something on pages of these words."""
    kept = ""
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = _selectors(tinycss2.serialize(rule.prelude))
            used = [one for one in selectors if words >= _needed(one) and SWITCHING not in one]
            kept += f"{','.join(used)}{{{tinycss2.serialize(rule.content)}}}" if used else ""
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inner = _used(tinycss2.parse_rule_list(rule.content, skip_comments=True), words)
            condition = tinycss2.serialize(rule.prelude)
            kept += f"@{rule.at_keyword}{condition}{{{inner}}}" if inner else ""
        else:
            kept += rule.serialize()
    return kept


def _without_pictures(css: str, readers: str) -> str:
    """Return `css` without the pictures in properties that no rule of `readers` reads."""
    read = {*re.findall(r"var\((--[\w-]+)", readers)}
    return PICTURE.sub(lambda found: found[0] if found["name"] in read else "", css)


def _selectors(prelude: str) -> list[str]:
    return re.findall(r"(?:\((?:[^()]|\([^()]*\))*\)|\[[^\]]*\]|[^,(\[])+", prelude)


def _needed(selector: str) -> set[str]:
    """Return the classes and the values of attributes without which a selector matches nothing."""
    found = NEEDED.findall(ALTERNATIVES.sub("", selector))
    return {name or value for name, value in found}
