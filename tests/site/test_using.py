"""What a reader does with a page: copy, search, go on and back, read offline."""

import re

import pytest
import torch

from book import prepare
from book.figures.explorable import fence as attention
from literate import export, numerals, page
from tests import pages
from tests.book import by_torch
from tests.files import stored
from tests.site import book
from tests.site.test_reading import asked_elsewhere, open_search

RUNNING = [
    path
    for path, source in book.SOURCES.items()
    if f"docs/{source}" in {p.name for p in pages.RUNNING}
]
each_running = pytest.mark.parametrize("path", RUNNING)

# Presses buttons one by one, and returns what each has copied. Each waits for the clipboard of the machine.
CLICK_AND_READ = """async (buttons) => {
  const copied = [];
  for (const button of [buttons].flat()) {
    await navigator.clipboard.writeText('');
    delete button.dataset.done;
    button.click();
    while (!('done' in button.dataset)) await new Promise(requestAnimationFrame);
    copied.push(await navigator.clipboard.readText());
  }
  return copied;
}"""


@pytest.fixture
def page_with(site):
    """`page_with(*marks)` is the first page, home aside, whose HTML holds all of `marks`."""

    def found(*marks):
        for path in book.PAGES:
            text = (site / path).read_text(encoding="utf-8")
            if path != "index.html" and all(mark in text for mark in marks):
                return path
        return pytest.fail(f"no page has all of {marks}")

    return found


ABOVE = ".md-content article [data-copy=above]"


# The same, of a clipboard that keeps what is written to it; the page gets its own one back.
CLICK_AND_KEEP = """(buttons) => {
  const copied = [], { clipboard } = navigator;
  const give = (value) => Object.defineProperty(navigator, 'clipboard', { configurable: true, value });
  give({ writeText: async (text) => copied.push(text) });
  for (const button of buttons) button.click();
  give(clipboard);
  return copied;
}"""


@each_running
@book.unfolded
def test_each_block_is_copied_with_everything_above(look, walk, path):
    """After a click, the last one, with the clipboard of the machine: it has all others in it."""
    programs = export.programs(page.read(book.DOCS / book.SOURCES[path]))
    buttons = look(path, unfolded=True).locator(ABOVE)
    assert buttons.evaluate_all(CLICK_AND_KEEP) == programs
    buttons = walk(path).locator(ABOVE)
    assert buttons.count() == len(programs)
    assert buttons.last.evaluate(CLICK_AND_READ) == programs[-1:]


def test_a_block_is_copied_by_keyboard_and_the_reader_is_told(arrive):
    shown = arrive(RUNNING[-1])
    button = shown.locator(".md-content article [data-copy=copy]").first
    button.focus()
    shown.keyboard.press("Enter")
    shown.wait_for_function("document.getElementById('book-status')?.textContent === 'Copied'")
    code = shown.locator(".md-content article .highlight pre > code").first
    assert shown.evaluate("navigator.clipboard.readText()") == code.text_content()
    assert button.evaluate("(element) => element === document.activeElement")


@pytest.mark.parametrize("path", ["index.html", "foundations/index.html"])
def test_search_finds_a_word_and_leads_to_it(arrive, path):
    shown = arrive(path)
    open_search(shown, "softmax")
    first = shown.locator(".md-search-result__item a").first
    first.wait_for()
    first.click()
    shown.wait_for_url(lambda url: path not in url or "#" in url or "?h=" in url)
    shown.locator(".md-content article", has_text="softmax").wait_for()


LIT = """table => [...table.querySelectorAll('th')]
    .filter((label) => getComputedStyle(label).fontWeight === '600').map((label) => label.innerText)"""


def labels_of(cell):
    """The labels of a heatmap's cell: its column's, then its row's."""
    return cell.evaluate(
        """cell => [cell.closest('table').tHead.rows[0].cells[cell.cellIndex].innerText,
                    cell.parentElement.cells[0].innerText]"""
    )


