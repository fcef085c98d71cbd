"""Draws the pages of the book ahead of the builder, which asks for one after another.

Each process is forked from the builder when that knows all pages and has drawn none, so it has all that
drawing needs. The builder takes the result of each page from here, and what was logged on the way.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

LOG = logging.getLogger("mkdocs")
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
Outcome = tuple[
    list[logging.LogRecord], Any, BaseException | None
]  # what was logged, a result, an error
_draw: Callable[[str], Any]  # set before a process is forked


def can_fork() -> bool:
    """Say whether processes can be forked here, and more than one can run at a time."""
    return "fork" in multiprocessing.get_all_start_methods() and WORKERS > 1


class Ahead:
    """The results of `draw(name)` for each of `names`, made in other processes in this order.

    `asked` moves a name to the front. `ready`, if there is one, is called when one that was asked for
    is done, and when all are.
    """

    def __init__(
        self,
        draw: Callable[[str], Any],
        names: list[str],
        ready: Callable[[], None] = lambda: None,
    ):
        global _draw
        _draw = draw  # for the processes, which are forked from this one
        self._waiting, self._ready = list(names), ready
        self._results: dict[str, Future] = {name: Future() for name in names}
        self._asked: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork"))
        self._running: dict[Future, str] = {}
        self._fill()  # here, where nothing else runs: this is when the processes are forked
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def __contains__(self, name: str) -> bool:
        """Say whether `name` is among what is drawn here: a page that came later is not."""
        return name in self._results

    def is_done(self, name: str) -> bool:
        """Say whether `take` would return at once."""
        return self._results[name].done()

    def ask(self, name: str) -> None:
        """Have `name` drawn before all that nobody has asked for."""
        with self._lock:
            self._asked.add(name)
            if name in self._waiting:
                self._waiting.remove(name)
                self._waiting.insert(0, name)

    def take(self, name: str) -> Any:
        """Wait for the result of `name` and return it; raise what `draw` raised."""
        records, result, error = self._results[name].result()
        for record in records:
            logging.getLogger(record.name).handle(record)
        if error:
            raise error
        return result

    def close(self) -> None:
        """Draw nothing more, and wait until the processes have ended.

        A builder that ends while they do would now and then fail in a pipe that is being closed.
        """
        with self._lock:
            given_up, self._waiting = self._waiting, []
        for name in given_up:
            self._results[name].set_result(
                ([], None, RuntimeError(f"{name} was not drawn: closed"))
            )
        self._thread.join()

    def _fill(self) -> None:
        """Give each process something to draw, as long as there is anything."""
        while len(self._running) < WORKERS:
            with self._lock:
                if not self._waiting:
                    return
                name = self._waiting.pop(0)
            try:
                self._running[self._pool.submit(_drawn, name)] = name
            except RuntimeError as error:  # a process has died, or all are ended
                self._results[name].set_result(([], None, error))

    def _go_on(self) -> None:
        """Keep what is done, until all is."""
        while self._running:
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            names = {self._running.pop(future): future for future in done}
            self._fill()
            for name, future in names.items():
                error = future.exception()
                self._results[name].set_result(([], None, error) if error else future.result())
            if self._asked & names.keys() or not self._running:
                self._ready()
        self._pool.shutdown()


class _Kept(logging.Handler):
    """Keeps what is logged in one process, so that another can log it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        self.records.append(record)


def _drawn(name: str) -> Outcome:
    """Draw `name` in a process of its own; return what was logged, and the result."""
    kept = _Kept()
    handlers, LOG.handlers = LOG.handlers, [kept]
    try:
        return kept.records, _draw(name), None
    except Exception as error:
        return kept.records, None, error
    finally:
        LOG.handlers = handlers
