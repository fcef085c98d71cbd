"""Turn a page into what a reader takes away: a notebook, a script, plain Markdown.

Nothing runs here: outputs are the page's own, which the tests hold true, so the site builds
without torch.
"""

import ast
import re
from dataclasses import replace
from urllib.parse import urljoin

import jupytext
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from literate.compare import pinned_torch
from literate.fence import RUNS, Fence
from literate.page import Block, Page, without_front_matter

CONTAINER = re.compile(
    r"(?P<kind>!!!|\?\?\?\+?|===[!+]*) *(?P<type>[\w -]*?) *(?:\"(?P<title>.*)\")? *$"
)
LINK = re.compile(r"(\]\()(?![a-z]+:|/)([^)\s]+)")
ATTRIBUTES = re.compile(r" ?\{:? *[.#][^}\n]*\}")
INDENT = 4  # spaces that make the inside of an admonition or a tab
EXERCISES = "## Exercises"
HINT = "<details><summary>Hint</summary>"
CHECK = re.compile(r"^def (check_(\d+))\(", re.MULTILINE)
PRACTISE = """\
*To practise in: first the code of the chapter, which you run once, then its exercises. Each has a stub to
fill in, a folded hint, and a check that says what is wrong. The solutions stand on the page.*"""

GUARD = """\
try:
{code}
except Exception as error:  # the page shows this error, and goes on
    import traceback

    print(*traceback.format_exception_only(error), sep="", end="")
"""


def notebook(page: Page, site_url: str = "") -> str:
    """Return the page as the JSON of an executed notebook, the page's outputs attached."""
    return nbformat.writes(_notebook(page, site_url, guarded=False)) + "\n"


def practice(page: Page, site_url: str = "") -> str:
    """Return the JSON of a notebook to practise in; "" for a page that sets no exercise.

    It holds the page's code under its headings, then each exercise: its stub, its check, which is
    called, and its hint, folded. It holds no solution and no output.
    """
    if EXERCISES not in page.lines:
        return ""
    book = _notebook(_without_answers(page), site_url, guarded=False)
    book.cells[0].source += f"\n\n{PRACTISE}"
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
        else:
            cell.source = re.sub(r"\n{3,}", "\n\n", cell.source)
    return nbformat.writes(book) + "\n"


def runnable(page: Page, site_url: str = "") -> dict[str, str]:
    """Return the text of each file that runs, by what its name adds to the page's."""
    texts = {".ipynb": notebook(page, site_url), ".py": script(page, site_url)}
    practised = practice(page, site_url)
    return texts | ({"-practice.ipynb": practised} if practised else {})


def script(page: Page, site_url: str = "") -> str:
    """Return the page as a Python script in the percent format; prose is in comments."""
    book = _notebook(page, site_url, guarded=True)
    book.metadata["jupytext"] = {"notebook_metadata_filter": "-all", "cell_metadata_filter": "-all"}
    return jupytext.writes(book, fmt="py:percent")


def markdown(page: Page) -> str:
    """Return the page's Markdown, with each include replaced by the code it shows."""
    lines = list(page.lines)
    for block in reversed(page.blocks):
        if block.included:
            code = [
                (block.fence.prefix + line).rstrip() for line in block.code.rstrip().split("\n")
            ]
            lines[block.line : block.fence.end - 1] = code
    return "\n".join(lines)


def pieces(page: Page) -> list[str]:
    """Return, block by block, code that lets the blocks after it run: expected errors are caught."""
    return [_guard(block.code) if block.raises else block.code for block in page.blocks]


def programs(page: Page) -> list[str]:
    """Return, for each block, the whole program that ends with it and prints what the page shows."""
    before = pieces(page)
    return ["\n".join([*before[:i], block.code]) for i, block in enumerate(page.blocks)]


def _guard(code: str) -> str:
    """Wrap code that must raise, so that what follows still runs."""
    inside_strings: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            inside_strings.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    lines = enumerate(code.rstrip("\n").split("\n"), 1)
    indented = [text if n in inside_strings or not text else "    " + text for n, text in lines]
    return GUARD.format(code="\n".join(indented))


