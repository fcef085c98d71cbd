"""What a reader does with a page: copy, predict, go on and back, choose colours, read from a disk."""

import re
from urllib.parse import parse_qs, urlsplit

import nbformat
import torch

from book import numerals
from book.figures.explorable import fence as attention
from literate import page
from tests.book import by_torch
from tests.files import stored
from tests.pages import PAGES
from tests.site import book, browsers
from tests.site.test_search import open_search

MODEL, HEADS, PREDICTED = (
    "foundations/averaging.html",
    "model/heads.html",
    "foundations/scaling.html",
)

# Presses a button, and returns what it has copied to the clipboard of the machine.
CLICK_AND_READ = """async (button) => {
  await navigator.clipboard.writeText('');
  delete button.dataset.done;
  button.click();
  while (!('done' in button.dataset)) await new Promise(requestAnimationFrame);
  return navigator.clipboard.readText();
}"""


def test_a_block_is_copied_by_keyboard_and_the_reader_is_told(arrive):
    shown = arrive(MODEL)
    button = shown.locator(".md-content article [data-copy=copy]").first
    button.focus()
    shown.keyboard.press("Enter")
    shown.wait_for_function("document.getElementById('book-status')?.textContent === 'Copied'")
    code = shown.locator(".md-content article .highlight pre > code").first
    assert shown.evaluate("navigator.clipboard.readText()") == code.text_content()
    assert button.evaluate("(element) => element === document.activeElement")


def test_every_feature_works_from_home_a_chapter_the_glossary_and_after_back(visit, address):
    shown = visit("index.html")
    shown.evaluate("window.notReloaded = true")
    for start in (None, "foundations/context.html", "glossary.html"):
        if start:
            shown.evaluate(browsers.CLICK, address + start)
        shown.evaluate(browsers.CLICK, address + book.CHAPTER)
        assert shown.evaluate(browsers.USE) == browsers.USED, start
    shown.evaluate(browsers.CLICK, address + "glossary.html")
    shown.evaluate(browsers.BACK)
    assert shown.evaluate(browsers.USE) == browsers.USED_AFTER_BACK
    assert shown.evaluate("window.notReloaded")


# Keeps each style whose address is set once there is text: all of that is laid out anew.
SET_AGAIN = """window.again = [];
new MutationObserver((changes) => {
  for (const { target } of changes) if (target.rel === "stylesheet" && document.body) again.push(target.href);
}).observe(document, { attributeFilter: ["href"], subtree: true });"""
FETCHED = "performance.getEntriesByType('resource').map(({ name }) => name)"


def test_a_page_loads_no_style_again_and_the_script_of_an_explorable_when_one_is_near(
    visit, address
):
    shown = visit("symbols.html")
    shown.context.add_init_script(SET_AGAIN)
    shown.goto(address + book.CHAPTER)
    shown.wait_for_selector("[data-copy=above]", state="attached")  # the theme has started
    shown.wait_for_load_state("networkidle")
    assert shown.evaluate("again") == []
    # What is fetched besides is named by the page, and counted in `test_files.py`.
    asked = [url for url in shown.evaluate(FETCHED) if re.search(r"/assets/[\w-]+\.js", url)]
    names = {url.rpartition("/")[2].partition("?")[0] for url in asked}
    assert names == {"book.js", "figures.js", "search.js"}
    shown.locator("figure.attention").first.scroll_into_view_if_needed()
    shown.wait_for_selector("attention-explorable button")
    assert len([url for url in shown.evaluate(FETCHED) if "attention.js" in url]) == 1


def test_what_a_page_offers_to_take_away_is_downloaded(arrive, site, address):
    shown = arrive("cache/kv-cache.html")
    browsers.unfold(shown)
    links = shown.locator(".md-content a[download]").all()
    assert len(links) >= 4  # notebook, script, Markdown, a file of snippets/
    for link in links:
        with shown.expect_download() as coming:
            link.click()
        file = site / link.evaluate("link => link.href").removeprefix(address)
        assert coming.value.suggested_filename == file.name
        assert coming.value.path().read_bytes() == file.read_bytes()


def test_the_table_of_contents_leads_to_a_section_and_back_leaves_the_page_as_it_was(arrive):
    shown = arrive(book.CHAPTER)
    shown.evaluate("document.querySelector('article').made = true")
    link = shown.locator(".md-sidebar--secondary .md-nav__link").last
    link.click()
    section = shown.locator(f"[id='{link.get_attribute('href').partition('#')[2]}']")
    shown.wait_for_function(
        "(section) => location.hash && Math.abs(section.getBoundingClientRect().top) < innerHeight",
        arg=section.element_handle(),
    )
    shown.go_back()
    shown.wait_for_function("!location.hash")
    assert shown.evaluate("document.querySelector('article').made")