def test_pointing_at_a_heatmap_lights_the_labels_of_the_cell(arrive, page_with):
    shown = arrive(page_with('class="output', 'class="heatmap'))
    table = shown.locator(".output .heatmap").first
    cell = table.locator("tbody td").last
    cell.hover()
    assert table.evaluate(LIT) == labels_of(cell)


def test_with_scripts_off_pointing_at_a_heatmap_lights_the_label_of_the_row(visit, page_with):
    path = page_with('class="output', 'class="heatmap')
    table = visit(path, java_script_enabled=False).locator(".output .heatmap").first
    row = table.locator("tbody tr").last
    row.locator("td").last.hover()
    assert table.evaluate(LIT) == [row.locator("th").inner_text()]


def test_arrow_keys_walk_through_a_heatmap(arrive, page_with):
    shown = arrive(page_with('class="output', 'class="heatmap'))
    table = shown.locator(".output .heatmap").first
    table.locator("[tabindex='0']").focus()
    shown.keyboard.press("ArrowRight")
    cell = table.locator("tbody td").nth(1)
    assert cell.evaluate("cell => cell === document.activeElement")
    assert table.evaluate(LIT) == labels_of(cell)


def test_an_explorable_steps(arrive, page_with):
    shown = arrive(page_with("<attention-explorable"))
    figure = shown.locator("figure.attention").first
    figure.locator(".stepper li button").first.click()
    assert figure.locator("caption").first.inner_text().startswith("Attention scores")
    figure.locator(".stepper li button").nth(3).click()
    shades = figure.locator("tbody td").evaluate_all(
        "cells => cells.map((cell) => [cell.dataset.value, cell.style.getPropertyValue('--v')])"
    )
    assert all(abs(float(weight) - float(shade)) < 0.01 for weight, shade in shades)
    figure.locator(".stepper li button").last.click()
    assert figure.locator("caption").first.inner_text().startswith("Context vectors")
    assert figure.locator("[aria-current=step]").count() == 1


def test_the_script_of_an_explorable_is_fetched_when_one_is_near(visit, page_with, address):
    fetched = "performance.getEntriesByType('resource').filter((e) => /attention\\.js/.test(e.name)).length"
    shown = visit("symbols.html")
    shown.wait_for_load_state("networkidle")
    assert shown.evaluate(fetched) == 0
    shown.evaluate(book.CLICK, address + page_with("<attention-explorable"))
    shown.wait_for_load_state("networkidle")
    assert shown.evaluate(fetched) == 0
    shown.locator("figure.attention").first.scroll_into_view_if_needed()
    shown.wait_for_selector("attention-explorable button")
    assert shown.evaluate(fetched) == 1


def test_what_a_page_offers_to_take_away_is_downloaded(arrive, page_with, site, address):
    shown = arrive(page_with('class="take-file"', "Notebook</a>"))
    book.unfold(shown)
    links = shown.locator(".md-content a[download]").all()
    assert len(links) >= 4  # notebook, script, Markdown, a snippet
    for link in links:
        with shown.expect_download() as coming:
            link.click()
        file = site / link.evaluate("link => link.href").removeprefix(address)
        assert coming.value.suggested_filename == file.name
        assert coming.value.path().read_bytes() == file.read_bytes()


def test_math_is_drawn_in_its_own_font(arrive, page_with):
    shown = arrive(page_with("<math"))
    formula = shown.locator(".md-content article math").first
    formula.scroll_into_view_if_needed()
    shown.wait_for_function(
        "[...document.fonts].some((f) => f.family.includes('Book Math') && f.status === 'loaded')"
    )
    assert formula.bounding_box()["height"] > 8


def test_a_solution_unfolds_and_its_code_is_copied(arrive, page_with):
    shown = arrive(page_with('class="success"'))
    solution = shown.locator(".md-content article details.success", has=shown.locator("pre")).first
    code = solution.locator(".highlight pre > code").first
    assert not code.is_visible()
    solution.locator("summary").click()
    assert code.is_visible()
    copied = solution.locator("[data-copy=copy]").first.evaluate(CLICK_AND_READ)
    assert copied == [code.text_content()]


