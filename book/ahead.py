"""Renders the pages of the book side by side in other processes, before MkDocs asks for one after another.

Each process is forked from MkDocs when that knows all pages and has rendered none, so it has all that
rendering needs. MkDocs takes the result of each page from here, and what was logged on the way.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Any

LOG = logging.getLogger("mkdocs")
WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_render: Callable[[str], Any]  # set before a process is forked


def can_fork() -> bool:
    """Say whether processes can be forked here, and more than one can run at a time."""
    return "fork" in multiprocessing.get_all_start_methods() and WORKERS > 1


class Ahead:
    """The results of `render(name)` for each of `names`, made in other processes in this order.

    `ask` moves a name to the front. `ready` is called when one that was asked for is done, and when all are.
    """

    def __init__(
        self,
        render: Callable[[str], Any],
        names: list[str],
        ready: Callable[[], None] = lambda: None,
    ):
        global _render
        _render = render  # for the processes, which are forked at the first `submit`
        self._ready, self._asked = ready, set[str]()
        self._pool = ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork"))
        self._results: dict[str, Future] = {}
        self._lock = threading.Lock()
        self._submit(names)

    def _submit(self, names: list[str]) -> None:
        self._results |= {name: self._pool.submit(_rendered, name) for name in names}
        for name in names:
            self._results[name].add_done_callback(partial(self._note, name))

    def _note(self, name: str, result: Future) -> None:
        every = all(map(self.is_done, self._results))
        # A pool of which a process died has ended, and calls this while it holds the lock of `shutdown`.
        if every and not result.exception():
            self._pool.shutdown(wait=False)
        if every or (name in self._asked and self.is_done(name)):
            self._ready()

    def __contains__(self, name: str) -> bool:
        """Say whether `name` is among what is rendered here: a page that came later is not."""
        return name in self._results

    def is_done(self, name: str) -> bool:
        """Say whether `take` would return at once."""
        result = self._results[name]
        return result.done() and not result.cancelled()

    def ask(self, name: str) -> None:
        """Have `name` rendered before all that waits."""
        with self._lock:
            self._asked.add(name)
            waiting = [other for other, result in self._results.items() if result.cancel()]
            self._submit(sorted(waiting, key=lambda other: other != name))

    def take(self, name: str) -> Any:
        """Wait for the result of `name` and return it; raise what `render` raised."""
        records, result, error = self._results[name].result()
        for record in records:
            logging.getLogger(record.name).handle(record)
        if error:
            raise error
        return result

    def close(self) -> None:
        """Render nothing more, and wait until the processes have ended."""
        self._pool.shutdown(cancel_futures=True)


class _Kept(logging.Handler):
    """Keeps what is logged in one process, so that another can log it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        self.records.append(record)


def _rendered(name: str) -> tuple[list[logging.LogRecord], Any, Exception | None]:
    """Render `name` in a process of its own; return what was logged, the result, and an error."""
    kept = _Kept()
    handlers, LOG.handlers = LOG.handlers, [kept]
    try:
        return kept.records, _render(name), None
    except Exception as error:
        return kept.records, None, error
    finally:
        LOG.handlers = handlers
