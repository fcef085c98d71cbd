"""Damage every output of the book and count what the checker catches.

`python -m tools.mutants` (`make mutants`) runs each page once, then changes one thing in one
output at a time, reads the damaged page as the checker does, and judges it by what the code printed.
A mutant is caught when the block fails at a line of the damaged output, and where one line was changed,
at that line. Of each kind of damage two examples are tried in each output, or with `--all` every one:
every number, bracket, word, run of blanks, caret, column and line of the book. Nothing is excused; what leaves
every value as it was (the sign of a zero, two equal numbers swapped) is no damage.

Then it does the same to the numbers of the text, of two significant digits or more: every digit of every
number becomes every other one, any two numbers of a paragraph change places, and a percent sign is added
or deleted. Here it says what share is noticed, since a wrong number may happen to be another of the page.
"""

import itertools
import os
import random
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from book.figures.matrices import computed_cells
from literate import compare, prose
from literate.numerals import numerals
from literate.page import PageError, pages, read
from literate.run import Run

ROOT = Path(__file__).parents[1]
LARGE = 2  # significant digits from which on a number of the text is damaged
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.]*\w)")


@dataclass(frozen=True)
class Mutant:
    """A page with one output damaged: the damage, the output's new lines, and where a failure may point."""

    kind: str
    block: int
    body: list[str]
    lines: range

    def text(self, page):
        """Return the text of `page` with this damage."""
        fence, lines = page.steps[self.block].output, page.text.split("\n")
        lines[fence.line : fence.end - 1] = [(fence.prefix + line).rstrip() for line in self.body]
        return "\n".join(lines)


def mutants(page, seed=0):
    """Yield every Mutant of `page`; which digit, letter or blank changes is drawn from `seed`."""
    draw = random.Random(seed)
    for index, block in enumerate(page.steps):
        if not block.output or not block.is_output:  # labels are compared as they are
            continue
        fence = block.output
        lines = fence.text.rstrip("\n").split("\n")
        if fence.language == "attention":
            yield from _of_figure(index, fence, draw)
            continue
        for at, line in enumerate(lines):
            exactly = range(fence.line + 1 + at, fence.line + 2 + at)
            for kind, changed in (
                *_renumbered(line, draw),
                *_reworded(line, draw),
                *_moved(line, draw),
            ):
                body = [*lines[:at], changed, *lines[at + 1 :]]
                yield Mutant(kind, index, body, exactly)
            somewhere = range(fence.line, fence.end + 2)
            if any(lines[at:]) and (len(lines) > 1 or line):
                shorter = lines[:at] + lines[at + 1 :]
                yield Mutant("line deleted", index, shorter, somewhere)
                longer = lines[: at + 1] + lines[at:]
                yield Mutant("line added", index, longer, somewhere)
        for changed in _reversed_columns(lines):
            yield Mutant("column reversed", index, changed, somewhere)


def _of_figure(index, fence, draw):
    """Yield a mutant for each number that the figure in `fence` computes."""
    for cell in computed_cells(fence.text):
        at, column = cell.start_mark.line, cell.start_mark.column
        body = fence.text.rstrip("\n").split("\n")
        changed = _other_digit(cell.value, draw)
        body[at] = body[at][:column] + changed + body[at][column + len(cell.value) :]
        exactly = range(fence.line + 1 + at, fence.line + 2 + at)
        yield Mutant("digit of a figure", index, body, exactly)


def _other_digit(number, draw):
    """Return `number` with another digit in one place before the last printed one."""
    place = draw.choice(_places(number))
    other = draw.choice([d for d in "0123456789" if d != number[place]])
    return number[:place] + other + number[place + 1 :]


def _renumbered(line, draw):
    """Yield (kind, damaged line) for the numbers of `line`."""
    numbers = list(NUMBER.finditer(line))
    for number in numbers:
        for kind, places in (("digit", _places), ("exact digit", _exact_places)):
            if places := places(number[0]):
                place = draw.choice(places)
                other = draw.choice([d for d in "0123456789" if d != number[0][place]])
                changed = number[0][:place] + other + number[0][place + 1 :]
                yield kind, _put(line, number, changed)
        yield "number dropped", _put(line, number, "")
        if float(number[0]) or "." not in number[0]:
            flipped = number[0][1:] if number[0][0] == "-" else "-" + number[0]
            yield "sign flipped", _put(line, number, flipped)
    for first, second in itertools.pairwise(numbers):
        if float(first[0]) != float(second[0]):
            swapped = second[0] + line[first.end() : second.start()] + first[0]
            yield "numbers swapped", line[: first.start()] + swapped + line[second.end() :]


