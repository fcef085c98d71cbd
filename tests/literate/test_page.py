"""Every fence labelled python is collected, and what cannot be read names page.md:line."""

import contextlib
import re
import sys

import pytest

from book.figures.options import OPTIONS
from literate.fence import check_options
from literate.page import PageError, name_of, pages, read

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
    "right under a paragraph": "Some text:\n```python\nprint(1)\n```\nMore.\n",
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


def test_an_empty_line_of_a_block_quote_may_stand_before_an_output(book):
    page = book.read("> ```python\n> print(1)\n> ```\n>\n> ```output\n> 1\n> ```\n")
    assert page.blocks[0].output.text == "1\n"


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


@pytest.mark.parametrize("suffix", [".markdown", ".mkd", ".mkdn", ".mdown"])
def test_a_page_by_another_suffix_is_refused(book, suffix):
    with pytest.raises(PageError, match=rf"page\{suffix}:1: the name of a page ends in .md"):
        book.read("# A\n", f"docs/page{suffix}")


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
    "python in capitals": ("```Python\nprint(1)\n```\n", 1, "`Python` is drawn as Python"),
    "a dialect": ("```ipython3\nprint(1)\n```\n", 1, "`ipython3` is drawn as Python"),
    "Python by another name": ("```sage\nprint(1)\n```\n", 1, "`sage` is drawn as Python"),
    "a configuration in Python": ("```starlark\na = 1\n```\n", 1, "`starlark` is drawn as Python"),
    "an old Python": ("```python2\nprint 1\n```\n", 1, "`python2` is drawn as Python"),
    "two languages": ("```{ .text .python }\nprint(1)\n```\n", 1, "cannot read `.python`"),
    "options of an explorable": ('```attention title="a"\n```\n', 1, "unknown option `title`"),
    "misspelt explorable": ("```Attention\n```\n", 1, "unknown language `Attention`"),
    "missing file": ('```python\n--8<-- "gone.py"\n```\n', 2, "gone.py"),
    "missing section": ('```python\n--8<-- "here.py:gone"\n```\n', 2, "gone"),
    "missing name": (
        '```python\n--8<-- "named.py:Gone"\n```\n',
        2,
        "named Gone; the file has Kept, twice, twice",
    ),
    "name that is there twice": ('```python\n--8<-- "named.py:twice"\n```\n', 2, "wanted one"),
    "name in what is no Python": ('```python\n--8<-- "fence.md:Gone"\n```\n', 2, "no Python"),
    "section without an end": (
        '```python\n--8<-- "here.py:open"\n```\n',
        2,
        "one end of open in the file; found start",
    ),
    "include by line numbers": ('```python\n--8<-- "here.py:1:2"\n```\n', 2, "stands alone"),
    "include from outside": ('```python\n--8<-- "../secret.py"\n```\n', 2, "secret.py"),
    "include beside code": ('```python\na = 1\n--8<-- "here.py"\n```\n', 3, "stands alone"),
    "include in the text": ('Text\n\n--8<-- "here.py"\n', 3, "stands alone"),
    "include in another fence": ('```text\n--8<-- "here.py"\n```\n', 2, "stands alone"),
    "include in a block quote": ('> ```python\n> --8<-- "here.py"\n> ```\n', 2, "block quote"),
    "include in an include": ('```python\n--8<-- "outer.py"\n```\n', 2, "another file"),
    "include of a folder": ('```python\n--8<-- "folder"\n```\n', 2, "folder"),
    "two includes": ('```python\n--8<-- "here.py"\n--8<-- "here.py"\n```\n', 3, "in other code"),
    "include of nothing that runs": ('```python\n--8<-- "empty.py"\n```\n', 2, "empty"),
    "include that is not UTF-8": (
        '```python\n--8<-- "latin.py"\n```\n',
        2,
        "latin.py\": 'utf-8' codec can't decode",
    ),
    "code in a comment on its line": ("<!-- ```python\nprint(1)\n```\n-->\n", 1, "line of its own"),
    "code in front matter": ("---\nx: |\n  ```python\n  a = 1\n  ```\n---\n", 3, "front matter"),
    "fence on a list marker": ("- ```python\n  print(1)\n  ```\n", 1, "line of its own"),
    "fence on a numbered marker": ("1. ```python\n   print(1)\n   ```\n", 1, "line of its own"),
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
    "fence in an include": ('```python\n--8<-- "fence.py"\n```\n', 2, "a fence stands in the file"),
    "two sections of one name": (
        '```python\n--8<-- "here.py:twice"\n```\n',
        2,
        "found start, end, start, end",
    ),
    "a language in braces alone": ("```{python}\nprint(1)\n```\n", 1, "unknown option `python`"),
    "flag in braces": ("```{ .python skip }\n1\n```\n", 1, "unknown option `skip`"),
    "text that is taken for metadata": ("Answer: 42\n\nText\n", 1, "`Answer: 42`, but take it"),
    "a character that nobody sees": ("Text\n\n```output\n\x02\n```\n", 4, "U+0002"),
    "a formula that cannot be drawn": ("Text\n\nThen $\\foo$.\n", 3, 'Unknown command "\\foo"'),
    "a formula of several lines": ("# A\n\n$$\na +\n\\foo\n$$\n", 4, 'Unknown command "\\foo"'),
    "an output that no fence made": (
        'Text\n\n<figure>\n</figure>\n<figure\nclass="output">3</figure>\n',
        6,
        "the class `output` is the site's own",
    ),
    "an explorable that no fence made": (
        "Text\n\n<attention-explorable>3</attention-explorable>\n",
        3,
        "holds no <attention-explorable>",
    ),
    "Python that no fence made": (
        '# A\n\n<div class="language-python highlight"><pre>1</pre></div>\n',
        3,
        "the class `language-python` is the site's own",
    ),
    "a style that changes what is shown": (
        "Some <style>pre { display: none }</style>\n\n```python\n1\n```\n",
        1,
        "holds no <style>",
    ),
    "a style of the page, after code that shows one": (
        "```html\n<style>\n```\n\n<style>\n</style>\n",
        5,
        "holds no <style>",
    ),
    "a dialog, which is closed": ("<dialog>\n\n```python\n1\n```\n</dialog>\n", 1, "no <dialog>"),
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
    "an output that the next block would close": (
        "```python\n1\n```\n\n```output\n1\n\nMore\n\n```py\n1\n```\n\n```output\n1\n```\n",
        5,
        "unclosed fence; ```py on line 10",
    ),
    "two tabs that run": (
        '=== "A"\n\n    ```py\n    1\n    ```\n\n=== "B"\n\n    ```py\n    2\n    ```\n',
        9,
        "two tabs of one set run code, and the first is on line 3; a page is one program",
    ),
    "not UTF-8": (b"Text\n\ncaf\xe9\n", 3, "byte 0xe9 is not UTF-8"),
}


