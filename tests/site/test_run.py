"""Blocks are run and edited in the page: what a reader sees of it, in Chromium."""

import hashlib
import json
import shutil
import urllib.request

import pytest

from tests.site import book, browsers
from tests.site.axe import axe
from tests.site.browsers import Reader

PAGE = '''\
# Plain

Why run this page?

```python
import torch

numbers = torch.tensor([1.0, 2.0, 4.0])


def mean(values):
    return values.sum() / len(values)
```

```python
print("mean:", mean(numbers))
print("last:", numbers[-1].item())
```

```output
mean: tensor(2.3333)
last: 4.0
```

```python
words, both = "river bank", [[1.0, 0.0], [1.0, 2.0]]
print(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
```

```output heatmap rows="= words: river bank" cols="x y" name="few"
tensor([[0.5000, 0.5000],
        [0.0000, 1.0000]])
```

```attention
tokens = words: river bank
embeddings = both:
  - [1.0, 0.0]
  - [1.0, 2.0]
weights = both:
query: bank
step: scores
```

```python
print(numbers[7])
```

```output raises="IndexError"
IndexError: index 7 is out of bounds for dimension 0 with size 3
```

```python
import processes_galore
```

```python
print("step  first  last")
for step in range(3):
    print(f"{step:4} {step / 4:6.2f} {step * numbers[-1]:5.1f}")
```

```output chart x="step" y="size"
step  first  last
   0   0.00   0.0
   1   0.25   4.0
   2   0.50   8.0
```

**Predict** the sum.

```python
print(numbers.sum())
```

```output predict
tensor(7.)
```

## Exercises

**1. Change · easy.** Write a function that doubles.

```python title="Your answer"
def answer_1(x):
    ...
```

??? tip "Hint"

    Twice.

```python title="Check"
def check_1(answer):
    """Ask for a double."""
    assert answer(2) == 4, "twice two is four"
    print("Exercise 1: right")
```

??? success "Solution"

    So:

    ```python
    def answer_1(x):
        return 2 * x


    check_1(answer_1)
    ```

    ```output
    Exercise 1: right
    ```
'''
# The blocks of that page.
SETS, MEAN, HEAT, RAISES, CHART, PREDICTED, STUB, CHECK, SOLUTION = range(9)
# What npm's packages hold, and what was made of them as book/README.md says.
STORED = {
    "codemirror.js": "5d9c49d39d55fd23ab5e40c1fe5d38c9e3d5081a6f8f22c7201ef709361fbca0",
    "pyodide/pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
    "pyodide/pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
    "pyodide/pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
    "pyodide/python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
}
# The strip under a runnable block, and whether its run has ended.
STRIP = """(at) => {
  const strip = document.querySelectorAll('[data-run=run]')[at].closest('.highlight').nextElementSibling;
  return strip?.matches('.run-strip') ? strip : null;
}"""
ENDED = f"""(at) => {{
  const state = ({STRIP})(at)?.dataset.state;
  return state && !['running', 'edited'].includes(state);
}}"""
TOLD = f"""(at) => {{
  const strip = ({STRIP})(at), figure = strip.nextElementSibling;
  return [strip.dataset.state, strip.firstChild.textContent, figure?.matches('figure') ? figure.innerText : ''];
}}"""


# Keeps what the strips of a page have said.
WATCHED = """() => {
  window.told = new Set();
  const note = () => document.querySelectorAll('.run-says').forEach((one) => told.add(one.textContent));
  new MutationObserver(note).observe(document.querySelector('.md-content'), { subtree: true, childList: true });
}"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site of a book of two pages, one of which runs."""
    folder = tmp_path_factory.mktemp("run")
    project = book.small_book(folder / "project", index="# Home\n\nWhy? So.\n", plain=PAGE)
    shutil.copytree(book.ROOT / "small_torch", project / "small_torch")
    runs = {"docs/plain.md": {"4": "it starts processes"}}
    (project / "small_torch/runs.json").write_text(json.dumps(runs), encoding="utf-8")
    result = book.build(folder / "site", project)
    assert result.returncode == 0, result.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def small(built):
    """The address of that book."""
    with book.served(built) as address:
        yield address


