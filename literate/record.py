"""What was checked, with which versions, and when: one record per page, in a folder that git ignores.

A run in which every block of a page held writes the page's record; one in which a block did not
deletes it. The site's mark says what a record says, and only of the very text that was checked.
"""

import contextlib
import hashlib
import json
import platform
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path

from literate import compare, prose
from literate.page import Page
from literate.run import Run, solutions_come_early

FOLDER = ".checked"


@dataclass(frozen=True)
class Record:
    """One check of a page in which everything held; `digest` says of which text."""

    digest: str
    outputs: int  # compared; an output that varies is none on platforms other than its own
    python: str
    torch: str
    checker: str
    platform: str
    date: str


def digest(page: Page) -> str:
    """Return a digest of the page's text and of the text of all that it includes."""
    return hashlib.sha256(f"{page.text}\0{page.source}".encode()).hexdigest()


def of(page: Page) -> Record | None:
    """Return the record of `page` as it was read, or None where there is none."""
    try:
        found = json.loads(_path(page).read_text(encoding="utf-8"))
        record = Record(**{field.name: found[field.name] for field in fields(Record)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if record.digest == digest(page) else None


def check(page: Page) -> dict[int, str]:
    """Run `page`, with its solutions and without, and keep its record.

    Returns the report on each block, and on each number of the prose, that does not hold, by the
    line of the fence or of the number.
    """
    failures: dict[int, str] = {}
    excused: set[int] = set()
    for solutions in (True, False)[: 1 + solutions_come_early(page)]:
        with contextlib.closing(Run(page, solutions)) as run:
            for block in run.blocks:
                failure, why = compare.verdict(run, block)
                at = (block.output or block.fence).line
                if why:
                    excused.add(at)
                elif failure:
                    failures.setdefault(at, failure.report)
    for report in prose.stale(page):
        line = int(report.removeprefix(f"{page.name}:").partition(":")[0])
        failures[line] = "\n".join(filter(None, [failures.get(line), report]))
    if failures:
        remove(page)
    else:
        write(page, sum(step.output is not None for step in page.steps) - len(excused))
    return failures


def write(page: Page, outputs: int) -> None:
    """Record that every block of `page` held, and that `outputs` were compared.

    A checkout that cannot be written to keeps no records.
    """
    packages = compare.version_of("torch"), compare.version_of("literate")
    versions = platform.python_version(), *packages
    here = f"{platform.system()} {platform.machine()}"
    record = Record(digest(page), outputs, *versions, here, str(date.today()))
    path = _path(page)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(record), indent=2), encoding="utf-8")


def remove(page: Page) -> None:
    """Forget that `page` was checked."""
    with contextlib.suppress(OSError):
        _path(page).unlink()


def _path(page: Page) -> Path:
    return page.root / FOLDER / f"{page.name}.json"
