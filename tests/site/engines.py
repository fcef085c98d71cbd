"""Drives two engines as Debian ships them: WebKitGTK, which is Safari's, and Firefox.

Each has `run`, which calls a function in the page and gives what it returns; `go`, which opens an
address; `keys`, which types into what has the focus; and `picture`, which gives what is painted.
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

import websocket
from PIL import Image
from selenium import webdriver
from selenium.webdriver.webkitgtk.options import Options
from selenium.webdriver.webkitgtk.service import Service

PATIENCE = 120  # seconds until an answer counts as none: a busy machine is no fault of a page
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

    def picture(self, selector: str) -> Image.Image:
        """What is painted where an element stands, and a letter's width before it, once it rests."""
        for before, now in itertools.pairwise(self._picture(selector) for _ in range(50)):
            if before == now:
                return now
        raise RuntimeError(f"{selector} never rests")

    def _picture(self, selector):
        box = self.run(
            """(selector) => {
              const element = document.querySelector(selector);
              element.scrollIntoView({ behavior: "instant", block: "center" });
              const box = element.getBoundingClientRect();
              return [box.left - 16, box.top, box.right, box.bottom];
            }""",
            selector,
        )
        window = Image.open(io.BytesIO(self.driver.get_screenshot_as_png()))
        return window.convert("RGB").crop(box)


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
