"""The command line: `python -m literate update|export [PAGE …]`."""

import argparse
import sys
from pathlib import Path

from literate.page import Page, PageError, pages, read, shown


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m literate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("update", help="rewrite the outputs that no longer agree")
    export = commands.add_parser("export", help="write pages as .ipynb and .py")
    export.add_argument("-o", "--out", type=Path, default=Path("."), help="folder to write into")
    export.add_argument("--site-url", default="", help="address that relative links lead to")
    for command in commands.choices.values():
        command.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    options = parser.parse_args(arguments)
    failed = 0
    for path in options.pages or pages(Path.cwd()):
        try:
            page = read(path)
            (_update if options.command == "update" else _export)(page, options)
        except (PageError, OSError) as error:
            print(error, file=sys.stderr)
            failed = 1
        except _refused() as error:
            print(f"{page.name}: left as it was\n{error}", file=sys.stderr)
            failed = 1
        except KeyboardInterrupt:
            print(f"\n{shown(path)}: stopped", file=sys.stderr)
            return 130  # as a shell says of what Ctrl-C ended
    return failed


def _refused() -> tuple[type[Exception], ...]:
    """Return the exceptions that only updating knows; exporting never imports torch."""
    module = sys.modules.get("literate.update")
    return (module.Refused,) if module else ()


def _update(page: Page, options: argparse.Namespace) -> None:
    from literate.update import update

    count = update(page)
    print(
        f"{page.name}: {count} output{'' if count == 1 else 's'} updated"
        if count
        else f"{page.name}: agrees"
    )


def _export(page: Page, options: argparse.Namespace) -> None:
    from literate import export

    stem = options.out / page.path.stem
    if not options.pages and page.path.is_relative_to(page.root / "docs"):  # the whole book
        stem = options.out / page.path.relative_to(page.root / "docs").with_suffix("")
    stem.parent.mkdir(parents=True, exist_ok=True)
    for suffix, text in (
        (".ipynb", export.notebook(page, options.site_url)),
        (".py", export.script(page, options.site_url)),
    ):
        target = stem.with_suffix(suffix)
        target.write_text(text, encoding="utf-8")
        print(f"{page.name} → {shown(target)}")


if __name__ == "__main__":
    sys.exit(main())