@pytest.fixture(scope="module")
def running(browser, small):
    """The reader of that book, and a window of theirs in which Python is there."""
    reader = Reader(browser, small)
    page = reader.open("plain.html")
    page.set_default_timeout(120_000)  # Python starts on a busy machine
    yield reader, page
    reader.close()


@pytest.fixture
def plain(running):
    """The page as it is at first, in a window where Python is there already."""
    _, page = running
    strips = page.locator(".run-strip")
    if strips.get_by_role("button", name="Reset the page").count():
        strips.get_by_role("button", name="Reset the page").click()
    for button in strips.get_by_role("button", name="Reset").all():
        button.click()
    return page


@pytest.fixture
def alone(browser, small):
    """`alone(path)` opens the page in a window of its own, in which nothing was loaded yet."""
    reader = Reader(browser, small)

    def at(path="plain.html", **options):
        page = reader.open(path, **options)
        page.set_default_timeout(120_000)
        return page

    yield at
    reader.close()


def run(page, at):
    """Run a block, and say how it stands, in which words, and what is shown below."""
    page.locator("[data-run=run]").nth(at).click()
    return ended(page, at)


def ended(page, at):
    page.wait_for_function(ENDED, arg=at)
    return page.evaluate(TOLD, at)


def edit(page, at, code):
    """Write `code` in place of a block."""
    page.locator("[data-run=edit]").nth(at).click()
    page.wait_for_function("document.activeElement.matches('.cm-content')")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(code)


def asked(page):
    return page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")


# ------------------------------------------------------------------------------------------ run


def test_a_block_is_run_after_those_above_it_and_prints_what_stands_there(plain):
    state, said, shown = run(plain, MEAN)
    assert (state, said) == ("right", "As printed.")
    assert "mean: tensor(2.3333)" in shown
    assert plain.locator("#book-status").text_content() == "As printed."
    assert run(plain, SETS)[:2] == ["ran", "Ran. It prints nothing."]
    assert run(plain, RAISES)[:2] == ["right", "As printed."]  # an error that the page shows


def test_what_is_to_be_predicted_is_seen_when_it_was_run(plain):
    assert plain.locator(".veiled").count() == 1
    assert run(plain, PREDICTED)[:2] == ["right", "As printed."]
    assert plain.locator(".veiled").count() == 0


def test_a_block_that_does_not_run_here_says_why_in_place_of_run(plain):
    block = plain.locator(".highlight", has_text="processes_galore")
    assert block.locator("[data-run]").count() == 0
    assert block.evaluate("(block) => block.nextElementSibling.textContent") == (
        "Does not run in the page: it starts processes."
    )
    assert plain.locator(".page-runs").inner_text() == "9 of 10 blocks run here"


def test_nothing_is_loaded_before_the_first_touch_and_what_few_pages_need_when_one_asks_for_it(
    alone,
):
    page = alone()
    assert [url for url in asked(page) if "run" in url or "vendor" in url] == []
    run(page, SETS)
    browsers.show(page)
    after = asked(page)
    assert any(url.endswith("run.js") for url in after)
    assert [url for url in after if "codemirror" in url or "run-later" in url] == []
    edit(page, SETS, "import torch\n\nprint(torch.optim.SGD, torch.ones(1).angle())\n")
    assert "tensor([0.])" in run(page, SETS)[2]
    edit(page, SETS, "import torch\n\nprint(torch.nn.MultiheadAttention(4, 2).num_heads)\n")
    assert run(page, SETS)[2].endswith("2")


def test_a_value_in_which_a_block_ends_is_shown(plain):
    edit(plain, MEAN, "numbers * 2\n")
    assert run(plain, MEAN)[2].endswith("tensor([2., 4., 8.])")
    edit(plain, MEAN, "numbers.add_(1)\n")  # is there for what it does
    assert run(plain, MEAN)[1] == "2 lines of 2 moved."
    assert plain.locator(".run-output").count() == 0


