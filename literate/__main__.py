"""The command line: `python -m literate update|export [PAGE …]`."""

import argparse
import sys
from pathlib import Path

from literate import compare, export, update
from literate.page import Page, PageError, name_of, pages, read


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m literate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("update", help="rewrite the outputs that no longer agree")
    exports = commands.add_parser("export", help="write pages as notebooks and scripts")
    exports.add_argument("-o", "--out", type=Path, default=Path("."), help="folder to write into")
    exports.add_argument("--site-url", default="", help="address that relative links lead to")
    exports.add_argument(
        "--force", action="store_true", help="overwrite other files of these names"
    )
    for command in commands.choices.values():
        command.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    options = parser.parse_args(arguments)
    failed = 0
    for path in options.pages or pages(Path.cwd()):
        try:
            page = read(path)
            if options.command == "update":
                _update(page)
            else:
                _export(page, options)
        except (PageError, OSError) as error:
            print(error, file=sys.stderr)
            failed = 1
        except update.Refused as error:
            print(f"{compare.path_of(page)}: left as it was\n{error}", file=sys.stderr)
            failed = 1
        except KeyboardInterrupt:
            print(f"\n{name_of(path)}: stopped", file=sys.stderr)
            return 130  # as a shell says of what Ctrl-C ended
    return failed


def _update(page: Page) -> None:
    count = update.update(page)
    what = f"{count} output{'s' * (count > 1)} updated" if count else "agrees"
    print(f"{compare.path_of(page)}: {what}")


def _export(page: Page, options: argparse.Namespace) -> None:
    """Write the files of a page: one by its name, several into folders as they stand in those of the docs.

    Raises FileExistsError, and writes nothing, where something else stands at one of them.
    """
    name = Path(page.path.stem)
    if len(options.pages) != 1:
        docs = page.root / "docs"
        base = docs if page.path.is_relative_to(docs) else page.root
        name = page.path.relative_to(base).with_suffix("")
    texts = export.runnable(page, options.site_url).items()
    files = {options.out / f"{name}{ending}": text.encode() for ending, text in texts}
    for target, text in files.items():
        if target.exists() and target.read_bytes() != text and not options.force:
            what = "it stands there already, with other text; --force overwrites it"
            raise FileExistsError(f"{page.name}: left {name_of(target)} as it was: {what}")
    for target, text in files.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
        print(f"{page.name} → {name_of(target)}")


if __name__ == "__main__":
    sys.exit(main())