def test_the_table_of_contents_leads_to_a_section(arrive, page_with):
    shown = arrive(page_with('class="success"'))
    link = shown.locator(".md-sidebar--secondary .md-nav__link").last
    link.click()
    section = shown.locator(f"[id='{link.get_attribute('href').partition('#')[2]}']")
    shown.wait_for_url(lambda url: "#" in url)
    shown.wait_for_function(
        "(section) => Math.abs(section.getBoundingClientRect().top) < innerHeight",
        arg=section.element_handle(),
    )


def features(shown):
    """What must be there once on a page, however one came to it."""
    shown.evaluate(book.WAKE)
    return shown.evaluate(
        """() => ({
          title: document.querySelector('.md-content article h1').firstChild.textContent,
          copy: document.querySelectorAll('.md-content article [data-copy=copy]').length,
          above: document.querySelectorAll('.md-content article [data-copy=above]').length,
          blocks: document.querySelectorAll('.md-content article .highlight pre > code').length,
          formulas: document.querySelectorAll('.md-content article math').length,
          alive: [...document.querySelectorAll('attention-explorable')].filter((e) => e.matches(':defined') && e.querySelector('input, button')).length,
          explorables: document.querySelectorAll('attention-explorable').length,
          named: document.querySelector('.md-search').getAttribute('aria-label'),
          mark: document.querySelectorAll('.mark').length,
        })"""
    )


def test_every_feature_works_from_home_a_chapter_the_glossary_and_after_back(visit, address):
    shown = visit("index.html")
    shown.evaluate("window.notReloaded = true")
    for start in (None, "foundations/context.html", "glossary.html"):
        if start:
            shown.evaluate(book.CLICK, address + start)
        shown.evaluate(book.CLICK, address + book.CHAPTER)
        assert shown.evaluate(book.USE) == book.USED, start
    shown.evaluate(book.CLICK, address + "glossary.html")
    shown.evaluate(book.BACK)
    assert shown.evaluate(book.USE) == book.USED_AFTER_BACK
    assert shown.evaluate("window.notReloaded")


@book.each_page
def test_a_page_is_whole_after_a_click_and_after_going_back(look, walk, address, path):
    alone = features(look(path))
    assert alone["copy"] == alone["blocks"]
    assert alone["alive"] == alone["explorables"]
    shown = walk(path)
    assert features(shown) == alone
    shown.evaluate(book.CLICK, address + ("cite.html" if path != "cite.html" else "symbols.html"))
    shown.evaluate(book.BACK)
    book.show(shown)
    assert shown.url == address + path
    assert features(shown) == alone
    assert shown.evaluate("window.same"), "a page was loaded anew: navigation was not instant"


@book.each_page
def test_a_page_asks_no_other_host_when_all_on_it_is_pressed(walk, path):
    shown = walk(path)  # which fails the test at its end if anything went elsewhere
    shown.evaluate("performance.clearResourceTimings()")
    book.scroll_to_the_end(shown)
    shown.evaluate(
        "document.querySelectorAll('.md-content article :is(summary, button)').forEach((b) => b.click())"
    )
    shown.wait_for_load_state("networkidle")
    assert asked_elsewhere(shown) == []


READ = "document.querySelectorAll('[data-read]').length"


def test_a_page_read_to_its_end_is_marked_until_one_button_forgets_it(arrive, address):
    shown = arrive("foundations/averaging.html")
    assert shown.evaluate(READ) == 0
    assert shown.get_by_role("button", name="Forget").count() == 0
    book.scroll_to_the_end(shown)
    shown.get_by_role("button", name="Forget what I have read").wait_for()
    shown.evaluate(book.CLICK, address + "foundations/index.html")
    marked = "[...document.querySelectorAll('[data-read]')].map((link) => link.pathname)"
    assert shown.evaluate(marked) == ["/foundations/averaging.html"] * 2  # in the menu, in the part
    content = "link => getComputedStyle(link, '::after').content"
    assert "✓" in shown.locator("td > [data-read]").evaluate(content)
    shown.reload()
    book.show(shown)
    assert shown.evaluate(READ) == 2
    shown.get_by_role("button", name="Forget").press("Enter")
    assert shown.evaluate(READ) == 0
    assert shown.evaluate("localStorage.getItem('book-read')") is None
    assert shown.get_by_role("button", name="Forget").count() == 0