def test_warnings_and_what_goes_to_standard_error_are_shown(plain):
    code = "import sys, warnings\n\nwarnings.warn('old')\nprint('aside', file=sys.stderr)\n"
    for ends, state in {"": "moved", "1 / 0\n": "wrong"}.items():
        edit(plain, MEAN, code + ends)
        assert run(plain, MEAN)[0] == state
        shown = plain.locator(".run-strip pre:visible")
        assert shown.all_text_contents() == ["UserWarning: old\naside\n"]


def test_it_is_told_which_of_the_blocks_above_runs(alone):
    page = alone()
    edit(page, MEAN, "print(1)\n")
    page.evaluate(WATCHED)
    run(page, PREDICTED)
    told = page.evaluate("[...window.told]")
    assert [f"Running {n} of 5 above" for n in range(1, 6)] == [one for one in told if "of" in one]


def test_a_memory_that_has_grown_goes_back(alone):
    page = alone()
    edit(page, MEAN, "print(len(bytearray(2**30)))\n")
    assert "1073741824" in run(page, MEAN)[2]
    assert page.workers == []
    edit(page, MEAN, "print(len(numbers))\n")
    assert run(page, MEAN)[2].endswith("3")
    assert len(page.workers) == 1


def test_each_button_says_of_which_block_it_is(plain):
    names = plain.locator(".book-copy button").evaluate_all(
        "all => all.map((one) => one.getAttribute('aria-label'))"
    )
    assert len(names) == len({*names})
    assert names[:4] == [
        "Run block 1",
        "Edit block 1",
        "Copy block 1",
        "Copy block 1 with everything above",
    ]


# ----------------------------------------------------------------------------------------- edit


def test_what_was_shown_below_an_edit_is_stale_until_it_runs_again(plain):
    stale = "Stale: block 1 has changed since. Run this one again."
    run(plain, MEAN)
    assert run(plain, HEAT)[0] == "right"
    edit(plain, SETS, "import torch\n\nnumbers, mean = torch.tensor([5.0, 5.0]), max\n")
    assert [plain.evaluate(TOLD, at)[:2] for at in (MEAN, HEAT)] == [["stale", stale]] * 2
    assert run(plain, HEAT)[0] == "right"
    assert plain.evaluate(TOLD, MEAN)[:2] == ["stale", stale]
    plain.locator(".run-strip").first.get_by_role("button", name="Reset block 1").click()
    assert plain.evaluate(TOLD, HEAT)[:2] == ["stale", stale]


def test_an_edited_block_says_what_moved_and_where(plain):
    edit(plain, MEAN, 'numbers[0] = 7.0\nprint("mean:", mean(numbers))\nprint("last:", 4.0)\n')
    state, said, shown = run(plain, MEAN)
    assert (state, said) == ("moved", "1 line of 2 moved.")
    assert "mean: tensor(4.3333)" in shown
    assert plain.locator(".run-output mark").all_inner_texts() == ["4.3333"]
    moved = plain.locator(".run-strip pre").text_content()
    assert moved == "mean: tensor(2.3333)\nmean: tensor(4.3333)\n"


def test_an_edited_block_counts_for_those_below_it(plain):
    edit(plain, SETS, "import torch\n\nnumbers, mean = torch.tensor([5.0, 5.0]), max\n")
    assert "tensor(10.)" in run(plain, PREDICTED)[2]


def test_a_block_that_runs_again_finds_the_page_as_it_was_before_it(plain):
    """Names, what was changed in place and random numbers; those above are not run again."""
    edit(plain, SETS, "import time, torch\n\nnumbers, begun = torch.ones(3), time.time()\n")
    code = "numbers[0] += 1.0\nprint(begun, numbers[0].item(), torch.rand(1).item())\n"
    edit(plain, MEAN, code)
    first = run(plain, MEAN)[2]
    assert run(plain, MEAN)[2] == first
    run(plain, PREDICTED)
    edit(plain, MEAN, code + "print('more')\n")
    assert run(plain, MEAN)[2] == first + "\nmore"


