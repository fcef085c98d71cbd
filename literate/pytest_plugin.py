"""The pytest face: each block of each page is a test named `docs/page.md::line 57`."""

import re
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from literate import compare, prose, record
from literate import run as runner
from literate.page import SUFFIXES, Block, Page, PageError, is_page, read

# The pages that this process has read, so that tests of them need not read them again.
COLLECTED: dict[Path, Page] = {}

# What the names of tests are made of, beside the names of their pages and numbers.
ITEMS = (
    "line ",
    "without solutions",
    "prose",
    "skip",
    "skipif",
    "xfail",
    "parametrize",
    "usefixtures",
)


def pytest_configure(config: pytest.Config) -> None:
    """Keep pages to us under `--codeblocks`, which users of pytest-codeblocks give by habit."""
    if config.getoption("--codeblocks", False):
        config.pluginmanager.unregister(name="codeblocks")


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("usepdb"):
        return "pages run in this process, for --pdb: what one changes, the next one meets"
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "PageFile | None":
    config, asked_for = parent.config, parent.session.isinitpath(file_path)
    if asked_for and file_path.name.endswith(SUFFIXES):
        return PageFile.from_parent(parent, path=file_path)
    if is_page(file_path, config.rootpath) and not _is_deselected(file_path, config):
        return PageFile.from_parent(parent, path=file_path)
    return None


def _is_deselected(path: Path, config: pytest.Config) -> bool:
    """Say whether `-k` is one word that matches no test of a page at `path`, which need not be read."""
    word = str(config.getoption("keyword")).lower()
    names = [*(config.rootpath / path).relative_to(config.rootpath).parts, *ITEMS]
    plain = re.fullmatch(r"(?!(?:and|or|not)$)[a-z_-]+", word)
    return bool(plain) and not any(word in name.lower() for name in names)


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

    def collect(self) -> "list[Held]":
        try:
            self.page = COLLECTED[self.path] = read(self.path)
            self.digest = record.digest(self.page)
            self.page.check_drawn()
            steps = self.page.steps
        except PageError as error:
            # Beside this file, so that nothing of the page is set up.
            items_instead: list = [Unreadable.of(self, error)]
            return items_instead
        self.here = self.config.getoption("usepdb")  # where a debugger may be wanted
        self.run: runner.Run | None = None
        self.opened = ExitStack()
        self.compared: dict[str, int] = {}  # item that held → outputs that it compared
        self.reported: set[int] = set()  # lines of the blocks whose failures were reported
        items: list[Held] = [
            BlockItem.from_parent(self, name=f"line {b.line}", block=b) for b in steps
        ]
        if runner.solutions_come_early(self.page):
            items.append(WithoutSolutions.from_parent(self, name="without solutions"))
        if prose.quotes(self.page):
            items.append(Prose.from_parent(self, name="prose"))
        self.names = {item.name for item in items}
        return items

    def setup(self) -> None:
        with record.at_stake(self.page):
            snapshots = self.opened.enter_context(closing(runner.Snapshots()))
            self.run = runner.Run(self.page, True, self.here, snapshots)
            self.opened.enter_context(closing(self.run))

    def teardown(self) -> None:
        with record.at_stake(self.page):
            self.opened.close()
            # What ran in this process may owe something to the page before it.
            if self.compared.keys() == self.names and not self.here:
                record.write(self.page, sum(self.compared.values()), self.digest)


class Failed(Exception):
    """The page does not hold; the message is the whole report."""


class Held(pytest.Item):
    """What must hold of a page; a failure is a report about it, not a traceback through this file."""

    parent: PageFile
    block: Block | None = None

    def check(self) -> tuple[int, str]:
        """Return how many outputs were compared, and why one that differs may do so here.

        Raises Failed unless the page holds.
        """
        raise NotImplementedError

    def runtest(self) -> None:
        self.parent.compared.pop(self.name, None)  # of a run before, where it is run again
        with record.at_stake(self.parent.page):
            outputs, differs = self.check()
        self.parent.compared[self.name] = outputs
        if differs:
            pytest.skip(differs)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.block.line - 1 if self.block else 0, self.name


class BlockItem(Held):
    """A block does what the page says."""

    block: Block

    def __init__(self, *, block: Block, **kwargs):
        super().__init__(**kwargs)
        self.block = block

    def check(self) -> tuple[int, str]:
        assert self.parent.run, "setup began it"
        differs = _hold(self.parent.run, self.block, self.parent.reported)
        return int(self.block.is_output and not differs), differs


class WithoutSolutions(Held):
    """The page prints the same for a reader who opens no solution."""

    def check(self) -> tuple[int, str]:
        if self.parent.reported:
            pytest.skip("the page does not hold with its solutions either")
        first = self.parent.run
        assert first, "setup began it"
        shared = first.snapshots if len(first.results) == len(first.blocks) else None
        with closing(runner.Run(self.parent.page, False, self.parent.here, shared)) as run:
            for block in run.blocks:
                _hold(run, block, set())
        return 0, ""


class Prose(Held):
    """The numbers of the text are those that the page prints or computes with."""

    def check(self) -> tuple[int, str]:
        if complaints := prose.unsupported_numbers(self.parent.page):
            raise Failed("\n".join(complaints))
        return 0, ""


def _hold(run: runner.Run, block: Block, reported: set[int]) -> str:
    """Run `block` and raise Failed unless it does what the page says.

    Returns why its output, which differs, may do so on this platform; "" where it agrees. A block that
    could not run, since one of the lines `reported` failed, is skipped; one that fails is added to them.
    """
    failure, why = compare.run_and_check(run, block)
    if failure and failure.follows in reported:
        pytest.skip(failure.report)
    if failure and not why:
        reported.add(block.line)
        raise Failed(failure.report).with_traceback(run.inside(failure.line))
    differs = f"varies ({why}); it differs on this platform"
    return f"{run.page.name}:{failure.line}: {differs}" if failure else ""


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