# Markup around a fence that a browser hides or draws otherwise; the fence stands for F.
UNSEEN = {
    "a comment": "<!--\nF\n-->\n",
    "a script": "<script>\n\nF\n\n</script>\n",
    "a style sheet": "<style>\nF\n</style>\n",
    "a text box": "# A <textarea>\n\nF\n",
    "a processing instruction": "<?\nF\n?>\n",
    "a CDATA section": "<![CDATA[\nF\n]]>\n",
    "markup that Python-Markdown draws twice": (
        "# A\n\n\n<![CDATA[\n\n<div>\n```py\n```\n\n</div>\n\n<div>\nF\n\n</div>\n"
    ),
    "a hidden box": "<div hidden markdown>\n\nF\n\n</div>\n",
    "a hidden box of plain HTML": "<div hidden>\nF\n</div>\n",
    "a box of another style": '<div style="display: none">\nF\n</div>\n',
    "a hidden word that never ends": "Some <b hidden>text\n\nF\n",
    "a choice": "<select>\n\nF\n\n</select>\n",
    "a hidden word within its paragraph": "Some <b hidden>text\nF\nand more</b>\n",
    "an attribute": '<div title="\nF\n">\n</div>\n',
    "an abbreviation": "# A\n\n*[HTML]:\nF\n",
    "the address of a link": "# A\n\n[1]:\nF\n",
    "a formula": "# A\n\n$$\nF\n$$\n",
    "a heading": "# A\n\nF\n---\n",
    "inline code": "# A\n\n`so\nF\nit is`\n",
    "a footnote, drawn after the text": "Text[^1].\n\n[^1]: A note.\n\n    F\n\nText\n\n```py\n1\n```\n",
}


RUNNING = "```python\nprint(1)\n```\n\n```output\n1\n```\n"

