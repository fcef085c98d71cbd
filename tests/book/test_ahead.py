"""Pages are drawn ahead in other processes, and nothing of that is lost: results, errors and warnings."""

import logging
import os
import threading

import pytest

from book.ahead import Ahead, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes cannot be forked here")
LOG = logging.getLogger("mkdocs.structure.pages")
NAMES = [str(number) for number in range(20)]


def test_each_name_has_its_own_result():
    drawn = Ahead(lambda name: name * 2, NAMES)
    assert [drawn.take(name) for name in NAMES] == [name * 2 for name in NAMES]


def test_what_draws_is_another_process():
    assert Ahead(lambda name: os.getpid(), ["one"]).take("one") != os.getpid()


def test_an_error_is_raised_where_its_name_is_taken_and_nowhere_else():
    drawn = Ahead(lambda name: 1 // int(name), NAMES)
    with pytest.raises(ZeroDivisionError, match="division"):
        drawn.take("0")
    assert drawn.take("1") == 1


def test_a_result_that_cannot_be_sent_is_an_error_of_its_name():
    drawn = Ahead(lambda name: threading.Lock() if name == "3" else name, NAMES)
    with pytest.raises(TypeError, match="cannot pickle"):
        drawn.take("3")
    assert drawn.take("4") == "4"


def test_a_process_that_dies_leaves_nobody_waiting():
    drawn = Ahead(lambda name: os._exit(1), NAMES)
    for name in NAMES:
        with pytest.raises(Exception, match=r"terminated abruptly|not usable"):
            drawn.take(name)


def test_a_warning_is_logged_again_where_its_name_is_taken(caplog):
    drawn = Ahead(lambda name: LOG.warning("%s is dead", name), ["a", "b"])
    drawn.take("b")
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("mkdocs.structure.pages", "WARNING", "b is dead")
    ]


def test_once_closed_nothing_more_is_drawn_and_no_process_is_left(tmp_path):
    """A builder that ends beside processes which are ending fails in their pipes, now and then."""

    def draw(name):
        (tmp_path / name).touch()
        while not (tmp_path / "go on").exists():
            os.sched_yield()
        return os.getpid()

    drawn = Ahead(draw, NAMES)
    while not (tmp_path / "0").exists():
        os.sched_yield()
    threading.Timer(0.1, (tmp_path / "go on").touch).start()
    drawn.close()
    with pytest.raises(ProcessLookupError):
        os.kill(drawn.take("0"), 0)
    assert not (tmp_path / "19").exists()
    with pytest.raises(RuntimeError, match="19 was not drawn"):
        drawn.take("19")


def test_it_is_said_when_a_name_that_was_asked_for_is_done(tmp_path):
    def draw(name):
        while not (tmp_path / name).exists():
            os.sched_yield()

    said = threading.Semaphore(0)
    drawn = Ahead(draw, ["asked", "other"], said.release)
    drawn.ask("asked")
    assert not said.acquire(blocking=False)
    (tmp_path / "asked").touch()
    assert said.acquire(timeout=60)
    assert not drawn.is_done("other")
    (tmp_path / "other").touch()
    drawn.take("other")


def test_it_is_said_when_all_are_done_and_not_before(tmp_path):
    def draw(name):
        while name == "last" and not (tmp_path / name).exists():
            os.sched_yield()

    said = threading.Semaphore(0)
    drawn = Ahead(draw, [*NAMES, "last"], said.release)
    for name in NAMES:
        drawn.take(name)
    assert not said.acquire(blocking=False)
    (tmp_path / "last").touch()
    assert said.acquire(timeout=60)
    assert drawn.is_done("last")


def test_what_is_asked_for_is_drawn_before_the_rest(tmp_path):
    def draw(name):
        while name.startswith("first") and not (tmp_path / "go").exists():
            os.sched_yield()
        with (tmp_path / "order").open("a") as order:
            order.write(name + "\n")

    first = [f"first {number}" for number in range(200)]  # more than can be at work at a time
    drawn = Ahead(draw, [*first, *NAMES, "asked"])
    drawn.ask("asked")
    (tmp_path / "go").touch()
    for name in [*first, *NAMES, "asked"]:
        drawn.take(name)
    order = (tmp_path / "order").read_text().split("\n")
    assert order.index("asked") < order.index("first 199")
