"""The command line: `python -m book prepare`, and `pack` of a built site."""

import argparse
import sys
from pathlib import Path

from book import prepare
from literate.page import PageError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m book", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="write the book into .book/, for a builder without hooks")
    packs = commands.add_parser("pack", help="make a built site light, and zip it")
    packs.add_argument("site", type=Path, help="the folder that a builder wrote")
    options = parser.parse_args(arguments)
    try:
        if options.command == "prepare":
            prepare.write(Path.cwd())
        else:
            prepare.pack(options.site)
    except (PageError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