def test_a_heatmap_is_drawn_from_what_was_printed_and_keeps_its_address(plain):
    edit(
        plain,
        HEAT,
        'words, both = "boat loan", []\nprint(torch.tensor([[1.0, 0.0], [0.25, 0.75]]))\n',
    )
    assert run(plain, HEAT)[0] == "moved"
    table = plain.locator("#few .heatmap")
    assert table.locator("th[scope=row]").all_inner_texts() == ["boat", "loan"]
    assert table.locator("td[id]").all_inner_texts() == ["1.0000", "0.0000", "0.2500", "0.7500"]
    assert plain.locator("#few-1-1").count() == 1


def test_a_chart_is_drawn_from_what_was_printed(plain):
    edit(
        plain,
        CHART,
        "print('step  first  last')\nfor step in range(5):\n    print(f'{step:4} {step * 3:6.2f} {-step:5.1f}')\n",
    )
    assert run(plain, CHART)[0] == "moved"
    drawn = plain.locator(".run-output .chart svg")
    assert drawn.get_attribute("aria-label") == (
        "Line chart of size against step, from 0 to 4: first goes from 0 to 12; last goes from 0 to -4."
    )
    names = drawn.locator("text").all_text_contents()
    assert {"0", "1", "2", "3", "4"} <= {*names}
    assert [name for name in names if name.strip("-.0123456789")] == [
        "step",
        "size",
        "first",
        "last",
    ]
    counted = "marks => marks.map((mark) => mark.getAttribute('d').split('M').length - 1)"
    assert drawn.locator("path[style^='fill:var']").evaluate_all(counted) == [5, 5]


EXPLORED = """() => [...document.querySelectorAll('attention-explorable tbody tr')].slice(0, 2)
  .map((row) => [...row.children].map((cell) => cell.textContent.trim()))"""


def test_an_explorable_follows_what_the_page_computes_now_and_reset_brings_it_back(plain):
    plain.evaluate(browsers.WAKE)
    before = plain.evaluate(EXPLORED)
    edit(plain, HEAT, 'words, both = "boat loan", [[3.0, 0.0]]\nprint(both)\n')
    run(plain, HEAT)
    assert plain.evaluate(EXPLORED) == before  # it cannot show what came
    edit(plain, HEAT, 'words, both = "boat loan", [[3.0, 0.0], [0.0, 1.0]]\nprint(both)\n')
    run(plain, HEAT)
    assert plain.evaluate(EXPLORED) == [["boat", "9.0000", "0.0000"], ["loan", "0.0000", "1.0000"]]
    run(plain, MEAN)
    plain.get_by_role("button", name="Reset the page").click()
    assert plain.evaluate(EXPLORED) == before


def test_reset_brings_a_block_and_the_page_back(plain):
    code = plain.locator(".highlight code").nth(MEAN)
    before = plain.locator(".md-content").inner_html()
    edit(plain, MEAN, "print(1)\n")
    assert run(plain, MEAN)[0] == "moved"
    run(plain, HEAT)
    plain.get_by_role("button", name="Reset the page").click()
    assert code.text_content().startswith('print("mean:"')
    assert plain.locator(".run-strip, .cm-editor, .run-output").count() == 0
    after = plain.locator(".md-content").inner_html()
    assert shape(after) == shape(before)


def shape(html):
    """HTML without what a veil and the focus leave."""
    return len(html.split("<figure")), html.count("<samp"), html.count("<td"), html.count("</code>")


def test_what_was_typed_survives_a_reload_until_it_is_forgotten(alone):
    page = alone()
    edit(page, MEAN, "print(123)\n")
    page.reload()
    page.wait_for_selector(".cm-content")
    assert page.locator(".cm-content").inner_text().strip() == "print(123)"
    assert page.locator(".run-says").inner_text() == "Edited"
    page.get_by_role("button", name="Forget what I have read").click()
    assert page.locator(".cm-content").count() == 0
    assert page.evaluate("localStorage.getItem('book-run')") is None
    page.reload()
    browsers.show(page)
    assert page.locator(".cm-content, .run-strip").count() == 0
    assert [url for url in asked(page) if url.endswith("run.js")] == []


