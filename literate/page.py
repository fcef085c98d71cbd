"""Read a Markdown page into blocks of code and the outputs they must print.

The scanner below finds the fences exactly where the site draws them, and hands them to
pytest-codeblocks' extractor as plain Markdown. Whatever it cannot read without guessing is a
`PageError` that names `page.md:line`, so no block is ever left out in silence.
"""

import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from markdown import Markdown
from pymdownx.snippets import SnippetExtension, SnippetMissingError, SnippetPreprocessor
from pytest_codeblocks.main import extract_from_buffer

RUNS = ("python", "py", "python3", "py3")
CODE_OPTIONS = ("title", "hl_lines", "linenums")
OUTPUT_OPTIONS = ("heatmap", "chart", "rows", "cols", "caption", "raises", "varies")
FLAGS = ("heatmap", "chart")

FENCE = re.compile(r"(?P<prefix>[> ]*)(?P<marks>`{3,}|~{3,}) *(?P<info>.*?) *$")
MISPLACED = re.compile(r"[> ]*(?:[-*+]|\d+[.)]) +(?:`{3,}|~{3,})")
INFO = re.compile(
    r"\.?(?P<language>[\w#+-][\w#.+-]*)?(?: *\{(?P<braces>[^\n]*)\}|(?P<options>(?: +[\w-]+(?:=\S.*)?)*))$"
)
OPTION = re.compile(r" *(?P<key>[a-zA-Z]\w*)(?:=(?P<quote>[\"'])(?P<value>.*?)(?P=quote))?(?= |$)")
SOLUTION = re.compile(r"(?P<prefix>[> ]*)\?\?\?\+? +success +\"Solution")
FRONT_MATTER = re.compile(r"---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
INCLUDE = re.compile(r"-+8<-+ +([\"'])(?P<target>[^\"':]+(?P<section>:[a-z][-_0-9a-z]*)?)\1$")
SECTION_MARK = re.compile(r"-+8<-+ +\[ *(?:start|end) *:")


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


def pages(root):
    """Return the paths of all pages of the book below `root`: the README, then docs/ in order."""
    root = Path(root)
    found = sorted(p for p in (root / "docs").rglob("*.md") if not p.name.startswith("."))
    return [p for p in (root / "README.md",) if p.exists()] + found


def read(path):
    """Read the Markdown file at `path` into a `Page`.

    Raises PageError for anything the book does not allow; the message names the line.
    """
    path = Path(path).resolve()
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{raw[error.start]:02x} is not UTF-8; save the page as UTF-8"
        raise PageError(path, line, byte) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4)  # as Python-Markdown does
    if not text.endswith("\n"):
        text += "\n"
    fences = _extract(path, text, _scan(path, text))
    page = Page(path, root_of(path), text, fences)
    _pair(page)
    _lay_out(page)
    return page


def _scan(path, text):
    """Find each fence of `text`, its place and its options, without its text."""
    lines = text.split("\n")
    front = FRONT_MATTER.match(text)
    front_end = front[0].count("\n") if front else 0
    fences, opened, comment, solution = [], None, 0, None
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if opened:
            if _closes(path, number, line, fence, opened):
                opened.end = number
                fences.append(opened)
                opened = None
            continue
        if fence and number <= front_end:
            raise PageError(path, number, "code in front matter; every block must be seen and run")
        if fence and comment:
            raise PageError(path, number, "code in an HTML comment; show it and run it, or delete it")
        if MISPLACED.match(line):
            what = "a fence on the line of a list marker is not drawn as code; put it on its own line"
            raise PageError(path, number, what)
        if not fence and "8<-" in line:
            what = "an include stands alone in a `python` fence; found one in the text"
            raise PageError(path, number, what)
        if solution is not None and line.strip(" >") and _indent(line) <= solution:
            solution = None
        if match := SOLUTION.match(line):
            solution = len(match["prefix"])
        if fence:
            opened = _open(path, number, fence, solution is not None)
        else:
            comment = _comment_opened_at(line, number, comment)
    if opened:
        raise PageError(path, opened.line, f"unclosed fence; no closing {opened.marks} was found")
    if comment:
        raise PageError(path, comment, "unclosed HTML comment; no --> was found")
    return fences


def _indent(line):
    return len(line) - len(line.lstrip(" >"))


def _comment_opened_at(line, number, comment):
    """Return the line on which a comment still open after `line` began, 0 if none is."""
    rest = re.sub(r"(`+)(?!`).*?\1", "", line)  # code spans may speak of comments
    while True:
        before, mark, rest = rest.partition("-->" if comment else "<!--")
        if not mark:
            return comment
        comment = 0 if comment else number


def _open(path, number, fence, solution):
    """Start the fence that `fence` matched; its options are read and checked here."""
    try:
        language, options = _read_info(fence["info"])
        _check_language(language, options)
    except ValueError as error:
        raise PageError(path, number, str(error)) from None
    return Fence(number, 0, fence["prefix"], fence["marks"], language, options, solution)


