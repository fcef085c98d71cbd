"""Pages are rendered ahead in other processes, and nothing of that is lost: results, errors and warnings."""

import logging
import os
import threading

import pytest

from book.ahead import WORKERS, Ahead, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes cannot be forked here")
LOG = logging.getLogger("mkdocs.structure.pages")
NAMES = [str(number) for number in range(20)]


def test_each_name_has_its_result_of_another_process_or_its_error():
    ahead = Ahead(lambda name: (100 // int(name), os.getpid()), NAMES)
    with pytest.raises(ZeroDivisionError):
        ahead.take("0")
    results = [ahead.take(name) for name in NAMES[1:]]
    assert [result for result, _ in results] == [100 // number for number in range(1, 20)]
    assert os.getpid() not in {process for _, process in results}


def test_a_process_that_dies_leaves_nobody_waiting():
    said = threading.Event()
    ahead = Ahead(lambda name: os._exit(1), NAMES, said.set)
    for name in NAMES:
        with pytest.raises(Exception, match="terminated abruptly"):
            ahead.take(name)
    assert said.wait(60)


def test_a_warning_is_logged_again_where_its_name_is_taken(caplog):
    ahead = Ahead(lambda name: LOG.warning("%s is dead", name), ["a", "b"])
    ahead.take("b")
    logged = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    assert logged == [("mkdocs.structure.pages", "WARNING", "b is dead")]


def wait_for(path):
    while not path.exists():
        os.sched_yield()


def test_what_is_asked_for_comes_first_and_it_is_said_when_that_and_when_all_is_done(tmp_path):
    first = [f"first {number}" for number in range(2 * WORKERS + 1)]  # as many are on their way
    names = [*first, *NAMES, "asked", "last"]

    def render(name):
        wait_for(tmp_path / ("last" if name == "last" else "go"))
        with (tmp_path / "order").open("a") as order:
            order.write(name + "\n")

    said = threading.Semaphore(0)
    ahead = Ahead(render, names, said.release)
    ahead.ask("asked")
    ahead.ask("last")
    ahead.ask("asked")
    assert not said.acquire(blocking=False)
    (tmp_path / "go").touch()
    assert said.acquire(timeout=60)
    assert ahead.is_done("asked")
    assert not ahead.is_done("last")
    for name in names[:-1]:
        ahead.take(name)
    order = (tmp_path / "order").read_text().split("\n")
    assert order.index("asked") < order.index("0")
    assert sorted(order) == ["", *sorted(names[:-1])]  # none of them twice
    (tmp_path / "last").touch()
    ahead.take("last")
    assert said.acquire(timeout=60)


def test_once_closed_nothing_more_is_rendered_and_no_process_is_left(tmp_path):
    def render(name):
        (tmp_path / name).touch()
        wait_for(tmp_path / "go")
        return os.getpid()

    ahead = Ahead(render, NAMES)
    wait_for(tmp_path / "0")
    threading.Timer(0.1, (tmp_path / "go").touch).start()
    ahead.close()
    with pytest.raises(ProcessLookupError):
        os.kill(ahead.take("0"), 0)
    assert not (tmp_path / "19").exists()