def test_two_tabs_keep_their_texts_and_a_third_has_what_came_last(alone):
    first = alone()
    second = first.context.new_page()
    second.goto(first.url)
    edit(first, MEAN, "print(1)\n")
    edit(second, MEAN, "print(2)\n")
    edit(second, HEAT, "print(3)\n")
    edit(first, CHART, "print(4)\n")
    third = first.context.new_page()
    third.goto(first.url)
    for page, texts in ((first, "134"), (second, "234"), (third, "234")):
        page.reload()
        page.wait_for_function("document.querySelectorAll('.cm-content').length === 3")
        typed = page.locator(".cm-content").all_inner_texts()
        assert [text.strip() for text in typed] == [f"print({text})" for text in texts]
    first.get_by_role("button", name="Forget what I have read").click()
    first.reload()
    browsers.show(first)
    assert first.locator(".cm-content").count() == 0


def test_what_was_typed_for_other_code_is_not_put_into_this(alone):
    page = alone()
    left = {"/plain.html": {"code": "another", "typed": {"1": "print(123)"}, "done": []}}
    page.evaluate("(left) => localStorage.setItem('book-run', JSON.stringify(left))", left)
    page.reload()
    page.wait_for_function("localStorage.getItem('book-run') === null")
    assert page.locator(".cm-content").count() == 0


def test_a_copied_block_is_the_one_that_was_typed(plain):
    edit(plain, MEAN, "print(77)\n")
    plain.locator(".highlight:has(.cm-editor) [data-copy=above]").click()
    copied = plain.evaluate("navigator.clipboard.readText()")
    assert copied.endswith("print(77)\n")
    assert copied.startswith("import torch")


def test_by_keyboard_a_block_is_edited_run_and_left(plain):
    edit(plain, MEAN, "print(5)\n")
    plain.keyboard.press("Shift+Enter")
    assert ended(plain, MEAN)[0] == "moved"
    plain.keyboard.press("Escape")
    assert plain.evaluate("document.activeElement.dataset.run") == "run"
    plain.keyboard.press("ArrowRight")
    assert plain.evaluate("document.activeElement.dataset.run") == "edit"


# ------------------------------------------------------------------------------------- mistakes

# What Python itself says of a mistake, and what the page says for it; what the small torch says is asked in its tests.
MISTAKES = {
    "syntax": ("print(1\n", "SyntaxError: '(' was never closed In line 1: print(1"),
    "name": ("print(numbrs)\n", "NameError: name 'numbrs' is not defined In line 1: print(numbrs)"),
    "assert": ("assert mean(numbers) == 1, 'no'\n", "AssertionError: no In line 1: assert"),
    "input": ("input()\n", "a block cannot ask for input"),
    "exit": ("exit()\n", "SystemExit: a block cannot end the page"),
    "file": ("open('notes.txt')\n", "No such file or directory: 'notes.txt' In line 1: open"),
    "process": ("import subprocess\nsubprocess.run(['ls'])\n", "a page cannot start processes"),
    "print": ("while True:\n    print('again and again')\n", "BlockStopped: printed more than"),
    "depth": ("def f():\n    f()\n\n\nf()\n", "RecursionError: a function calls itself"),
    "memory": ("x = [0] * 10**9\n", "MemoryError: this is more than the memory"),
    "lacking": ("torch.fft.fft(numbers)\n", "is not in the small torch of this page"),
    "stack": (
        "import sys\nsys.setrecursionlimit(10**9)\n\n\ndef f():\n    f()\n\n\nf()\n",
        "A function calls itself without an end. The next run starts Python anew.",
    ),
}


@pytest.mark.parametrize(
    "mistake",
    [name for name in MISTAKES if name != "stack"]
    + [pytest.param("stack", marks=pytest.mark.night)],
)
def test_a_mistake_is_one_clear_line_and_the_page_goes_on(plain, mistake):
    code, wanted = MISTAKES[mistake]
    edit(plain, MEAN, code)
    state, said, _ = run(plain, MEAN)
    assert state == "wrong"
    assert wanted in said
    assert "\n" not in said
    assert run(plain, HEAT)[0] != "right"  # the block above stops this one, too
    if mistake == "lacking":
        link = plain.locator(".run-strip").first.get_by_role("link", name="Run in Colab")
        assert link.get_attribute("href").endswith("plain.ipynb")
    plain.get_by_role("button", name="Reset the page").click()
    assert run(plain, HEAT)[:2] == ["right", "As printed."]


