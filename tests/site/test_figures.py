"""Figures answer, by mouse, keyboard and touch, and what they answer is what torch computes.

The fences driven here are every `attention` fence of the book, and some that no chapter has
reason to show: rows with nothing to attend to, logits of ±100. They are built
into a small site of their own, with the book's theme.
"""

import itertools
import re

import pytest

from book import numerals
from book.figures.explorable import fence as attention
from tests.book import by_torch
from tests.pages import PAGES
from tests.site import book, browsers
from tests.site.axe import axe

SIX = "[[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]]"
OWN = {
    "every control": f"""
        tokens: Your journey starts with one step
        embeddings: {SIX}
        query: journey
        controls: query step causal scaling hide edit""",
    "logits of 100": """
        tokens: plus minus none half
        queries: [[10, 0], [0, 10], [-10, 0], [0, 0]]
        keys: [[10, 10], [-10, 10], [0, -10], [10, 9.5]]
        values: [[0.5, -1], [2, 0.25], [-3, 1], [0, 4]]
        causal: true
        scaling: false
        controls: query step causal scaling hide edit""",
    "nothing to attend to": """
        tokens: a b
        embeddings: [[1, 2], [3, -4]]
        step: weights
        controls: query step causal hide""",
    "choices": f"""
        choices:
        - name: six
          tokens: Your journey starts with one step
          embeddings: {SIX}
        - name: the same <b>twice</b>
          tokens: '<i>a</i> it''s a b c "d"'
          queries: {SIX}
          keys: {SIX}
          values: [[1], [2], [3], [4], [5], [6]]
        step: context
        controls: query step scaling causal edit""",
}
HEATMAP = """\
```python
print(weights)
```

```output heatmap rows="Your journey starts" cols="Your journey starts" caption="Weights"
tensor([[1.0000, 0.0000, 0.0000],
        [0.5517, 0.4483, 0.0000],
        [0.3800, 0.3097, 0.3103]])
```

```python
print("scores:", scores)
```

```output heatmap name="few"
scores: tensor([[ 0.2899,    -inf,     nan],
        [-0.4656, -0.1723,    -inf]])
```"""
CHART = """\
```python
print(table)
```

```output chart y="variance" caption="Growth"
   d  variance  scaled
   4       4.1     1.0
  64      63.0     0.9
1024    1019.7     1.1
```"""


def book_fences():
    """Each `attention` fence of the book that shows tables: `{"page:line": body}`."""
    found = {}
    for page in PAGES:
        for fence in page.fences:
            if fence.language == "attention" and not attention.read(fence.text).votes:
                found[f"{page.name}:{fence.line}"] = fence.text
    return found


OURS = {
    name: "\n".join(line[8:] for line in body.strip("\n").split("\n")) for name, body in OWN.items()
}
FENCES = OURS | book_fences()
# Ours, and one of the book; the others at night.
each_fence = pytest.mark.parametrize(
    "name",
    [
        name
        if name in OURS or "dot-product" in name
        else pytest.param(name, marks=pytest.mark.night)
        for name in FENCES
    ],
)


# ------------------------------------------------------------------------- a site of their own


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder of a small book in this book's theme: every fence, a page each."""
    return book.copy_project(tmp_path_factory.mktemp("figures"), docs=False)


