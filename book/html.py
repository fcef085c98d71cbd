"""What misleads by accident in the HTML that an author wrote, and in what the site has drawn of a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from book import measured
from literate.errors import Misread
from literate.fence import CODE_SPAN, Fence, blank_out

# What an author may write beside a drawing. Another tag could hide, cover or imitate what was checked.
WRITTEN = ["br", "code", "div", "em", "figcaption", "figure", "p", "span", "sub", "sup"]
FENCE = re.compile(r"[> ]*(?:`{3,}[^`]*$|~{3,})")
TAG = re.compile(r"<([a-z][\w-]*)(?=[\s/>])", re.IGNORECASE)
SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
MEASURED = re.compile(rf"^{re.escape(measured.FIGURE)}.*$", re.MULTILINE)
MATH = re.compile(r"(?<![\\$])(\$\$?)(?!\s)(?:[^$]|\\\$)+?(?<!\s)\1")
# What a reader should see nothing of: a formula that was not understood.
RAW = re.compile(
    r"```|~~~|\$\$|\\(?:begin|end|frac|sqrt|text|operatorname)\b|(?<!\w)\\[a-z]+(?=[{_^])"
)
QUIET = ["code", "pre", "samp", "math", "annotation", "svg", "script", "style"]


def problems(tree: Element, fences: list[Fence], lines: list[str]) -> Iterator[Misread]:
    """Yield what is wrong with a page that is drawn as `tree`, at the line of it."""
    outside = blank_out(fences, "\n".join(lines))
    for number, line in enumerate(outside, 1):
        if FENCE.match(line):
            yield Misread(number, "the site draws no code of this fence; look at its options")
    text = "\n".join(CODE_SPAN.sub("", line) for line in outside)
    prose = text.split("\n")
    own = MATH.sub(
        _blank, SVG.sub(_blank, MEASURED.sub(_blank, text))
    )  # without what is read from a file, and formulas
    for number, line in enumerate(own.split("\n"), 1):
        for tag in TAG.findall(line):
            if tag.lower() not in WRITTEN:
                what = f"a page holds no <{tag}>; it could hide or imitate what is shown as checked"
                yield Misread(number, f"{what}. Write it as Markdown")
    ids = [element.get("id", "") for element in tree.iter() if element.get("id")]
    ids += [fence.options["name"] for fence in fences if "name" in fence.options]
    for name in (name for name, times in Counter(ids).items() if times > 1):
        at = [n for n, line in enumerate(lines, 1) if re.search(rf"(#|id=|name=)\W?{name}\b", line)]
        yield Misread(
            at[-1] if at else 1, f"the address `{name}` is taken; each stands once on a page"
        )
    for text in _texts(tree):
        if raw := RAW.search(text):
            words = text[: raw.end()].split("\n")[-1].strip()[-20:]
            at = [n for n, line in enumerate(prose, 1) if words in line]
            what = f"the site shows `{raw[0]}` as it is written: it understands no formula here"
            yield Misread(at[0] if at else 1, what)


def _blank(match: re.Match) -> str:
    return "\n" * match[0].count("\n")


def _texts(element: Element) -> Iterator[str]:
    """Yield the texts that a reader sees below `element`, but for code and formulas."""
    if isinstance(element.tag, str) and element.tag.rpartition("}")[2] not in QUIET:
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""
