"""ruff for the code in pages: `python -m tools.style`, with `--fix` to format it.

ruff reads Markdown too, but takes an include for arithmetic and cannot tell that a page is one module.
So each block is formatted as a file of its own, and each page is linted as the one file it is.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from literate.page import name_of, pages, read
from literate.update import fence_lines, rewrite

ROOT = Path(__file__).parents[1]
# On a page imports stand where they are first needed, a name may be built up twice, an expression may
# stand to show that it raises, and a list of words or names is written as it is read aloud.
ALLOWED = ("E402", "F811", "B015", "B018", "C408", "I001", "SIM905")


def ruff(*arguments, text=None):
    """Run ruff with the project's settings; return what it printed."""
    command = [sys.executable, "-m", "ruff", *arguments, "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return done.stdout


def linted(page):
    """Return ruff's complaints about the code of `page`, each as page.md:line:column: message."""
    name = f"{page.name}.py"
    options = ["--output-format", "concise", "--extend-ignore", ",".join(ALLOWED)]
    source = "".join(block.code for block in page.blocks)
    lines = [b.start + i for b in page.blocks for i in range(b.code.count("\n"))]
    found = ruff("check", *options, "--stdin-filename", name, "-", text=source)
    places = re.findall(r"\.md\.py:(\d+):(\d+:.*)", found)
    origins = [(page.origin(lines[int(line) - 1]), rest) for line, rest in places]
    return [f"{name_of(path, page.root)}:{line}:{rest}" for (path, line), rest in origins]


def formatted(books):
    """Return (page, block, code as ruff formats it) for each block whose code is formatted otherwise."""
    own = [(page, block) for page in books for block in page.blocks if not block.included]
    with tempfile.TemporaryDirectory(prefix="style-") as folder:
        files = [Path(folder, f"{number}.py") for number in range(len(own))]
        for file, (_, block) in zip(files, own, strict=True):
            file.write_text(block.code, encoding="utf-8")
        ruff("format", "--quiet", folder)
        codes = [file.read_text(encoding="utf-8") for file in files]
    return [(*place, code) for place, code in zip(own, codes, strict=True) if code != place[1].code]


def fix(page, changes):
    """Write `changes`, a list of (block, code), into `page`."""
    lines, edits = page.text.split("\n"), []
    for block, code in changes:
        info = lines[block.line - 1].strip(" >").lstrip("`~")
        place = slice(block.line - 1, block.fence.end)
        edits.append((place, fence_lines(block.fence, info, code)))
    rewrite(page, edits)


def main(arguments=()):
    """Check or fix every page; return 1 if something is left to do."""
    books = [read(path) for path in pages(ROOT)]
    changes = formatted(books)
    if "--fix" in arguments:
        for page in books:
            if own := [(block, code) for of, block, code in changes if of is page]:
                fix(page, own)
                print(f"{page.name}: {len(own)} blocks formatted")
        books, changes = [read(path) for path in pages(ROOT)], []
    complaints = [
        f"{page.name}:{block.line}: not formatted; make format" for page, block, _ in changes
    ]
    complaints += [complaint for page in books for complaint in linted(page)]
    print("\n".join(complaints) or f"{len(books)} pages: all code is formatted and clean")
    return 1 if complaints else 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
