"""Every fence labelled python is collected, and what cannot be read names page.md:line."""

import contextlib
import re
import sys

import pytest

from book.figures.options import OPTIONS
from literate.fence import check_options
from literate.page import SUFFIXES, PageError, name_of, pages, read

FORMS = {
    "three backticks": "```python\nprint(1)\n```\n",
    "py": "```py\nprint(1)\n```\n",
    "python3": "```python3\nprint(1)\n```\n",
    "a class and a title in braces": '```{ .python title="a.py" }\nprint(1)\n```\n',
    "a dot before the word": "```.python\nprint(1)\n```\n",
    "a title": '```python title="sums.py"\nprint(1)\n```\n',
    "a title with every kind of mark": '```python title="a = {b}, `c`"\nprint(1)\n```\n',
    "highlighted lines": '```python hl_lines="1 3-4"\nprint(1)\n```\n',
    "line numbers": '```python linenums="1"\nprint(1)\n```\n',
    "tildes": "~~~python\nprint(1)\n~~~\n",
    "a long fence": "``````python\nprint(1)\n``````\n",
    "trailing blanks": "```python   \nprint(1)\n```   \n",
    "an admonition": "!!! note\n\n    ```python\n    print(1)\n    ```\n",
    "a folded admonition": '???+ tip "Look"\n    ```python\n    print(1)\n    ```\n',
    "a tab": '=== "One"\n\n    ```python\n    print(1)\n    ```\n',
    "a bulleted list": "- an item\n\n    ```python\n    print(1)\n    ```\n",
    "a numbered list": "1. an item\n\n    ```python\n    print(1)\n    ```\n",
    "a list in a list": "- one\n\n    - two\n\n        ```python\n        print(1)\n        ```\n",
    "a block quote": "> ```python\n> print(1)\n> ```\n",
    "a definition": "Term\n\n:   A definition.\n\n    ```python\n    print(1)\n    ```\n",
    "tabs for blanks": "!!! note\n\n\t```python\n\tprint(1)\n\t```\n",
    "Windows line ends": "```python\r\nprint(1)\r\n```\r\n",
    "no newline at the end": "```python\nprint(1)\n```",
    "a byte-order mark": "\ufeff```python\nprint(1)\n```\n",
    "after a comment": "<!-- a remark -->\n\n```python\nprint(1)\n```\n",
    "after front matter": "---\ntitle: x\n---\n\n```python\nprint(1)\n```\n",
    "after front matter that ends with dots": "---\ntitle: x\n...\n\n```python\nprint(1)\n```\n",
    "between two rules": "---\n\n```python\nprint(1)\n```\n\n---\n",
    "after a fence that quotes one": "````markdown\n```python\nraise\n```\n````\n\n```python\nprint(1)\n```\n",
    "after inline code that quotes one": "Write ```` ```python ```` here.\n\n```python\nprint(1)\n```\n",
}


def test_code_keeps_its_blank_lines_and_its_own_indent(book):
    page = book.read("""
        !!! note

            ```python
            if True:

                print('''
            flush
            ''')
            ```
        """)
    assert page.blocks[0].code == "if True:\n\n    print('''\nflush\n''')\n"


@pytest.mark.parametrize("suffix", SUFFIXES[:-1])
def test_a_page_by_another_suffix_is_refused(book, suffix):
    with pytest.raises(PageError, match=rf"page\{suffix}:1: the name of a page ends in .md"):
        book.read("# A\n", f"docs/page{suffix}")


def test_an_output_belongs_to_the_block_before_it(book):
    page = book.read("""
        ```python
        print(1)
        ```

        ```output heatmap rows="a b" caption="What, to see"
        1
        ```

        ```python
        a = 2
        ```
        """)
    first, second = page.blocks
    assert first.output.text == "1\n"
    assert first.output.line == 6
    assert first.output.options == {"heatmap": "", "rows": "a b", "caption": "What, to see"}
    assert second.output is None