def test_an_address_stays_while_its_page_is_read(visit):
    address = f"{MODEL}#way-one-a-loop"
    shown = visit(address)
    shown.mouse.move(600, 500)
    shown.mouse.wheel(0, 3000)
    shown.wait_for_function("history.state?.y > 2000")  # the theme has noted where the reader is
    browsers.show(shown)
    assert shown.url.endswith(address)


READ = "document.querySelectorAll('[data-read]').length"


def test_a_page_read_to_its_end_is_marked_until_one_button_forgets_it(arrive, address):
    shown = arrive(MODEL)
    forget = shown.get_by_role("button", name="Forget")
    assert (shown.evaluate(READ), forget.count()) == (0, 0)
    browsers.scroll_to_the_end(shown)
    forget.wait_for()
    shown.evaluate(browsers.CLICK, address + "foundations/index.html")
    marked = "[...document.querySelectorAll('[data-read]')].map((link) => link.pathname)"
    assert shown.evaluate(marked) == [f"/{MODEL}"] * 2  # in the menu, in the part
    content = "link => getComputedStyle(link, '::after').content"
    assert "✓" in shown.locator("td > [data-read]").evaluate(content)
    shown.reload()
    browsers.show(shown)
    assert shown.evaluate(READ) == 2
    forget.press("Enter")
    assert (shown.evaluate(READ), forget.count()) == (0, 0)
    assert shown.evaluate("localStorage.getItem('book-read')") is None


REFUSED = """Object.defineProperty(window, 'localStorage', { configurable: true,
    get() { throw new DOMException('refused', 'SecurityError') } })"""


def test_where_a_browser_keeps_nothing_a_page_works_and_says_nothing(visit, address):
    shown = visit("symbols.html")
    shown.context.add_init_script(REFUSED)
    shown.goto(address + MODEL)
    browsers.scroll_to_the_end(shown)
    shown.locator(".md-footer a").first.wait_for()
    shown.wait_for_selector("[data-copy=above]", state="attached")
    shown.evaluate("localStorage.setItem('book-read', '[]')")
    assert shown.evaluate("localStorage.getItem('book-read')") is None
    assert shown.evaluate(READ) == 0


def test_a_long_page_offers_the_way_back_to_its_top_to_those_who_turn_back(arrive):
    shown = arrive(MODEL)
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
    shown = arrive("cite.html", color_scheme="light")
    assert shown.evaluate("document.body.dataset.mdColorScheme") == "default"
    for _ in range(2):  # from the system's, to light, to dark
        shown.locator("[data-md-component=palette] label:not([hidden])").click()
    assert shown.evaluate("document.body.dataset.mdColorScheme") == "slate"
    shown.goto(address + "symbols.html")
    assert shown.evaluate("document.body.dataset.mdColorScheme") == "slate"


def test_search_works_from_a_disk(visit, unzipped):
    shown = visit((unzipped / "index.html").as_uri())
    open_search(shown, "softmax")
    shown.locator(".md-search-result__item a").first.click()
    shown.wait_for_url(re.compile(r"^file:.*\.html"))
    shown.locator(".md-content article", has_text="softmax").wait_for()


def test_a_report_names_the_block_that_was_pointed_at_last(arrive):
    shown = arrive(HEADS)
    link = shown.locator("a.report")
    shown.locator(".md-content figure.output").nth(1).hover()
    shown.wait_for_function(  # its script comes with the first pointer on the page
        "performance.getEntriesByType('resource').some(({ name }) => name.endsWith('asked.js'))"
    )
    browsers.show(shown)
    link.hover()
    program = next(page for page in PAGES if page.name == "docs/model/heads.md")
    outputs = [n for n, block in enumerate(program.blocks, 1) if block.output]
    told = parse_qs(urlsplit(link.get_attribute("href")).query)
    first = program.blocks[outputs[1] - 1].code.split("\n")[0]
    assert told["block"] == [f"{outputs[1]}: {first}"]
    assert told["page"] == ["docs/model/heads.md"]


def test_the_code_of_a_lab_is_one_click_away_and_copied_like_any_other(arrive):
    shown = arrive("labs/gpt.html")
    cells = nbformat.read(book.DOCS / "labs/gpt.ipynb", 4).cells
    drew = next(cell for cell in cells if "figure" in cell.metadata.get("tags", []))
    folded = shown.locator("details", has_text="Code of the figure at the top")
    assert folded.locator("code").is_hidden()
    folded.locator("summary").click()
    assert folded.locator("code").is_visible()
    copied = folded.get_by_role("button", name=re.compile(r"^Copy code \d+$")).evaluate(
        CLICK_AND_READ
    )
    assert copied.strip() == drew.source


