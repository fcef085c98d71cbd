"""Draws the drawings that repeat a pattern, from what their pages print: `make drawings`.

Each function below draws one file, docs/<part>/drawings/<its name>.svg, from the outputs of its page; a
drawing of masks is drawn from the functions of snippets/attention_masks.py. `tests/test_draw.py` says
that each file is what its page prints now. To draw another one, write another function.
"""

import json
import re
from collections.abc import Callable
from fractions import Fraction
from html import escape
from itertools import pairwise
from pathlib import Path

import torch

from book.drawing import STYLE
from literate.page import Block, Page, read
from snippets.attention_masks import (
    keep_documents,
    keep_past,
    keep_prefix,
    keep_sinks,
    keep_window,
)

ROOT = Path(__file__).parents[1]
SENTENCE = ["she", "rowed", "the", "boat", "to", "the", "bank"]
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" width="{}" font-size="15" \
text-anchor="middle" fill="currentColor">\n<style>{}</style>\n"""
LINES = {"fill": "none", "stroke": "currentColor", "stroke_width": 1.5}
DASHED = LINES | {"stroke_dasharray": "3 3"}
FILLED = {"class_": "accent", "fill": "currentColor"}
DRAWINGS: dict[
    str, tuple[str, Callable[[Page], "Drawing"]]
] = {}  # name → its page, and who draws it


