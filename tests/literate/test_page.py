"""Every fence labelled python is collected, and what cannot be read names page.md:line."""

import re

import pytest

from literate.page import PageError, check_output_options, pages, read, shown

FORMS = {
    "three backticks": "```python\nprint(1)\n```\n",
    "py": "```py\nprint(1)\n```\n",
    "python3": "```python3\nprint(1)\n```\n",
    "a blank before the word": "```  python\nprint(1)\n```\n",
    "a class in braces": "```{ .python }\nprint(1)\n```\n",
    "a class and a title in braces": '```{ .python title="a.py" }\nprint(1)\n```\n',
    "a dot before the word": "```.python\nprint(1)\n```\n",
    "a title": '```python title="sums.py"\nprint(1)\n```\n',
    "a title with every kind of mark": '```python title="a = {b}, `c`"\nprint(1)\n```\n',
    "highlighted lines": '```python hl_lines="1 3-4"\nprint(1)\n```\n',
    "line numbers": '```python linenums="1"\nprint(1)\n```\n',
    "all options": '```py title="a" hl_lines="1" linenums="5"\nprint(1)\n```\n',
    "tildes": "~~~python\nprint(1)\n~~~\n",
    "a long fence": "``````python\nprint(1)\n``````\n",
    "a long fence of tildes": "~~~~~ python\nprint(1)\n~~~~~\n",
    "trailing blanks": "```python   \nprint(1)\n```   \n",
    "an admonition": "!!! note\n\n    ```python\n    print(1)\n    ```\n",
    "a folded admonition": '???+ tip "Look"\n    ```python\n    print(1)\n    ```\n',
    "a tab": '=== "One"\n\n    ```python\n    print(1)\n    ```\n',
    "a tab in an admonition": (
        '!!! note\n\n    === "One"\n\n        ```python\n        print(1)\n        ```\n'
    ),
    "a bulleted list": "- an item\n\n    ```python\n    print(1)\n    ```\n",
    "a numbered list": "1. an item\n\n    ```python\n    print(1)\n    ```\n",
    "a list in a list": "- one\n\n    - two\n\n        ```python\n        print(1)\n        ```\n",
    "a block quote": "> ```python\n> print(1)\n> ```\n",
    "a definition": "Term\n\n:   A definition.\n\n    ```python\n    print(1)\n    ```\n",
    "right under a paragraph": "Text:\n```python\nprint(1)\n```\nMore.\n",
    "a slight indent": "  ```python\n  print(1)\n  ```\n",
    "tabs for blanks": "!!! note\n\n\t```python\n\tprint(1)\n\t```\n",
    "Windows line ends": "```python\r\nprint(1)\r\n```\r\n",
    "old Mac line ends": "```python\rprint(1)\r```\r",
    "no newline at the end": "```python\nprint(1)\n```",
    "a byte-order mark": "\ufeff```python\nprint(1)\n```\n",
    "after a comment": "<!-- a remark -->\n\n```python\nprint(1)\n```\n",
    "after a comment of many lines": "<!-- a\nremark\n-->\n\n```python\nprint(1)\n```\n",
    "after words on comments": "Write `<!--` for a comment.\n\n```python\nprint(1)\n```\n",
    "after front matter": "---\ntitle: x\n---\n\n```python\nprint(1)\n```\n",
    "after a rule": "Text\n\n---\n\n```python\nprint(1)\n```\n\n---\n",
    "after a fence that quotes one": "````markdown\n```python\nraise\n```\n````\n\n```python\nprint(1)\n```\n",
    "after inline code that quotes one": "Write ```` ```python ```` here.\n\n```python\nprint(1)\n```\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_of_python_fence_is_collected(book, text):
    page = book.read(text.encode())
    assert [block.code for block in page.blocks] == ["print(1)\n"]
    line = re.split(r"\r\n|\r|\n", text)[page.blocks[0].line - 1]
    assert re.search(r"[`~]{3,}[ {.]*py", line), "the block's line is that of its opening fence"


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


def test_code_in_a_block_quote_loses_the_quote_marks_alone(book):
    page = book.read("> ```python\n> a = 2 > 1\n>\n> b = '> c'\n> ```\n")
    assert page.blocks[0].code == "a = 2 > 1\n\nb = '> c'\n"


def test_backticks_within_longer_fences_are_code(book):
    page = book.read("`````python\na = '''\n```\n````\n'''\n`````\n")
    assert page.blocks[0].code == "a = '''\n```\n````\n'''\n"


def test_words_that_other_tools_read_as_commands_are_only_text(book):
    page = book.read("""
        <!--pytest-codeblocks:skipfile-->

        <!--pytest-codeblocks:skip-->

        ```python
        print(1)
        ```

        <!--pytest.mark.skip-->

        ```python
        print(2)
        ```
        """)
    assert [block.code for block in page.blocks] == ["print(1)\n", "print(2)\n"]


def test_fences_of_other_languages_do_not_run(book):
    page = book.read("```text\na\n```\n\n```\nb\n```\n\n```bash\nc\n```\n\n    print('indented')\n")
    assert page.blocks == []
    assert [fence.language for fence in page.fences] == ["text", "", "bash"]


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

        ??? note "No answer"

            ```python
            d = 1
            ```
        """)
    assert [block.solution for block in page.blocks] == [False, True, True, False]


def test_the_pages_of_a_book_are_its_readme_and_its_docs(book):
    for name in ("README.md", "docs/b.md", "docs/a/c.md", "docs/.d.md", "notes/e.md"):
        book.page("", name)
    assert [shown(path, book.root) for path in pages(book.root)] == [
        "README.md",
        "docs/a/c.md",
        "docs/b.md",
    ]


# ---- What cannot be read: the line to blame, and words that the message must hold. ----

BAD = {
    "unclosed fence": ("Text\n\n```python\nprint(1)\n", 3, "unclosed fence"),
    "unclosed fence of output": ("```python\nprint(1)\n```\n\n```output\n1\n", 5, "unclosed fence"),
    "unclosed fence of text": ("```text\n\n```python\nprint(1)\n", 1, "unclosed fence"),
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
    "output at another indent": (
        "!!! note\n\n    ```python\n    print(1)\n    ```\n\n```output\n1\n```\n",
        7,
        "output is indented by 0, its block on line 3 by 4",
    ),
    "unknown option on code": ('```python tytle="a"\n1\n```\n', 1, "unknown option `tytle`"),
    "flag on code": ("```python continue\n1\n```\n", 1, "unknown option `continue`"),
    "unknown option in braces": ('```{ .python skip="a" }\n1\n```\n', 1, "unknown option `skip`"),
    "option of output on code": ("```python heatmap\n1\n```\n", 1, "live on `output`"),
    "option twice": ('```python title="a" title="b"\n1\n```\n', 1, "given twice"),
    "option without quotes": ("```python title=a\n1\n```\n", 1, "cannot read"),
    "title without a value": ("```python title\n1\n```\n", 1, "needs a value"),
    "highlighted lines that are none": ('```python hl_lines="a"\n1\n```\n', 1, "hl_lines"),
    "comma in the info string": ("```python, skip\n1\n```\n", 1, "cannot read the info string"),
    "run-on info string": ("```python:title\n1\n```\n", 1, "cannot read the info string"),
    "unknown option on output": (
        "```python\nprint(1)\n```\n\n```output heatmapp\n1\n```\n",
        5,
        "heatmapp",
    ),
    "misspelt output": ("```python\nprint(1)\n```\n\n```Output\n1\n```\n", 5, "unknown language"),
    "misspelt python": ("```pyhton\nprint(1)\n```\n", 1, "unknown language `pyhton`"),
    "python in capitals": ("```Python\nprint(1)\n```\n", 1, "unknown language `Python`"),
    "a console session": ("```pycon\n>>> 1\n```\n", 1, "unknown language `pycon`"),
    "a dialect": ("```ipython3\nprint(1)\n```\n", 1, "unknown language `ipython3`"),
    "missing file": ('```python\n--8<-- "gone.py"\n```\n', 2, "gone.py"),
    "missing section": ('```python\n--8<-- "here.py:gone"\n```\n', 2, "gone"),
    "section without an end": ('```python\n--8<-- "here.py:open"\n```\n', 2, "0 end marks"),
    "include by line numbers": ('```python\n--8<-- "here.py:1:2"\n```\n', 2, "stands alone"),
    "include from outside": ('```python\n--8<-- "../secret.py"\n```\n', 2, "secret.py"),
    "include beside code": ('```python\na = 1\n--8<-- "here.py"\n```\n', 3, "stands alone"),
    "include in the text": ('Text\n\n--8<-- "here.py"\n', 3, "stands alone"),
    "include in another fence": ('```text\n--8<-- "here.py"\n```\n', 1, "stands alone"),
    "include of nothing that runs": ('```python\n--8<-- "empty.py"\n```\n', 2, "empty"),
    "include that is not UTF-8": ('```python\n--8<-- "latin.py"\n```\n', 2, "not UTF-8"),
    "code in a comment": ("<!--\n```python\nprint(1)\n```\n-->\n", 2, "HTML comment"),
    "code in a comment on its line": ("<!-- ```python\nprint(1)\n```\n-->\n", 1, "line of its own"),
    "unclosed comment": ("Text <!-- and\n\nmore\n", 1, "unclosed HTML comment"),
    "code in front matter": ("---\nx: |\n  ```python\n  a = 1\n  ```\n---\n", 3, "front matter"),
    "fence on a list marker": ("- ```python\n  print(1)\n  ```\n", 1, "line of its own"),
    "fence on a numbered marker": ("1. ```python\n   print(1)\n   ```\n", 1, "line of its own"),
    "fence on a definition": ("Term\n:   ```python\n    print(1)\n    ```\n", 2, "line of its own"),
    "fence after words": ("Run: ```python\nprint(1)\n```\n", 1, "line of its own"),
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
    "fence in a footnote, drawn elsewhere": (
        "Text[^1].\n\n[^1]: A note.\n\n    ```python\n    print(1)\n    ```\n",
        5,
        "would not draw it here",
    ),
    "fence in an include": ('```python\n--8<-- "fence.py"\n```\n', 2, "a fence stands in fence.py"),
    "two sections of one name": ('```python\n--8<-- "here.py:twice"\n```\n', 2, "2 start"),
    "a language in braces alone": ("```{python}\nprint(1)\n```\n", 1, "unknown option `python`"),
    "flag in braces": ("```{ .python skip }\n1\n```\n", 1, "unknown option `skip`"),
    "not UTF-8": (b"Text\n\ncaf\xe9\n", 3, "byte 0xe9 is not UTF-8"),
}


@pytest.fixture
def library(book):
    """A book whose snippets hold a file, a section left open, and two bad files."""
    book.snippet(
        "here.py",
        "a = 1\n# --8<-- [start:open]\n" + "# --8<-- [start:twice]\n# --8<-- [end:twice]\n" * 2,
    )
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


def test_a_missing_page_is_an_error_of_the_system(book):
    with pytest.raises(FileNotFoundError):
        read(book.root / "docs" / "gone.md")


GOOD_OPTIONS = [
    {},
    {"heatmap": ""},
    {"heatmap": "", "rows": "a b", "cols": "c d", "caption": "Of x"},
    {"chart": "", "caption": "Of x"},
    {"raises": "IndexError"},
    {"varies": "dropout masks"},
]
BAD_OPTIONS = [
    ({"heatmap": "yes"}, "`heatmap` takes no value"),
    ({"chart": "yes"}, "`chart` takes no value"),
    ({"caption": " "}, "`caption` needs a value"),
    ({"varies": ""}, "`varies` needs a value"),
    ({"raises": "not a name"}, "is not the name of an exception"),
    ({"raises": "torch.OutOfMemoryError"}, "is not the name of an exception"),
    ({"raises": "SyntaxError"}, "SyntaxError"),
    ({"rows": "a b"}, "`rows` labels a `heatmap`"),
    ({"cols": "a b"}, "`cols` labels a `heatmap`"),
    ({"heatmap": "", "chart": ""}, "not as both"),
    ({"hetmap": ""}, "unknown option `hetmap`"),
    ({"title": "a"}, "unknown option `title`"),
]


@pytest.mark.parametrize("options", GOOD_OPTIONS)
def test_the_options_of_an_output_are_these(options):
    check_output_options(options)


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS)
def test_other_options_of_an_output_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        check_output_options(options)
