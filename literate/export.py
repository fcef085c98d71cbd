"""Turn a page into what a reader takes away: a notebook, a script, plain Markdown.

Nothing runs here: outputs are the page's own, which the tests hold true, so the site builds
without torch.
"""

import ast
import re
from functools import partial
from urllib.parse import urljoin

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from literate.compare import pinned_torch
from literate.fence import Fence, blank_out
from literate.page import Block, Page, without_front_matter

CONTAINER = re.compile(
    r"(?P<kind>!!!|\?\?\?\+?|===[!+]*) *(?P<type>[\w -]*?) *(?:\"(?P<title>.*)\")? *$"
)
IN_PARAGRAPH = r"(?:[^\n]|\n(?!\s*\n))"  # a character that no blank line follows
# What a notebook shows otherwise than the site: lists of attributes, and links to sources. Code and
# formulas come first, so that neither is looked for inside them.
MARKUP = re.compile(
    rf"""(?<![\\`])(?P<marks>`++){IN_PARAGRAPH}+?(?<!`)(?P=marks)(?!`)
    | ^[> ]*\$\${IN_PARAGRAPH}+?\$\$
    | (?<![\\$\w])\$(?![\s$])(?:\\.|(?![$\\]){IN_PARAGRAPH})+?(?<!\s)\$(?![\d$])
    | (?P<attributes>[ ]?\{{:?[ ]*[.#][^}}\n]*\}})
    | (?P<link>\]\()(?![a-z]+:|/)(?P<target>[^)\s]+)""",
    re.MULTILINE | re.VERBOSE,
)
IMAGE = re.compile(r"^ *!\[.+\]\((?P<file>(?![a-z]+:|/)[^)\s]+)", re.MULTILINE)
FORMATTED = ("JoinedStr", "TemplateStr")  # what `ast` calls texts that hold expressions
INDENT = 4  # spaces that make the inside of an admonition or a tab
# It has no name that the page, or what a reader adds to it, could have too.
GUARD = """\
try:
{code}
except BaseException:  # the page shows this error and its message, and goes on
    (lambda sys, traceback: sys.stdout.write(
        [entry for entry in traceback.format_exception_only(sys.exc_info()[1])
         if not entry.startswith(" ")][0]
    ))(__import__("sys"), __import__("traceback"))
"""


def notebook(page: Page, site_url: str = "") -> str:
    """Return the page as the JSON of an executed notebook, the page's outputs attached."""
    return nbformat.writes(as_notebook(page, site_url)) + "\n"


def runnable(page: Page, site_url: str = "") -> dict[str, str]:
    """Return the text of each file that runs, by what its name adds to the page's."""
    return {".ipynb": notebook(page, site_url), ".py": script(page, site_url)}


