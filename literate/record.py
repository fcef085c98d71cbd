"""What was checked, with which versions, and when: one record per page, in a folder that git ignores.

A run in which every block of a page held writes the page's record, as the last thing that it does.
Anything else deletes the record: a block that does not hold, and an error of the checker too. The
site's mark says what a record says, as long as nothing has changed that the check depends on: the page
and what it includes, the stored files, the checker, and the pinned torch.
"""

import contextlib
import hashlib
import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path

from literate import compare
from literate.page import Page, files
from literate.run import Run
from literate.solutions import leans_on_solutions

FOLDER = ".checked"


def _digest_of_code(folder: Path) -> str:
    """Return a digest of the Python files below `folder`, the same whatever ends their lines."""
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        sha.update(f"{path.relative_to(folder).as_posix()}\0{text}\0".encode())
    return sha.hexdigest()


CHECKER = _digest_of_code(Path(__file__).parent)  # as this process began with it


@dataclass(frozen=True)
class Record:
    """One check of a page in which everything held; `digest` says of which text and files."""

    digest: str
    program: str  # a digest of what ran
    outputs: int  # compared; an output that varies is none on platforms other than its own
    python: str
    torch: str
    checker: str  # a digest of its source
    platform: str
    date: str


def digest(page: Page) -> str:
    """Return a digest of what a page consists of.

    That is its text with its drawings, all that it includes, and the files that it finds where it runs.
    """
    return _digest([page.shown, page.source], page)


def program(page: Page) -> str:
    """Return a digest of what runs of a page, and of what that must show; prose around it is left out.

    What a block prints of its own line in the file may move with the prose; no page should print that.
    """
    shown = [(one.output.text, one.output.options) if one.output else () for one in page.steps]
    ran = [(one.code, one.solution) for one in page.steps]
    return _digest([repr((ran, shown))], page)


def _digest(parts: list[str], page: Page) -> str:
    for path in files(page.root):
        state = path.stat()
        parts += [path.name, _digest_of(path, state.st_mtime_ns, state.st_ctime_ns, state.st_size)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def checker(page: Page) -> str:
    """Return a digest of all code that a check of `page` depends on: this package, and its project's."""
    added = _digest_of_project(page.project.code)
    return hashlib.sha256(f"{CHECKER}{added}".encode()).hexdigest()


@lru_cache
def _digest_of_project(folder: Path | None) -> str:
    """Return a digest of the code of a project, as this process met it first; "" for none."""
    return _digest_of_code(folder) if folder else ""


@lru_cache
def _digest_of(path: Path, *_state: int) -> str:
    """Return a digest of a file, which is read again when its times or its size are others."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def of(page: Page) -> Record | None:
    """Return the record of `page` as it is now, or None where there is none.

    A record made with another torch than the book pins is none: nobody gets that torch with the book.
    """
    record = _last(page)
    return record if record and record.digest == digest(page) else None


def renew(page: Page) -> Record | None:
    """Record `page` again where only its prose changed since it was checked; return that, else None.

    Its prose must hold; what ran is neither run nor compared again.
    """
    record = _last(page)
    if record is None or record.program != program(page) or page.prose_problems():
        return None
    record = replace(record, digest=digest(page))
    _keep(page, record)
    return record


def _last(page: Page) -> Record | None:
    """Return the last record of `page`, of whatever text, where the checker and torch are the same."""
    try:
        stored = json.loads(_path(page).read_text(encoding="utf-8"))
        record = Record(**{field.name: stored[field.name] for field in fields(Record)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    now = checker(page), compare.pinned_torch(page.root) or record.torch
    return record if (record.checker, record.torch) == now else None


@contextlib.contextmanager
def forget_on_error(page: Page) -> Iterator[None]:
    """Forget that `page` was checked if anything is raised within, by the page or by the checker."""
    try:
        yield
    except BaseException:
        remove(page)
        raise


def check(page: Page) -> dict[int, str]:
    """Run `page`, without its solutions too where that could make a difference, and keep its record.

    Returns the report on each block, and on each problem of the prose, that does not hold, by the line
    of the fence or of the problem.
    """
    with forget_on_error(page):
        checked, failures, excused = digest(page), dict[int, str](), set[int]()
        for solutions in (True, False)[: 1 + leans_on_solutions(page)]:
            with contextlib.closing(Run(page, solutions)) as run:
                for block in run.blocks:
                    if failure := compare.run_and_check(run, block):
                        at = (block.output or block.fence).line
                        if failure.excuse and block.is_output:
                            excused.add(at)
                        elif not failure.excuse:
                            failures.setdefault(at, failure.report)
        for problem in page.prose_problems():
            line, report = problem.line, f"{page.name}:{problem.line}: {problem}"
            failures[line] = "\n".join(filter(None, [failures.get(line), report]))
        if failures:
            remove(page)
        else:
            write(page, sum(step.is_output for step in page.steps) - len(excused), checked)
    return failures


def write(page: Page, outputs: int, checked: str = "") -> None:
    """Record that every block of `page` held, and that `outputs` were compared.

    `checked` is the digest of the page before it ran, which a file that changed meanwhile makes
    another than that of the page now; without it the page is taken as it is. A checkout that cannot
    be written to keeps no records, and a page with a block that could not run here is not recorded.
    """
    if any(block.lacks for block in page.blocks):
        return
    here = f"{platform.system()} {platform.machine()}"
    record = Record(
        digest=checked or digest(page),
        program=program(page),
        outputs=outputs,
        python=platform.python_version(),
        torch=compare.version_of("torch"),
        checker=checker(page),
        platform=here,
        date=str(date.today()),
    )
    _keep(page, record)


def _keep(page: Page, record: Record) -> None:
    path = _path(page)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(record), indent=2), encoding="utf-8")


def remove(page: Page) -> None:
    """Forget that `page` was checked."""
    with contextlib.suppress(OSError):
        _path(page).unlink()


def _path(page: Page) -> Path:
    return page.root / FOLDER / f"{page.key}.json"
