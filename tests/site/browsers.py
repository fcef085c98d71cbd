"""The browsers in which the tests of the site open its pages: Chromium, and two engines as Debian ships them.

A reader in Chromium has whole pages, contexts and a record of what went wrong. WebKitGTK, which is Safari's
engine, and Firefox each have `run`, which calls a function in the page and gives what it returns; `go`, which
opens an address; and `keys`, which types into what has the focus.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
import warnings
from pathlib import Path
from unittest.mock import ANY

import websocket
from PIL import Image
from selenium import webdriver
from selenium.webdriver.webkitgtk.options import Options
from selenium.webdriver.webkitgtk.service import Service

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 375, "height": 800}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No other host has an address here, so no test leans on one.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # A window that nobody sees would load two pages of its own for the address bar: half the cost.
    # Chromium heeds the last such list alone, so what Playwright turns off stands here again: above
    # all PaintHolding, under which a click on a page that has just come may be lost.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PaintHolding,"
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,ThirdPartyStoragePartitioning,"
    "AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,NetworkTimeServiceQuerying,AimEnabled,"
    "PreconnectToSearch",
]
NO_BROWSER = (
    "There is no Chromium here, so the site's tests in a browser cannot run; "
    "`playwright install chromium` or `apt-get install chromium` brings one."
)
PHONE = {"viewport": {"width": 375, "height": 800}, "has_touch": True, "is_mobile": True}

# --------------------------------------------- what a test asks of a page, in whichever engine

# Clicks on the menu's link to an address, and waits until the page is there. Until the sitemap has
# come the theme lets a click pass, and the browser would load the page anew: here it may not.
CLICK = """async (address) => {
  // By what it leads to, looked for anew in each frame: the theme's script writes the whole address, a
  // moment later in a slow window, and Firefox may still be reading the menu.
  const link = () =>
    [...document.querySelectorAll(".md-nav--primary .md-nav__link")].find(({ href }) => href === address);
  const container = () => document.querySelector('[data-md-component=container]'), left = container();
  let instant = false;
  const watch = (event) => { instant = event.defaultPrevented; event.preventDefault(); };
  addEventListener("click", watch);
  for (let frame = 0; !instant; frame++) {
    if (frame > 600) throw new Error(`${link() ? "navigation is not instant" : "no link in the menu"}: ${address}`);
    link()?.click();
    await new Promise(requestAnimationFrame);
  }
  removeEventListener("click", watch);
  // It tells a new listener of the page that is there, which may be the one that is left.
  let told;
  await new Promise((filled) => { told = document$.subscribe(() => container() !== left && filled()) });
  told.unsubscribe(); // or it keeps the page that was left
  // The theme shuts the search 125 ms after it left a page, by a timer that was set before this one.
  await new Promise((passed) => setTimeout(passed, 125));
}"""

# Waits until what a script or a test has changed is drawn: in three frames the window has its size,
# what is laid out is painted, and styles that follow a scroll know it. A font is asked for when a
# frame first needs it, so it is waited for after them, and what it sets is laid out once more.
DRAWN = """async () => {
  const frames = async () => {
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  };
  await frames();
  if (document.fonts.status === "loaded") return;
  await document.fonts.ready;
  await frames();
}"""

# Waits until a page that has come asks for nothing more.
QUIET = """async () => {
  const asked = () => performance.getEntriesByType("resource").length;
  for (let before = -1; before !== asked(); ) {
    before = asked();
    await new Promise((passed) => setTimeout(passed, 100));
  }
}"""

# Opens all of a page's text that may be folded, and waits until the page has been told of each.
UNFOLD = """() => Promise.all([...document.querySelectorAll('.md-content article details:not([open])')].map((one) =>
  new Promise((told) => {
    one.addEventListener('toggle', told, { once: true });
    one.open = true;
  })))"""

# Shows what the text asks to predict, as a reader who asks for it does.
UNVEIL = """() => document.querySelectorAll('.md-content .veiled').forEach((figure) => {
  figure.classList.remove('veiled');
  figure.querySelector('.unveil')?.remove();
})"""

# Goes one page back, and waits until it is there.
BACK = """async () => {
  const container = () => document.querySelector('[data-md-component=container]'), left = container();
  history.back();
  let told;
  await new Promise((filled) => { told = document$.subscribe(() => container() !== left && filled()) });
  told.unsubscribe();
}"""


# Uses each feature of a chapter once, in any engine, and says what came of it: `USED` where all works.
USED = {
    "focus": "H1",
    "copied": [True, True],
    "heatmap": True,
    "explorable": ["Scores", "Scaled", "Masked", "Weights", "Context"],
    "linked": True,
    "math": True,
    "solution": [False, True],
    "palette": 3,
    "named": "Search the book",
    "scrolled": 0,
}
USED_AFTER_BACK = USED | {"focus": ANY, "scrolled": ANY}  # where the reader was
# Looks at the first explorable of a page, as a reader does: its script comes when it is near.
WAKE = """async () => {
  const figure = document.querySelector('figure.attention');
  if (!figure || customElements.get('attention-explorable')) return;
  const { scrollX, scrollY } = window;
  figure.scrollIntoView();
  await customElements.whenDefined('attention-explorable');
  scrollTo(scrollX, scrollY);
}"""

USE = """async () => {
  const one = (what) => document.querySelector(`.md-content article ${what}`);
  // By the clock: an engine may leave out the frames of a window that nobody sees.
  const until = async (holds) => {
    for (let tries = 0; !holds(); tries++) {
      if (tries > 2000) throw new Error(`never: ${holds}, in a window that is ${document.visibilityState}`);
      await new Promise((passed) => setTimeout(passed, 20));
    }
  };
  const told = { focus: document.activeElement.tagName, scrolled: scrollY };
  // An engine may let a script copy only after a real click; what would be copied is asked here.
  let copied;
  Object.defineProperty(navigator, 'clipboard',
    { configurable: true, value: { writeText: async (text) => { copied = text } } });
  const block = document.querySelectorAll('.md-content article .language-python')[1];
  const code = block.querySelector('pre > code').textContent;
  told.copied = [];
  for (const button of block.querySelectorAll('[data-copy]')) {
    delete button.dataset.done;
    button.click();
    await until(() => 'done' in button.dataset);
    told.copied.push(told.copied.length ? copied.length > code.length && copied.includes(code) : copied === code);
  }
  const cell = one('.output .heatmap tbody td');
  cell.focus();
  cell.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, cancelable: true }));
  told.heatmap = document.activeElement === cell.nextElementSibling;
  const figure = one('figure.attention');
  figure.scrollIntoView();
  await until(() => figure.querySelector('.stepper'));
  told.explorable = [...figure.querySelectorAll('.stepper li button')].map((button) => {
    button.click();
    return figure.querySelector('[aria-current=step]').textContent;
  });
  const before = location.href;
  history.replaceState(history.state, '', `#${figure.id}?query=0`);
  dispatchEvent(new HashChangeEvent('hashchange'));
  told.linked = figure.querySelector('tbody tr').className === 'on';
  history.replaceState(history.state, '', before);
  told.math = one('math').getBoundingClientRect().height > 8;
  const solution = one('details.success'), inside = solution.querySelector('pre');
  told.solution = [];
  for (const open of [false, true]) {
    if (open) solution.querySelector('summary').click();
    told.solution.push(inside.checkVisibility());
  }
  solution.open = false;
  const schemes = [];
  for (let turn = 0; turn < 3; turn++) {
    document.querySelector('[data-md-component=palette] label:not([hidden])').click();
    schemes.push(document.body.dataset.mdColorScheme + document.body.dataset.mdColorMedia);
  }
  told.palette = new Set(schemes).size;
  told.named = document.querySelector('.md-search').getAttribute('aria-label');
  return told;
}"""


# --------------------------------------------------------------------------------- Chromium


def show(page, viewport=None, **media):
    """Give a page a window, a medium, a scheme, and wait until it is drawn so."""
    if viewport:
        page.set_viewport_size(viewport)
    if media:
        page.emulate_media(**media)
    if scheme := {"light": "default", "dark": "slate"}.get(media.get("color_scheme")):
        page.wait_for_function("(name) => document.body.dataset.mdColorScheme === name", arg=scheme)
    page.evaluate(DRAWN)


def open_in_its_fonts(page, address):
    """Open a page that waits for its fonts, since those that would stand in are the machine's."""

    def wait(styles):
        answer = styles.fetch()
        text = re.sub(r"font-display:\s*optional", "font-display: block", answer.text())
        styles.fulfill(response=answer, body=text)

    page.route("**/*.css", wait)
    page.goto(address)
    page.evaluate(DRAWN)
    assert set(page.evaluate("[...document.fonts].map((font) => font.display)")) == {"block"}