def test_without_scripts_and_from_a_disk_a_lab_still_answers_and_unfolds(visit, site):
    shown = visit((site / "labs/heads.html").as_uri(), java_script_enabled=False)
    assert shown.locator("#finding").is_visible()
    assert shown.locator(".lab-figure svg").first.is_visible()
    folded = shown.locator("details:has(.highlight)").first
    folded.locator("summary").click()
    assert folded.locator("code").is_visible()


HUGE = """(svg) => {
  const rect = document.createElementNS(svg.namespaceURI, 'rect');
  for (const [name, value] of Object.entries({ x: -9e3, y: -9e3, width: 2e4, height: 2e4 })) {
    rect.setAttribute(name, value);
  }
  svg.append(rect);
}"""
ON_TOP = """(boxes) => boxes.map((box) => {
  box.scrollIntoView({ block: 'center' });
  const { left, top, width, height } = box.getBoundingClientRect();
  return box.contains(document.elementFromPoint(left + width / 2, top + height / 2));
})"""


def test_no_drawing_covers_what_stands_beside_it(visit):
    shown = visit(MODEL)
    shown.locator("figure.diagram svg").evaluate_all(f"(all) => all.forEach({HUGE})")
    on_top = shown.locator(".md-content article figure.output:visible").evaluate_all(ON_TOP)
    assert len(on_top) > 3
    assert all(on_top)


# --------------------------------------------------------------------------- what is predicted

SEEN = "figure => figure.querySelector('pre, table').checkVisibility({ visibilityProperty: true })"
# What stands below each veiled output, up to the next block, and which of it can be read.
BELOW = """figures => figures.map((figure) => {
  const below = [];
  for (let next = figure; (next = next.nextElementSibling)?.matches("p, ul, ol, .math, .diagram"); ) below.push(next);
  return below.map((part) => getComputedStyle(part).filter === "none");
})"""


def test_what_the_text_asks_to_predict_is_shown_when_it_is_asked_for(arrive):
    """No sentence below tells what came, but for what leads on to the next block."""
    shown = arrive(PREDICTED)
    below = shown.locator("figure.veiled").evaluate_all(BELOW)
    assert max(map(len, below)) > 2
    assert not any(readable for parts in below for readable in parts[:-1])
    figure = shown.locator("figure.veiled").first.element_handle()
    place = "figure => [figure.offsetTop, figure.offsetHeight]"
    before = figure.evaluate(place)
    assert not figure.evaluate(SEEN)
    figure.query_selector(".unveil").press("Enter")
    assert figure.evaluate(SEEN)
    assert figure.evaluate("figure => getComputedStyle(figure.nextElementSibling).filter") == "none"
    assert figure.evaluate("figure => figure === document.activeElement")
    assert figure.evaluate(place) == before
    assert figure.query_selector(".unveil") is None


def test_what_the_text_asks_to_predict_is_shown_to_who_cannot_ask_or_comes_for_it(visit):
    assert visit(PREDICTED, java_script_enabled=False).locator("figure.veiled").first.evaluate(SEEN)
    shown = visit(PREDICTED)
    name = shown.locator("figure.veiled").first.get_attribute("id")
    shown.goto(f"{shown.url}#{name}")
    linked = shown.locator(f"#{name}:target")
    linked.wait_for()
    browsers.show(shown)
    assert linked.evaluate(SEEN)
    assert not linked.locator(".unveil").is_visible()
    others = shown.locator("figure.veiled").last
    assert not others.evaluate(SEEN)
    shown.emulate_media(media="print")
    assert others.evaluate(SEEN)
    assert not others.locator(".unveil").is_visible()


# -------------------------------------------------------------------------------------- home


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
        # It is another sentence, of which nothing is hidden.
        assert words.first.get_attribute("aria-pressed") == "false"
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
    home.set_default_timeout(120_000)  # Python starts on a busy machine
    field, answer = home.get_by_label("Another sentence"), home.locator("form.another output")
    assert [url for url in home.evaluate(FETCHED) if "run" in url or "pyodide" in url] == []
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
    answer.get_by_text("the head has not learned 'moon'. It knows: and, at, bag, bank").wait_for()
    assert home.locator("button.word").count() == 7
    home.locator(".home-proof > details summary").first.click()
    home.locator(".run-strip").get_by_role("button", name=re.compile("^Reset block")).click()
    assert home.locator("button.word").first.inner_text().startswith("she")
    assert 'read("she rowed the boat' in home.locator(".home-proof code").first.text_content()


def test_pages_that_were_left_are_let_go(reader):
    """Nodes, counted on one page after it was left twice and after six times."""
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

    _, second, *_, last = [nodes_after_a_chapter() for _ in range(6)]
    assert last < second * 1.1
