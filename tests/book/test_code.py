"""The length of a first line is known before any script, where it matters."""

import pytest
from markdown import markdown

EXTENSIONS = ["admonition", "pymdownx.highlight", "pymdownx.superfences", "book.markdown.code"]


@pytest.mark.parametrize("indent", ["", "!!! note\n\n    "], ids=["alone", "in a note"])
@pytest.mark.parametrize(
    ("line", "said"),
    [("a = 1", ""), ('print("a < b & c", "and then")', ' style="--first-line:30"')],
)
def test_a_block_says_how_long_its_first_line_is_if_it_is_long(indent, line, said):
    text = f"```python\n{line}\nb = 2\n```"
    html = markdown(
        indent + text.replace("\n", "\n" + " " * 4 * bool(indent)), extensions=EXTENSIONS
    )
    assert f"<pre><span></span><code{said}>" in html
