"""Read a Markdown page into blocks of code and the outputs they must print.

The scanner below finds the fences exactly where the site draws them, and hands them to
pytest-codeblocks' extractor as plain Markdown. Whatever it cannot read without guessing is a
`PageError` that names `page.md:line`, so no block is ever left out in silence.
"""

import io
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown import Markdown
from markdown.extensions.attr_list import get_attrs_and_remainder
from markdown.util import ETX
from pymdownx.snippets import SnippetExtension, SnippetMissingError, SnippetPreprocessor
from pymdownx.superfences import (
    RE_HL_LINES,
    RE_NESTED_FENCE_START,
    RE_OPTIONS,
    SuperFencesCodeExtension,
)
from pytest_codeblocks.main import extract_from_buffer

RUNS = ("python", "py", "python3", "py3")
CODE_OPTIONS = ("title", "hl_lines", "linenums")
OUTPUT_OPTIONS = ("heatmap", "chart", "rows", "cols", "caption", "raises", "varies")
FLAGS = ("heatmap", "chart")

# The extensions of mkdocs.yml that decide what is a fence.
CONTAINERS = (
    "admonition",
    "def_list",
    "footnotes",
    "md_in_html",
    "pymdownx.details",
    "pymdownx.superfences",
    "pymdownx.tabbed",
    "tables",
)

PREFIX = re.compile("[> ]*")
CLOSING = re.compile(r"(?P<prefix>[> ]*)(?P<marks>`{3,}|~{3,}) *$")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
MISPLACED = re.compile(r"(?:`{3,}|~{3,}) *[{.]* *(?:py|output)", re.IGNORECASE)
SOLUTION = re.compile(r"(?P<prefix>[> ]*)\?\?\?\+? +success +\"Solution")
FRONT_MATTER = re.compile(r"---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
INCLUDE = re.compile(r"-+8<-+ +([\"'])(?P<file>[^\"':]+)(?::(?P<section>[a-zA-Z][-\w]*))?\1")
SECTION = r"8<-+ +\[ *{} *: *{} *\]"


class PageError(Exception):
    """A page that cannot be read as a program; says where, what came and what was wanted."""

    def __init__(self, path, line, message):
        super().__init__(f"{shown(path)}:{line}: {message}")
        self.path, self.line, self.message = Path(path), line, message


@dataclass
class Fence:
    """One fenced block as it stands on the page, from its opening to its closing line."""

    line: int
    end: int
    prefix: str
    marks: str
    language: str
    options: dict[str, str]
    solution: bool
    text: str = ""

    @property
    def indent(self):
        return len(self.prefix)


@dataclass
class Block:
    """A piece of code that runs, and the output it must print, if any.

    `start` is the line of `Page.source` on which the code begins; it equals the page's own line
    except for an include, whose text stands after the end of the page.
    """

    fence: Fence
    code: str
    output: Fence | None = None
    included: Path | None = None
    included_lines: list[int] = field(default_factory=list)
    start: int = 0

    @property
    def line(self):
        return self.fence.line

    @property
    def solution(self):
        return self.fence.solution

    @property
    def raises(self):
        return self.output.options.get("raises") if self.output else None


@dataclass
class Page:
    """A Markdown page, read. `fences` holds every fence, `blocks` those that run.

    `source` is the page as one Python file: code on its own lines, blanks for prose, and the
    text of includes after the end of the page.
    """

    path: Path
    root: Path
    text: str
    fences: list[Fence]
    blocks: list[Block] = field(default_factory=list)
    source: str = ""

    @property
    def name(self):
        return shown(self.path, self.root)

    def origin(self, line):
        """Return the (path, line) that a reader would open for `line` of `source`."""
        for block in self.blocks:
            if block.included and block.start <= line < block.start + len(block.included_lines):
                return block.included, block.included_lines[line - block.start]
        return self.path, line

    def error(self, line, message):
        return PageError(self.path, line, message)


def shown(path, root=None):
    """Return `path` as people write it: relative to the root, or to where they stand."""
    path = Path(path)
    for base in filter(None, (root, Path.cwd())):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.as_posix()


def root_of(path):
    """Return the project that `path` belongs to: the nearest folder with a mkdocs.yml."""
    path = Path(path).resolve()
    return next((p for p in path.parents if (p / "mkdocs.yml").exists()), path.parent)


def is_page(path, root):
    """Say whether the file at `path` is a page of the book below `root`: the README, or in docs/."""
    path, root = Path(path), Path(root)
    inside = path == root / "README.md" or path.is_relative_to(root / "docs")
    return inside and path.suffix == ".md" and not path.name.startswith(".")


def pages(root):
    """Return the paths of all pages of the book below `root`: the README, then docs/ in order."""
    root = Path(root)
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if is_page(path, root) and path.exists()]


