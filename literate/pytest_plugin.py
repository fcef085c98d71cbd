"""The pytest face: each block of each page is a test named `docs/page.md::line 57`."""

import warnings
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from literate import compare, record
from literate import run as runner
from literate.page import SUFFIXES, Block, Page, PageError, is_page, name_of, read
from literate.solutions import leans_on_solutions

# The pages that this process has read, so that tests of them need not read them again.
COLLECTED: dict[Path, Page] = {}


class StandardError(UserWarning):
    """What a block that holds wrote to standard error; pytest lists it among its warnings."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep pages to us under `--codeblocks`, which users of pytest-codeblocks give by habit."""
    if config.getoption("--codeblocks", False):
        config.pluginmanager.unregister(name="codeblocks")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "PageFile | None":
    asked_for = parent.session.isinitpath(file_path) and file_path.name.endswith(SUFFIXES)
    if asked_for or is_page(file_path, parent.config.rootpath):
        return PageFile.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With -n, keep a page on one worker, since its blocks share a module."""
    if config.getoption("dist") not in ("load", "worksteal"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class PageScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, _ = nodeid.partition("::")
            return file if file.endswith(".md") else nodeid

    return PageScheduling(config, log)


class PageFile(pytest.File):
    """A page; its blocks share one Run, which goes as far as the block that is asked for."""

    def collect(self) -> "list[PageItem]":
        try:
            self.page = COLLECTED[self.path] = read(self.path)
            self.digest = record.digest(self.page)
            self.page.check_drawn()
            steps = self.page.steps
        except PageError as error:
            # Beside this file, so that nothing of the page is set up.
            items_instead: list = [Unreadable.of(self, error)]
            return items_instead
        self.opened = ExitStack()
        self.outputs: dict[str, int] = {}  # item that held → outputs that it compared
        self.failed: set[int] = set()  # lines of the blocks whose failures were reported
        items: list[PageItem] = [
            BlockItem.from_parent(self, name=f"line {b.line}", block=b) for b in steps
        ]
        if leans_on_solutions(self.page):
            items.append(WithoutSolutions.from_parent(self, name="without solutions"))
        prose = self.page.project.prose
        if prose and prose.needed(self.page.as_text):
            items.append(Prose.from_parent(self, name="prose"))
        self.names = {item.name for item in items}
        return items

    def setup(self) -> None:
        with record.forget_on_error(self.page):
            self.run = self.opened.enter_context(closing(runner.Run(self.page)))

    def teardown(self) -> None:
        with record.forget_on_error(self.page):
            self.opened.close()
            if self.outputs.keys() == self.names:
                record.write(self.page, sum(self.outputs.values()), self.digest)


class Failed(Exception):
    """The page does not hold; the message is the whole report."""


class PageItem(pytest.Item):
    """What must hold of a page; a failure is a report about it, not a traceback through this file."""

    parent: PageFile
    block: Block | None = None

    def check(self) -> tuple[int, str]:
        """Return how many outputs were compared, and why the item is skipped, or "".

        Raises Failed unless the page holds.
        """
        raise NotImplementedError

    def runtest(self) -> None:
        self.parent.outputs.pop(self.name, None)  # of a run before, where it is run again
        with record.forget_on_error(self.parent.page):
            outputs, excuse = self.check()
        self.parent.outputs[self.name] = outputs
        if excuse:
            pytest.skip(excuse)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, Failed | PageError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.block.line - 1 if self.block else 0, self.name


class BlockItem(PageItem):
    """A block does what the page says."""

    block: Block

    def __init__(self, *, block: Block, **kwargs):
        super().__init__(**kwargs)
        self.block = block

    def check(self) -> tuple[int, str]:
        parent, block = self.parent, self.block
        excuse = _hold(parent.run, block, parent.failed)
        if errors := parent.run.upto(block).errors:
            with warnings.catch_warnings():
                warnings.simplefilter("always")  # no filter of this process makes it an error
                warnings.warn_explicit(errors, StandardError, name_of(self.path), block.line)
        return int(block.is_output and not excuse), excuse


class WithoutSolutions(PageItem):
    """The page prints the same for a reader who opens no solution."""

    def check(self) -> tuple[int, str]:
        if self.parent.failed:
            pytest.skip("the page does not hold with its solutions either")
        with closing(runner.Run(self.parent.page, solutions=False)) as run:
            for block in run.blocks:
                _hold(run, block, set())
        return 0, ""


class Prose(PageItem):
    """The text is as the project wants it."""

    def check(self) -> tuple[int, str]:
        page = self.parent.page
        if problems := page.prose_problems():
            raise PageError(page.path, *problems)
        return 0, ""


def _hold(run: runner.Run, block: Block, failed: set[int]) -> str:
    """Run `block` and raise Failed unless it does what the page says.

    Returns why it is skipped, or "" where it holds. A block that fails by the failure of another alone,
    one of the lines `failed`, is skipped, too; any other that fails is added to them.
    """
    failure = compare.run_and_check(run, block)
    if failure and failure.follows in failed:
        failed.add(block.line)
        pytest.skip(failure.report)
    if failure and not failure.excuse:
        failed.add(block.line)
        raise Failed(failure.report)
    return failure.excuse if failure else ""


class Unreadable(pytest.Item):
    """A page that cannot be read; it fails as a test, so that all other pages are still collected."""

    error: PageError

    @classmethod
    def of(cls, file: pytest.File, error: PageError) -> "Unreadable":
        assert file.parent
        item = cls.from_parent(file.parent, name=file.path.name, nodeid=f"{file.nodeid}::page")
        item.error = error
        return item

    def runtest(self) -> None:
        raise self.error

    def repr_failure(self, excinfo, style=None):
        return str(self.error)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.error.path, max(self.error.line - 1, 0), self.nodeid