@pytest.fixture(scope="module")
def address(project):
    """Where it is served."""
    for number, body in enumerate(FENCES.values()):
        text = f"# Fence {number}\n\n```attention\n{body}\n```\n"
        (project / f"docs/fence-{number}.md").write_text(text, encoding="utf-8")
    index = "\n\n".join(
        (
            "# Figures",
            "[Choices](fence-3.md)",
            HEATMAP,
            "The last but one is [0.1723](#few-1-1).",
            CHART,
            f"```attention\n{OURS['every control']}\n```",
        )
    )
    (project / "docs/index.md").write_text(f"{index}\n", encoding="utf-8")
    settings = (project / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^nav:\n(?:[ #].*\n|\n)*", "", settings, flags=re.MULTILINE)
    with book.served(project / "site") as address:
        settings = re.sub(r"^site_url: .*$", f"site_url: {address}", settings, flags=re.MULTILINE)
        (project / "mkdocs.yml").write_text(settings, encoding="utf-8")
        result = book.build(project / "site", project)
        assert result.returncode == 0, result.stdout + result.stderr
        yield address


# --------------------------------------------------------------------------------- the explorable


READ = """figure => [...figure.querySelectorAll('.heatmap')].map(table => ({
    values: [...table.tBodies[0].rows].map(row => [...row.querySelectorAll('td')].map(cell => Number(cell.dataset.value))),
    texts: [...table.tBodies[0].rows].map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent)),
    hatched: [...table.tBodies[0].rows].map(row => [...row.querySelectorAll('td')].map(cell => cell.classList.contains('z'))),
    rows: [...table.querySelectorAll('tbody th')].map(cell => cell.textContent),
    columns: [...table.querySelectorAll('thead th')].map(cell => cell.textContent),
    filled: table.closest('.panel').querySelector('.filled').textContent,
    chosen: table.querySelector('td.on').textContent,
}))"""


class Driver:
    """Drives one explorable by its controls, and says what it shows."""

    def __init__(self, shown, spec):
        self.figure = shown.locator("figure.attention")
        self.spec = spec
        self.state = {"scaling": spec.scaling, "causal": spec.causal, "hidden": set()}
        self.choice = 0
        self.checks = 0

    @property
    def panel(self):
        return self.spec.panels[self.choice]

    # A sweep presses hundreds of times, so it presses from within the page; other tests below use
    # the mouse, the keyboard and a finger.
    def press(self, group, index):
        self.figure.locator(f"fieldset:has(legend:text-is('{group}')) label").nth(index).evaluate(
            "label => label.click()"
        )

    def step(self, index):
        self.figure.locator(".stepper li button").nth(index).evaluate("button => button.click()")

    def compare(self, step):
        """What is shown for `step` is what torch computes, and is rounded as Python rounds."""
        [shown] = self.figure.evaluate(READ)
        wanted = by_torch.attention(self.panel, **self.state)[step]
        by_torch.assert_equal(step, shown["values"], wanted)
        assert shown["texts"] == [
            [numerals.rounded(value, self.spec.digits) for value in row] for row in shown["values"]
        ]
        rows = wanted.tolist()
        assert shown["rows"] == self.panel.tokens
        numbers = self.spec.channels or [str(i) for i in range(len(rows[0]))]
        assert shown["columns"] == (numbers if step == "context" else self.panel.tokens)
        assert shown["filled"].endswith(f" {shown['chosen']}")
        assert shown["hatched"] == self.hatching(step, rows)
        self.checks += 1

    def compare_where_it_opens(self):
        """On the word that gets the most of what the asking word has for others."""
        weights = by_torch.attention(self.panel, **self.state)["weights"].fill_diagonal_(-1)
        chosen = self.figure.evaluate(
            "figure => { const { query, key } = figure.querySelector('attention-explorable').state;"
            " return [query, key] }"
        )
        asked = weights if self.spec.query is None else weights[self.spec.query]
        assert weights[tuple(chosen)] == asked.max()
        assert self.spec.query in (None, chosen[0])

    def hatching(self, step, rows):
        def blocked(i, j):
            return step in ("masked", "weights") and (
                j in self.state["hidden"] or (self.state["causal"] and j > i)
            )

        return [[blocked(i, j) for j in range(len(row))] for i, row in enumerate(rows)]

    def compare_every_step(self):
        for index, step in enumerate(attention.STEPS):
            self.step(index)
            self.compare(step)


@pytest.fixture
def drive(visit):
    def start(name, **options):
        spec = attention.read(FENCES[name])
        return Driver(visit(f"fence-{list(FENCES).index(name)}.html", **options), spec)

    return start


@each_fence
def test_every_control_of_every_explorable_shows_what_torch_computes(drive, name):
    driver = drive(name)
    spec = driver.spec
    switches = [control for control in ("scaling", "causal") if control in spec.controls]
    driver.compare(attention.STEPS[spec.step])  # as it opens
    driver.compare_where_it_opens()
    for query, token in enumerate(spec.panels[0].tokens if "query" in spec.controls else ()):
        driver.press("Query", query)
        assert driver.figure.locator("tr.on th").all_inner_texts() == [token]
    driver.compare(attention.STEPS[spec.step])
    for choice in range(len(spec.panels)):
        if len(spec.panels) > 1:
            driver.press("Sentence", choice)
            driver.choice = choice
        for _ in itertools.product((0, 1), repeat=len(switches)):
            if "step" in spec.controls:
                driver.compare_every_step()
            for index, switch in enumerate(switches):  # count in binary: each combination once
                driver.press("Switch", index)
                driver.state[switch] = not driver.state[switch]
                if driver.state[switch] != getattr(spec, switch):
                    break
    if "hide" in spec.controls:
        for token in range(len(spec.panels[0].tokens)):
            driver.press("Hide", token)
            driver.state["hidden"] ^= {token}
            if "step" not in spec.controls:
                driver.compare(attention.STEPS[spec.step])
                continue
            for step in ("masked", "weights", "context"):
                driver.step(attention.STEPS.index(step))
                driver.compare(step)
    assert driver.checks >= 2


@each_fence
def test_every_number_can_be_edited_and_put_back(drive, name):
    driver = drive(name)
    if "edit" not in driver.spec.controls:
        assert driver.figure.locator(".editor").count() == 0
        return
    step = attention.STEPS[driver.spec.step]
    driver.figure.get_by_text("Edit the numbers").click()
    inputs = driver.figure.locator(".editor input")
    places = [
        (rows, r, c)
        for rows in driver.panel.matrices.values()
        for r, row in enumerate(rows)
        for c in range(len(row))
    ]
    assert inputs.count() == len(places)
    for index, (rows, r, c) in enumerate(places):
        if index % 5 not in (0, 3):  # each matrix and each column; the rest works alike
            continue
        rows[r][c] = round(rows[r][c] * -1.5 + 0.37, 2)
        inputs.nth(index).fill(str(rows[r][c]))
        driver.compare(step)
    driver.figure.get_by_role("button", name="Reset").click()
    driver.spec = attention.read(FENCES[name])
    driver.compare(step)
    assert driver.figure.evaluate("figure => document.activeElement.textContent") == "Reset"


def test_a_number_that_is_none_is_marked_and_changes_nothing(drive):
    driver = drive("every control")
    driver.figure.get_by_text("Edit the numbers").click()
    first = driver.figure.locator(".editor input").first
    for bad in ("", "1e9"):
        first.fill(bad)
        assert first.get_attribute("aria-invalid") == "true"
        driver.compare("scores")
    first.fill("0.43")
    assert first.get_attribute("aria-invalid") == "false"


def test_the_formula_of_each_step_tells_what_happens_to_the_chosen_cell(drive):
    driver = drive("every control")
    rule, filled = driver.figure.locator(".rule"), driver.figure.locator(".filled")
    assert rule.inner_text() == "score(journey, starts) = query of journey · key of starts"
    assert filled.inner_text() == "0.55·0.57 + 0.87·0.85 + 0.66·0.64 = 1.4754"
    driver.press("Switch", 0)
    driver.step(1)
    assert rule.inner_text() == "score / √d, with d = 3 numbers a key"
    assert filled.inner_text() == "1.4754 / 1.7321 = 0.8518"
    driver.step(3)
    assert "− 1.495" not in filled.inner_text()
    assert re.fullmatch(
        r"e0.8518 − 0.8631 / \((e[\d.]+ − 0.8631( \+ )?){6}\) = 0.9887 / [\d.]+ = 0\.\d{4}",
        filled.inner_text(),
    )
    driver.press("Switch", 1)
    driver.step(2)
    driver.figure.locator("tbody tr").nth(1).locator("td").nth(3).click()
    assert rule.inner_text() == "with comes after journey: hidden by the causal mask"
    assert filled.inner_text().endswith("→ -inf")
    driver.press("Hide", 0)
    driver.press("Hide", 1)
    driver.step(3)
    assert rule.inner_text() == "Every token is hidden from journey: nothing to attend to"
    assert filled.inner_text() == "no weight → 0.0000"


def test_the_explorable_works_by_keyboard_alone(drive):
    driver = drive("every control")
    keys = driver.figure.page.keyboard
    driver.figure.locator("input:checked").first.focus()  # query: journey
    keys.press("ArrowRight")
    assert driver.figure.locator("tr.on th").inner_text() == "starts"
    keys.press("Tab")
    keys.press("Space")
    driver.state["scaling"] = True
    keys.press("Tab")
    keys.press("Space")
    driver.state["causal"] = True
    for _ in range(6):
        keys.press("Tab")  # the tokens to hide
    keys.press("Space")
    driver.state["hidden"] = {5}
    for _ in range(4):
        keys.press("Tab")  # the steps
    keys.press("Enter")
    driver.compare("weights")
    keys.press("Shift+Tab")
    keys.press("Enter")
    driver.compare("masked")
    keys.press("Tab")
    keys.press("Enter")
    driver.compare("weights")
    keys.press("Tab")  # the last step
    keys.press("Tab")  # the table is one stop, on the chosen cell
    assert (
        driver.figure.evaluate("() => document.activeElement.textContent")
        == driver.figure.locator("td.on").inner_text()
    )
    keys.press("ArrowDown")
    keys.press("Home")
    assert driver.figure.locator("tr.on th").inner_text() == "with"
    assert driver.figure.locator("td.on").evaluate("cell => cell.cellIndex") == 1
    assert driver.figure.locator(".heatmap [tabindex='0']").count() == 1
    keys.press("Tab")
    keys.press("Enter")
    assert driver.figure.locator(".editor").get_attribute("open") is not None


def test_changes_are_announced_politely_and_once(drive):
    driver = drive("every control")
    status = driver.figure.get_by_role("status")
    assert status.inner_text().startswith("Attention scores. journey to starts: ")
    driver.step(4)
    assert status.inner_text().startswith("Context vectors. journey, number 0: ")
    assert driver.figure.locator("[aria-live]:not([aria-live=polite]), [role=alert]").count() == 0


@pytest.mark.parametrize("name", FENCES)
def test_without_scripts_the_tables_are_right(project, address, name):
    spec = attention.read(FENCES[name])
    html = book.parsed(project / f"site/fence-{list(FENCES).index(name)}.html")
    tables = iter(html.cssselect("figure.attention table"))
    options = {"scaling": spec.scaling, "causal": spec.causal}
    for panel in spec.panels:
        steps = by_torch.attention(panel, **options)
        for step in ("weights", "context"):
            rows = [
                [cell.text_content() for cell in row.cssselect("td")]
                for row in next(tables).cssselect("tbody tr")
            ]
            by_torch.assert_shown(step, rows, steps[step], spec.digits)


# ------------------------------------------------------------------------ the address of a state


def change_everything(driver):
    """Change whatever a reader can change in "every control"; return what is shown then."""
    driver.press("Query", 3)
    driver.press("Switch", 0)
    driver.press("Switch", 1)
    driver.press("Hide", 0)
    driver.step(3)
    driver.figure.get_by_text("Edit the numbers").click()
    driver.figure.locator(".editor input").nth(4).fill("-2.5")
    driver.figure.locator("tbody tr").nth(4).locator("td").nth(1).click()
    return driver.figure.evaluate(READ)


def test_a_state_can_be_linked_and_reset_brings_back_the_pages_own(drive, visit):
    clipboard = {"permissions": ["clipboard-read", "clipboard-write"]}
    driver = drive("every control", **clipboard)
    page, own = driver.figure.page, driver.figure.evaluate(READ)
    reset = driver.figure.get_by_role("button", name="Reset")
    assert reset.get_attribute("aria-disabled") == "true"
    changed = change_everything(driver)
    assert reset.get_attribute("aria-disabled") == "false"
    link = driver.figure.get_by_role("button", name="Link")
    link.click()
    page.wait_for_function("link => link.textContent === 'Link copied'", arg=link.element_handle())
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url
    end = "query=4&key=1&step=weights&causal=1&scaling=1&hidden=0&edit=0,embeddings,1,1,-2.5"
    assert copied.endswith(f"fence-0.html#explorable?{end}")
    reset.click()
    assert driver.figure.evaluate(READ) == own
    assert reset.get_attribute("aria-disabled") == "true"

    def shows(page, what):
        page.wait_for_function(
            f"what => JSON.stringify(({READ})(document.querySelector('.attention'))) === what",
            arg=page.evaluate("what => JSON.stringify(what)", what),
        )
        assert (
            page.evaluate("document.querySelector('.attention').getBoundingClientRect().top") < 900
        )

    page.evaluate("location.hash = ''")
    page.evaluate("(to) => (location.hash = to)", copied.partition("#")[2])
    shows(page, changed)
    opened = visit(copied)
    shows(opened, changed)
    opened.get_by_role("button", name="Reset").click()
    shows(opened, own)
    # By a click in another page, without loading this one anew.
    opened.goto(copied.rpartition("/")[0] + "/fence-3.html")
    add = """(to) => { const link = document.createElement('a'); link.href = to; link.id = 'to';
      link.textContent = 'there'; document.querySelector('article').prepend(link) }"""
    opened.evaluate("window.same = true")
    opened.evaluate(add, copied)
    opened.click("#to")
    shows(opened, changed)
    assert opened.evaluate("window.same")


NONE = {
    "every control": [
        *("query=6", "query=two", "step=all", "causal=2", "choice=1", "hidden=9", "who=1"),
        *("query=1&step=none", "constructor=1", "edit=0,embeddings,0,0,1e9", "edit=0,tokens,0,0,1"),
        *("edit=0,embeddings,6,0,1", "edit=0,embeddings,0,length,1", "%E0%A4%A=1"),
    ],
    # What it has no control for.
    "nothing to attend to": ["scaling=1", "edit=0,embeddings,0,0,9"],
}


@pytest.mark.parametrize("name", NONE)
def test_an_address_that_makes_no_sense_changes_nothing(drive, name):
    driver = drive(name)
    page, own = driver.figure.page, driver.figure.evaluate(READ)
    for end in NONE[name]:
        page.evaluate("(to) => (location.hash = to)", f"explorable?{end}")
        page.evaluate("new Promise(requestAnimationFrame)")
        assert driver.figure.evaluate(READ) == own, end
    if name == "every control":
        page.evaluate("location.hash = 'explorable?query=2'")
        page.wait_for_function("document.querySelector('tr.on th').textContent === 'starts'")


# --------------------------------------------------------------------------------- the heatmaps

LIT = """table => [...table.querySelectorAll('th')]
  .filter((label) => getComputedStyle(label).fontWeight === '600').map((label) => label.innerText)"""


def test_pointing_at_a_cell_and_arrow_keys_light_the_labels_of_row_and_column(visit):
    shown = visit("index.html")
    table = shown.locator(".output .heatmap").first
    table.locator("tbody tr").nth(1).locator("td").nth(2).hover()
    assert table.evaluate(LIT) == ["starts", "journey"]
    assert table.locator("[tabindex]").count() == 1
    table.locator("[tabindex]").focus()
    for key in ("Right", "Down", "Down", "Down", "Left", "Left"):
        shown.keyboard.press(f"Arrow{key}")
    shown.keyboard.press("End")
    assert shown.evaluate("document.activeElement.textContent") == "0.3103"
    assert table.evaluate(LIT) == ["starts", "starts"]
    assert table.locator("[tabindex='0']").count() == 1
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.textContent") == "Exact text"
    shown.keyboard.press("Enter")
    exact = shown.locator(".output details").first.inner_text()
    assert "tensor([[1.0000, 0.0000, 0.0000]," in exact


def test_with_scripts_off_pointing_at_a_heatmap_lights_the_label_of_the_row(visit):
    table = visit("index.html", java_script_enabled=False).locator(".output .heatmap").first
    table.locator("tbody tr").nth(1).locator("td").last.hover()
    assert table.evaluate(LIT) == ["journey"]


def test_a_link_of_the_text_to_a_cell_lights_it_and_its_labels(visit):
    shown = visit("index.html")
    link, cell = shown.get_by_role("link", name="0.1723"), shown.locator("#few-1-1")
    table = shown.locator(".heatmap").filter(has=cell)
    outline = "cell => getComputedStyle(cell).outlineStyle"
    assert cell.inner_text() == "-0.1723"
    for point, leave in (
        (link.hover, lambda: shown.mouse.move(0, 0)),
        (link.focus, lambda: link.evaluate("link => link.blur()")),
    ):
        point()
        assert (table.evaluate(LIT), cell.evaluate(outline)) == (["1", "1"], "solid")
        leave()
        assert (table.evaluate(LIT), cell.evaluate(outline)) == ([], "none")


SHADES = """table => [...table.querySelectorAll('tbody td')].map((cell) => {
  const { backgroundColor, backgroundImage } = getComputedStyle(cell);
  return [cell.innerText, parseFloat(backgroundColor.match(/[\\d.]+/)[0]), backgroundImage.includes('gradient')];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_deeper_shades_are_larger_values_masked_cells_are_hatched_and_charts_follow(visit, scheme):
    shown = visit("index.html", color_scheme=scheme)
    cells = shown.locator(".output .heatmap").first.evaluate(SHADES)
    assert [hatched for *_, hatched in cells] == [text == "0.0000" for text, *_ in cells]
    reds = [red for value, red, _ in sorted((float(text), *rest) for text, *rest in cells) if value]
    assert reds == sorted(reds, reverse=True)  # on both schemes the hue is short of red
    assert reds[0] != reds[-1]
    line = "svg => getComputedStyle(svg.querySelector('path[style*=\"--line-1\"]')).stroke"
    stroke = shown.locator(".chart svg").evaluate(line)
    other = {"light": "dark", "dark": "light"}[scheme]
    browsers.show(shown, color_scheme=other)
    assert shown.locator(".chart svg").evaluate(line) != stroke


@pytest.mark.parametrize("viewport", [browsers.WIDE, browsers.NARROW], ids=["1280", "375"])
def test_axe_finds_nothing_in_any_figure(visit, viewport):
    for name in ("index.html", "fence-3.html"):
        shown = visit(name, viewport=viewport)
        for details in shown.locator(".output summary, .attention summary").all():
            details.click()
        shown.locator(".stepper li button").nth(4 if name == "index.html" else 2).click()
        assert axe(shown, "figure") == [], name