REFUSED = """Object.defineProperty(window, 'localStorage', { configurable: true,
    get() { throw new DOMException('refused', 'SecurityError') } })"""


def test_where_a_browser_keeps_nothing_a_page_works_and_says_nothing(visit, address):
    shown = visit("symbols.html")
    shown.context.add_init_script(REFUSED)
    shown.goto(address + "foundations/averaging.html")
    book.scroll_to_the_end(shown)
    shown.locator(".md-footer a").first.wait_for()
    shown.wait_for_selector("[data-copy=above]", state="attached")
    shown.evaluate("localStorage.setItem('book-read', '[]')")
    assert shown.evaluate("localStorage.getItem('book-read')") is None
    assert shown.evaluate(READ) == 0


def test_a_long_page_offers_the_way_back_to_its_top_to_those_who_turn_back(arrive):
    shown = arrive("foundations/averaging.html")
    button = shown.locator(".md-top")
    seen = "button => getComputedStyle(button).opacity === '1'"
    assert not button.evaluate(seen)
    shown.mouse.move(600, 500)
    shown.mouse.wheel(0, 4000)
    shown.wait_for_function("scrollY > 3000")
    shown.mouse.wheel(0, -500)
    shown.wait_for_function(seen, arg=button.element_handle())
    button.click()
    shown.wait_for_function("scrollY === 0")
    assert button.evaluate("button => button.tabIndex") == -1


def test_the_palette_stays_as_chosen(arrive, address):
    shown = arrive(book.PAGES[1], color_scheme="light")
    assert shown.evaluate("document.body.dataset.mdColorScheme") == "default"
    for _ in range(2):  # from the system's, to light, to dark
        shown.locator("[data-md-component=palette] label:not([hidden])").click()
    assert shown.evaluate("document.body.dataset.mdColorScheme") == "slate"
    shown.goto(address + book.PAGES[0])
    assert shown.evaluate("document.body.dataset.mdColorScheme") == "slate"


def test_the_offline_copy_is_the_whole_site(site, unzipped):
    files = {path.relative_to(site) for path in site.rglob("*") if path.is_file()}
    offline = {path.relative_to(unzipped) for path in unzipped.rglob("*") if path.is_file()}
    # Python starts from no disk.
    python = {path.relative_to(site) for path in (site / prepare.PYODIDE).iterdir()}
    assert files - offline == {(site / "attention-executed.zip").relative_to(site), *python}


def test_from_a_disk_text_waits_for_its_font_and_words_are_explained(site, unzipped):
    """No page may fetch another there, and a preload fails."""
    assert "font-display:block" in (unzipped / "assets/book.css").read_text(encoding="utf-8")
    for path in book.PAGES:
        page = book.parsed(unzipped / path)
        assert page.cssselect("link[rel=preload]") == []
        for link in page.cssselect("a[data-preview]"):
            assert link.get("title"), link.get("href")
    [link] = book.parsed(unzipped / book.CHAPTER).cssselect("a[data-preview][href$='#token']")[:1]
    assert link.get("title").startswith("One unit of a sequence")


@book.each_kind
def test_a_page_works_from_a_disk(look, from_disk, path):
    served = look(path)
    shown = from_disk(path)
    found = features(shown)
    assert found == features(served)
    assert shown.evaluate(
        "[...document.fonts].some((f) => f.family.includes('Book') && f.status === 'loaded')"
    )
    if found["above"]:
        shown.locator(".md-content article [data-copy=above]").first.evaluate(
            "(button) => button.click()"
        )
        shown.wait_for_selector("[data-copy=above][data-done]", state="attached")


