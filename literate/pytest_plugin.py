"""The pytest face: each block of each page is a test named `docs/page.md::line 57`."""

import pytest

from literate import compare, prose
from literate import run as runner
from literate.page import SUFFIXES, Block, PageError, is_page, read
from literate.site import fences


def pytest_configure(config: pytest.Config) -> None:
    """Keep pages to us under `--codeblocks`, which users of pytest-codeblocks give by habit."""
    if config.getoption("--codeblocks", False):
        config.pluginmanager.unregister(name="codeblocks")


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("usepdb"):
        return "pages run in this process, for --pdb: what one changes, the next one meets"
    return None


def pytest_collect_file(file_path, parent):
    asked_for = file_path.name.endswith(SUFFIXES) and parent.session.isinitpath(file_path)
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

    def collect(self):
        try:
            self.page = read(self.path)
            fences.check(self.page)
            steps = self.page.steps
        except PageError as error:
            raise self.CollectError(str(error)) from None
        self.run = None
        for block in steps:
            yield BlockItem.from_parent(self, name=f"line {block.line}", block=block)
        if self.solutions_come_early():
            yield WithoutSolutions.from_parent(self, name="without solutions")
        if prose.quotes(self.page):
            yield Prose.from_parent(self, name="prose")

    def solutions_come_early(self):
        """Say whether a block that is no solution stands after one that is."""
        kinds = [block.solution for block in self.page.blocks]
        return True in kinds and False in kinds[kinds.index(True) :]

    def setup(self):
        self.run = self.new_run()

    def new_run(self, solutions: bool = True) -> runner.Run:
        """Return a Run of the page, in this process where a debugger may be wanted."""
        return runner.Run(self.page, solutions, here=self.config.getoption("usepdb"))

    def teardown(self):
        if self.run:
            self.run.close()


class Held(pytest.Item):
    """An item whose failure is a report about the page, not a traceback through this file."""

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, BlockFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def hold(self, run: runner.Run, block: Block) -> None:
        """Run `block` and raise BlockFailure unless it does what the page says."""
        result = run.upto(block)
        page = self.parent.page
        if earlier := run.failed_before(block):
            what = f"not run to the end: the block on line {earlier.line} failed first"
            raise BlockFailure(f"{page.name}:{block.line}: {what}")
        failure = compare.judge(page, block, result)
        if not failure:
            return
        why = block.output.options.get("varies") if block.output else None
        if why and not result.raised and not compare.on_reference_platform(page.root):
            pytest.skip(f"{page.name}:{failure.line}: varies ({why}); it differs on this platform")
        raise BlockFailure(failure.report).with_traceback(run.inside(failure.line))


class BlockFailure(Exception):
    """A block that does not hold; the message is the whole report."""


class BlockItem(Held):
    def __init__(self, *, block, **kwargs):
        super().__init__(**kwargs)
        self.block = block

    def runtest(self):
        self.hold(self.parent.run, self.block)

    def reportinfo(self):
        return self.path, self.block.line - 1, self.name


class WithoutSolutions(Held):
    """The page prints the same for a reader who opens no solution."""

    def runtest(self):
        run = self.parent.new_run(solutions=False)
        try:
            for block in run.blocks:
                self.hold(run, block)
        finally:
            run.close()

    def reportinfo(self):
        return self.path, 0, self.name


class Prose(Held):
    """The numbers of the text are those that the page prints or computes with."""

    def runtest(self):
        if found := prose.stale(self.parent.page):
            raise BlockFailure("\n".join(found))

    def reportinfo(self):
        return self.path, 0, self.name