# What would hide, cover or imitate what was checked, or run a script; the line to blame is that of F.
HOSTILE = {
    # Event handlers, wherever HTML or an attribute list may stand.
    "a handler on a box": '<div F onclick="x()">\n</div>\n',
    "a handler on a word": "Some <em F onmouseover=x()>word</em>.\n",
    "a handler on a picture": '# A\n\n<img F src="x.png" onerror="x()">\n',
    "a handler in capitals": "<DIV F OnClick=x()></DIV>\n",
    "a handler around Markdown": '<div F onclick="x()" markdown>\n\nText\n\n</div>\n',
    "a handler on a box in a box": '<div markdown>\n<div F onclick="x()" markdown>\n\nT\n</div></div>\n',
    "a handler on the next line": '<div\nF onclick="x()">\n</div>\n',
    "a handler in a drawing": '<figure><svg F onload="x()"></svg></figure>\n',
    "a handler of a paragraph": "Text\n{: F onclick=x() }\n",
    "a handler of a heading": "# A\n\n## Title { F onclick=x() }\n",
    "a handler of a link": "# A\n\n[to](page.md){ F onclick=x() }\n",
    "a handler of a cell": "| a | b { F onclick=x() } |\n| - | - |\n| 1 | 2 |\n",
    "a handler of an item": "- item\n  { F onclick=x() }\n",
    "a handler in a note": '!!! note\n\n    <div F onclick="x()"></div>\n',
    "a handler in a footnote": "Text[^1].\n\n[^1]: A <em F onclick=x()>note</em>.\n",
    "a handler in a table": "| a |\n| - |\n| <em F onclick=x()>1</em> |\n",
    # What covers an output, or moves it.
    "a style over an output": '<div F style="position:fixed;inset:0">\n</div>\n',
    "a style by an attribute list": 'Text\n{: F style="margin-top:-99em" }\n',
    "a style of a drawing": '<svg F style="position:fixed;inset:0"></svg>\n',
    "a style after the right one": '<svg F style="max-width:100%;height:auto;position:fixed"></svg>\n',
    "a drawing that is moved": '<svg F transform="translate(0 -900)"></svg>\n',
    "a drawing of HTML": "<svg><foreignObject F ><div>1</div></foreignObject></svg>\n",
    "a drawing that changes": '<svg><animate F attributeName="x"></animate></svg>\n',
    "a drawing from elsewhere": '<svg><image F href="https://x.org/a.png"></image></svg>\n',
    "a paint from elsewhere": '<svg><rect F fill="url(https://x.org/a)"></rect></svg>\n',
    "a frame": "<center F >text</center>\n",
    "an attribute that opens": "<div F popover>text</div>\n",
    "an attribute of colours": '<div F data-md-color-scheme="slate">text</div>\n',
    # Classes and elements of the theme and of the site, which hide, fold, cover or promise.
    "a switch of the theme": '<div F class="md-toggle" markdown>\n\nText\n\n</div>\n',
    "a dialog of the theme": '<div F class="md-dialog">text</div>\n',
    "a tab that is not chosen": '<div F class="tabbed-block" markdown>\n\nText\n\n</div>\n',
    "a class among right ones": '<figure F class="diagram md-dialog">text</figure>\n',
    "a class by an attribute list": "Text\n{: F .md-dialog }\n",
    "a class of a heading": "# A\n\n## Title { F .md-toggle }\n",
    "a class of a note": '!!! md-dialog "F "\n\n    Text\n',
    "a second class of a note": '??? note md-toggle "F "\n\n    Text\n',
    "a note that looks like an output": '!!! output "F "\n\n    Text\n',
    "a class on a drawing": '<svg F class="md-toggle"></svg>\n',
    "the mark of a page": '<span F class="check">57 outputs</span>\n',
    # What imitates an output.
    "a table that looks like a heatmap": '<table F class="heatmap"><tr><td>1</td></tr></table>\n',
    "a table by an attribute list": "| a { F .heatmap } |\n| - |\n| 1 |\n",
    "text that looks like an output": "<pre F ><samp>1</samp></pre>\n",
    "a sample of text": "Then <samp F >1</samp>.\n",
    "an output within a drawing": '<figure F class="diagram output"><pre>1</pre></figure>\n',
    "the mark of a fence": '<div F data-fence="0">1</div>\n',
    "the mark of the site": '<pre F data-made="">1</pre>\n',
    "a formula by hand": "<math F ><mtext>1</mtext></math>\n",
    "what a form holds": "<input F type=checkbox>\n",
    "what a reader would press": "<button F >Run</button>\n",
    "a film": "<video F src=a.mp4></video>\n",
    # Addresses.
    "an address of the theme": "# A\n\n## Title { F #__search }\n",
    "an address of an output": "# A\n\n## Title { F #way-output-2 }\n",
    "an address of an exercise": "Text\n{: F #exercise-2 }\n",
    "a label of the menu": "# A\n\n## Title { F data-toc-label=x }\n",
    "a picture that fails": "# A\n\n![a](b.png){ F onerror=x() }\n",
    "a class by an entity": '<div F class="md&#45;toggle">t</div>\n',
    "a class of words in code": "# A\n\n`a`{ F .md-toggle }\n",
    "a class of a link": "# A\n\n[a](b.md){ F .headerlink }\n",
    "a class of a quote": "> a\n> { F .md-toggle }\n",
    "a heading by hand": "<h2 F class=md-toggle>a</h2>\n",
    "HTML in the title of a note": '!!! note "F <em onclick=x()>a</em>"\n\n    T\n',
    "HTML in the title of a tab": '=== "F <em onclick=x()>a</em>"\n\n    T\n',
    "HTML in a definition": "Term\n:   <em F onclick=x()>a</em>\n",
    "HTML in a drawing": "<svg><desc><pre F >1</pre></desc></svg>\n",
    "an address given twice": "# A\n\n## One { #one }\n\n## Two { F #one }\n",
    "an address of a drawing": "# A\n\n## One { #one }\n\n<svg><title F id=one>a</title></svg>\n",
    "a name of two heatmaps": (
        '```python\nprint(1)\n```\n\n```output heatmap name="one"\n1\n```\n\n'
        '```python\nprint(1)\n```\n\n```output heatmap name="one" caption="a F b"\n1\n```\n'
    ),
    "a link that runs": "A [link F ](javascript:alert)\n",
    "a link that runs, in capitals": "A [link F ](JavaScript:alert)\n",
    "a link that runs, by entities": "A [link F ](java&#115;cript:alert)\n",
    "a link with text in it": "A [link F ](data:text/html,1)\n",
    "a link of a file": "A [link F ](file:///etc/passwd)\n",
    "a link in angle brackets": "# A\n\nF <javascript:alert(1)>\n",
    "a link to another file of drawings": '<svg><path F xlink:href="x"></path></svg>\n',
    "a link of raw HTML": "A <a F href=javascript:x>link</a>\n",
    "a picture of text": "A ![picture F ](data:image/svg+xml,1)\n",
    # What turns the order of letters round, or cannot be seen.
    "text turned round": "Some F \u202etext\n",
    "text turned round by its name": "Some F &#x202E;text\n",
    "text turned round by another name": "Some F &rlm;text\n",
    "code turned round": "```text\nF \u2066a\n```\n",
    "a title turned round": '```python title="F \u2067"\n1\n```\n',
    "code of no width": "```python\na = 'F \u200b'\n```\n",
    "an output of no width": "```python\n1\n```\n\n```output\nF \u2060\n```\n",
    "a soft hyphen in code": "```python\na = 'F \xad'\n```\n",
    "what moves a terminal": "Some F \x1b[2J text\n",
    # Two programs on one page.
    "two tabs that run": '=== "A"\n\n    ```py\n    1\n    ```\n\n=== "B"\n\n    ```py title="a F b"\n    2\n    ```\n',
    "a third tab that runs": (
        '!!! note\n\n    === "A"\n\n        ```py\n        1\n        ```\n\n    === "B"\n\n        Text\n\n'
        '    === "C"\n\n        - item\n\n            ```py title="a F b"\n            2\n            ```\n'
    ),
}