def test_search_works_from_a_disk(visit, unzipped):
    shown = visit((unzipped / "index.html").as_uri())
    open_search(shown, "softmax")
    result = shown.locator(".md-search-result__item a").first
    result.wait_for()
    result.click()
    shown.wait_for_url(re.compile(r"^file:.*\.html"))
    shown.locator(".md-content article", has_text="softmax").wait_for()


def test_an_address_stays_while_its_page_is_read(visit):
    address = "foundations/averaging.html#way-one-a-loop"
    reader = visit(address)
    reader.mouse.wheel(0, 3000)
    reader.wait_for_timeout(600)
    assert reader.url.endswith(address)


PREDICTED = "foundations/scaling.html"
SEEN = "figure => figure.querySelector('pre, table').checkVisibility({ visibilityProperty: true })"
SHARP = "figure => getComputedStyle(figure.nextElementSibling).filter"
# What stands below each veiled output, up to the next block, and which of it can be read.
BELOW = """figures => figures.map((figure) => {
  const below = [];
  for (let next = figure; (next = next.nextElementSibling)?.matches("p, ul, ol, .math, .diagram"); ) below.push(next);
  return below.map((part) => getComputedStyle(part).filter === "none");
})"""


def test_what_the_text_asks_to_predict_is_shown_when_it_is_asked_for(arrive):
    shown = arrive(PREDICTED)
    figure = shown.locator("figure.veiled").first.element_handle()
    place = "figure => [figure.offsetTop, figure.offsetHeight]"
    before = figure.evaluate(place)
    assert not figure.evaluate(SEEN)
    assert "blur" in figure.evaluate(SHARP)
    figure.query_selector(".unveil").press("Enter")
    assert (figure.evaluate(SEEN), figure.evaluate(SHARP)) == (True, "none")
    assert figure.evaluate("figure => figure === document.activeElement")
    assert figure.evaluate(place) == before
    assert figure.query_selector(".unveil") is None


def test_no_sentence_below_a_veiled_output_tells_what_came(visit):
    """But for what leads on to the next block."""
    below = visit("foundations/dot-product.html").locator("figure.veiled").evaluate_all(BELOW)
    assert max(map(len, below)) > 2
    assert not any(readable for parts in below for readable in parts[:-1])


def test_what_the_text_asks_to_predict_is_shown_to_who_cannot_ask_or_comes_for_it(visit):
    assert visit(PREDICTED, java_script_enabled=False).locator("figure.veiled").first.evaluate(SEEN)
    shown = visit(PREDICTED)
    name = shown.locator("figure.veiled").first.get_attribute("id")
    shown.goto(f"{shown.url}#{name}")
    linked = shown.locator(f"#{name}:target")
    linked.wait_for()
    shown.evaluate(book.DRAWN)
    assert linked.evaluate(SEEN)
    assert not linked.locator(".unveil").is_visible()
    others = shown.locator("figure.veiled").last
    assert not others.evaluate(SEEN)
    shown.emulate_media(media="print")
    assert others.evaluate(SEEN)
    assert not others.locator(".unveil").is_visible()


def test_the_first_screen_says_what_this_is_and_has_one_start(arrive):
    home = arrive("index.html")
    promise = home.locator(".home-line").inner_text()
    assert all(word in promise for word in ("free", "book", "attention", "PyTorch", "GPT"))
    assert "a free book that builds attention in PyTorch" in home.title()
    assert home.locator(".home a.home-start").count() == 1
    assert home.locator("article h2").first.inner_text().startswith("What is in it")


