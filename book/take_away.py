"""Turn a chapter into a notebook to practise in: its code, then its exercises without their solutions."""

import re
from dataclasses import replace

import nbformat
from nbformat.v4 import new_code_cell

from literate.export import CONTAINER, INDENT, as_notebook, guard
from literate.fence import RUNS
from literate.page import Block, Page

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


def practice(page: Page, site_url: str = "", colab: str = "") -> str:
    """Return the JSON of a notebook to practise in; "" for a page that sets no exercise.

    It holds the page's code under its headings, then each exercise: its stub, its hint, folded, and its
    check, which is called. It holds no solution and no output. `colab` is the address at which Colab opens
    it, where it has one.
    """
    if EXERCISES not in page.lines:
        return ""
    book = as_notebook(practised(page), site_url)
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


def practised(page: Page) -> Page:
    """Return `page` as it is practised: blocks under their headings, then the exercises, unsolved.

    Each line stays where it is, or is empty.
    """
    code = {n: fence for fence in page.fences for n in range(fence.line, fence.end + 1)}
    blocks = {block.line: _to_practise(block) for block in page.blocks if not block.solution}
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


def _to_practise(block: Block) -> Block:
    """Return `block` without its output; one that defines a check is followed by its call."""
    code = guard(block.code) if block.raises else block.code
    if check := CHECK.search(code):
        code += f"\n\npractice.check({check[2]}, {check[1]}, answer_{check[2]})\n"
    return replace(block, code=code, output=None)
