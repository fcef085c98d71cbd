"""What an author may write as HTML: nothing that could cover or imitate what is shown as checked.

What the site draws from Markdown is marked as made by it. All other tags and attributes are the author's,
who may write those of WRITTEN and no others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.treeprocessors import Treeprocessor

from literate.fence import CODE_SPAN, Fence, Misread, blank_out

SVG = "{http://www.w3.org/2000/svg}"
PAINT = "class fill fill-opacity stroke stroke-width stroke-opacity stroke-dasharray stroke-linecap"
LETTERS = "font-size font-weight font-style text-anchor"
# The tags and attributes that an author may write: those of the drawings, a few words of HTML, and the
# boxes of the home page. No `style`, no event handler, no form, table or `pre`, for each of them could
# hide, cover or imitate what was checked, and Markdown draws the rest. The site's own tags are not here.
WRITTEN = {
    **{"br": "", "code": "", "em": "", "figcaption": "", "p": ""},
    **{"data": "value", "div": "class", "figure": "class", "span": "class title"},
    f"{SVG}svg": f"{PAINT} {LETTERS} viewBox width role aria-labelledby style",
    f"{SVG}g": f"{PAINT} {LETTERS} transform",
    f"{SVG}title": "id",
    f"{SVG}desc": "id",
    f"{SVG}defs": "",
    f"{SVG}marker": "id viewBox markerWidth markerHeight markerUnits orient refX refY",
    f"{SVG}path": f"{PAINT} d marker-end",
    f"{SVG}line": f"{PAINT} x1 y1 x2 y2 marker-end",
    f"{SVG}rect": f"{PAINT} x y width height rx",
    f"{SVG}circle": f"{PAINT} cx cy r",
    f"{SVG}polygon": f"{PAINT} points",
    f"{SVG}text": f"{PAINT} {LETTERS} x y transform",
    f"{SVG}tspan": f"{PAINT} {LETTERS} x y dx dy",
}
LISTED = ("id", "class", "download")  # what an attribute list, { … }, may give
# The classes of the site's styles that a page may use: those that only colour or arrange.
HTML_CLASSES = "diagram home home-lead home-proof home-why home-line home-start home-doors by-hand"
SVG_CLASSES = "soft accent plain kept"
# What a value must look like, where another could reach out of its drawing, and in words.
VALUES = {
    "id": (  # an underline begins the theme's own; the other kinds are given to what fences draw
        r"(?!__|exercise-\d|(.*-)?(output|explorable|figure|table)(-\d+)?$)[\w-]+",
        "an address that neither the site nor a figure gives",
    ),
    "style": (r"max-width:100%;height:auto", "max-width:100%;height:auto"),
    "fill": (r"currentColor|none|context-stroke|var\(--[\w-]+\)", "currentColor or none"),
    "stroke": (r"currentColor|none|var\(--[\w-]+\)", "currentColor or none"),
    "marker-end": (r"url\(#[\w-]+\)", "url(#name)"),
    "transform": (r"((translate|rotate|scale)\([-\d., ]+\) ?)+", "translate, rotate or scale"),
    "download": (r"\w+\.py", "the name of a snippet"),
    "title": (r".*", "text"),
    "value": (r"[^<>]+", "an expression of the page"),
}
OTHER_VALUE = r"[^:()]*", "numbers and words"
# What a note may be called; another name is a class like any other, which the site's styles may hide.
NOTES = "note abstract info tip success question warning failure danger bug example quote"
ADDRESS = re.compile(r"(?:https?://|mailto:)|(?![a-z][a-z\d+.-]*:|//)", re.IGNORECASE)


class Written(Treeprocessor):
    """What an author wrote as HTML: all that the site's own Markdown did not mark as made by it."""

    def __init__(self, site: Markdown, text: str, mark: str):
        super().__init__(site)
        self.text, self.mark = text, mark
        self.listed: list[tuple[str, str, str]] = []  # tag, name and value, of attribute lists
        site.postprocessors.deregister("addresses")  # which writes on what the author wrote
        site.treeprocessors.register(self, "written", -100)
        blocks, inline = site.parser.blockprocessors, site.inlinePatterns
        self._watch(site.preprocessors["html_block"], "run", self._note_elements)
        self._watch(site.treeprocessors["indent-highlight"], "run", self._mark_text)
        self._watch(blocks["math"], "run", self._mark_text)
        self._watch(inline["math"], "handleMatch", self._mark_text)
        lists = site.treeprocessors["attr_list"]
        vars(lists)["assign_attrs"] = self._noting(lists.assign_attrs)

    def _watch(self, processor: Any, name: str, note: Callable[[int], None]) -> None:
        """Have `note` look at what `processor` stores, from the place in the stash that it is given."""
        method, stash = getattr(processor, name), self.md.htmlStash

        def watched(*args: Any) -> Any:
            first = len(stash.rawHtmlBlocks)
            result = method(*args)
            note(first)
            return result

        vars(processor)[name] = watched

    def _note_elements(self, first: int) -> None:
        """Mark HTML around Markdown as the author's, before it stands among what the site makes."""
        for stored in self.md.htmlStash.rawHtmlBlocks[first:]:
            for element in [] if isinstance(stored, str) else stored.iter():
                element.set(self.mark, "not")

    def _mark_text(self, first: int) -> None:
        """Mark each tag of the HTML that the site itself has written."""
        stored = self.md.htmlStash.rawHtmlBlocks
        stored[first:] = [
            re.sub(r"<(?=[a-z])[\w-]+", rf"\g<0> {self.mark}", one) for one in stored[first:]
        ]

    def _noting(self, assign: Callable[..., str]) -> Callable[..., str]:
        """Return `assign`, which gives an element its attribute list, so that what it gives is noted."""

        def noted(element: Element, *args: Any, **kwargs: Any) -> str:
            before = dict(element.attrib)
            remainder = assign(element, *args, **kwargs)
            for name, value in element.attrib.items():
                if value != before.get(name):
                    new = value.removeprefix(before.get(name, "")) if name == "class" else value
                    self.listed.append((str(element.tag), name, new.strip()))
            return remainder

        return noted

    def run(self, root: Element) -> None:
        """Mark all that stands in the tree as made by the site, but for what is noted as not."""
        for element in root.iter():
            if element is not root and self.mark not in element.attrib:
                element.set(self.mark, "")

    def check(self, root: Element, fences: list[Fence]) -> None:
        """Raise at the first tag or attribute of the page drawn as `root` that no author may write."""
        self.prose = "\n".join(blank_out(fences, self.text))
        for tag, name, value in self.listed:
            self._check_attribute(tag, name, value, LISTED, r"\{[^}\n]*")
        for element in root.iter():
            if element is root or not isinstance(element.tag, str):  # which a comment has not
                continue
            for name in ("href", "src"):
                if not ADDRESS.match("".join(element.get(name, "").split())):
                    value = element.get(name, "")
                    raise self._wrong(re.escape(value), f"the address `{value}` leads to no page")
            if element.get(self.mark, "not") == "not":
                self._check_element(element)
            elif element.tag == "details" or "admonition" in element.get("class", "").split():
                for name in {*element.get("class", "").split()} - {"admonition"}:
                    if name not in NOTES.split():
                        what = f"a note is no `{name}`; wanted one of {NOTES}"
                        raise self._wrong(rf"(!!!|\?\?\?).*{re.escape(name)}", what)
        self._check_ids(root, fences)

    def _check_element(self, element: Element) -> None:
        """Raise unless an author may write `element` with its attributes."""
        tag = element.tag.rpartition("}")[2]
        if element.tag not in WRITTEN:
            what = f"a page holds no <{tag}>; it could change or imitate what is shown as checked"
            place = rf"</?{re.escape(tag)}(?![-\w])"
            raise self._wrong(place, f"{what}. Write it as Markdown")
        for name, value in element.attrib.items():
            if name != self.mark:
                allowed = tuple(WRITTEN[element.tag].split())
                written = name.rpartition("}")[2]
                self._check_attribute(element.tag, written, value, allowed, rf"<{tag}\b[^>]*")

    def _check_attribute(
        self, tag: str, name: str, value: str, allowed: tuple[str, ...], before: str
    ) -> None:
        """Raise unless `name` is one of those `allowed`, with a `value` that it may have."""
        shown = {"id": "#", "class": r"\."}.get(name, "")
        place = rf"{before}(?:(?<![-\w]){re.escape(name)}\b|(?<=\{{){shown})"
        if name not in allowed:
            where = f"<{tag.rpartition('}')[2]}>"
            wanted = ", ".join(allowed) or "none"
            raise self._wrong(place, f"{where} has no attribute `{name}` here; wanted {wanted}")
        classes = SVG_CLASSES if tag.startswith(SVG) else HTML_CLASSES
        for one in value.split() if name == "class" else []:
            if one not in classes.split():
                what = f"the class `{one}` is the site's own; wanted one of {classes}"
                raise self._wrong(rf"{before}{re.escape(one)}", what)
        form, words = VALUES.get(name, OTHER_VALUE)
        if not re.fullmatch(form, value, re.DOTALL):
            what = f'{name}="{value}" could reach beyond its place; wanted {words}'
            raise self._wrong(rf"{before}{re.escape(value)}", what)

    def _check_ids(self, root: Element, fences: list[Fence]) -> None:
        """Raise where two things of the page have one address."""
        names: dict[str, int] = {}
        for fence in fences:
            if name := fence.options.get("name"):
                first = names.setdefault(name, fence.line)
                if first != fence.line:
                    what = f'name="{name}" is taken by the heatmap at line {first}'
                    raise Misread(fence.line, what)
        ids = [own for element in root.iter() if (own := element.get("id"))]
        cells = [own for own in ids for name in names if re.fullmatch(rf"{name}(-\d+)+", own)]
        for one, times in Counter([*ids, *names]).items():
            if times > 1 or one in cells:
                what = f"the address `{one}` is taken; each stands once on a page"
                address = re.escape(one)
                raise self._wrong(rf"(?s:.*)(#|id=[\"']?){address}\b|{address}", what)

    def _wrong(self, pattern: str, what: str) -> Misread:
        """Return the error that says `what` at the line where a match of `pattern` ends."""
        lines = (unescape(CODE_SPAN.sub("", line)) for line in self.prose.split("\n"))
        prose = "\n".join(line.replace("\n", " ") for line in lines)
        place = re.search(pattern, prose, re.IGNORECASE)
        return Misread(prose.count("\n", 0, place.end()) + 1 if place else 1, what)
