"""The command line: `python -m literate update|export [PAGE …]`, and `prepare`, `pack` of a book."""

import argparse
import sys
from pathlib import Path

from literate import export, update
from literate.page import Page, PageError, name_of, pages, read


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m literate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("update", help="rewrite the outputs that no longer agree")
    exports = commands.add_parser("export", help="write pages as notebooks and scripts")
    exports.add_argument("-o", "--out", type=Path, default=Path("."), help="folder to write into")
    exports.add_argument("--site-url", default="", help="address that relative links lead to")
    for command in commands.choices.values():
        command.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    commands.add_parser("prepare", help="write the book into .book/, for a builder without hooks")
    packs = commands.add_parser("pack", help="make a built site light, and zip it")
    packs.add_argument("site", type=Path, help="the folder that a builder wrote")
    options = parser.parse_args(arguments)
    if options.command in ("prepare", "pack"):
        return _book(options)
    failed = 0
    for path in options.pages or pages(Path.cwd()):
        try:
            page = read(path)
            (_update if options.command == "update" else _export)(page, options)
        except (PageError, OSError) as error:
            print(error, file=sys.stderr)
            failed = 1
        except update.Refused as error:
            print(f"{page.name}: left as it was\n{error}", file=sys.stderr)
            failed = 1
        except KeyboardInterrupt:
            print(f"\n{name_of(path)}: stopped", file=sys.stderr)
            return 130  # as a shell says of what Ctrl-C ended
    return failed


def _book(options: argparse.Namespace) -> int:
    from literate.site import prepare  # it needs what draws the site

    try:
        if options.command == "prepare":
            prepare.write(Path.cwd())
        else:
            prepare.pack(options.site)
    except (PageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _update(page: Page, _options: argparse.Namespace) -> None:
    count = update.update(page)
    what = f"{count} output{'s' * (count > 1)} updated" if count else "agrees"
    print(f"{page.name}: {what}")


def _export(page: Page, options: argparse.Namespace) -> None:
    stem = options.out / page.path.stem
    if not options.pages and page.path.is_relative_to(page.root / "docs"):  # the whole book
        stem = options.out / page.path.relative_to(page.root / "docs").with_suffix("")
    stem.parent.mkdir(parents=True, exist_ok=True)
    for ending, text in export.runnable(page, options.site_url).items():
        target = stem.with_name(stem.name + ending)
        target.write_text(text, encoding="utf-8")
        print(f"{page.name} → {name_of(target)}")


if __name__ == "__main__":
    sys.exit(main())
