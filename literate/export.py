"""Turn a page into what a reader takes away: a notebook, a script, plain Markdown.

Nothing runs here: outputs are the page's own, which the tests hold true, so the site builds
without torch.
"""

import ast
import re
from dataclasses import replace
from urllib.parse import urljoin

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from literate import needs
from literate.compare import pinned_torch
from literate.fence import RUNS, Fence, blank_out
from literate.page import Block, Page, PageError, without_front_matter

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
EXERCISES = "## Exercises"
HINT = "<details><summary>Hint</summary>"
CHECK = re.compile(r"^def (check_(\d+))\(", re.MULTILINE)
PRACTISE = """\
*To practise in: first the code of the chapter, which you run once, then its exercises. Each has a stub to
fill in, a folded hint, and a check that says what is wrong. The notebook runs from top to bottom as it is,
and its last cell says which exercises are done. The solutions stand on the page.*

*It needs PyTorch. Open it in Jupyter (`jupyter lab`), in VS Code with its Jupyter extension, or {colab}.*"""
# The cell that each check is called by. What it imports is not among the names of the page.
PRACTICE = '''\
class Practice:
    """Tries answers on their checks. One that is not right yet stops no other cell."""

    def __init__(self):
        self.right = {}  # the number of an exercise → whether its answer is right

    def check(self, number, check, answer):
        """Say what is missing in an answer, or let its check say that it is right."""
        import traceback

        self.right[number] = False
        try:
            if self.is_empty(answer):
                print(f"Exercise {number}: not filled in yet")
            else:
                check(answer)
                self.right[number] = True
        except AssertionError as refusal:
            print(f"Exercise {number}: not right yet: {refusal}")
        except Exception:
            print(f"Exercise {number}: an error came before the check was done")
            print(traceback.format_exc())

    def is_empty(self, answer):
        """Say whether an answer is still `...`, or a function that does nothing."""
        import dis
        import inspect

        if not inspect.isfunction(answer):
            return answer is ...
        steps = dis.get_instructions(inspect.unwrap(answer))
        return all(step.opname == "RESUME" or step.argval is None for step in steps)

    def report(self):
        """Say which exercises are done."""
        print(f"{sum(self.right.values())} of {len(self.right)} exercises done")
        for number, right in self.right.items():
            print(f"Exercise {number}: {'done' if right else 'not done yet'}")


practice = Practice()'''
STORED = re.compile(r"[\w.-]+-[0-9a-f]{8,}\.pt\b")  # a stored file, whose name carries its digest
FETCHES = "load_state_dict_from_url"
SOURCE = re.compile(r"https?://[^\s\"']+/files/")

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
    return nbformat.writes(_notebook(page, site_url, guarded=False)) + "\n"


def practice(page: Page, site_url: str = "", colab: str = "") -> str:
    """Return the JSON of a notebook to practise in; "" for a page that sets no exercise.

    It holds the page's code under its headings, then each exercise: its stub, its hint, folded, and its
    check, which is called. It holds no solution and no output, and no code that loads a file which no
    exercise needs. `colab` is the address at which Colab opens it, where it has one.
    """
    if EXERCISES not in page.lines:
        return ""
    book = _notebook(practised(page), site_url, guarded=False)
    opens = f"[in Colab]({colab}), which has it already" if colab else "in Colab"
    book.cells[0].source += "\n\n" + PRACTISE.format(colab=opens)
    book.cells.insert(1, new_code_cell(PRACTICE, id="practice"))
    book.cells.append(new_code_cell("practice.report()", id="report"))
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
        else:
            cell.source = re.sub(r"\n{3,}", "\n\n", cell.source)
    return nbformat.writes(book) + "\n"


def runnable(page: Page, site_url: str = "", colab: str = "") -> dict[str, str]:
    """Return the text of each file that runs, by what its name adds to the page's.

    `colab` is the address at which Colab opens the notebook to practise in.
    """
    texts = {".ipynb": notebook(page, site_url), ".py": script(page, site_url)}
    practised = practice(page, site_url, colab)
    return texts | ({"-practice.ipynb": practised} if practised else {})


