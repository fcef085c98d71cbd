"""`make serve` checks each page that is saved, says what does not hold, and outlives every error."""

import contextlib
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from literate import page, record
from tests.site import book

GOOD = "# A page\n\n```python\nprint(1 + 1)\n```\n\n```output\n2\n```\n"
WRONG = GOOD.replace("\n2\n", "\n3\n")
PAGES = ("index", "one", "two", "three", "unsaved")


class Server:
    """`make serve` in a project; what it said is in `log`, for as long as one test looks."""

    def __init__(self, project: Path, *settings: str, path: Path | None = None):
        self.project, self.lines, self.log = project, queue.Queue(), []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        outer = ("CI", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "UPDATE")
        environment = {name: value for name, value in os.environ.items() if name not in outer}
        self.process = subprocess.Popen(
            [
                *("make", "--silent", "--old-file", ".venv/installed", "serve"),
                f"BIN={Path(sys.executable).parent}",
                f"ADDRESS={self.address}",
                *settings,
            ],
            cwd=project,
            env={
                **environment,
                "NO_COLOR": "1",
                "PYTHONPATH": os.pathsep.join(map(str, filter(None, [path, project]))),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def hear(self, pattern: str, seconds: float = 120) -> str:
        """Wait for the next line in which `pattern` is found."""
        while (line := self.lines.get(timeout=seconds)) is not None:
            self.log.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError("the server ended:\n" + "\n".join(self.log))

    def save(self, text: str, name: str = "index") -> BeautifulSoup:
        """Save a page as an editor does; return it as it is drawn when it was checked."""
        while not self.lines.empty():
            self.log.append(self.lines.get())
        (self.project / f"docs/{name}.md").write_text(text, encoding="utf-8")
        self.hear("Building documentation")  # a build under way may have read what was there before
        while "Being checked." in (shown := self.drawn(name)).get_text():
            pass
        return shown

    def drawn(self, name: str = "index") -> BeautifulSoup:
        """Wait until the book is drawn again; return a page as a browser gets it."""
        self.hear("Reloading browsers")
        return self.get(name)

    def get(self, name: str) -> BeautifulSoup:
        with urllib.request.urlopen(f"http://{self.address}/{name}.html", timeout=120) as answer:
            return BeautifulSoup(answer.read(), "html.parser")

    def close(self):
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(30)
        self.process.stdout.close()


def mark(shown: BeautifulSoup) -> str:
    return " ".join(shown.select_one(".mark").get_text().split())


def started(folder: Path, *settings: str, **more) -> Server:
    """Start a server of good pages, and wait until it notices what is saved."""
    server = Server(book.small_book(folder, **dict.fromkeys(PAGES, GOOD)), *settings, **more)
    try:
        server.hear("Serving on")
        noticed = False
        while not noticed:  # it says so before it looks
            with (folder / "docs/three.md").open("a") as page_file:
                page_file.write("\nMore.\n")
            with contextlib.suppress(queue.Empty):
                noticed = bool(server.hear("Reloading browsers", 5))
        while "Being checked." in server.get("three").get_text():
            server.hear("Reloading browsers")
    except BaseException:
        server.close()
        raise
    return server


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = started(tmp_path_factory.mktemp("serve"))
    yield server
    server.close()


@pytest.fixture
def server(running):
    """A server of good pages, of which the test may save `index`; then it is good again."""
    if (running.project / "docs/index.md").read_text() != GOOD:
        running.save(GOOD)
    running.log.clear()
    return running


HOLDS = "Every output on this page was checked."


def test_nothing_is_checked_before_it_is_saved(server):
    assert mark(server.get("unsaved")).startswith("Not checked yet.")


def test_a_save_that_breaks_an_output_is_said_on_the_terminal_and_shown_where_it_stands(server):
    shown = server.save(WRONG)
    assert [line for line in server.log if line.startswith("docs/")] == [
        "docs/index.md:8: the output differs from what the block on line 3 prints",
        "docs/index.md: 0 of 1 outputs hold",
    ]
    box = shown.select_one(".differs")
    assert "  - 3\n  + 2\n" in box.get_text()
    assert box.find_next_sibling()["class"] == ["output"]
    assert mark(shown).startswith("1 place on this page does not hold.")
    assert mark(server.save(GOOD + "\n")).startswith(HOLDS)
    assert "docs/index.md: 1 of 1 outputs hold" in server.log


def test_a_page_that_did_not_change_or_is_known_to_hold_is_not_run_again(server, tmp_path):
    shutil.copy(server.project / "pyproject.toml", tmp_path)  # which says who checks
    (tmp_path / "two.md").write_text(GOOD + "\nKnown.\n")
    record.write(page.read(tmp_path / "two.md"), 17)
    (server.project / ".checked/docs").mkdir(parents=True, exist_ok=True)
    (tmp_path / ".checked/two.md.json").rename(server.project / ".checked/docs/two.md.json")
    shown = server.save(GOOD + "\nKnown.\n", "two")
    assert [line for line in server.log if "hold" in line] == []
    assert "17 outputs compared" in mark(shown)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD.replace("1 + 1)", "1 +"), 4),
        ("---\ndescription: words\n---\n\n# A page\n\nBad $\\foo$ here.\n", 7),
        ("# A page\n\n[On](gone.md)\n", 3),
    ],
    ids=["syntax error", "bad math below front matter", "dead link"],
)
def test_an_error_is_pointed_at_in_its_line_and_recovered_from(server, text, line):
    said = server.save(text).select_one(".differs").get_text()
    assert f"docs/index.md:{line}: " in said
    assert [found for found in server.log if found.startswith(f"docs/index.md:{line}: ")]
    if "foo" in text:
        assert f"▸{line:5} | {text.splitlines()[line - 1]}\n" in said
    assert server.save(GOOD + f"\n{line} is mended.\n").select(".differs") == []


