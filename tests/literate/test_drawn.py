"""What runs is what the site draws as Python, block for block and letter for letter.

The site's own Markdown draws each page; a browser's parser reads what came of it. `PAGES=5000`
composes that many random pages instead of a hundred, `SEED=…` the same again.
"""

import re

import html5lib
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from pytest_codeblocks import extract_from_file

from literate import site
from literate.page import PageError, read
from tests.chance import fuzz
from tests.literate.test_page import FORMS
from tests.pages import PAGES

UNSEEN = ("script", "style", "template", "head", "title", "textarea", "noscript", "select", "svg")


def seen(element):
    """Give each element that a browser would show, in order."""
    for child in element:
        if isinstance(child.tag, str) and child.tag not in UNSEEN and "hidden" not in child.attrib:
            yield child
            yield from seen(child)


def drawn(path):
    """Return what the site draws of a page: each visible block of Python, each visible output."""
    text = path.read_text(encoding="utf-8-sig").lstrip("\n")
    html = site.markdown(path.parents[1]).convert(text)
    boxes = list(seen(html5lib.parseFragment(html, "article", namespaceHTMLElements=False)))
    python = {"language-python", "language-py", "language-python3", "language-py3"}
    return (
        [text_of(box, "code") for box in boxes if python & set(box.get("class", "").split())],
        [text_of(box, "samp") for box in boxes if box.get("class") == "output"],
    )


def text_of(box, tag):
    return "".join("".join(part.itertext()) for part in box.iter(tag)).strip("\n")


def ran(path):
    """Return the text of each block of a page that runs, and of each output that is compared."""
    page = read(path)
    page.check_drawn()
    blocks = page.blocks
    return (
        [block.code.strip("\n") for block in blocks],
        [block.output.text.strip("\n") for block in blocks if block.output],
    )


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_is_drawn_as_it_is_run(book, text):
    path = book.page(text.encode())
    assert drawn(path) == ran(path) == (["print(1)"], [])
    line = re.split(r"\r\n|\r|\n", text)[read(path).blocks[0].line - 1]
    assert re.search(r"[`~]{3,}[ {.]*py", line), "the block's line is that of its opening fence"


def test_the_extractor_of_pytest_codeblocks_finds_the_same_fences():
    for page in PAGES:
        lines = page.text.split("\n")
        includes = {block.line: lines[block.line] for block in page.blocks if block.included}
        found = [
            # Of `{ .python … }` it takes the brace for the language.
            (b.lineno, b.syntax.split()[0].replace("{", "python"), words(b.code))
            for b in extract_from_file(page.path)
        ]
        assert found == [
            (fence.line, fence.language, words(includes.get(fence.line, fence.text)))
            for fence in page.fences
        ]


def words(code):
    """Return the lines of code but the blank ones, which the extractor loses in an indented fence."""
    return [line.strip() for line in code.split("\n") if line.strip()]


# ---- Pages composed at random ----

CODE = st.sampled_from(
    ["a = 1", "    b = 2", "", "'''", "# > c", "> d", "- e", "```", "~~~", "<!--", "x\ty", "&amp;"]
)
INFOS = st.sampled_from(
    ["python", "py", " python3", "{ .python }", '{ .py title="a" }', 'python title="b"', "text", ""]
)
OUTPUT = st.sampled_from(["output", 'output caption="c"', 'output raises="Error"'])
PROSE = st.sampled_from(
    [
        "text",
        "# Heading",
        "> quote",
        "| a | b |\n| - | - |\n| 1 | 2 |",
        "$$\na + b\n$$",
        "$$",
        "so $a_1$ and `code` and *more*",
        "*[HTML]: text",
        "*[HTML]:",
        "[1]:",
        "[^1]: foot",
        "a[^1]",
        "---",
        "    indented",
        "<!-- remark -->",
        "<!--",
        "-->",
        "<br>",
        "<b>bold",
        "</b>",
        "<![CDATA[",
        "]]>",
        "<?",
        "?>",
        '<img alt="',
        '">',
        "`",
        "``",
    ]
)
TAGS = st.sampled_from(
    [
        "div",
        "div markdown",
        "div hidden",
        "div hidden markdown",
        'div style="display:none" markdown',
        "details markdown",
        "figure markdown",
        "p",
        "span",
        "b hidden",
        "pre",
        "table",
        "ul",
        "script",
        "style",
        "template",
        "textarea",
        "select",
        "svg",
        "title",
        "math",
        "noscript",
        "dialog markdown",
    ]
)
SET_OF_TABS = '===! "Tab"'  # begins a set of its own, where `===` may go on with the one before
CONTAINERS = st.sampled_from(
    [
        ("- item", "    "),
        ("1. item", "    "),
        ("* item", "  "),
        ("!!! note", "    "),
        ('??? success "Solution"', "    "),
        ('=== "Tab"', "    "),
        (SET_OF_TABS, "    "),
        ("Term\n:   definition", "    "),
        (">", "> "),
        ("> quote", "> "),
        ("a[^2]\n\n[^2]: foot", "    "),
    ]
)
INCLUDES = st.sampled_from(
    [f'--8<-- "part.py{name}"' for name in ("", ":one", ":two")] + ['  --8<-- "part.py"']
)
PART = (
    "x = 1\n\n# --8<-- [start:one]\nif x:\n\ty = 2\n# --8<-- [end:one]\n\n@f\ndef two():\n\tx\nx\n"
)