def _reworded(line, draw):
    """Yield (kind, damaged line) for the brackets and words of `line`."""
    for bracket in re.finditer(r"[\[\](){}]", line):
        yield "bracket removed", _put(line, bracket, "")
    for word in re.finditer(r"[A-Za-z]{2,}", line):
        place = draw.randrange(len(word[0]))
        letter = draw.choice([a for a in "abcdefghijklmnopqrstuvwxyz" if a != word[0][place]])
        yield "word altered", _put(line, word, word[0][:place] + letter + word[0][place + 1 :])


def _moved(line, draw):
    """Yield (kind, damaged line) for the layout of `line`: blanks, and what stands between them."""
    for blanks in re.finditer(" +", line):
        yield "blank added", _put(line, blanks, blanks[0] + " ")
        yield "blank removed", _put(line, blanks, blanks[0][1:])
    for word in re.finditer(r"(?<= )\S+(?= )", line):
        yield "value moved", line[: word.start() - 1] + word[0] + " " + line[word.end() :]
    for caret in re.finditer(r"(?<= )[\^~]+|^[\^~]+$", line):
        yield "caret moved", _put(line, caret, " " + caret[0])


def _reversed_columns(lines):
    """Yield the lines with one column of numbers turned upside down, as far as rows are alike."""
    rows = [list(NUMBER.finditer(line)) for line in lines]
    for count, group in itertools.groupby(range(len(lines)), lambda at: len(rows[at])):
        at = list(group)
        for column in range(count):
            values = [rows[i][column][0] for i in at]
            if [float(value) for value in values] != [float(value) for value in values[::-1]]:
                changed = list(lines)
                for i, value in zip(at, values[::-1], strict=True):
                    changed[i] = _put(lines[i], rows[i][column], value)
                yield changed


def _put(line, match, text):
    return line[: match.start()] + text + line[match.end() :]


def _places(number):
    """Return the places of the digits before the last printed one; all of a whole number's."""
    mantissa, _, _ = number.partition("e")
    digits = [i for i, letter in enumerate(mantissa) if letter.isdigit()]
    return digits[:-1] if mantissa.partition(".")[2] else digits


def _exact_places(number):
    """Return the places of digits that no rounding moves: of a power, and of a number of one digit."""
    mantissa, _, _ = number.partition("e")
    power = range(len(mantissa) + 2, len(number))
    counted = mantissa.replace(".", "").lstrip("-0")
    return [*power, len(mantissa) - 1] if len(counted) < 2 and mantissa[-1] != "." else [*power]


