"""A wrong version is a text with one line of its code replaced: of a part, and of a page, alike."""

import re
from functools import cache


def edit(text: str, old: str, new: str, where: str) -> str:
    """Return the text with `old` replaced by `new`.

    How the code is broken into lines does not matter, so that it can be formatted anew.

    Raises:
        LookupError: where `old` does not occur exactly once, so that an edit cannot stop applying in
            silence; names `where` the text stands, and how often it occurs.
    """
    found = [*in_any_format(old).finditer(text)]
    if len(found) != 1:
        raise LookupError(f"{where}: {old!r} occurs {len(found)} times, not once")
    return text[: found[0].start()] + new + text[found[0].end() :]


@cache
def in_any_format(code: str) -> re.Pattern[str]:
    """Return what finds `code` however it is broken into lines, with a last comma or without."""
    bare = re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", code))
    marks = [",?\\s*" * (mark in ")]}") + re.escape(mark) for mark in bare]
    before, after = (re.match(r"\s*", text)[0] for text in (code, code[::-1]))
    return re.compile(re.escape(before) + r"\s*".join(marks) + re.escape(after[::-1]))