def test_a_solution_is_known_by_its_admonition(book):
    page = book.read("""
        ```python
        a = 1
        ```

        ??? success "Solution"

            Text.

            ```python
            b = 1
            ```

            ```python
            c = 1
            ```

        ??? note "Solution of another kind"

            ```python
            d = 1
            ```

        ??? success "No answer"

            ```python
            e = 1
            ```
        """)
    assert [block.solution for block in page.blocks] == [False, True, True, False, False]


IN_DOCS = ("b.md", "a/c.md", "build/d.md", "dist/e.md", "node_modules/f.md", "venv/g.md", "h.mkd")
NOT_PAGES = ("docs/.i.md", "docs/.j/k.md", "docs/templates/l.md", "docs/m.txt", "notes/n.md")


def test_the_pages_of_a_book_are_its_readme_and_its_docs(book):
    wanted = ["README.md", *(f"docs/{name}" for name in sorted(IN_DOCS))]
    for name in (*wanted, *NOT_PAGES):
        book.page("", name)
    assert [name_of(path, book.root) for path in pages(book.root)] == wanted


# ---- What cannot be read: the line to blame, and words that the message must hold. ----

BAD = {
    "unclosed fence": ("Text\n\n```python\nprint(1)\n", 3, "unclosed fence"),
    "closed by the other mark": ("```python\nprint(1)\n~~~\n", 1, "unclosed fence"),
    "closed by a longer fence": ("```python\nprint(1)\n````\n", 3, "close with the same marks"),
    "closed at another indent": ("```python\nprint(1)\n  ```\n", 3, "same marks and indent"),
    "dedented within": ("!!! note\n\n    ```python\n  print(1)\n    ```\n", 4, "indented less"),
    "quote ends within": ("> ```python\n> a = 1\nb = 1\n> ```\n", 3, "indented less"),
    "output without a block": ("Text\n\n```output\n1\n```\n", 3, "output without a block"),
    "output after text": (
        "```python\nprint(1)\n```\n\nText\n\n```output\n1\n```\n",
        7,
        "text stands",
    ),
    "output after another fence": ("```text\n1\n```\n\n```output\n1\n```\n", 5, "without a block"),
    "two outputs": (
        "```python\nprint(1)\n```\n\n```output\n1\n```\n\n```output\n1\n```\n",
        9,
        "two outputs for one block; the first is on line 5",
    ),
    "output of a solution that stands outside": (
        '??? success "Solution"\n\n    ```python\n    print(1)\n    ```\n\n```output\n1\n```\n',
        7,
        "output is indented by 0, its block on line 3 by 4",
    ),
    "unknown option on code": ('```python tytle="a"\n1\n```\n', 1, "unknown option `tytle`"),
    "title without a value": ("```python title\n1\n```\n", 1, "needs a value"),
    "highlighted lines that are none": ('```python hl_lines="a"\n1\n```\n', 1, "hl_lines"),
    "unknown option on output": (
        "```python\nprint(1)\n```\n\n```output heatmapp\n1\n```\n",
        5,
        "heatmapp",
    ),
    "misspelt output": ("```python\nprint(1)\n```\n\n```Output\n1\n```\n", 5, "unknown language"),
    "misspelt python": ("```pyhton\nprint(1)\n```\n", 1, "unknown language `pyhton`"),
    "missing file": ('```python\n--8<-- "gone.py"\n```\n', 2, "gone.py"),
    "missing section": ('```python\n--8<-- "here.py:gone"\n```\n', 2, "gone"),
    "missing name": (
        '```python\n--8<-- "named.py:Gone"\n```\n',
        2,
        "named Gone; the file has Kept, twice, twice",
    ),
    "name that is there twice": ('```python\n--8<-- "named.py:twice"\n```\n', 2, "wanted one"),
    "section without an end": (
        '```python\n--8<-- "here.py:open"\n```\n',
        2,
        "one end of open in the file; found start",
    ),
    "include by line numbers": ('```python\n--8<-- "here.py:1:2"\n```\n', 2, "stands alone"),
    "include from outside": ('```python\n--8<-- "../secret.py"\n```\n', 2, "secret.py"),
    "include beside code": ('```python\na = 1\n--8<-- "here.py"\n```\n', 3, "stands alone"),
    "include in an output": (
        '```python\nprint(1)\n```\n\n```output\n--8<-- "here.py"\n```\n',
        6,
        "in other code",
    ),
    "include in a block quote": ('> ```python\n> --8<-- "here.py"\n> ```\n', 2, "block quote"),
    "include in an include": ('```python\n--8<-- "outer.py"\n```\n', 2, "another file"),
    "two includes": ('```python\n--8<-- "here.py"\n--8<-- "here.py"\n```\n', 2, "in other code"),
    "include of nothing that runs": ('```python\n--8<-- "empty.py"\n```\n', 2, "empty"),
    "include that is not UTF-8": (
        '```python\n--8<-- "latin.py"\n```\n',
        2,
        "latin.py\": 'utf-8' codec can't decode",
    ),
    "code in a comment on its line": ("<!-- ```python\nprint(1)\n```\n-->\n", 1, "line of its own"),
    "fence on a list marker": ("- ```python\n  print(1)\n  ```\n", 1, "line of its own"),
    "fence on a definition": ("Term\n:   ```python\n    print(1)\n    ```\n", 2, "line of its own"),
    "fence after words": ("So run: ```python\nprint(1)\n```\n", 1, "line of its own"),
    "fence in an indented block": (
        "Text\n\n    ```python\n    print(1)\n    ```\n",
        3,
        "indented by 4",
    ),
    "fence indented too far": (
        "- item\n\n        ```python\n        print(1)\n        ```\n",
        3,
        "indented by 8",
    ),
    "text that is taken for metadata": ("Answer: 42\n\nText\n", 1, "`Answer: 42`, but take it"),
    "a formula that cannot be drawn": ("Text\n\nThen $\\foo$.\n", 3, 'Unknown command "\\foo"'),
    "a formula of several lines": ("# A\n\n$$\na +\n\\foo\n$$\n", 4, 'Unknown command "\\foo"'),
    "markup on which Python-Markdown fails": (
        "<div markdown>\n<ul>\n\n</ul>\n\n- item\n\n</div>\n",
        1,
        "Markdown fails on this page: IndexError",
    ),
    "no program that could raise": (
        '```python\nprint(\n```\n\n```output raises="KeyError"\nKeyError\n```\n',
        1,
        "no program",
    ),
    "a fence that the next one would close": (
        "Text\n\n```python\nprint(1)\n\nMore\n\n```output\n1\n```\n",
        3,
        "unclosed fence; ```output on line 8 would open inside it",
    ),
    "not UTF-8": (b"Text\n\ncaf\xe9\n", 3, "byte 0xe9 is not UTF-8"),
}


