"""Makes a page of each part, parts/<name>.md, of its file and of what its tests say of it.

The tests are read, and never imported, so that no build needs torch. What they hold for all parts to be asked,
`WRONG`, `CASES`, `MODULES` and `MIB`, is described in tests/snippets/parts.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from posixpath import relpath

from book import repository
from literate.fence import CODE_SPAN

LIST = "parts.md"  # the page that lists them; a book without it has no pages of parts
INCLUDED = re.compile(r"8<-+ +[\"']([^\"':]+)")
LINKED = re.compile(
    r"\]\((?:\.\./)+parts/(\w+)\.md\)"
)  # in a chapter, which lies in a folder of its own
TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
# What Markdown, or this book's, would take for a sign.
SIGNS = re.compile(r"[\\*_{}\[\]<>$|~^#&]")
Tests = dict[Path, ast.Module]
# Words that the name of a function cannot spell.
SPELT = {
    "pytorch": "PyTorch",
    "pytorchs": "PyTorch's",
    "gpt": "GPT",
    "gpts": "the GPT's",
    "gpt2": "GPT-2",
    "gqa": "GQA",
    "nan": "NaN",
    "llama": "Llama",
    "alibi": "ALiBi",
    "rope": "RoPE",
    "yarn": "YaRN",
    "qwen": "Qwen",
    "qwen3": "Qwen3",
    "deepseek": "DeepSeek",
    "deepseeks": "DeepSeek's",
    "gemma": "Gemma",
    "glm": "GLM",
    "bert": "BERT",
    "lora": "LoRA",
    "cpu": "CPU",
    "gpu": "GPU",
    "python": "Python",
    "books": "book's",
    "callers": "caller's",
    "targets": "target's",
}
ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
# What a function of tests/snippets/test_every_part.py does with the cases and the modules of a part.
TRIED = (
    "In float64, float32, bfloat16, and float32 under autocast to bfloat16, results and gradients are compared with "
    "the same call in float64, and may be off by as much as the roundings of the dtype add up to. Calls tried"
)
EXPORTED = "Exported once, and compiled once, with a length that varies, a module serves every length. Modules tried"
COSTS = "What a call makes beside its input, at the most at once, for 16,384 tokens of 64 channels in float32"


def files(root: Path) -> dict[str, Path]:
    """Return the file of each part of the project at `root`, by name."""
    return {path.stem: path for path in sorted((root / "snippets").glob("*.py"))}


def made_of(name: str, root: Path) -> list[Path]:
    """Return the files that the page of a part is made of: its own, its tests, and those beside other libraries."""
    own = root / f"tests/snippets/test_{name}.py"
    peers = sorted((root / "tests/peers").glob("test_*.py"))
    imports = re.compile(rf"\bsnippets(\.| import (.*, )?){name}\b")
    named = [path for path in peers if path.stem.removeprefix("test_") in name]
    about = [path for path in named if imports.search(path.read_text(encoding="utf-8"))]
    return [files(root)[name], *([own] if own.exists() else []), *about]


def chapters(name: str, root: Path, sources: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pages of `sources`, as (source, title), that show the file of a part or lead to its page."""
    paths = {source: root / "docs" / source for source in sources if source.endswith(".md")}
    read = {
        source: _shown(path, path.stat().st_mtime_ns)
        for source, path in paths.items()
        if path.exists()
    }
    return [(source, title or source) for source, (title, names) in read.items() if name in names]


@lru_cache
def _shown(path: Path, _saved: int) -> tuple[str, set[str]]:
    """Return the title of a page, as last saved, and the parts that it shows or leads to."""
    text = path.read_text(encoding="utf-8")
    title = TITLE.search(text)
    shown = {Path(file).stem for file in INCLUDED.findall(text)}
    return title[1] if title else "", shown.union(LINKED.findall(text))


def rows(name: str, root: Path, sources: Iterable[str]) -> list[str]:
    """Return what the row of a part in docs/parts.md may be: what it is, and one of the pages that show it."""
    path = files(root)[name]
    said = (ast.get_docstring(_tree(path)) or "").partition("\n")[0].rstrip(".")
    begin = f"| [{path.name}](parts/{name}.md) | {_prose(said)} |"
    shown = chapters(name, root, sources)
    return [f"{begin} [{title}]({source}) |" for source, title in shown] or [f"{begin} |"]