def read(path):
    """Read the Markdown file at `path` into a `Page`.

    Raises PageError for anything the book does not allow; the message names the line.
    """
    path = Path(path).resolve()
    text = _decoded(path, path.read_bytes())
    text = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)  # as Python-Markdown does,
    text = re.sub(r"(?<=\n) +\n", "\n", text)  # which empties blank lines too
    if not text.endswith("\n"):
        text += "\n"
    fences = _extract(path, text, _scan(path, text))
    _check_drawn(path, text, fences)
    page = Page(path, root_of(path), text, fences)
    _pair(page)
    _lay_out(page)
    return page


def _decoded(path, raw):
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the page as UTF-8"
        raise PageError(path, line, what) from None


def _scan(path, text):
    """Find each fence of `text`, its place and its options, without its text."""
    front_end = _front_matter(text).count("\n")
    fences, opened, comment, solution = [], None, 0, None
    for number, line in enumerate(text.split("\n"), 1):
        if opened:
            if _closes(path, number, line, opened):
                opened.end = number
                fences.append(opened)
                opened = None
            continue
        prefix = PREFIX.match(line)[0]
        if solution is not None and line.strip(" >") and len(prefix) <= solution:
            solution = None
        if SOLUTION.match(line):
            solution = len(prefix)
        fence = RE_NESTED_FENCE_START.match(line, len(prefix))
        if not fence:
            _refuse_misplaced(path, number, line)
            comment = _comment_opened_at(line, number, comment)
        elif number <= front_end or comment:
            where = "front matter" if number <= front_end else "an HTML comment"
            raise PageError(path, number, f"code in {where}; show it and run it, or delete it")
        else:
            opened = _open(path, number, prefix, fence, solution is not None)
    if opened:
        raise PageError(path, opened.line, f"unclosed fence; no closing {opened.marks} was found")
    if comment:
        raise PageError(path, comment, "unclosed HTML comment; no --> was found")
    return fences


def _front_matter(text):
    match = FRONT_MATTER.match(text)
    return match[0] if match else ""


def _refuse_misplaced(path, number, line):
    """Raise where a line of prose holds what looks like the start of code, and is drawn as text."""
    bare = CODE_SPAN.sub("", line)
    if MISPLACED.search(bare):
        raise PageError(
            path, number, "a fence opens on a line of its own; here it is drawn as text"
        )
    if "8<-" in bare:
        what = "an include stands alone in a `python` fence; found one in the text"
        raise PageError(path, number, what)


def _comment_opened_at(line, number, comment):
    """Return the line on which a comment still open after `line` began, 0 if none is."""
    rest = line if comment else CODE_SPAN.sub("", line)  # code spans may speak of comments
    while True:
        _, mark, rest = rest.partition("-->" if comment else "<!--")
        if not mark:
            return comment
        comment = 0 if comment else number


def _open(path, number, prefix, fence, solution):
    """Start the fence that the site's own expression matched; its options are checked here."""
    try:
        language, options = _read_info(fence)
        _check_language(language, options)
    except ValueError as error:
        raise PageError(path, number, str(error)) from None
    return Fence(number, 0, prefix, fence["fence"], language, options, solution)


def _closes(path, number, line, opened):
    """Say whether `line` closes `opened`; a line that Markdown tools read differently is an error."""
    if not line.startswith(opened.prefix) and line.strip(" >"):
        what = f"this line is indented less than its fence, which opened on line {opened.line}"
        raise PageError(path, number, what)
    close = CLOSING.match(line)
    if not close or close["marks"][0] != opened.marks[0]:
        return False
    if (close["prefix"], close["marks"]) == (opened.prefix, opened.marks):
        return True
    if len(close["marks"]) < len(opened.marks):
        return False
    what = (
        f"found {line.strip()} inside the fence that {opened.marks} opened on line {opened.line}; "
        "close with the same marks and indent, or open with a longer fence"
    )
    raise PageError(path, number, what)


def _read_info(fence):
    """Split the info string of a matched fence into language and options, as the site does."""
    info = fence[0].lstrip("`~").strip()
    if fence["unrecognized"]:
        raise ValueError(f'cannot read the info string `{info}`; wanted `language key="value" …`')
    if fence["attrs"] is None:
        language = fence["lang"] or ""
        found = [(m["key"], m["value"]) for m in RE_OPTIONS.finditer(fence["options"] or "")]
    else:
        pairs, rest = get_attrs_and_remainder(fence["attrs"])
        if rest.strip():
            raise ValueError(f"cannot read `{rest.strip()}` in the info string `{info}`")
        classes = [value for key, value in pairs if key == "."]
        language = fence["lang"] or (classes[0] if classes else "")
        found = [(key, value) for key, value in pairs if key not in (".", "id")]
    options = dict(found)
    if len(options) < len(found):
        raise ValueError(f"an option is given twice in `{info}`")
    # The site reads a flag as a key whose value is its own name.
    return language, {key: "" if value == key else value or "" for key, value in found}