# What pages may write as HTML, and what is only talk of it.
HARMLESS = {
    "a drawing": (
        '<figure class="diagram">\n<svg viewBox="0 0 9 9" role="img" aria-labelledby="t" width="9" '
        'style="max-width:100%;height:auto"><title id="t">A</title><marker id="m"></marker>'
        '<path class="accent" d="M0 0 L1 1" marker-end="url(#m)"/><text x="1">a</text></svg>\n'
        "<figcaption>It <em>says</em><br>so.</figcaption>\n</figure>\n"
    ),
    "a box of the home page": '<div class="home-why" markdown>\n\nText\n\n</div>\n',
    "an address": "## Title { #here }\n\nTerm { #there }\n:   What it is.\n",
    "a file to take": '[file](a.py){ download="a.py" }\n',
    "a note in a tab": '=== "A"\n\n    !!! note "It"\n\n        Text\n\n=== "B"\n\n    Text\n',
    "one tab that runs": '=== "A"\n\n    ```py\n    1\n    ```\n\n    ```py\n    2\n    ```\n\n=== "B"\n\n    T\n',
    "two sets of tabs": '=== "A"\n\n    ```py\n    1\n    ```\n\nText\n\n=== "B"\n\n    ```py\n    2\n    ```\n',
    "formulas, footnotes, tables and code": (
        "So $a < b_1$[^1]\n\n$$\n\\frac{a}{b}\n$$\n\n| a | b |\n| :- | -: |\n| 1 | 2 |\n\n    code\n\n"
        "*[HTML]: text\n\n[^1]: A note.\n"
    ),
    "what is said in code": 'Write `<div onclick="x()">`, `{ .md-dialog }` or `&#x202E;`.\n',
    "code that shows it": '```html\n<div onclick="x()" style="">\n</div>\n```\n',
    "links": "[a](b.md#c), [d](https://e.org/f:g), <https://h.org> and [mail](mailto:a@b.org)\n",
    "emoji and accents in the text": "Déjà vu \U0001f469\u200d\U0001f52c.\n",
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


def test_an_include_of_a_part_of_a_file_names_the_part(book):
    book.snippet("file.py", "a = 1\n# --8<-- [start:part]\na = 2\n# --8<-- [end:part]\n")
    page = book.read(b'```python\n--8<-- "file.py"\n```\n\n```python\n--8<-- "file.py:part"\n```\n')
    assert [block.fence.include.section for block in page.blocks] == [None, "part"]


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


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("before", ["", RUNNING + "\n"], ids=["alone", "after code"])
def test_what_could_hide_or_imitate_what_was_checked_is_an_error_at_its_line(book, before, text):
    line = (before + text).split("F ")[0].count("\n") + 1
    with pytest.raises(PageError) as caught:
        book.read((before + text.replace("F ", "")).encode())
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_what_pages_write_as_html_is_read(book, text):
    assert len(book.read((RUNNING + "\n" + text).encode()).blocks) >= 1


@pytest.mark.parametrize("character", "\u202e\u2066\u200b\x1b")
def test_an_include_with_a_character_that_nobody_sees_is_refused(book, character):
    book.snippet("part.py", f"a = 1\nb = '{character}'\n")
    with pytest.raises(
        PageError, match=r"page\.md:2: part\.py:2: the (control|invisible) character"
    ):
        book.read(b'```python\n--8<-- "part.py"\n```\n')


def test_a_notebook_that_no_test_reads_is_refused(book):
    inside, outside = "docs/labs/one.ipynb", "docs/part/two.ipynb"
    for name in (inside, outside):
        book.page("{}", name)
    assert [name_of(path, book.root) for path in pages(book.root)] == [outside]
    with pytest.raises(PageError, match=r"two\.ipynb:1: a notebook stands in docs/labs/"):
        read(book.root / outside)


def test_tracebacks_and_sessions_of_python_are_shown_and_do_not_run(book):
    page = book.read("```pytb\nTraceback\n```\n\n```pycon\n>>> 1\n```\n")
    assert page.blocks == []


def test_a_page_may_open_with_a_rule(book):
    page = book.read("---\n\n~~~python\nprint(1)\n~~~\n\n---\n")
    assert [block.line for block in page.blocks] == [3]


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
    ({"rows": "a b"}, "`rows` is of a `heatmap`"),
    ({"cols": "a b"}, "`cols` is of a `heatmap`"),
    ({"heatmap": "", "chart": ""}, "not both"),
    ({"hetmap": ""}, "unknown option `hetmap`"),
    ({"heatmap": "", "row": "a b"}, "Did you mean `rows`?"),
    ({"title": "a"}, "unknown option `title`"),
]


@pytest.mark.parametrize("options", GOOD_OPTIONS)
def test_the_options_of_an_output_are_these(options):
    check_options("output", options, OPTIONS)


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