# Markup around a fence that a browser hides or draws otherwise; the fence stands for F.
UNSEEN = {
    "a comment": "<!--\nF\n-->\n",
    "a script": "<script>\n\nF\n\n</script>\n",
    "a text box": "# A <textarea>\n\nF\n",
    "markup that Python-Markdown draws twice": (
        "# A\n\n\n<![CDATA[\n\n<div>\n```py\n```\n\n</div>\n\n<div>\nF\n\n</div>\n"
    ),
    "a hidden box": "<div hidden markdown>\n\nF\n\n</div>\n",
    "a box of another style": '<div style="display: none">\nF\n</div>\n',
    "a hidden word that never ends": "Some <b hidden>text\n\nF\n",
    "an attribute": '<div title="\nF\n">\n</div>\n',
    "an abbreviation": "# A\n\n*[HTML]:\nF\n",
    "a formula": "# A\n\n$$\nF\n$$\n",
    "a heading": "# A\n\nF\n---\n",
    "inline code": "# A\n\n`so\nF\nit is`\n",
    "a footnote, drawn after the text": "Text[^1].\n\n[^1]: A note.\n\n    F\n\nText\n\n```py\n1\n```\n",
}


@pytest.fixture
def library(book):
    """A book whose snippets hold a file, a section left open, and two bad files."""
    book.snippet(
        "here.py",
        "a = 1\n# --8<-- [start:open]\n" + "# --8<-- [start:twice]\n# --8<-- [end:twice]\n" * 2,
    )
    book.snippet("named.py", "class Kept: ...\ndef twice(): ...\ndef twice(): ...\n")
    book.snippet("fence.md", "# A title\n\nIts text.\n")
    book.snippet("outer.py", '--8<-- "here.py"\n')
    book.snippet("folder/inner.py", "a = 1\n")
    book.snippet("fence.py", "a = '''\n```\n'''\n")
    book.snippet("empty.py", "\n\n")
    book.page(b"a = '\xe9'\n", "snippets/latin.py")
    book.page("", "secret.py")
    return book