def script(page: Page, site_url: str = "") -> str:
    """Return the page as a Python script in the percent format; prose is in comments."""
    lines: list[str] = []
    for cell in as_notebook(page, site_url, guarded=True).cells:
        own = cell.source.split("\n")
        if cell.cell_type == "code":
            # Two empty lines follow a function, or whatever else ends in an indented line.
            lines += ["# %%", *own, *[""] * (2 if own[-1].startswith((" ", ")")) else 1)]
        else:
            lines += ["# %% [markdown]", *(f"# {line}".rstrip() for line in own), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown(page: Page, site_url: str = "") -> str:
    """Return the page's Markdown, with each include replaced by the code it shows.

    An image is one of the site, where it has an address: its file stays there.
    """

    def absolute(image: re.Match) -> str:
        return image[0].replace(image["file"], _absolute(image["file"], address))

    address = _address(page, site_url)
    lines = (IMAGE.sub(absolute, page.text) if address else page.text).split("\n")
    for block in reversed(page.blocks):
        if block.included:
            code = [
                (block.fence.prefix + line).rstrip() for line in block.code.rstrip().split("\n")
            ]
            lines[block.line : block.fence.end - 1] = code
    for place, text in _taken(page, lines).items():
        lines[place] = text
    return "\n".join(lines)


def _taken(page: Page, lines: list[str]) -> dict[int, str]:
    """Return what stands, where `page` is taken away, for those of its `lines` that show a file, by place."""
    taken = (page.project.drawings.taken(line, page.path.parent) for line in lines)
    both = enumerate(zip(lines, taken, strict=True))
    return {place: new for place, (line, new) in both if new != line}


def pieces(page: Page) -> list[str]:
    """Return, block by block, code that lets the blocks after it run: expected errors are caught."""
    return [guard(block.code) if block.raises else block.code for block in page.blocks]


def programs(page: Page) -> list[str]:
    """Return, for each block, the whole program that ends with it and prints what the page shows."""
    before = pieces(page)
    return ["\n".join([*before[:i], block.code]) for i, block in enumerate(page.blocks)]


def guard(code: str) -> str:
    """Return code that must raise so that what follows it still runs."""
    inside_strings: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if isinstance(node, ast.expr) and (text or type(node).__name__ in FORMATTED):
            inside_strings.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    lines = enumerate(code.rstrip("\n").split("\n"), 1)
    indented = [text if n in inside_strings or not text else "    " + text for n, text in lines]
    return GUARD.format(code="\n".join(indented))


def as_notebook(page: Page, site_url: str, guarded: bool = False) -> NotebookNode:
    """Return the page as a notebook; what raises is caught where it is `guarded`, as a script needs it."""
    address = _address(page, site_url)
    outputs = {block.output.line for block in page.blocks if block.output}
    blocks = {block.line: block for block in page.blocks}
    cells: list[NotebookNode] = []
    prose = [_heading(page, address)]
    containers: list[int] = []  # the indents of the open admonitions
    fences = {fence.line: fence for fence in page.fences}
    lines = _prose(page, address)

    def close_prose() -> None:
        if text := _join(prose):
            cells.append(new_markdown_cell(text, id=f"cell-{len(cells)}"))
        prose.clear()

    close_prose()
    at = 1
    while at <= len(lines):
        fence = fences.get(at)
        if at in blocks:
            close_prose()
            count = page.blocks.index(blocks[at]) + 1
            cells.append(_code_cell(blocks[at], guarded, f"cell-{len(cells)}", count))
        elif fence and (
            inside := [b for b in page.blocks if b.is_session and at < b.line < fence.end]
        ):
            close_prose()
            for block in inside:
                count = page.blocks.index(block) + 1
                cells.append(_code_cell(block, guarded, f"cell-{len(cells)}", count))
        elif fence and at not in outputs:
            prose += _kept_fence(page, fence, containers, address)
        elif not fence:
            line = lines[at - 1]
            if "\n" in line:  # a table
                prose += line.split("\n")
            elif line.strip() or not (prose and "\n" in prose[-1]):  # a title brings its own blank
                prose.append(_line(line, containers))
        at = fence.end + 1 if fence else at + 1
    close_prose()
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return new_notebook(cells=cells, metadata=metadata)


def _heading(page: Page, address: str) -> str:
    named = f"[{page.name}]({address})" if address else page.name
    code = "\n".join(block.code for block in page.blocks)
    return page.project.heading(named, code, pinned_torch(page.root))


def _code_cell(block: Block, guarded: bool, name: str, count: int) -> NotebookNode:
    code = guard(block.code) if guarded and block.raises else block.code
    cell = new_code_cell(code.rstrip("\n"), id=name, execution_count=count)
    if block.output:
        printed, ending = block.output.text, ""
        if block.raises:
            named = re.compile(rf"^(?:\w+\.)*{block.raises}\b", re.MULTILINE)
            start = max((match.start() for match in named.finditer(printed)), default=0)
            printed, ending = printed[:start], printed[start:].rstrip("\n")
        if printed:
            cell.outputs.append(new_output("stream", name="stdout", text=printed))
        if ending:
            message = ending.partition(":")[2].removeprefix(" ")
            error = new_output("error", ename=block.raises, evalue=message, traceback=[ending])
            cell.outputs.append(error)
            cell.metadata["tags"] = ["raises-exception"]
    return cell


def _join(prose: list[str]) -> str:
    """Join lines of prose; a blank line between two block quotes is as deep as the shallower one."""
    lines = "\n".join(prose).split("\n")
    after = ""
    for i in reversed(range(len(lines))):
        if not lines[i].strip("> "):
            lines[i] = ("> " * min(_depth(lines[i]), _depth(after))).rstrip()
        after = lines[i]
    return "\n".join(lines).strip("\n")


def _depth(line: str) -> int:
    quote = re.match(r"(?:> ?)+", line)
    return quote[0].count(">") if quote else 0


def _kept_fence(page: Page, fence: Fence, containers: list[int], address: str) -> list[str]:
    """Return the lines of a fence that does not run, or what its kind has in their place."""
    if instead := page.kind(fence).stands_for:
        text = " " * fence.indent + instead.format(address=address)
        return [_line(text, containers)]
    return [_line(line, containers) for line in page.lines[fence.line - 1 : fence.end]]


def _prose(page: Page, address: str) -> list[str]:
    """Return the lines of prose without attributes, and with links that lead to the site.

    The line of a fence is empty.
    """
    written = blank_out(page.fences, without_front_matter(page.text))
    plain = partial(_plain, address)
    lines = MARKUP.sub(plain, "\n".join(written)).split("\n")
    for place, text in _taken(page, written).items():
        lines[place] = MARKUP.sub(plain, text)
    return lines


def _plain(address: str, match: re.Match) -> str:
    """Return what stands for an attribute, or for a link, in a page that is taken away."""
    if match["attributes"]:
        return ""
    linked = match["link"] and address
    return match["link"] + _absolute(match["target"], address) if linked else match[0]


def _line(line: str, containers: list[int]) -> str:
    """Translate one line of prose; `containers` holds the indents of the open admonitions."""
    indent = len(line) - len(line.lstrip(" "))
    while line.strip() and containers and indent < containers[-1]:
        containers.pop()
    text = line[INDENT * len(containers) :] if line.strip() else ""
    quote = "> " * len(containers)
    match = CONTAINER.match(text)
    if match:
        containers.append(indent + INDENT)
        title = match["title"] if match["title"] is not None else match["type"].strip().capitalize()
        text, quote = (f"**{title}**\n{'> ' * len(containers)}" if title else ""), quote + "> "
    return (quote + text).rstrip() if text.strip() or not containers else quote.rstrip()


def _address(page: Page, site_url: str) -> str:
    """Return the page's own address on the site, or "" when the site has none."""
    if not site_url or not page.path.is_relative_to(page.root / "docs"):
        return site_url
    return urljoin(site_url, as_html(page.path.relative_to(page.root / "docs").as_posix()))


def as_html(target: str) -> str:
    """Return the site's name of a source file: `a/b.md#c` and `a/b.ipynb#c` are `a/b.html#c`."""
    return re.sub(r"\.(md|ipynb)(?=#|$)", ".html", target)


def _absolute(target: str, address: str) -> str:
    """Resolve a link of the Markdown source, which is written from the page's own folder."""
    return urljoin(address, as_html(target))
