"""Give a chapter another name: `make rename PAGE=docs/part/old.md TO=new`, or python -m tools.rename PAGE NAME.

Every link to it, and every other mention of its path, names the new one from then on; at the old address
stays a page that leads to the new.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import join, normpath

LINK = re.compile(r"(?<=\]\()(?P<to>[^()\s#:]+)(?=[)#])")
MOVED = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{new}.html">
<meta http-equiv="refresh" content="1; url={new}.html">
<script>location.replace("{new}.html" + location.search + location.hash)</script>
<p>This page has moved to <a href="{new}.html">{new}.html</a>.</p>
</html>
"""


def rename(root: Path, source: str, name: str) -> list[str]:
    """Rename the chapter `source`, from `root`, and return the paths of the files that named it.

    Raises ValueError where there is no such chapter, or `name` cannot be one's.
    """
    page = root / source
    if not (source.startswith("docs/") and source.endswith(".md") and page.is_file()):
        raise ValueError(f"{source}: no page; wanted such as docs/part/chapter.md")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or page.with_name(f"{name}.md").exists():
        raise ValueError(f"{name}: wanted a new name, in small letters, numbers and hyphens")
    old = source.removeprefix("docs/").removesuffix(".md")
    changed = []
    for path in _texts(root):
        text = path.read_text(encoding="utf-8")
        place = path.relative_to(root).as_posix()
        renamed = _renamed(text, place, old, name)
        if renamed != text:
            path.write_text(renamed, encoding="utf-8")
            changed.append(place)
    page.rename(page.with_name(f"{name}.md"))
    page.with_suffix(".html").write_text(MOVED.format(new=name), encoding="utf-8")
    return changed


def _renamed(text: str, place: str, old: str, name: str) -> str:
    """Return the `text` of the file at `place` with the new name wherever the chapter `old` is named."""
    stem = old.rpartition("/")[2]

    def lead(link: re.Match) -> str:
        to = normpath(join(place, "..", link["to"]))
        named = to in (f"docs/{old}.md", f"docs/{old}.html")
        return re.sub(rf"{re.escape(stem)}(?=\.\w+$)", name, link["to"]) if named else link[0]

    # A path elsewhere: in mkdocs.yml and in tests, whole, with or without what its file is called.
    path = re.compile(rf"(?<![\w/-])((?:docs/)?){re.escape(old)}(?![\w/-])")
    new = old.removesuffix(stem) + name
    return LINK.sub(lead, path.sub(rf"\g<1>{new}", text) if "/" in old else text)


def _texts(root: Path) -> Iterator[Path]:
    """Yield the text files of the project at `root` that git does not ignore."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=root, capture_output=True, check=True, text=True).stdout
    for name in listed.split("\0"):
        path = root / name
        if path.is_file() and not path.is_symlink() and b"\0" not in path.read_bytes():
            yield path


def main() -> int:
    """Rename a chapter, and say which files named it; return 1 where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m tools.rename", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("page", help="such as docs/part/old.md")
    parser.add_argument("name", help="such as new")
    told = parser.parse_args()
    try:
        changed = rename(Path.cwd(), told.page, told.name)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(["The page is named anew in:", *changed]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