def script(page: Page, site_url: str = "") -> str:
    """Return the page as a Python script in the percent format; prose is in comments."""
    lines: list[str] = []
    for cell in _notebook(page, site_url, guarded=True).cells:
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
        text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if isinstance(node, ast.expr) and (text or type(node).__name__ in FORMATTED):
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
        elif fence and at not in outputs:
            prose += _kept_fence(page, fence, containers, address)
        elif not fence:
            line = lines[at - 1]
            if line.strip() or not (prose and "\n" in prose[-1]):  # a title brings its own blank
                prose.append(_line(line, containers))
        at = fence.end + 1 if fence else at + 1
    close_prose()
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return new_notebook(cells=cells, metadata=metadata)


def _heading(page: Page, address: str) -> str:
    named = f"[{page.name}]({address})" if address else page.name
    heading = f"*From the book **Attention, Executed**: {named}. Text CC BY 4.0, code MIT.*"
    if torch := pinned_torch(page.root):
        heading += (
            f"\n\n*Checked with PyTorch {torch}. Nothing is installed here: `torch.__version__` names "
            "yours, which may print another last digit.*"
        )
    if names := stored(page.blocks):
        source = SOURCE.search("\n".join(block.code for block in page.blocks))
        files = " and ".join(f"`{name}`" for name in names)
        origin = f" from {source[0]}" if source else ""
        heading += (
            f"\n\n*The code loads {files}{origin} once. Without a "
            "network, put what it loads into the folder `checkpoints` below the one that "
            "`torch.hub.get_dir()` names.*"
        )
    return heading


def stored(blocks: list[Block]) -> list[str]:
    """Return the names of the stored files that `blocks` load, in their order."""
    code = "\n".join(block.code for block in blocks)
    return list(dict.fromkeys(STORED.findall(code))) if FETCHES in code else []


def practised(page: Page) -> Page:
    """Return `page` as it is practised: blocks under their headings, then the exercises, unsolved.

    Each line stays where it is, or is empty. Raises PageError where a block is not Python.
    """
    for block in page.blocks:
        try:
            ast.parse(block.code)
        except SyntaxError as error:
            place = page.origin(block.start + (error.lineno or 1) - 1)
            raise PageError(*place, f"this is not Python: {error.msg}") from None
    code = {n: fence for fence in page.fences for n in range(fence.line, fence.end + 1)}
    asked_at = page.lines.index(EXERCISES)
    before = [block for block in page.blocks if block.line <= asked_at]
    after = page.blocks[len(before) :]
    left = [*needs.needed(before, after, FETCHES), *(block.code for block in after)]
    blocks = {
        block.line: _to_practise(block, code)
        for block, code in zip(page.blocks, left, strict=True)
        if code and not block.solution
    }
    fences = [block.fence for block in blocks.values()]
    kept, heading, asked, folded = [""] * len(page.lines), 0, False, ""
    for at, line in enumerate(page.lines):
        if fence := code.get(at + 1):
            if folded == "tip" and not fence.prefix:
                kept[at - 1], folded = "</details>", ""
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
            container = CONTAINER.match(line)
            folded = container["type"] if container else ""
            kept[at] = {"": line, "tip": HINT}.get(folded, "")
        elif asked and folded != "success":
            kept[at] = line.removeprefix(" " * INDENT) if folded else line
    return replace(page, text="\n".join(kept), blocks=list(blocks.values()), fences=fences)


def _to_practise(block: Block, code: str) -> Block:
    """Return `block` with this code, without its output; one that defines a check is followed by its call."""
    code = _guard(code) if block.raises else code
    if check := CHECK.search(code):
        code += f"\n\npractice.check({check[2]}, {check[1]}, answer_{check[2]})\n"
    return replace(block, code=code, output=None)


def _code_cell(block: Block, guarded: bool, name: str, count: int) -> NotebookNode:
    code = _guard(block.code) if guarded and block.raises else block.code
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
            message = ending.partition(": ")[2]
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

    def plain(match: re.Match) -> str:
        if match["attributes"]:
            return ""
        linked = match["link"] and address
        return match["link"] + _absolute(match["target"], address) if linked else match[0]

    text = without_front_matter(page.text)
    return MARKUP.sub(plain, "\n".join(blank_out(page.fences, text))).split("\n")


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