def joined(pieces):
    return [line for piece in pieces for line in piece]


def indented(lines, by):
    return [(by + line).rstrip() if line else line for line in lines]


@st.composite
def fences(draw):
    """Draw a block of code as an author writes one, now and then with what it prints."""
    marks = draw(st.sampled_from(["```", "```", "````", "~~~"]))
    body = draw(st.lists(CODE, max_size=4) | INCLUDES.map(lambda line: [line]))
    info = "python" if "8<-" in "".join(body) else draw(INFOS)
    lines = [marks + info, *body, marks, ""]
    if draw(st.booleans()):
        lines += [marks + draw(OUTPUT), *draw(st.lists(CODE, max_size=2)), marks, ""]
    return lines


@st.composite
def contained(draw, inner):
    """Draw a list, a note, a tab, a quote … or a piece of HTML around what `inner` draws."""
    lines = draw(inner)
    if draw(st.booleans()):
        tag = draw(TAGS)
        gap = draw(st.sampled_from([[], [""]]))
        return [f"<{tag}>", *gap, *lines, *gap, f"</{tag.split()[0]}>", ""]
    opener, indent = draw(CONTAINERS)
    return [*opener.split("\n"), *draw(st.sampled_from([[], [""]])), *indented(lines, indent), ""]


PIECES = st.recursive(
    fences() | PROSE.map(lambda text: [*text.split("\n"), ""]) | PROSE.map(str.splitlines),
    lambda inner: contained(st.lists(inner, min_size=1, max_size=3).map(joined)),
    max_leaves=5,
)


@st.composite
def texts(draw):
    """Draw a page, now and then with a line out of place."""
    lines = ["# A page", "", *joined(draw(st.lists(PIECES, min_size=1, max_size=5)))]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        changed = [[" " + line], [line.lstrip()], [line + "`"], [line[1:]], ["    " + line], []]
        lines[at : at + 1] = draw(st.sampled_from([*changed, [line, draw(PROSE)]]))
    return "\n".join(lines) + "\n"


@fuzz(100)
@given(text=texts())
def test_any_page_that_is_read_is_drawn_as_it_is_run(book, text):
    book.snippet("part.py", PART)
    path = book.page(text.encode())
    try:
        wanted = ran(path)
    except PageError as error:
        event(f"refused: {error.message[:30]}")
        return
    event(f"read: {min(len(wanted[0]), 3)} blocks")
    assert drawn(path) == wanted


# ---- Pages as an author writes them: each fence is sound, and nothing is out of place ----

SOUND_PROSE = PROSE.filter(lambda text: text[0] not in '<]?`-">*[$' and "[^" not in text)

# What holds no fence of its own as far in, and a tab whose set another tab that runs code may be in.
UNSOUND = ("a[^2]\n\n[^2]: foot", "* item", '=== "Tab"')


@st.composite
def sound_fences(draw):
    """Draw the lines of a fence, and the code that it must run."""
    marks = draw(st.sampled_from(["`````", "~~~~~"]))
    info = draw(INFOS.filter(lambda info: "py" in info))
    body = draw(st.lists(CODE.filter(lambda line: "\t" not in line), min_size=1, max_size=4))
    code = "\n".join(body).strip("\n")
    return [marks + info, *body, marks, ""], [code]


def together(pieces):
    """Join pieces, each the lines of a page and the code that they run."""
    lines, codes = zip(*pieces, strict=True)
    return joined(lines), joined(codes)


def inside(container, piece):
    """Put a list, a note, a set of one tab, a quote … around `piece`."""
    (opener, indent), (lines, codes) = container, piece
    blank = indent.rstrip()
    lines = [indent + line if line else blank for line in lines]
    return [*opener.split("\n"), blank, *lines, ""], codes


SOUND = st.recursive(
    sound_fences() | SOUND_PROSE.map(lambda text: ([*text.split("\n"), ""], [])),
    lambda inner: st.builds(
        inside,
        CONTAINERS.filter(lambda container: container[0] not in UNSOUND),
        st.lists(inner, min_size=1, max_size=3).map(together),
    ),
    max_leaves=6,
)


@fuzz(100)
@given(pieces=st.lists(SOUND, min_size=1, max_size=4))
def test_a_sound_page_runs_in_full_just_where_the_site_draws_it_in_full(book, pieces):
    lines, codes = together([(["# A page", ""], []), *pieces])
    path = book.page(("\n".join(lines) + "\n").encode())
    in_full = drawn(path) == (codes, [])
    event(f"{min(len(codes), 3)} blocks, drawn {'in full' if in_full else 'otherwise'}")
    if in_full:
        assert ran(path) == (codes, [])
    else:
        with pytest.raises(PageError):
            read(path)