def unfold(page):
    """Open all that is folded, solutions above all."""
    page.evaluate(UNFOLD)
    page.evaluate(DRAWN)


def scroll_to_the_end(page):
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.evaluate(DRAWN)


def picture(page, **where) -> Image.Image:
    """What is painted on a page, or with `clip` on a part of it."""
    return Image.open(io.BytesIO(page.screenshot(**where))).convert("RGB")


def chromium_path(playwright) -> str | None:
    """Path of a Chromium: Playwright's own where installed, else the system's, else None."""
    own = playwright.chromium.executable_path
    names = ("chromium", "chromium-browser", "google-chrome")
    return own if os.path.exists(own) else next(filter(None, map(shutil.which, names)), None)


# Keeps what moved on a page without the reader's doing, and how far.
WATCH_SHIFTS = """window.moved = [];
new PerformanceObserver((list) => {
  for (const shift of list.getEntries())
    moved.push([shift.value, ...shift.sources.map(({ node }) => (node?.outerHTML ?? node?.data ?? "").slice(0, 80))]);
}).observe({ type: "layout-shift", buffered: true });"""


class Reader:
    """Opens pages of the site, each in a context of its own, and remembers what went wrong there."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        self.contexts, self.wrong = [], []

    def open(self, path, wake=True, **options):
        context = self.browser.new_context(
            **{
                "viewport": WIDE,
                "reduced_motion": "reduce",
                "permissions": ["clipboard-read", "clipboard-write"],
                **options,
            }
        )
        self.contexts.append(context)
        context.on("page", self._watch)
        context.add_init_script(WATCH_SHIFTS)
        page = context.new_page()
        page.set_default_timeout(30_000)  # a busy machine is no fault of a page
        page.goto(path if "://" in path else self.address + path)
        if options.get("java_script_enabled", True):
            page.evaluate(DRAWN)
            if wake:
                page.evaluate(WAKE)
        return page

    def click_to(self, path, **options):
        """Open home (or, for home, another page), and from there the page by a click in the menu."""
        page = self.open("symbols.html" if path == "index.html" else "index.html", **options)
        page.evaluate("window.same = true")
        return self.go(page, path)

    def go(self, page, path):
        """Go from an open page to another by a click in the menu."""
        page.evaluate(CLICK, self.address + path)
        page.evaluate(DRAWN)
        page.evaluate(WAKE)
        return page

    def close(self):
        """Close all that is open, and fail if a request left for another host, a script threw, or something was missing."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()
        wrong, self.wrong = self.wrong, []
        assert not wrong, "\n".join(dict.fromkeys(wrong))

    def _own(self, url):
        return url.startswith((self.address, "data:", "blob:", "file:"))

    def _watch(self, page):
        note = self.wrong.append
        page.on("request", lambda request: self._own(request.url) or note(f"asks {request.url}"))
        page.on("websocket", lambda socket: note(f"opens {socket.url}"))
        page.on("pageerror", lambda error: note(f"throws {error}"))
        page.on(
            "response",
            lambda answer: note(f"{answer.status} {answer.url}") if answer.status >= 400 else None,
        )