def _check_language(language, options):
    lower = language.lower()
    if language == "output":
        check_output_options(options)
    elif language not in RUNS and (lower.startswith(("py", "ipy", "numpy")) or lower == "output"):
        raise ValueError(f"unknown language `{language}`; wanted `python`, or `output`")
    elif language != "attention":
        _check_code_options(options, language)


def _check_code_options(options, language):
    where = f"a `{language}` fence (options of the check live on `output`)"
    _check_known(options, CODE_OPTIONS, where)
    for key, value in options.items():
        if not value:
            raise ValueError(f'option `{key}` needs a value: {key}="…"')
    if not RE_HL_LINES.match(options.get("hl_lines", "1")):
        raise ValueError(f'hl_lines="{options["hl_lines"]}" names no lines; wanted such as "1 3-4"')
    if not options.get("linenums", "1").isdecimal():
        raise ValueError(f'linenums="{options["linenums"]}" is not the number of the first line')


def _check_known(options, known, where):
    for key in options:
        if key not in known:
            raise ValueError(f"unknown option `{key}` on {where}; wanted one of {', '.join(known)}")


def check_output_options(options):
    """Raise ValueError unless `options` (name → value) are ones that an `output` fence may carry."""
    _check_known(options, OUTPUT_OPTIONS, "an `output` fence")
    for key, value in options.items():
        if key in FLAGS and value:
            raise ValueError(f'option `{key}` takes no value; found `{key}="{value}"`')
        if key not in FLAGS and not value.strip():
            raise ValueError(f'option `{key}` needs a value: {key}="…"')
    if "heatmap" in options and "chart" in options:
        raise ValueError("an output is drawn as a `heatmap` or as a `chart`, not as both")
    for key in ("rows", "cols"):
        if key in options and "heatmap" not in options:
            raise ValueError(f"option `{key}` labels a `heatmap`; the fence has none")
    if not options.get("raises", "Error").isidentifier():
        raise ValueError(f'raises="{options["raises"]}" is not the name of an exception')
    if options.get("raises") in ("SyntaxError", "IndentationError", "TabError"):
        raise ValueError(
            "a block that raises SyntaxError is no program; call `compile` and catch it"
        )


def _extract(path, text, fences):
    """Fill in each fence's text with pytest-codeblocks' extractor, fed one plain form of fence."""
    lines = text.split("\n")
    plain = [""] * len(lines)
    for fence in fences:
        body = [line[fence.indent :] for line in lines[fence.line : fence.end - 1]]
        longest = max((len(run) for run in re.findall("`+", "\n".join(body))), default=0)
        marks = "`" * max(3, longest + 1)
        plain[fence.line - 1 : fence.end] = [marks + (fence.language or "text"), *body, marks]
    found = extract_from_buffer(io.StringIO("\n".join(plain)), max_num_lines=len(plain) + 2)
    assert [b.lineno for b in found] == [f.line for f in fences], f"{path}: fences were lost"
    for fence, block in zip(fences, found, strict=True):
        fence.text = block.code
    return fences


@cache
def _site():
    """Return the site's Markdown as far as it finds fences: no inline text and no colours."""
    fence = {"name": "*", "class": "", "validator": lambda *_: True, "format": lambda *_, **__: ""}
    site = Markdown(
        extensions=CONTAINERS,
        extension_configs={
            "pymdownx.superfences": {"custom_fences": [fence]},
            "pymdownx.tabbed": {"alternate_style": True},
        },
    )
    kinds = site.registeredExtensions
    return site, next(kind for kind in kinds if isinstance(kind, SuperFencesCodeExtension))


def _check_drawn(path, text, fences):
    """Raise at the first of `fences` that the site would draw as text, and not as code."""
    if not fences:
        return
    site, extension = _site()
    site.reset()
    front = _front_matter(text)
    lines = ("\n" * front.count("\n") + text[len(front) :]).split("\n")
    for preprocessor in site.preprocessors:
        lines = preprocessor.run(lines)
    found = list(extension.stash.stash)
    tree = site.parser.parseDocument(lines).getroot()
    html = site.htmlStash.rawHtmlBlocks
    text = "".join(
        part
        for node in (tree, *html)
        for part in ([node] if isinstance(node, str) else node.itertext())
    )
    for number, fence in enumerate(fences):
        # A fence in an indented block is taken off the stash; footnotes are moved out of the text.
        key = found[number] if number < len(found) else None
        if key not in extension.stash.stash or key + ETX not in text:
            what = (
                f"this fence, indented by {fence.indent}, stands in no list, note or tab so far in"
            )
            raise PageError(path, fence.line, f"{what}; the site would not draw it here as code")
    if len(found) > len(fences):
        raise PageError(path, 1, f"the site draws {len(found)} fences, and {len(fences)} were read")