class Laboratory:
    """A copy of the book in which one page is damaged at a time."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("snippets", "mkdocs.yml", "pyproject.toml", "requirements.txt"):
            (self.folder / name).symlink_to(ROOT / name)
        for drawings in (ROOT / "docs").glob("*/drawings"):
            linked = self.folder / drawings.relative_to(ROOT)
            linked.parent.mkdir(parents=True)
            linked.symlink_to(drawings)

    def caught(self, page, results, mutant):
        """Say whether the checker fails the damaged page, and at the right line."""
        path = self.folder / page.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(mutant.text(page), encoding="utf-8")
        try:
            damaged = read(path)
        except PageError as error:
            return error.line in range(mutant.lines.start - 1, mutant.lines.stop + 1)
        failure = compare.check(damaged, damaged.steps[mutant.block], results[mutant.block])
        return failure is not None and failure.line in mutant.lines


def outcomes(page):
    """Run `page` once and return its results."""
    run = Run(page)
    try:
        return run.all()
    finally:
        run.close()


def chosen(page, most):
    """Return up to `most` mutants of each kind in each output of `page`, spread over the output."""
    groups = {}
    for mutant in mutants(page):
        groups.setdefault((mutant.block, mutant.kind), []).append(mutant)
    return [m for group in groups.values() for m in group[:: -(-len(group) // most)]]


def survey(books, most=2, every=1, quiet=False):
    """Return (how many were caught, what was not, how many of each kind) over the pages `books`.

    Of the `most` examples of each kind in each output, one in `every` is tried.
    """
    caught, missed, kinds = 0, [], {}
    trials = [(page, mutant) for page in books for mutant in chosen(page, most)][::every]
    results = {page.name: outcomes(page) for page in books}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        laboratory = Laboratory(folder)
        for page, mutant in tqdm(trials, unit="mutant", disable=quiet):
            kinds[mutant.kind] = kinds.get(mutant.kind, 0) + 1
            if laboratory.caught(page, results[page.name], mutant):
                caught += 1
            else:
                missed.append((page, mutant))
    return caught, missed, kinds


@dataclass
class Tally:
    """How many numerals stand in a text, and how many mutants of them were tried and noticed."""

    numerals: int = 0
    large: int = 0  # of two significant digits or more
    held: int = 0  # of these, by a rule
    by_hand: int = 0
    digits: tuple[int, int] = (0, 0)  # tried, noticed
    exchanges: tuple[int, int] = (0, 0)
    percents: tuple[int, int] = (0, 0)

    def add(self, kind, noticed):
        """Count one mutant of a `kind`."""
        tried, found = getattr(self, kind)
        setattr(self, kind, (tried + 1, found + bool(noticed)))


def survey_of_text(books, every=1):
    """Return the Tally of the text of the pages `books`; one mutant in `every` is tried."""
    tally, turn = Tally(), itertools.cycle(range(every))
    for page in books:
        for paragraph in prose.paragraphs(prose.text_of(page)):
            _survey_paragraph(paragraph, tally, turn)
    return tally


def _survey_paragraph(paragraph, tally, turn):
    known = len(list(paragraph.complaints()))
    whole = list(numerals(paragraph.prose))
    large = [one for one in whole if one.significant >= LARGE]
    tally.numerals += len(whole)
    tally.large += len(large)
    tally.held += len(large) - min(known, len(large))
    for span in prose.SILENT.finditer(paragraph.lines):
        for one in numerals(re.sub(r"<[^>]*>", lambda tag: " " * len(tag[0]), span[0])):
            tally.numerals += 1
            if 'class="by-hand"' in span[0]:
                tally.by_hand += 1
                if one.significant >= LARGE:
                    tally.large += 1
                    for _ in _other_digits(one.text):
                        if not next(turn):
                            tally.add("digits", noticed=False)

    def tried(kind, *replacements):
        if not next(turn):
            wrong = paragraph
            for one, new in replacements:  # from the end, so that the places before hold
                wrong = wrong.replaced(one.start, one.start + len(one.text), new)
            tally.add(kind, len(list(wrong.complaints())) > known)

    for one in large:
        for changed in _other_digits(one.text):
            tried("digits", (one, changed))
        bare = re.sub(r"\s?\\?%$|\sper\scent$", "", one.text)
        tried("percents", (one, bare if bare != one.text else f"{bare} %"))
    for first, second in itertools.combinations(large, 2):
        if abs(first.value) != abs(second.value):
            tried("exchanges", (second, first.text), (first, second.text))


def _other_digits(number):
    """Yield `number` with another digit in each place, in every way."""
    for place, letter in enumerate(number):
        if letter.isdecimal() and letter.isascii():
            for digit in "0123456789":
                if digit != letter:
                    yield number[:place] + digit + number[place + 1 :]


def main(arguments=()):
    """Print what was done to the book and what was caught; return 1 if anything was not."""
    books = [page for page in map(read, pages(ROOT)) if page.blocks]
    most = sys.maxsize if "--all" in arguments else 2
    caught, missed, kinds = survey(books, most, quiet=not sys.stderr.isatty())
    for kind, count in sorted(kinds.items()):
        print(f"{count:6} {kind}")
    for page, mutant in missed:
        line = mutant.text(page).split("\n")[mutant.lines.start - 1]
        print(f"not caught: {page.name}:{mutant.lines.start}: {mutant.kind}: {line}")
    total = caught + len(missed)
    print(f"caught {caught} of {total}")
    tally = survey_of_text(list(map(read, pages(ROOT))))
    print(f"{tally.numerals} numerals in the text, {tally.large} of two digits or more: ", end="")
    print(f"{tally.held} held, {tally.by_hand} by hand")
    for kind in ("digits", "exchanges", "percents"):
        tried, noticed = getattr(tally, kind)
        print(f"{noticed / tried:6.1%} of {tried} wrong {kind} noticed")
    return 0 if total and not missed else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