# ---------------------------------------------------------------------- WebKitGTK and Firefox

PATIENCE = 300  # seconds until an answer counts as none: a busy machine is no fault of a page
SETTINGS = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    # Any other host is asked for at a port where nobody listens.
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
}


class Missing(Exception):
    """A browser is not installed; the message names the Debian package that brings it."""


def _found(*names: str, package: str, folders: str | None = None) -> str:
    """Path of the first of these programs that is here; raise `Missing` where none is."""
    for name in names:
        if path := shutil.which(name, path=folders):
            return path
    raise Missing(f"There is no {names[0]} here; `apt-get install {package}` brings it.")


@contextlib.contextmanager
def _process(command: list[str], **options):
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


class WebKit:
    """MiniBrowser, told what to do by WebKitWebDriver."""

    def __init__(self, driver: webdriver.WebKitGTK):
        self.driver = driver

    def go(self, address: str) -> None:
        self.driver.get(address)

    def run(self, function: str, *arguments):
        return self.driver.execute_script(f"return ({function})(...arguments)", *arguments)

    def keys(self, text: str) -> None:
        self.driver.switch_to.active_element.send_keys(text)


@contextlib.contextmanager
def webkit(_: Path):
    """WebKitGTK on a screen that nobody sees."""
    libraries = ":".join(map(str, sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*"))))
    options = Options()
    options.binary_location = _found("MiniBrowser", package="webkit2gtk-driver", folders=libraries)
    options.add_argument("--automation")
    driver = _found("WebKitWebDriver", package="webkit2gtk-driver")
    screen = [_found("Xvfb", package="xvfb"), "-screen", "0", "1400x1000x24", "-displayfd"]
    reader, writer = os.pipe()
    with (
        open(reader, encoding="ascii") as display,
        _process([*screen, str(writer)], pass_fds=[writer], stderr=subprocess.DEVNULL),
    ):
        os.close(writer)
        environment = {**os.environ, "DISPLAY": f":{display.readline().strip()}"}
        service = Service(executable_path=driver, env=environment)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # its own
            started = webdriver.WebKitGTK(options=options, service=service)
        with started:
            started.set_script_timeout(PATIENCE)
            started.set_window_size(1280, 940)
            yield WebKit(started)


class Firefox:
    """Firefox, told what to do over its own WebSocket: WebDriver BiDi, the part that is needed."""

    def __init__(self, socket: websocket.WebSocket):
        self.socket, self.numbers = socket, itertools.count()
        self.ask("session.new", capabilities={})
        # In the first tab the focus is in the address bar; a page that lacks it opens no search.
        self.tab = self.ask("browsingContext.create", type="tab")["context"]
        viewport = {"width": 1280, "height": 900}
        self.ask("browsingContext.setViewport", context=self.tab, viewport=viewport)

    def ask(self, method: str, **parameters) -> dict:
        """Give one command, and return its result; raise `RuntimeError` where it has none."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != number:
            pass
        if answer["type"] == "error":
            raise RuntimeError(f"{method}: {answer['message']}")
        return answer["result"]

    def go(self, address: str) -> None:
        self.ask("browsingContext.navigate", context=self.tab, url=address, wait="complete")
        self.ask("browsingContext.activate", context=self.tab)

    def run(self, function: str, *arguments):
        given = ", ".join(map(json.dumps, arguments))
        answer = self.ask(
            "script.callFunction",
            functionDeclaration=f"async () => JSON.stringify(await ({function})({given}) ?? null)",
            target={"context": self.tab},
            awaitPromise=True,
        )
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def keys(self, text: str) -> None:
        strokes = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        hands = [{"type": "key", "id": "keyboard", "actions": strokes}]
        self.ask("input.performActions", context=self.tab, actions=hands)


@contextlib.contextmanager
def firefox(profile: Path):
    """Firefox without a window, its profile in a folder that is thrown away."""
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(SETTINGS[name])});\n" for name in SETTINGS]
    (profile / "user.js").write_text("".join(lines), encoding="utf-8")
    program = _found("firefox-esr", "firefox", package="firefox-esr")
    command = [program, "--headless", "--remote-debugging-port=0", "--profile", str(profile)]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with _process(command, **streams) as process:
        said = re.compile(r"BiDi listening on (ws://\S+)")
        heard = filter(None, map(said.search, process.stderr))
        address = next(heard)[1]
        # Its messages are read to the end, or the pipe fills and all waits.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        socket = websocket.create_connection(
            f"{address}/session", timeout=PATIENCE, suppress_origin=True
        )
        with contextlib.closing(socket):
            yield Firefox(socket)


ENGINES = {"webkit": webkit, "firefox": firefox}
