"""Writes the facts of docs/serving/models/ into the page that counts with them: `python -m tools.gallery`.

A page runs wherever its reader is, so it holds what it counts with. Sources stay in the files.
"""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs/serving/models"
PAGE = FOLDER.parent / "gallery.md"
SAID = ("name", "family", "year", "parameters", "config")
BLOCK = re.compile(r'^( *)facts = """\\\n.*?^ *"""', re.MULTILINE | re.DOTALL)
WIDEST = 96


def models():
    """Return what the files say, family after family, and in each by year and size."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    return sorted(
        found, key=lambda one: (one["family"].lower(), one["year"], size(one), one["name"])
    )


def size(model):
    """Return the published number of parameters, in billions."""
    return float(model["parameters"].removesuffix("B"))


def wrapped(model):
    """Return what the page needs of a model as JSON, in lines that are broken after a comma."""
    lines = [""]
    for part in json.dumps({key: model[key] for key in SAID}).split(", "):
        if len(lines[-1]) + len(part) > WIDEST:
            lines.append("")
        lines[-1] += f"{part}, "
    return "\n".join(line.rstrip() for line in lines).removesuffix(",")


def written(page):
    """Return the text of the page with the facts of all files in it."""
    facts = "[\n" + ",\n".join(map(wrapped, models())) + "\n]\n"

    def block(match):
        lines = ['facts = """\\', *facts.splitlines(), '"""']
        return "\n".join(match[1] + line for line in lines)

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