class Drawing:
    """A drawing under way; x and y are those of an upper left corner, or of a word's middle."""

    def __init__(self, height: int, width: int = 440):
        self.parts = [HEAD.format(width, height, width, STYLE)]

    def add(self, tag: str, words: object = "", **attributes: object) -> None:
        """Add one element; `stroke_width=2` is its attribute stroke-width."""
        named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        written = "".join(f' {key}="{_said(value)}"' for key, value in named.items())
        self.parts.append(f"<{tag}{written}>{escape(_said(words))}</{tag}>\n")

    def words(
        self, row: list, x: float, y: float, step: float = 0, down: float = 0, **look: object
    ):
        """Write words beside each other, `step` apart, or `down` below each other."""
        for at, word in enumerate(row):
            self.add("text", word, x=x + at * step, y=y + at * down, **look)

    def cells(self, kept, x: float, y: float, size: float, gap: float = 0, **look: object) -> None:
        """Draw a square for each place of a matrix where `kept` is true."""
        for i, row in enumerate(kept):
            for j, one in enumerate(row):
                if one:
                    place = {"x": x + j * (size + gap), "y": y + i * (size + gap)}
                    self.add("rect", **place, width=size, height=size, **look)

    def table(self, rows: list, x: int, y: int, width: int, height: int, spoken=()) -> None:
        """Draw a table of numbers in cells of that size; `spoken` holds the places of which is spoken."""
        down, across = len(rows) * height, len(rows[0]) * width
        self.add("rect", **LINES, class_="soft", x=x, y=y, width=across, height=down)
        bars = "".join(f"M{x + j * width} {y}v{down}" for j in range(1, len(rows[0])))
        bars += "".join(f"M{x} {y + i * height}h{across}" for i in range(1, len(rows)))
        self.add("path", **LINES | {"stroke_width": 1}, d=bars)
        for i, row in enumerate(rows):
            for j, one in enumerate(row):
                look = {"class_": "accent"} if (i, j) in spoken else {}
                place = {"x": x + (j + 0.5) * width, "y": y + (i + 0.5) * height + 5}
                self.add("text", one, **place, **look)

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Frame what is spoken of."""
        frame = LINES | {"class_": "accent", "stroke_width": 3}
        self.add("rect", **frame, x=x, y=y, width=width, height=height)

    def arrow(self, x: int, y: int, right: int = 0, down: int = 0, **look: object) -> None:
        """Draw an arrow that goes so far to the right, or so far down."""
        line, head = (f"h{right - 8}", "l-10 -5v10z") if right else (f"v{down - 8}", "l-5 -10h10z")
        self.add("path", **LINES | look, d=f"M{x} {y}{line}")
        self.add("path", **{"fill": "currentColor"} | look, d=f"M{x + right} {y + down}{head}")

    def dial(self, x: float, y: float, radius: float) -> None:
        """Draw a dial, whose middle is at x and y; its mark is at the top."""
        self.add("circle", **LINES, class_="soft", cx=x, cy=y, r=radius)
        self.add("path", **LINES, d=f"M{x} {y - radius}v6")

    def hand(self, x: float, y: float, sine: float, cosine: float, length: float, **look: object):
        """Draw a hand that has turned to the right from the top by an angle of that sine and cosine."""
        end = f"{_said(x + length * sine)} {_said(y - length * cosine)}"
        self.add("path", **LINES | look, d=f"M{x} {y}L{end}")

    def __str__(self) -> str:
        return "".join([*self.parts, "</svg>\n"])


def _said(value: object) -> str:
    """Return a number as a drawing says it: few places, and a minus that is one."""
    if isinstance(value, float):
        value = f"{value:.1f}".removesuffix(".0")
    return str(value)


def whole(rows: list) -> list:
    """Return printed numbers without a point."""
    return [whole(one) if isinstance(one, list) else f"{one:.0f}".replace("-", "−") for one in rows]


def fraction(value: float) -> str:
    """Return a printed number as the fraction that it rounds: 1/3 for 0.33."""
    return str(Fraction(value).limit_denominator(9))


def tensors(page: Page, code: str) -> list:
    """Return, as lists, the tensors that the block of `page` prints in which `code` stands."""
    output = _block(page, code).output
    return _lists(output.text if output else "")


def written(page: Page, code: str) -> list:
    """Return, as lists, the tensors that this block writes as numbers."""
    return _lists(re.sub("#.*", "", _block(page, code).code))


def _block(page: Page, code: str) -> Block:
    found = [block for block in page.blocks if block.output and code in block.code]
    if len(found) != 1:
        raise LookupError(f"{page.name}: {len(found)} blocks that print hold `{code}`, not one")
    return found[0]


def _lists(text: str) -> list:
    """Return each `tensor([…])` in `text` as a list."""
    found = re.findall(r"tensor\(\s*(\[.*?\])\s*\)", text, re.DOTALL)
    numbers = [re.sub(r"(\d)\.(?!\d)", r"\1.0", re.sub(r",\s*\]", "]", one)) for one in found]
    return [json.loads(one.replace("inf", "Infinity")) for one in numbers]


def drawing(page: str):
    """Return a decorator of what draws, for docs/`page`, the drawing of its own name."""

    def named(draw: Callable[[Page], Drawing]) -> Callable[[Page], Drawing]:
        name = draw.__name__.replace("_", "-")
        DRAWINGS[f"{Path(page).parent}/drawings/{name}.svg"] = page, draw
        return draw

    return named


@drawing("foundations/averaging.md")
def averaging_steps(page: Page) -> Drawing:
    _, shares = tensors(page, "print(shares)\nfor x in (river, money):")
    made = Drawing(304)
    made.words(["what it takes of each word"], 248, 20)
    made.words(SENTENCE, 92, 48, 52)
    made.words(SENTENCE[:-1], 58, 82, down=34, text_anchor="end")
    made.words(SENTENCE[-1:], 58, 286, text_anchor="end", font_weight="bold")
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            place = {"x": 67 + 52 * j, "y": 61 + 34 * i, "width": 50, "height": 32}
            if share:
                made.add("rect", **FILLED, fill_opacity=f"{0.14 + share / 2:.2f}", **place)
                made.add("text", fraction(share), x=92 + 52 * j, y=82 + 34 * i)
            else:
                made.add("rect", **DASHED | {"stroke_width": 1}, stroke_opacity=".4", **place)
    return made


@drawing("foundations/averaging.md")
def averaging_product(page: Page) -> Drawing:
    shares, means = tensors(page, "print(shares @ first)")
    sums = [[0, 0, 0], *([count * one for one in row] for count, row in enumerate(means, 1))]
    river = [[round(b - a) for a, b in zip(*pair, strict=True)] for pair in pairwise(sums)]
    made = Drawing(244)
    tables = ("shares", shares, 58, 34), ("words", river, 218, 28), ("means", means, 326, 36)
    for name, rows, x, width in tables:
        middle, shape = x + len(rows[0]) * width / 2, f"({len(rows)}, {len(rows[0])})"
        made.words([name, shape], middle, 20, down=20)
        spoken = {"shares": [(3, j) for j in range(4)], "words": [(i, 0) for i in range(4)]}
        cells = [[fraction(one) for one in row] for row in rows]
        made.table(cells, x, 52, width, 36, spoken.get(name, [(3, 0)]))
    made.words(SENTENCE[:4], 50, 75, down=36, text_anchor="end")
    made.words("@=", 206, 129, 108, font_size=18)
    made.frame(58, 160, 136, 36)
    made.frame(218, 52, 28, 144)
    made.frame(326, 160, 36, 36)
    terms = [f"{fraction(a)} · {row[0]}" for a, row in zip(shares[3], river, strict=True)]
    made.words([f"{' + '.join(terms)} = {fraction(means[3][0])}"], 220, 228, class_="accent")
    return made


@drawing("foundations/dot-product.md")
def dot_asks(page: Page) -> Drawing:
    ((*scores,),) = tensors(page, "scores_bank = river @ bank")
    *_, weights = tensors(page, "print(weights)")[0]
    made = Drawing(222)
    for at, weight in enumerate(weights):
        line = LINES | FILLED | {"fill": "none", "stroke_width": max(1.0, 30 * weight)}
        opacity = f"{min(1, 0.35 + 1.25 * weight):.2f}"
        made.add(
            "path",
            **line,
            stroke_linecap="round",
            stroke_opacity=opacity,
            d=f"M{103 + 51 * at} 102L256 182",
        )
    bold = [{"font_weight": "bold"} if weight == max(weights) else {} for weight in weights]
    for at, word in enumerate(SENTENCE):
        made.words([word], 103 + 51 * at, 24, **bold[at])
        made.words(whole([scores[at]]), 103 + 51 * at, 56)
        made.words([f"{weights[at]:.2f}"], 103 + 51 * at, 88, class_="accent", **bold[at])
    made.words(["word", "score"], 8, 24, down=32, text_anchor="start")
    made.words(["weight"], 8, 88, text_anchor="start", class_="accent")
    box = LINES | {"fill": "var(--md-default-bg-color)"}
    made.add("rect", **box, x=116, y=176, width=280, height=40, rx=6)
    made.words(["bank asks: who is like me?"], 256, 201)
    made.add("path", **LINES, stroke_opacity=".3", d="M8 66H436")
    return made


@drawing("start/pytorch.md")
def start_table(page: Page) -> Drawing:
    (words,) = tensors(page, "print(words)\nprint(words.shape)")
    made = Drawing(260)
    made.table(whole(words), 126, 76, 64, 36, spoken=[(2, 0), (3, 0), (3, 1), (3, 2)])
    made.frame(126, 184, 192, 36)
    made.frame(126, 148, 64, 36)
    made.arrow(126, 34, right=192)
    made.arrow(32, 76, down=144)
    made.words(["dim 1: three columns"], 222, 22)
    made.words(["dim 0:", "four rows"], 12, 46, down=19, text_anchor="start")
    made.words(["water", "money", "person"], 158, 66, 64)
    made.words(["she", "rowed", "boat", "bank"], 118, 99, down=36, text_anchor="end")
    spoken = {"class_": "accent", "text_anchor": "start"}
    made.words(["words[2, 0]", "words[3]"], 328, 171, down=36, **spoken)
    shape = f"({len(words)}, {len(words[0])})"
    made.words([f"shape {shape}: four words, three channels each"], 222, 248)
    return made


@drawing("start/pytorch.md")
def start_product(page: Page) -> Drawing:
    (words,) = tensors(page, "print(words)\nprint(words.shape)")
    (votes,), (W,) = tensors(page, "print(votes)"), written(page, "print(votes)")
    made = Drawing(394)
    made.table(whole(words), 70, 190, 42, 34, [(2, 0), (2, 1), (2, 2)])
    made.table(whole(W), 276, 62, 66, 34, [(0, 0), (1, 0), (2, 0)])
    made.table(whole(votes), 276, 190, 66, 34, [(2, 0)])
    made.frame(70, 258, 126, 34)
    made.frame(276, 62, 66, 102)
    made.frame(276, 258, 66, 34)
    made.arrow(200, 275, right=72, class_="accent")
    made.words([f"words ({len(words)}, {len(words[0])})"], 133, 178)
    made.words([f"W ({len(W)}, {len(W[0])})"], 342, 26)
    made.words([f"words @ W ({len(votes)}, {len(votes[0])})"], 342, 350)
    made.words(["orilla"], 309, 53, class_="accent")
    made.words(["banco"], 375, 53)
    made.words(["water", "money", "person"], 268, 84, down=34, text_anchor="end")
    made.words(["she", "rowed", "boat", "bank"], 62, 212, down=34, text_anchor="end")
    factors = zip(whole(words[2]), whole([row[0] for row in W]), strict=True)
    terms = [f"{a} · ({b})" if b.startswith("−") else f"{a} · {b}" for a, b in factors]
    made.words([f"{' + '.join(terms)} = {whole(votes[2])[0]}"], 220, 380, class_="accent")
    return made


@drawing("start/pytorch.md")
def start_dim(page: Page) -> Drawing:
    (words,) = tensors(page, "print(words)\nprint(words.shape)")
    down, across, _ = tensors(page, "print(words.sum(dim=0))")
    made = Drawing(264)
    made.table(whole(words), 62, 40, 62, 34)
    made.table([whole(down)], 62, 218, 62, 34)
    made.table([[one] for one in whole(across)], 290, 40, 50, 34, [(row, 0) for row in range(4)])
    made.frame(290, 40, 50, 136)
    for column in range(3):
        made.arrow(93 + 62 * column, 181, down=33)
    for row in range(4):
        made.arrow(253, 57 + 34 * row, right=33, class_="accent")
    made.words(["water", "money", "person"], 93, 30, 62)
    made.words(["she", "rowed", "boat", "bank"], 54, 62, down=34, text_anchor="end")
    spoken = {"class_": "accent", "text_anchor": "start"}
    made.words(["dim=1:", f"shape ({len(across)},)"], 350, 102, down=21, **spoken)
    made.words([f"dim=0: shape ({len(down)},)"], 262, 240, text_anchor="start")
    return made


@drawing("start/pytorch.md")
def start_fit(page: Page) -> Drawing:
    (added,) = tensors(page, "print(column + row)")
    column, across = written(page, "print(column + row)")
    down = [one for (one,) in column]
    made = Drawing(160)
    repeated = (9, [[one] * 3 for one in down], "column"), (164, [across] * 2, "row")
    for x, rows, name in repeated:
        for i, row in enumerate(whole(rows)):
            for j, one in enumerate(row):
                own = j == 0 if name == "column" else i == 0
                look = {"class_": "accent"} if own else {}
                line = (
                    {"stroke_width": 3} if own else {"stroke_width": 1, "stroke_dasharray": "3 4"}
                )
                place = {"x": x + 38 * j, "y": 45 + 38 * i, "width": 36, "height": 36}
                made.add("rect", **LINES | line | look, **place)
                made.words([one], x + 18 + 38 * j, 68 + 38 * i, **look)
    made.table(whole(added), 318, 44, 38, 38)
    made.words("+=", 142, 88, 155, font_size=20)
    shapes = [f"column ({len(down)}, 1)", f"row ({len(across)},)"]
    made.words(shapes, 65, 28, 155, class_="accent")
    made.words([f"table ({len(added)}, {len(added[0])})"], 375, 28)
    made.words(["repeated →", "repeated ↓"], 65, 146, 155)
    return made


@drawing("correctness/order.md")
def order_clocks(page: Page) -> Drawing:
    (places,) = tensors(page, "print(sinusoids(10, 16)[:, :6])")
    made = Drawing(264)
    for place in range(3):
        made.words([f"position {place}"], 146 + 110 * place, 22)
        for clock in range(3):
            x, y, at = 146 + 110 * place, 70 + 78 * clock, slice(2 * clock, 2 * clock + 2)
            made.dial(x, y, 30)
            if place:
                made.hand(x, y, *places[place - 1][at], 24, stroke_dasharray="3 3")
            thick = {"class_": "accent", "stroke_width": 3, "stroke_linecap": "round"}
            made.hand(x, y, *places[place][at], 26, **thick)
    for clock, turn in enumerate(("a sixth", "a twentieth", "a sixtieth")):
        made.words([f"pair {clock}"], 50, 66 + 78 * clock)
        made.words([turn, "of a turn"], 50, 86 + 78 * clock, down=17)
    return made


@drawing("correctness/masks.md")
def masks(page: Page) -> Drawing:
    causal, real = keep_past(4), torch.tensor([True, True, True, False]).expand(4, 4)
    named = ("causal", causal), ("padding", real), ("both", causal & real)
    made = Drawing(196)
    for at, (name, kept) in enumerate(named):
        _mask(made, kept, 10 + 154 * at, 30, 28)
        made.words([name], 66 + 154 * at, 20)
    made.words("&=", 143, 92, 154, font_size=22)
    made.words(["row: a query; filled: a key that it may see"], 220, 172)
    return made


@drawing("production/masks.md")
def who(page: Page) -> Drawing:
    window = keep_window(3, 6)
    prefix = keep_prefix(torch.tensor([3]), 6)[0, 0]
    documents = keep_documents(torch.tensor([[0, 0, 0, 1, 1, 1]]))[0, 0] & keep_past(6)
    named = ("window", window), ("and a sink", window | keep_sinks(1, 6))
    made = Drawing(156)
    for at, (name, kept) in enumerate([*named, ("prefix", prefix), ("documents", documents)]):
        _mask(made, kept, 8 + 111 * at, 30, 15)
        made.words([name], 53 + 111 * at, 20)
    made.words(["row: a query; filled: a key that it may see"], 220, 148)
    return made


@drawing("correctness/cross-attention.md")
def cross_places(page: Page) -> Drawing:
    encoder, decoder = torch.ones(4, 4, dtype=torch.bool), keep_past(3)
    across = torch.ones(3, 4, dtype=torch.bool)
    made = Drawing(216)
    columns = (
        ("encoder", encoder, 30, "source", "source", "all see all"),
        ("decoder", decoder, 189, "written", "written", "future hidden"),
        ("cross-attention", across, 326, "written", "source", "all see all"),
    )
    for name, kept, x, asks, answers, seen in columns:
        rows, width = kept.shape[0], kept.shape[1] * 24
        made.cells(~kept, x, 62, 24, **DASHED)
        made.cells(kept, x, 62, 24, **LINES | FILLED, fill_opacity=0.5)
        middle = x + width / 2
        made.words([name], middle, 17, font_weight="bold")
        made.words([f"{answers} answers"], middle, 41)
        made.words([f"({rows}, {kept.shape[1]})", seen], middle, 184, down=22)
        turned = f"translate({x - 10} {62 + rows * 12}) rotate(-90)"
        made.add("text", f"{asks} asks", transform=turned)
    return made


@drawing("production/kv-cache.md")
def cache(page: Page) -> Drawing:
    steps = 5
    made = Drawing(214)
    all_keys, newest = keep_past(steps), torch.eye(steps, dtype=torch.bool)
    made.cells(all_keys, 30, 40, 24, 2, **LINES | FILLED)
    made.cells(all_keys & ~newest, 270, 40, 24, 2, **DASHED)
    made.cells(newest, 270, 40, 24, 2, **LINES | FILLED)
    made.words(["without a cache", "with a cache"], 94, 24, 240)
    kept = (all_keys & ~newest).sum()
    counts = " + ".join(str(step + 1) for step in range(steps))
    made.words([f"{counts} keys", f"{steps} keys computed, {kept} kept"], 94, 196, 240)
    return made


@drawing("production/gates-and-sinks.md")
def sinks(page: Page) -> Drawing:
    made = Drawing(326)
    told = "no word of this sentence tells which bank is meant:"
    made.words([told, "how much weight does bank give to each word?"], 220, 18, down=19)
    rows = (
        ("without a sink: all of the weight is on words", "plain = ", 132),
        ("with a sink: it takes most of the weight", 'head = trained["sink"]', 278),
    )
    for name, code, floor in rows:
        (line,) = re.findall(r"^she \S+ took .*", _block(page, code).output.text, re.MULTILINE)
        shares = [(word, float(share)) for word, share in re.findall(r"(\w+) (\d\.\d\d)", line)]
        tallest = max(round(64 * share) for _, share in shares)
        made.words([name], 6, floor - tallest - 32, text_anchor="start", font_weight="bold")
        for place, (word, share) in enumerate(shares):
            x, height = 8 + 53 * place, max(2, round(64 * share))
            look = {"class_": "accent"} if word == "sink" else {}
            x += 8 if word == "sink" else 0
            made.add(
                "rect", **look, fill="currentColor", x=x, y=floor - height, width=38, height=height
            )
            if share > 0.03:  # the other bars are nearly nothing
                made.words([f"{share:.2f}"], x + 19, floor - height - 5, **look)
            made.words([word], x + 19, floor + 18, **look)
        made.add("path", **LINES, d=f"M4 {floor}H374")
    made.add("path", **LINES | FILLED | {"fill": "none"}, d="M383 278H434")
    made.words(
        ["sink: a learned number and no word; it adds nothing"],
        434,
        318,
        text_anchor="end",
        class_="accent",
    )
    return made


@drawing("production/vision.md")
def vision(page: Page) -> Drawing:
    block = _block(page, "image, things, places = pictures(1, 4, 6)")
    lines = [line.split() for line in block.output.text.splitlines() if line]  # 16 of 6 pieces
    drawn = re.findall(r'^ +"(\w+)": "([.# ]+)",$', block.code, re.MULTILINE)
    names = {tuple(pixels.replace(".", "·").split()): name for name, pixels in drawn}
    tiles = [
        [tuple(line[j] for line in lines[4 * i : 4 * i + 4]) for j in range(6)] for i in range(4)
    ]
    things = [[names.get(tile) for tile in row] for row in tiles]
    ((row, column),) = [(i, j) for i in range(4) for j in range(6) if things[i][j] == "boat"]
    below, left, top = things[row + 1][column], 92, 36
    x, y = left + 42 * column, top + 54 * row
    made = Drawing(286)
    made.words(["what is below the boat?"], 6, 20, text_anchor="start", font_weight="bold")
    for i in range(4):
        for j in range(6):
            spoken = (i, j) in {(row, column), (row + 1, column)}
            look = {} if spoken else {"fill_opacity": ".35"}
            _tile(made, tiles[i][j], left + 42 * j, top + 54 * i, 9, **look)
    for i, (pixels, name) in enumerate(names.items()):
        _tile(made, pixels, 360, top + 43 * i, 6)
        made.words([name], 393, top + 43 * i + 17, text_anchor="start")
    made.frame(x - 1, y - 1, 39, 39)
    made.words(["the word", "boat"], 38, y + 15, down=18)
    under = {"stroke": "var(--md-default-bg-color)", "stroke_width": 9}
    made.add("path", **LINES | under, d=f"M78 {y + 18}H{x - 5}")
    made.arrow(78, y + 18, right=x - 81, class_="accent", stroke_width=2.5)
    made.arrow(x + 18, y + 39, down=15, class_="accent", stroke_width=2.5)
    said = "the word boat looks at the patch that shows the boat;"
    made.words([said, f"this patch has read the patch below it: {below}"], 220, 258, down=20)
    return made


def _tile(made: Drawing, pixels: tuple, x: int, y: int, size: int, **look: object) -> None:
    """Draw a patch of four by four pixels, each a square of that size."""
    made.add("rect", class_="soft", x=x, y=y, width=4 * size + 1, height=4 * size + 1)
    filled = [[pixel == "#" for pixel in line] for line in pixels]
    made.cells(filled, x + 0.5, y + 0.5, size, **look)


@drawing("production/many-devices.md")
def ring_zigzag(page: Page) -> Drawing:
    (in_a_row,) = tensors(page, "print(scores_needed(in_a_row))")
    _, zigzag = tensors(page, "print(scores_needed(zigzag))")
    made = Drawing(322)
    said = ["a text of 32 tokens in eight pieces, from first to last:"]
    made.words([*said, "each number is the device that holds the piece"], 220, 18, down=19)
    said = ["pairs of query and key that each device computes"]
    made.words([*said, "when no query reads a later token:"], 220, 136, down=19)
    cuts = (
        ("in a row", in_a_row, [piece // 2 for piece in range(8)], 6),
        ("zig-zag", zigzag, [min(piece, 7 - piece) for piece in range(8)], 234),
    )
    for name, scores, devices, x in cuts:
        made.words([name], x, 66, text_anchor="start", font_weight="bold")
        for piece, device in enumerate(devices):
            place = {"x": x + 25 * piece, "y": 76, "width": 25, "height": 30}
            made.add("rect", **LINES, **place)
            if device == 0:
                made.add("rect", **FILLED, fill_opacity=".2", **place)
            look = {"class_": "accent"} if device == 0 else {}
            made.words([device], place["x"] + 12.5, 96, **look)
        pairs = [sum(row) for row in scores]
        for device, count in enumerate(pairs):
            look, y = {"class_": "accent"} if device == 0 else {}, 172 + 25 * device
            made.words([f"device {device}"], x, y + 14, text_anchor="start", **look)
            long = 0.42 * count
            made.add("rect", **look, fill="currentColor", x=x + 72, y=y, width=long, height=18)
            made.words([f"{count:.0f}"], x + 77 + long, y + 14, text_anchor="start", **look)
        late = [device for device, count in enumerate(pairs) if count == max(pairs)]
        terms = " + ".join(f"{count:.0f}" for count in pairs)
        total, most = f"{sum(pairs):.0f}", f"{max(pairs):.0f}"
        said = [f"{terms} = {total}", f"all wait for device {late[-1]}"]
        if len(late) == len(pairs):
            said = [f"{len(late)} · {most} = {total}", "none waits for another"]
        made.words(said, x + 106, 290, down=22)
    return made


@drawing("examples/averages.md")
def avg(page: Page) -> Drawing:
    (even,) = tensors(page, "print(even)")
    (chosen,) = tensors(page, "print(weights[0])")
    made = Drawing(244)
    for x, weights in ((8, even), (242, chosen)):
        for i, row in enumerate(weights):
            for j, weight in enumerate(row):
                place = {"x": x + 24 * j, "y": 48 + 24 * i, "width": 22, "height": 22}
                if j > i:
                    made.add("rect", class_="soft", **place)
                else:
                    made.add("rect", **FILLED, fill_opacity=f"{weight**0.7:.2f}", **place)
    made.words(["an average: every row", "shares evenly"], 103, 20, down=19)
    made.words(["a head: queries and keys", "make the shares"], 337, 20, down=19)
    return made


def _mask(made: Drawing, kept: torch.Tensor, x: int, y: int, size: int) -> None:
    """Draw a mask as a grid, filled where it keeps."""
    made.cells(kept, x, y, size, **FILLED)
    made.cells(torch.ones_like(kept), x, y, size, **LINES | {"stroke_width": 1.2})


def main() -> None:
    """Draw what has changed, and give every drawing the style of now."""
    for path in sorted((ROOT / "docs").glob("*/drawings/*.svg")):
        text = path.read_text(encoding="utf-8")
        styled = re.sub(r"<style>.*?</style>", f"<style>{STYLE}</style>", text)
        if styled != text:
            path.write_text(styled, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: its style")
    for name, (page, draw) in DRAWINGS.items():
        path, text = ROOT / "docs" / name, str(draw(read(ROOT / "docs" / page)))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: drawn")


if __name__ == "__main__":
    main()