@pytest.mark.parametrize(("text", "line", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_error_at_its_line(library, text, line, words):
    with pytest.raises(PageError) as caught:
        library.read(text if isinstance(text, bytes) else text.encode())
    assert str(caught.value).startswith(f"docs/page.md:{line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", UNSEEN.values(), ids=UNSEEN)
def test_a_fence_that_the_site_would_not_show_is_an_error_at_its_line(book, text):
    before, _, after = text.partition("F")
    indent = before.rpartition("\n")[2]
    fence = f"\n{indent}".join(["```python", "print(1)", "```"])
    with pytest.raises(PageError) as caught:
        book.read((before + fence + after).encode())
    assert caught.value.line == before.count("\n") + 1


BAD_OPTIONS = [
    ({"heatmap": "yes"}, "`heatmap` takes no value"),
    ({"chart": "yes"}, "`chart` takes no value"),
    ({"caption": " "}, "`caption` needs a value"),
    ({"varies": ""}, "`varies` needs a value"),
    ({"raises": "not a name"}, "is not the name of an exception"),
    ({"raises": "torch.OutOfMemoryError"}, "is not the name of an exception"),
    ({"raises": "SyntaxError"}, "SyntaxError"),
    ({"rows": "a b"}, "`rows` is of a `heatmap`"),
    ({"cols": "a b"}, "`cols` is of a `heatmap`"),
    ({"heatmap": "", "chart": ""}, "not both"),
    ({"hetmap": ""}, "unknown option `hetmap`"),
    ({"heatmap": "", "row": "a b"}, "Did you mean `rows`?"),
    ({"title": "a"}, "unknown option `title`"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS)
def test_other_options_of_an_output_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        check_options("output", options, OPTIONS)


LONG = {  # text that grows fourfold from a size to twice that size
    "blocks": lambda size: "```python\n1\n```\n\n```output\n1\n```\n\n" * (size**2 // 32),
    "a block": lambda size: "```python\n" + "1\n" * size**2 + "```\n",
    "runs of backticks": lambda size: " ".join("`" * length for length in range(1, size)),
    "code out of place": lambda size: "a ```py " + LONG["runs of backticks"](size),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_four_times_the_text_takes_at_most_five_times_the_calls(book, text):
    calls(book, text(25))  # imports and compiles what any page needs
    assert calls(book, text(120)) < 5 * calls(book, text(60))


def calls(book, text):
    """Return how many functions were called while `text` was read: a count, on any machine the same."""
    path, made = book.page(text.encode()), 0

    def count(frame, event, argument):
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        with contextlib.suppress(PageError):
            read(path)
    finally:
        sys.setprofile(before)
    return made
