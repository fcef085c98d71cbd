"""A page that is taken away prints what it shows: as a notebook, as a script, and copied.

Pages are composed at random; `PAGES=1000` composes that many instead of fifty, `SEED=…` the same again.
"""

import json
import subprocess
import sys

import nbformat
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from literate import compare, export
from literate.page import read
from literate.update import update
from tests.chance import fuzz
from tests.systems import FORK

# A process that forks for each thing that it runs. A cell runs as in a notebook, with its magics.
RUNNER = r"""
import contextlib, io, json, os, sys, traceback, types, warnings
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

warnings.simplefilter("ignore")  # a notebook says how to end it, where a cell raises SystemExit
shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
shell._showtraceback = lambda *_: None

def say(error):
    entries = traceback.format_exception_only(error)
    print(next(entry for entry in entries if entry[0] != " "), end="")

def run_program(text):
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(text.encode(), "program.py", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        say(error)

def run_cells(cells):
    for cell in cells:
        result = shell.run_cell(cell)
        if error := result.error_before_exec or result.error_in_exec:
            say(error)

for line in sys.stdin:
    request = json.loads(line)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run_program(request) if isinstance(request, str) else run_cells(request)
        with open(writer, "w", encoding="utf-8", newline="\n") as out:
            out.write(printed.getvalue())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8", newline="\n") as pipe:
        print(json.dumps(pipe.read()), flush=True)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """`run(text)` returns what a program prints, `run(list)` what the cells of a notebook do."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    folder = tmp_path_factory.mktemp("taken")
    command = [sys.executable, "-c", RUNNER]
    environment = {"IPYTHONDIR": str(folder), "HOME": str(folder), "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, **pipes, text=True, cwd=folder, env=environment) as runner:

        def run(request):
            runner.stdin.write(json.dumps(request) + "\n")
            runner.stdin.flush()
            return json.loads(runner.stdout.readline())

        yield run
        runner.stdin.close()


# ---- Pages composed at random ----

NAMES = ("error", "traceback", "sys", "entry", "line", "next", "_", "page", "str", "Exception_")
VALUES = st.sampled_from([7, "a", "%b", "{x}", None])
# What a line of a text may be; to a notebook, to a script of cells or to Markdown it is something else.
ODD = st.sampled_from(
    [
        "%b",
        "%%time",
        "# %%",
        "# %% [markdown]",
        "# +",
        "!ls",
        "?x",
        "x?",
        "cat a",
        "ls",
        "{#a}",
        "{ .b }",
        "    four",
        "'",
        '"',
        "\\\\",
        "$x^{.5}$",
        "`a`",
        "\u2028a",
        "a\x0cb",
        "",
        "{{name}}",
        "[a](b.md)",
        "...",
        "''",
        "text = 1",
        "# comment",
        "é ∑",
        "except:",
        "<b>",
    ]
)
PROSE = st.sampled_from(
    [
        "Text.",
        "## Heading { #a }",
        "$x^{.481}$ and `{#a}`",
        "$$\na^{.5}\n$$",
        "- a\n- b",
        "%%time",
        '"""',
        "| a | b |\n| - | - |\n| 1 | 2 |",
        "> quote",
        "a\x0cb",
        "See [this](b.md).",
    ]
)
MESSAGES = st.sampled_from(
    ["", "one", "two\nlines", "  in\n  deep", "\nlate", "100 %b", "{x}", "a: b", "é", "'", 7, None]
)
KINDS = ("ValueError", "KeyError", "SystemExit", "KeyboardInterrupt", "Odd", "Told")
RAISING = {
    "Odd": "class Odd(BaseException):\n    pass\n\n\n",
    "Told": "class Told(Exception):\n    def __str__(self):\n        return 'told\\nof'\n\n\n",
}


@st.composite
def texts_of_lines(draw):
    """Draw code that makes a text of several lines, each odd."""
    lines = draw(st.lists(ODD, min_size=1, max_size=4))
    prefix = draw(st.sampled_from(["", "r", "f", "b"]))
    if prefix == "b":
        lines = [line.encode("ascii", "ignore").decode().rstrip(" ") for line in lines]
    elif prefix == "f":
        lines = [
            line if line == "{{name}}" else line.translate({123: "(", 125: ")"}) for line in lines
        ]
    marks = draw(st.sampled_from(['"""', "'''"]))
    body = "\n".join(line.replace(marks, "") for line in lines)
    return f"odd = {prefix}{marks}\n{body}\n{marks}\nprint(repr(odd))"


@st.composite
def statements(draw):
    """Draw a piece of code that prints whole lines, or nothing."""
    name = draw(st.sampled_from(NAMES))
    here = f"sorted(set(globals()) & {set(NAMES) - {'_'}})"
    return draw(
        st.sampled_from(
            [
                f"{name} = {draw(VALUES)!r}",
                f"{name} = {draw(VALUES)!r}\nprint({name})",
                f"print(globals().get({name!r}, 'no {name}'))" if name != "_" else "cat = 1",
                f"print({here})",
                "b = 4\nprint((7\n%b\n))\nls = [\n    b\n]\nls\nprint(ls)",
                "def after(x: int) -> list:\n    return [x]\n\n\nprint(after.__annotations__)",
                "# only a comment",
                "if True:\n    print('deep')",
                draw(texts_of_lines()),
            ]
        )
    )


@st.composite
def blocks(draw):
    """Draw a block, the name of what it raises, and the lines that its fence has."""
    if draw(st.integers(0, 5)) == 0:
        return "", '--8<-- "part.py"'
    code = "\n\n".join(draw(st.lists(statements(), min_size=1, max_size=3)))
    kind = draw(st.sampled_from([*KINDS, *[""] * len(KINDS)]))
    if kind:
        message = draw(MESSAGES)
        raising = f"raise {kind}({'' if message is None else repr(message)})"
        if draw(st.booleans()):
            raising = f"try:\n    1 / 0\nexcept ZeroDivisionError:\n    {raising}"
        code += f"\n{RAISING.get(kind, '')}{raising}"
    return kind, code


@st.composite
def pages(draw):
    """Draw the text of a page whose outputs are still to be filled in."""
    text = "# A page\n"
    for number in range(draw(st.integers(1, 5))):
        kind, code = draw(blocks())
        if number == 0 and not kind and "8<-" not in code and draw(st.booleans()):
            code = f"from __future__ import annotations\n\n{code}"
        fence = f"`````python\n{code}\n`````\n"
        if kind:
            fence += f'\n`````output raises="{kind}"\nx\n`````\n'
        if draw(st.integers(0, 3)) == 0:
            lines = fence.split("\n")
            fence = "\n".join(["!!! note", "", *("    " + line if line else "" for line in lines)])
        prose = draw(PROSE).replace("{ #a }", f"{{ #a{number} }}")  # each address stands once
        text += f"\n{prose}\n\n{fence}"
    return text


@FORK
@fuzz(50)
@given(text=pages())
def test_a_page_taken_away_prints_what_it_shows(book, run, text):
    book.snippet("part.py", 'part = """\n%b\n"""\nprint(part + "|")\n')
    book.page("# Linked from there\n", "docs/b.md")
    path = book.page(text.encode())
    update(read(path))
    page = read(path)
    shown = [block.output.text if block.output else "" for block in page.blocks]
    event(f"{sum(bool(block.raises) for block in page.blocks)} of {len(shown)} blocks raise")
    so_far = ["".join(shown[: i + 1]) for i in range(len(shown))]
    taken = {"script": (so_far[-1], run(export.script(page)))}
    cells = nbformat.reads(export.notebook(page), as_version=4).cells
    codes = [cell for cell in cells if cell.cell_type == "code"]
    taken["notebook"] = (so_far[-1], run([cell.source for cell in codes]))
    taken["stored"] = (so_far[-1], "".join(map(stored, codes)))
    for i, program in enumerate(export.programs(page)):
        taken[f"block {i}"] = (so_far[i], run(program))
    for form, (wanted, printed) in taken.items():
        assert compare.agree(wanted, printed), f"{form} prints {printed!r}, the page {wanted!r}"


def stored(cell):
    """Return what the outputs that a cell of a notebook holds say."""
    said = ""
    for output in cell.outputs:
        if output.output_type == "stream":
            said += output.text
        else:
            (ending,) = output.traceback
            named = f"{output.ename}:{output.evalue}"
            assert ending.replace(": ", ":", 1).rstrip(": \n") == named.rstrip(": \n"), cell
            said += f"{ending}\n"
    return said
