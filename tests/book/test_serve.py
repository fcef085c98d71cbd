"""While the book is served, a page is drawn when it is asked for, and again when what it rests on changes."""

import queue
import socket
import threading
from types import SimpleNamespace

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from watchdog.events import FileSystemEventHandler

from book import serve

SAVES = {
    "written": lambda path: path.write_text("new"),
    "put in its place": lambda path: (
        path.with_name("other").write_text("new") and path.with_name("other").replace(path)
    ),
}


@pytest.mark.parametrize("poll", [False, True])
@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("alone", [False, True], ids=["in a folder", "alone"])
def test_what_is_saved_is_told_and_not_what_is_read(tmp_path, poll, save, alone):
    (tmp_path / "watched").mkdir()
    page, other = tmp_path / "watched/page.md", tmp_path / "watched/read.md"
    page.write_text("old")
    other.write_text("text")
    told, handler = queue.Queue(), FileSystemEventHandler()
    handler.on_any_event = told.put
    watcher = serve.Watcher(poll)
    watcher.schedule(handler, str(page if alone else page.parent), recursive=True)
    watcher.start()
    other.read_text()
    for _ in range(2):  # it is told once more after it has been replaced
        SAVES[save](page)
        while True:
            event = told.get(timeout=60)
            assert event.src_path != str(other)
            if str(page) in (event.src_path, event.dest_path):
                break
    watcher.stop()
    watcher.join()


def test_a_server_watches_by_a_watcher_what_it_watched(tmp_path):
    with LiveReloadServer(lambda: None, "127.0.0.1", 0, str(tmp_path)) as server:
        server.watch(str(tmp_path))
        server.watch(str(tmp_path))
        serve.listen(server)
        assert isinstance(server.observer, serve.Watcher)
        assert list(server._watched_paths) == [str(tmp_path)]


TEXT = '# A page\n\nSee [two](two.md#there).\n\n```python\n--8<-- "part.py:section"\n```\n'


@pytest.fixture
def project(tmp_path):
    for name, text in {
        "docs/one.md": TEXT,
        "docs/drawings/box.svg": "<svg/>",
        "snippets/part.py": "1",
        "snippets/other.py": "2",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def built(project, *names):
    """Return a page and the files of a build of `project`, which has the files `names`, too."""
    made = [File(name, str(project / "docs"), str(project / "site"), False) for name in names]
    one = File("one.md", str(project / "docs"), str(project / "site"), False)
    config = MkDocsConfig()
    config.load_dict({"site_name": "Book", "docs_dir": str(project / "docs")})
    return Page(None, one, config), Files([one, *made])


def state(project, *names):
    return serve._state_of(*built(project, *names))


@pytest.mark.parametrize("name", ["docs/one.md", "docs/drawings/box.svg", "snippets/part.py"])
def test_a_page_is_drawn_again_when_it_or_what_it_shows_is_saved(project, name):
    before = state(project)
    (project / name).write_text("other")
    assert state(project) != before


def test_a_page_is_drawn_again_when_what_it_links_to_comes(project):
    assert state(project, "two.md") != state(project)


@pytest.mark.parametrize("name", ["one.md~", "4913", "three.md", "files/data.pt"])
def test_a_page_is_not_drawn_again_for_a_file_that_is_none_of_its_own(project, name):
    before = state(project, "two.md")
    (project / "snippets/other.py").write_text("other")
    (project / "docs/.one.md.swp").write_text("other")
    assert state(project, "two.md", name) == before


class Slow:
    """Draws ahead what a test says it has drawn."""

    def __init__(self):
        self.done, self.asked = {}, []

    def __contains__(self, name):
        return True

    def ask(self, name):
        self.asked.append(name)

    def is_done(self, name):
        return name in self.done

    def take(self, name):
        return self.done[name]


@pytest.fixture
def served():
    served = serve.Served()
    served.ahead = Slow()
    yield served
    served.folder.cleanup()


def drawn(text):
    prepared = SimpleNamespace(program=None)
    return {"content": text, "meta": {"prepared": prepared}, "links_to_anchors": {"one.md": {}}}


def test_who_asks_for_a_page_gets_it_as_soon_as_it_is_drawn(project, served):
    slow = served.ahead

    def build():
        page, files = built(project)
        served.begin([page])
        served.draw(page, files, draw=None)
        served.end()
        return page.content

    assert build() == ""
    answered = threading.Thread(target=served._wait_for, args=["one.html"])
    answered.start()
    while not slow.asked:
        pass
    assert slow.asked == ["one.md"]
    assert answered.is_alive()
    assert build() == ""
    slow.done["one.md"] = drawn("drawn")
    assert build() == "drawn"
    answered.join(60)
    assert not answered.is_alive()


def test_a_page_that_is_drawn_is_not_waited_for_and_neither_is_what_is_no_page(project, served):
    served.ahead.done["one.md"] = drawn("drawn")
    page, files = built(project)
    served.begin([page])
    served.draw(page, files, draw=None)
    served.end()
    served._wait_for("one.html")
    served._wait_for("assets/book.css")
    assert served.ahead.asked == []


def test_a_page_that_was_saved_is_drawn_as_it_is_now(project, served):
    served.ahead.done["one.md"] = drawn("as at the start")
    for text in (TEXT, TEXT + "More.\n"):
        (project / "docs/one.md").write_text(text)
        page, files = built(project)
        served.begin([page])
        served.draw(page, files, draw=lambda: drawn("as now"))
    assert page.content == "as now"
    assert [file.src_uri for file in page.links_to_anchors] == ["one.md"]


def test_an_address_that_is_taken_is_said_at_once_with_the_way_out():
    server = LiveReloadServer(lambda: None, "127.0.0.1", 0, ".")
    serve._check_free(server)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server.server_address = taken.getsockname()
        with pytest.raises(PluginError, match=r"in use; name another, make serve ADDRESS="):
            serve._check_free(server)
    server.server_close()
