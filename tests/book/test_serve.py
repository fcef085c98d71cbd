"""While the book is served, a page is drawn when it is asked for, and again when what it rests on changes."""

import socket
import threading
from types import SimpleNamespace

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from book import serve

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
    return served


def drawn(text):
    prepared = SimpleNamespace(program=None)
    return {"content": text, "meta": {"prepared": prepared}, "links_to_anchors": {"one.md": {}}}


def test_who_asks_for_a_page_gets_it_as_soon_as_it_is_rendered(project, served):
    slow = served.ahead

    def build():
        page, files = built(project)
        served.begin([page])
        served.render(page, files, render=None)
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
    served.render(page, files, render=None)
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
        served.render(page, files, render=lambda: drawn("as now"))
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