def _closes(path, number, line, fence, opened):
    """Say whether `line` closes `opened`; a line that Markdown tools read differently is an error."""
    inside = line.startswith(opened.prefix) or not line.strip(" >")
    if not inside:
        what = f"this line is indented less than its fence, which opened on line {opened.line}"
        raise PageError(path, number, what)
    if not fence or fence["info"] or fence["marks"][0] != opened.marks[0]:
        return False
    if fence["marks"] == opened.marks and fence["prefix"] == opened.prefix:
        return True
    if len(fence["marks"]) < len(opened.marks):
        return False
    what = (
        f"found {fence['prefix']}{fence['marks']!s} inside the fence opened on line {opened.line} by "
        f"{opened.prefix}{opened.marks}; close with the same marks and indent, or open with a longer fence"
    )
    raise PageError(path, number, what)


def _read_info(info):
    """Split an info string into language and options, by the site's grammar."""
    match = INFO.match(info) if info else None
    if info and not match:
        raise ValueError(f"cannot read the info string `{info}`; wanted: language key=\"value\" …")
    if not info:
        return "", {}
    language, rest = match["language"] or "", match["options"] or ""
    if match["braces"] is not None:
        words = re.findall(r"[.#][\w-]+|[^\s=]+=(?:\"[^\"]*\"|'[^']*'|\S+)|\S+", match["braces"])
        classes = [w[1:] for w in words if w.startswith(".")]
        language = language or (classes[0] if classes else "")
        rest = "".join(f" {w}" for w in words if w[0] not in ".#")
    options, at = {}, 0
    while at < len(rest.rstrip()):
        option = OPTION.match(rest, at)
        if not option:
            raise ValueError(f"cannot read the option `{rest[at:].strip()}`; wanted key=\"value\"")
        if option["key"] in options:
            raise ValueError(f"option `{option['key']}` is given twice")
        options[option["key"]] = option["value"] if option["quote"] else ""
        at = option.end()
    return language, options


def _check_language(language, options):
    lower = language.lower()
    if lower in RUNS:
        _check_known(options, CODE_OPTIONS, "a `python` fence (options of the check live on `output`)")
    elif lower.startswith(("py", "ipy")) or lower == "output" != language:
        raise ValueError(f"unknown language `{language}`; wanted `python`, or `output`")
    elif language == "output":
        check_output_options(options)


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
    if not options.get("raises", "Error").replace(".", "_").isidentifier():
        raise ValueError(f'raises="{options["raises"]}" is not the name of an exception')


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


def _pair(page):
    """Turn fences into blocks: expand includes, attach each output to the block before it."""
    lines = page.text.split("\n")
    previous = None
    for fence in page.fences:
        if fence.language.lower() in RUNS:
            page.blocks.append(_block(page, fence))
        elif "8<-" in fence.text:
            raise page.error(fence.line, "an include stands alone in a `python` fence; found one here")
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
    if previous is None or previous.language.lower() not in (*RUNS, "output"):
        raise page.error(fence.line, "output without a block; wanted a `python` fence right before it")
    if any(line.strip(" >") for line in lines[previous.end : fence.line - 1]):
        what = f"output without a block; text stands between it and the fence on line {previous.line}"
        raise page.error(fence.line, what)
    if previous.language == "output":
        raise page.error(fence.line, f"two outputs for one block; the first is on line {previous.line}")
    if previous.prefix != fence.prefix:
        what = f"output is indented by {fence.indent}, its block on line {previous.line} by {previous.indent}"
        raise page.error(fence.line, what)
    page.blocks[-1].output = fence


def _block(page, fence):
    """Make the block of a `python` fence, with its include expanded."""
    if "8<-" not in fence.text:
        return Block(fence, fence.text)
    match = INCLUDE.match(fence.text.strip())
    if not match:
        offset = next(i for i, line in enumerate(fence.text.split("\n")) if "8<-" in line)
        what = 'an include stands alone in its fence, as --8<-- "file.py" or --8<-- "file.py:section"'
        raise page.error(fence.line + 1 + offset, what)
    folder = page.root / "snippets"
    try:
        expanded = _snippets(folder).parse_snippets([fence.text.strip()])
    except SnippetMissingError as error:
        raise page.error(fence.line + 1, f"{error} in {shown(folder, page.root)}/") from None
    target, _, section = match["target"].partition(":")
    numbers = _lines_of(folder / target, expanded, section)
    return Block(fence, "\n".join(expanded).rstrip("\n") + "\n", None, folder / target, numbers)


def _snippets(folder):
    """Return the site's own include machinery, set as mkdocs.yml sets it."""
    options = {"base_path": [str(folder)], "check_paths": True, "dedent_subsections": True}
    preprocessor = SnippetPreprocessor(SnippetExtension(**options).getConfigs(), Markdown())
    preprocessor.seen = set()
    return preprocessor


def _lines_of(file, expanded, section):
    """Return, for each expanded line, the line of `file` that it was."""
    lines = file.read_text(encoding="utf-8").split("\n")
    at = 0
    if section:
        start = re.compile(rf"8<-+ +\[ *start *: *{re.escape(section)} *\]", re.IGNORECASE)
        at = next(i for i, line in enumerate(lines) if start.search(line)) + 1
    numbers = []
    for line in expanded:
        while at < len(lines) and lines[at].strip() != line.strip():
            at += 1
        numbers.append(at + 1)
        at += 1
    return numbers