def _notebook(page: Page, site_url: str, guarded: bool) -> NotebookNode:
    address = _address(page, site_url)
    outputs = {block.output.line for block in page.blocks if block.output}
    blocks = {block.line: block for block in page.blocks}
    cells: list[NotebookNode] = []
    prose = [_heading(page, address)]
    containers: list[int] = []  # the indents of the open admonitions
    fences = {fence.line: fence for fence in page.fences}
    lines = without_front_matter(page.text).split("\n")

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
        elif fence and at not in outputs:
            prose += _kept_fence(fence, lines, containers, address)
        elif not fence:
            line = lines[at - 1]
            if line.strip() or not (prose and "\n" in prose[-1]):  # a title brings its own blank
                prose.append(_line(line, containers, address))
        at = fence.end + 1 if fence else at + 1
    close_prose()
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return new_notebook(cells=cells, metadata=metadata)


def _heading(page: Page, address: str) -> str:
    source = f"[{page.name}]({address})" if address else page.name
    heading = f"*From the book **Attention, Executed**: {source}. Text CC BY 4.0, code MIT.*"
    if torch := pinned_torch(page.root):
        heading += (
            f"\n\n*Checked with PyTorch {torch}. Nothing is installed here: `torch.__version__` names "
            "yours, which may print another last digit.*"
        )
    return heading


def _without_answers(page: Page) -> Page:
    """Return `page` as it is practised: each block under its heading, then the exercises, unsolved.

    Each line stays where it is, or is empty.
    """
    code = {n: fence for fence in page.fences for n in range(fence.line, fence.end + 1)}
    blocks = {block.line: _to_practise(block) for block in page.blocks if not block.solution}
    fences = [block.fence for block in blocks.values()]
    kept, heading, asked, folded = [""] * len(page.lines), 0, False, ""
    for at, line in enumerate(page.lines):
        if fence := code.get(at + 1):
            if at + 1 in blocks:
                kept[heading] = page.lines[heading]
            elif asked and not fence.solution and fence.language not in (*RUNS, "output"):
                kept[at] = line
                fences += [fence] * (at + 1 == fence.line)
        elif line.startswith("#"):
            heading, asked = at, line == EXERCISES
            kept[at] = line if asked or line.startswith("# ") else ""
        elif asked and line[:1].strip():
            if folded == "tip":
                kept[at - 1] = "</details>"
            found = CONTAINER.match(line)
            folded = found["type"] if found else ""
            kept[at] = {"": line, "tip": HINT}.get(folded, "")
        elif asked and folded != "success":
            kept[at] = line.removeprefix(" " * INDENT) if folded else line
    return replace(page, text="\n".join(kept), blocks=list(blocks.values()), fences=fences)


def _to_practise(block: Block) -> Block:
    """Return `block` without its output; one that defines a check calls it, too."""
    code = _guard(block.code) if block.raises else block.code
    if check := CHECK.search(code):
        code += f"\n\n{check[1]}(answer_{check[2]})\n"
    return replace(block, code=code, output=None)


def _code_cell(block: Block, guarded: bool, name: str, count: int) -> NotebookNode:
    code = _guard(block.code) if guarded and block.raises else block.code
    cell = new_code_cell(code.rstrip("\n"), id=name, execution_count=count)
    if block.output:
        printed, ending = block.output.text, ""
        if block.raises:
            printed, _, ending = ("\n" + block.output.text.rstrip("\n")).rpartition("\n")
            printed = printed.removeprefix("\n") + ("\n" if printed.strip() else "")
        if printed:
            cell.outputs.append(new_output("stream", name="stdout", text=printed))
        if ending:
            name, _, message = ending.partition(": ")
            error = new_output("error", ename=name, evalue=message, traceback=[ending])
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


def _kept_fence(fence: Fence, lines: list[str], containers: list[int], address: str) -> list[str]:
    """Return the lines of a fence that does not run; an explorable becomes a link to itself."""
    if fence.language == "attention":
        text = " " * fence.indent + f"*An interactive figure stands here on [the page]({address}).*"
        return [_line(text, containers, address)]
    return [_line(line, containers, "") for line in lines[fence.line - 1 : fence.end]]


def _line(line: str, containers: list[int], address: str) -> str:
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
    text = ATTRIBUTES.sub("", text) if address or not containers else text
    if address:
        text = LINK.sub(lambda m: m[1] + _absolute(m[2], address), text)
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