def _pair(page):
    """Turn fences into blocks: expand includes, attach each output to the block before it."""
    lines = page.text.split("\n")
    previous = None
    for fence in page.fences:
        if fence.language in RUNS:
            page.blocks.append(_block(page, fence))
        elif "8<-" in fence.text:
            raise page.error(
                fence.line, "an include stands alone in a `python` fence; found one here"
            )
        elif fence.language == "output":
            _attach(page, fence, previous, lines)
        previous = fence


def _lay_out(page):
    """Set the page's `source`, and where in it each block starts."""
    lines = [""] * page.text.count("\n")
    for block in page.blocks:
        code = block.code.split("\n")[:-1]
        block.start = len(lines) + 1 if block.included else block.line + 1
        lines[block.start - 1 : block.start - 1 + len(code)] = code
    page.source = "\n".join(lines) + "\n"


def _attach(page, fence, previous, lines):
    """Give `fence`, an output, to the block that stands right before it."""
    if previous is None or previous.language not in (*RUNS, "output"):
        raise page.error(
            fence.line, "output without a block; wanted a `python` fence right before it"
        )
    if any(line.strip(" >") for line in lines[previous.end : fence.line - 1]):
        what = (
            f"output without a block; text stands between it and the fence on line {previous.line}"
        )
        raise page.error(fence.line, what)
    if previous.language == "output":
        raise page.error(
            fence.line, f"two outputs for one block; the first is on line {previous.line}"
        )
    if previous.prefix != fence.prefix:
        what = f"output is indented by {fence.indent}, its block on line {previous.line} by {previous.indent}"
        raise page.error(fence.line, what)
    page.blocks[-1].output = fence


def _block(page, fence):
    """Make the block of a `python` fence, with its include expanded."""
    if "8<-" not in fence.text:
        return Block(fence, fence.text)
    offset = next(i for i, line in enumerate(fence.text.split("\n"), 1) if "8<-" in line)
    try:
        file, lines, numbers = _included(page, fence.text.strip())
    except UnicodeDecodeError as error:
        raise page.error(fence.line + offset, f"the included file is not UTF-8: {error}") from None
    except (SnippetMissingError, ValueError) as error:
        raise page.error(fence.line + offset, str(error)) from None
    return Block(fence, "\n".join(lines) + "\n", None, file, numbers)


def _included(page, text):
    """Return what the include `text` shows: its file, the lines, and their numbers in the file."""
    match = INCLUDE.fullmatch(text)
    if not match:
        form = '--8<-- "file.py" or --8<-- "file.py:section"'
        raise ValueError(f"an include stands alone in its fence, as {form}")
    folder = page.root / "snippets"
    file, section = folder / match["file"], match["section"]
    first = _section_start(file, section) if section and file.is_file() else 0
    lines = "\n".join(_snippets(folder).parse_snippets([text])).strip("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"the include is empty: {match['file']}")
    if any(CLOSING.match(line) for line in lines):
        raise ValueError(f"a fence stands in {match['file']}, and would end the one around it")
    return file, lines, _lines_of(file, lines, first)


def _snippets(folder):
    """Return the site's own include machinery, set as mkdocs.yml sets it."""
    options = {"base_path": [str(folder)], "check_paths": True, "dedent_subsections": True}
    site, _ = _site()
    preprocessor = SnippetPreprocessor(SnippetExtension(**options).getConfigs(), site)
    preprocessor.seen = set()
    return preprocessor


def _section_start(file, section):
    """Return the index of the first line of a section; raise unless it starts and ends once."""
    lines = file.read_text(encoding="utf-8").split("\n")
    marks = [re.compile(SECTION.format(kind, re.escape(section))) for kind in ("start", "end")]
    starts, ends = ([i for i, line in enumerate(lines, 1) if m.search(line)] for m in marks)
    if not starts:
        raise ValueError(f"no section {section} in {file.name}")
    if (len(starts), len(ends)) != (1, 1) or starts > ends:
        found = f"it has {len(starts)} start and {len(ends)} end marks"
        raise ValueError(f"section {section} of {file.name} needs one start and one end; {found}")
    return starts[0]


def _lines_of(file, expanded, at):
    """Return, for each expanded line, the line of `file` that it was, looking from index `at` on."""
    lines = file.read_text(encoding="utf-8").split("\n")
    numbers = []
    for line in expanded:
        while at < len(lines) and lines[at].strip() != line.strip():
            at += 1
        numbers.append(at + 1)
        at += 1
    return numbers