def test_the_whole_error_names_the_lines_of_its_blocks(plain):
    edit(
        plain,
        SETS,
        "import torch\n\nnumbers = torch.ones(3)\n\n\ndef mean(values):\n    return values @ 2\n",
    )
    edit(plain, MEAN, "print(mean)\nmean(numbers)\n")
    assert run(plain, MEAN)[0] == "wrong"
    whole = plain.locator(".run-strip details", has_text="The whole error").locator("pre")
    lines = whole.text_content().splitlines()
    frames = [line for line in lines if line.startswith("  Block")]
    assert frames == ["  Block 2, line 2", "  Block 1, line 7, in mean"]
    assert "    return values @ 2" in lines
    assert [line for line in lines if "small_torch" in line] == []
    edit(plain, MEAN, "torch.nn.Linear(2, 2).load_state_dict({})\n")
    run(plain, MEAN)
    assert "Missing key(s) in state_dict" in whole.text_content()


@pytest.fixture
def offline(alone):
    """Take a window from the network, and bring it back."""
    return lambda page, is_off: page.context.set_offline(is_off)


def test_without_a_connection_it_is_said_what_is_wrong_and_the_next_click_goes_on(alone, offline):
    page = alone()
    offline(page, True)
    page.locator("[data-run=run]").nth(MEAN).click()
    page.wait_for_selector(".unloaded:visible")
    assert "Try again when you are online" in page.locator(".unloaded").inner_text()
    offline(page, False)
    edit(page, MEAN, "print(1)\n")
    assert page.locator(".unloaded").count() == 0
    offline(page, True)
    said = "Python could not be loaded: you are offline. Run again when you are back."
    assert run(page, MEAN)[:2] == ["wrong", said]
    offline(page, False)
    assert run(page, MEAN)[0] == "moved"


POLICY = "default-src 'self' data: 'unsafe-inline'; script-src 'self' 'unsafe-inline'"


@pytest.mark.parametrize("allowed", ["", " 'unsafe-eval'"])
def test_under_a_policy_that_forbids_it_it_is_said_that_python_cannot_run(browser, built, allowed):
    with book.served(built, POLICY + allowed) as address:
        reader = Reader(browser, address)
        page = reader.open("plain.html")
        page.set_default_timeout(120_000)
        said = "Python did not run: the policy of this site forbids it (script-src needs 'unsafe-eval')."
        wanted = ["right", "As printed."] if allowed else ["wrong", said]
        assert run(page, MEAN)[:2] == wanted
        assert run(page, MEAN)[:2] == wanted
        reader.close()


def test_a_loop_without_an_end_is_stopped_and_the_next_run_starts_anew(plain):
    edit(plain, MEAN, "print('begun')\nwhile True:\n    pass\n")
    plain.locator("[data-run=run]").nth(MEAN).click()
    plain.get_by_role("button", name="Stop block 2").click()
    assert ended(plain, MEAN)[:2] == ["stopped", "Stopped. The next run starts Python anew."]
    plain.locator(".run-strip").get_by_role("button", name="Reset").first.click()
    assert run(plain, MEAN)[:2] == ["right", "As printed."]


# ------------------------------------------------------------------------------------ exercises


def test_an_exercise_is_done_by_an_answer_that_its_check_takes_and_stays_so(alone):
    page = alone()
    state, said, _ = run(page, CHECK)
    assert (state, said) == ("wrong", "Not right yet: twice two is four")
    assert page.locator(".exercise-done").count() == 0
    edit(page, STUB, "def answer_1(x):\n    return x + x\n")
    assert run(page, CHECK)[:2] == ["right", "Done."]
    assert page.locator("#exercise-1 .exercise-done").count() == 1
    edit(page, MEAN, "print(1)\n")
    assert run(page, MEAN)[0] == "moved"
    page.locator(".run-strip summary").click()
    edit(page, RAISES, "nothing\n")
    assert run(page, RAISES)[0] == "wrong"
    assert axe(page) == []
    page.reload()
    page.wait_for_selector("#exercise-1 .exercise-done")