def page(name: str, root: Path, sources: Iterable[str], book: str) -> str:
    """Return the page of a part as Markdown; `book` is the repository, owner/name."""
    path, *about = made_of(name, root)
    tests = {test: _tree(test) for test in about}
    said, _, more = (ast.get_docstring(_tree(path)) or "").partition("\n")
    lines = [f"# {path.name}", "", _prose(said), "", *_paragraphs(more)]
    shown = chapters(name, root, sources)
    links = [f"[{title}]({relpath(source, 'parts')})" for source, title in shown]
    if links:
        lines += [f"Where the book builds it or uses it: {_listed(links)}.", ""]
    download = f'[Download {path.name}](../snippets/{path.name}){{ download="{path.name}" }}'
    lines += [download, "{ .take-file }", "", "```python", f'--8<-- "{path.name}"', "```", ""]
    for heading, section in (
        ("What it is equal to, and how that is tested", _tested(tests, root, book)),
        ("Mistakes that its tests catch", _mistakes(tests)),
        ("Dtypes and shapes tried", _tried(tests)),
        ("What it costs", _costs(tests)),
    ):
        lines += [f"## {heading}", "", *section, ""] if section else []
    return "\n".join(lines)


def _tested(tests: Tests, root: Path, book: str) -> list[str]:
    """Return what the tests say of themselves, and what they hold, sentence by sentence."""
    lines = []
    for path, tree in tests.items():
        name = path.relative_to(root).as_posix()
        said = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
        lines += ["", f"{_prose(said)} ([{path.name}]({repository.shown(book, name)}))", ""]
        named = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        lines += [f"- {sentence(one)}" for one in named if one.startswith("test_")]
    return lines[1:]


def _mistakes(tests: Tests) -> list[str]:
    found = [one for tree in tests.values() for one in _entries(tree, "WRONG")]
    said = "Each of these is an edit of the file, made by a test, that breaks what is said above:"
    return [said, "", *(f"- {_prose(one)}" for one in found)] if found else []


def _tried(tests: Tests) -> list[str]:
    lines = []
    for what, said in (("CASES", TRIED), ("MODULES", EXPORTED)):
        own = [tree for path, tree in tests.items() if path.parent.name == "snippets"]
        if found := [_prose(one) for tree in own for one in _entries(tree, what)]:
            lines += [f"{said}: {'; '.join(found)}.", ""]
    return lines


def _costs(tests: Tests) -> list[str]:
    rows = []
    for tree in tests.values():
        for key, value in _pairs(tree, "MIB"):
            first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else None
            if first and all(isinstance(one, ARITHMETIC) for one in ast.walk(first)):
                number = eval(compile(ast.Expression(first), "", "eval"), {"__builtins__": {}})
                rows.append(f"| {_prose(key)} | {number:,.6g} MiB |")
    return [f"{COSTS}:", "", "| call | makes |", "| --- | --- |", *rows] if rows else []


def sentence(name: str) -> str:
    """Return the name of a test as a sentence: `test_nan_stays` → NaN stays."""
    words = [SPELT.get(word, word) for word in name.removeprefix("test_").split("_")]
    said = " ".join(words)
    return _prose(said[:1].upper() + said[1:])


def _entries(tree: ast.Module, name: str) -> list[str]:
    """Return the keys of a dictionary that a file holds under a name."""
    return [key for key, _ in _pairs(tree, name)]


def _pairs(tree: ast.Module, name: str) -> list[tuple[str, ast.expr]]:
    """Return the keys, where they are written out, and the values of a dictionary."""
    return [
        (key.value, value)
        for whole in _values(tree, name)
        if isinstance(whole, ast.Dict)
        for key, value in zip(whole.keys, whole.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]


def _values(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Yield what a module assigns to a name, each part of what is put together by itself."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in [one.id for one in targets if isinstance(one, ast.Name)]:
                left = [node.value]
                while left:
                    value = left.pop(0)
                    if isinstance(value, ast.BinOp):
                        left = [value.left, value.right, *left]
                    else:
                        yield value


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a docstring as Markdown: prose, lists, and what is indented as it is."""
    for block in re.split(r"\n\s*\n|\n(?=Sources?: )", text.strip("\n")):
        runs: list[tuple[bool, list[str]]] = []
        for line in block.split("\n"):
            is_code = line.startswith("    ")
            if not runs or runs[-1][0] != is_code:
                runs.append((is_code, []))
            runs[-1][1].append(line)
        for is_code, lines in runs:
            if is_code:
                yield from ("```text", *(line[4:] for line in lines), "```", "")
            else:
                yield from (*(_item(line) for line in lines), "")


def _item(line: str) -> str:
    """Return a line of prose, or of a list, as Markdown."""
    mark = re.match(r"(?:- )?", line)
    return (mark[0] if mark else "") + _prose(line[mark.end() if mark else 0 :])


def _prose(text: str) -> str:
    """Return text as Markdown that shows it as it is, but for code between backticks."""
    pieces, at = [], 0
    for code in CODE_SPAN.finditer(text):
        pieces += [_plain(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*pieces, _plain(text[at:])])


def _plain(text: str) -> str:
    return SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", text)


def _listed(words: list[str]) -> str:
    """Return words as a sentence lists them: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