def test_a_drawing_that_is_saved_is_drawn_anew_in_its_page(server):
    drawing = server.project / "docs/drawings/box.svg"
    drawing.parent.mkdir()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><text>{}</text></svg>'
    drawing.write_text(svg.format("first"), encoding="utf-8")
    figure = '<figure class="diagram">\n\n![A box](drawings/box.svg "Box")\n\n</figure>\n'
    assert "first" in server.save(f"{GOOD}\n{figure}", "two").select_one(".diagram").get_text()
    drawing.write_text(svg.format("second"), encoding="utf-8")
    while "second" not in (shown := server.drawn("two").select_one(".diagram")).get_text():
        pass
    drawing.write_text("<svg", encoding="utf-8")
    while "drawings/box.svg:1: not well-formed" not in server.drawn("two").get_text():
        pass
    assert shown.svg["role"] == "img"


def test_a_page_that_computes_for_long_is_drawn_before_and_after(server, tmp_path):
    sign = tmp_path / "sign"
    wait = f"import os\nwhile not os.path.exists({str(sign)!r}):\n    pass\nprint(1 + 1)"
    (server.project / "docs/index.md").write_text(GOOD.replace("print(1 + 1)", wait))
    assert mark(server.drawn()).startswith("Being checked.")
    sign.touch()
    assert mark(server.drawn()).startswith(HOLDS)


@pytest.mark.smoke
def test_a_page_says_how_to_run_it_here_and_the_command_does_so(server):
    shown = server.save(GOOD + "\nTo run.\n", "one")
    told = shown.select_one(".page-local code").get_text()
    assert told == ".venv/bin/python -m literate export docs/one.md --out runs"
    words = [sys.executable, *told.split()[1:]]
    environment = {**os.environ, "PYTHONPATH": str(server.project)}
    subprocess.run(words, cwd=server.project, env=environment, check=True, capture_output=True)
    assert "To run." in (server.project / "runs/one.ipynb").read_text(encoding="utf-8")


def test_a_new_page_is_drawn_and_checked_outside_of_the_nav_and_in_it(server):
    assert server.save(GOOD, "new").select_one("figure.output samp").get_text() == "2"
    nav = server.project / "mkdocs.yml"
    nav.write_text(nav.read_text() + "  - new.md\n")
    while not server.drawn("one").select(".md-nav a[href='new.html']"):
        pass
    assert mark(server.save(GOOD + "\nMore.\n", "new")).startswith(HOLDS)


def test_update_mends_an_output_on_save_but_none_that_no_two_runs_share(tmp_path):
    server = started(tmp_path, "UPDATE=1")
    try:
        page = server.save(WRONG)
        while not mark(page).startswith(HOLDS):  # first what does not hold, then what was written
            page = server.drawn()
        assert (server.project / "docs/index.md").read_text() == GOOD
        server.log.clear()
        server.save(GOOD.replace("1 + 1", "__import__('time').time_ns()"))
        while not any("when it runs again" in line for line in server.log):
            server.drawn()
        assert mark(server.save(GOOD)).startswith(HOLDS)
        assert not any("outputs updated" in line for line in server.log)
    finally:
        server.close()


@pytest.mark.night
def test_without_torch_the_book_is_served_and_nothing_claimed(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    server = started(tmp_path / "book", path=tmp_path)
    try:
        assert mark(server.save(WRONG)).startswith("Not checked yet.")
        assert "torch is not installed: pages are rendered, and not checked" in server.log
    finally:
        server.close()