def test_a_solution_runs_and_does_not_answer_for_the_reader(plain):
    plain.locator("details.success summary").click()
    assert run(plain, SOLUTION)[:2] == ["right", "As printed."]
    assert run(plain, CHECK)[0] == "wrong"


# ----------------------------------------------------------------------------------- everywhere


def test_after_a_click_a_page_runs_and_elsewhere_what_ran_is_ended_and_all_can_be_forgotten(
    alone, small
):
    page = alone("index.html")
    page.evaluate(browsers.CLICK, f"{small}plain.html")
    assert run(page, MEAN)[:2] == ["right", "As printed."]
    edit(page, MEAN, "while True:\n    pass\n")
    page.locator("[data-run=run]").nth(MEAN).click()
    page.wait_for_function("document.querySelector('.run-says')?.textContent === 'Running'")
    page.evaluate(browsers.CLICK, f"{small}index.html")
    page.evaluate(browsers.CLICK, f"{small}plain.html")
    page.wait_for_selector(".cm-content")  # it has kept what was typed
    page.evaluate(browsers.CLICK, f"{small}index.html")
    page.get_by_role("button", name="Forget what I have read").click()
    assert page.evaluate("localStorage.getItem('book-run')") is None
    page.evaluate(browsers.CLICK, f"{small}plain.html")
    assert page.locator(".cm-content").count() == 0
    assert run(page, MEAN)[:2] == ["right", "As printed."]


def test_without_scripts_and_on_paper_nothing_of_it_is_seen(alone, plain):
    run(plain, MEAN)
    plain.emulate_media(media="print")
    assert plain.locator("[data-run]:visible, .run-strip:visible, .unrun:visible").count() == 0
    plain.emulate_media(media="screen")
    page = alone(java_script_enabled=False)
    assert page.locator("button[data-run], .page-runs:visible").count() == 0


def test_from_a_disk_it_is_said_that_python_does_not_start_there(browser, small, tmp_path):
    archive = tmp_path / "book.zip"
    archive.write_bytes(urllib.request.urlopen(f"{small}attention-executed.zip").read())
    shutil.unpack_archive(archive, tmp_path)
    reader = Reader(browser, (tmp_path / "attention-executed").as_uri() + "/")
    page = reader.open("plain.html")
    edit(page, MEAN, "print(1)\n")
    assert run(page, MEAN)[:2] == [
        "wrong",
        "Python did not run: a browser starts Python only from a page with an address, and not from a disk.",
    ]
    reader.close()


@pytest.mark.parametrize("stored", STORED)
def test_what_others_wrote_is_stored_as_it_came_with_its_licence(stored):
    file = book.DOCS / "assets/vendor" / stored
    assert hashlib.sha256(file.read_bytes()).hexdigest() == STORED[stored]
    licences = {path.name.partition(".")[0] for path in file.parent.glob("*.LICENSE.txt")}
    assert file.name.partition(".")[0] in licences


# Runs a block, and says how it stands once it has ended, in any engine.
IN_ANY = f"""async (at) => {{
  document.querySelectorAll('[data-run=run]')[at].click();
  while (!({ENDED})(at)) await new Promise((passed) => setTimeout(passed, 50));
  return ({TOLD})(at).slice(0, 2);
}}"""
EDITED = """async (at) => {
  document.querySelectorAll('[data-run=edit]')[at].click();
  while (!document.activeElement.matches('.cm-content')) await new Promise((passed) => setTimeout(passed, 50));
}"""


@pytest.mark.smoke
def test_in_safaris_engine_and_in_firefox_a_block_runs_and_is_edited(engine, small):
    engine.go(f"{small}plain.html")
    assert engine.run(IN_ANY, MEAN) == ["right", "As printed."]
    engine.run(EDITED, MEAN)
    engine.keys("numbers[0] = 9.0; ")
    assert engine.run(IN_ANY, MEAN) == ["moved", "1 line of 2 moved."]