def test_on_the_home_page_a_tap_hides_a_word_and_the_votes_follow(arrive):
    """Every word of both sentences, alone and with the others hidden, shows what torch computes."""
    home = arrive("index.html")
    fence = next(f for f in page.read(book.DOCS / "index.md").fences if f.language == "attention")
    spec = attention.read(fence.text)
    words, outcome = home.locator("button.word"), home.locator("p.votes")
    for panel in spec.panels:
        home.get_by_text(panel.name, exact=True).last.click()
        assert (
            words.first.get_attribute("aria-pressed") == "false"
        )  # another sentence, nothing hidden
        hidden = set()
        for place in range(len(panel.tokens)):
            words.nth(place).click()
            hidden.add(place)
            steps = by_torch.attention(panel, scaling=spec.scaling, causal=False, hidden=hidden)
            shown = [text.split()[-1] for text in words.all_inner_texts()]
            shares = steps["weights"][spec.query]
            assert shown == [
                "off" if i in hidden else numerals.rounded(float(share), 2)
                for i, share in enumerate(shares)
            ]
            votes = dict(zip(spec.votes, map(float, steps["context"][spec.query]), strict=True))
            best = max(votes, key=votes.get) if len(set(votes.values())) > 1 else "cannot tell"
            assert outcome.inner_text().startswith(f"bank → {best}")
            for word, vote in votes.items():
                assert f"{word} {numerals.rounded(vote, 2)}" in outcome.inner_text()
        assert best == "cannot tell"
    home.get_by_role("button", name="Reset").click()
    assert words.first.get_attribute("aria-pressed") == "false"
    assert outcome.inner_text().startswith("bank → orilla")


def as_the_head_reads(sentence):
    """Return the weights of "bank" in a sentence, and which bank wins, from what is stored of the head."""
    file = stored("bank")
    head, words = file["one_head"], sentence.split()
    x = head["embedding"][[file["english"].index(word) for word in words]]
    query = x[words.index("bank")] @ head["W_query"]
    weights = torch.softmax(x @ head["W_key"] @ query / 2**0.5, dim=-1)
    votes = weights @ x @ head["W_value"] @ head["W_out"]
    banks = ("orilla", "banco")
    return weights.tolist(), max(banks, key=lambda word: votes[file["spanish"].index(word)])


def test_on_the_home_page_the_head_reads_another_sentence_and_its_code_says_so(visit):
    home = visit("index.html")
    field, answer = home.get_by_label("Another sentence"), home.locator("form.another output")
    loaded = home.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    assert [name for name in loaded if "run" in name or "pyodide" in name] == []
    for said in ("She took the oar from the bank and paid", "he left the map at the bank"):
        field.fill(said)
        field.press("Enter")
        sentence = said.lower()
        home.wait_for_function(
            "(n) => document.querySelectorAll('button.word').length === n", arg=len(said.split())
        )
        weights, wins = as_the_head_reads(sentence)
        shown = [text.split() for text in home.locator("button.word").all_inner_texts()]
        assert shown == [
            [word, numerals.rounded(weight, 2)]
            for word, weight in zip(sentence.split(), weights, strict=True)
        ]
        assert home.locator("p.votes").inner_text().startswith(f"bank → {wins}")
        assert f'boat = read("{sentence}")' in home.locator(".home-proof code").first.text_content()
        assert home.evaluate("document.activeElement.value") == sentence
    field.fill("she rowed to the moon")
    field.press("Enter")
    home.wait_for_function(
        "document.querySelector('form.another output').textContent.startsWith('the head')"
    )
    assert answer.inner_text().startswith(
        "the head has not learned 'moon'. It knows: and, at, bag, bank"
    )
    assert home.locator("button.word").count() == 7
    home.locator(".home-proof > details summary").first.click()
    home.locator(".run-strip").get_by_role("button", name="Reset", exact=True).click()
    assert home.locator("button.word").first.inner_text().startswith("she")
    assert 'read("she rowed the boat' in home.locator(".home-proof code").first.text_content()


def test_pages_that_were_left_are_let_go(reader):
    """Nodes, counted on one page after it was left once and after ten times."""
    shown = reader.open("symbols.html")
    browser = shown.context.new_cdp_session(shown)
    browser.send("Performance.enable")

    def nodes_after_a_chapter():
        reader.go(shown, book.CHAPTER)
        reader.go(shown, "symbols.html")
        for _ in range(3):  # what one pass frees may hold what the next one does
            browser.send("HeapProfiler.collectGarbage")
        counts = browser.send("Performance.getMetrics")["metrics"]
        return next(count["value"] for count in counts if count["name"] == "Nodes")

    first, *_, last = [nodes_after_a_chapter() for _ in range(10)]
    assert last < first * 1.1
