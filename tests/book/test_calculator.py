"""The calculator reckons as cost.py does, at every setting, and says which line of its text is wrong."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from book.figures import FigureError, calculator
from literate.page import read
from snippets.attention_of import attention_of
from snippets.cost import CARDS, PRECISIONS, Run, model_of
from tests.snippets.test_cost import MODELS

PAGE = Path("docs/serving/calculator.md")
SCRIPT = Path(calculator.__file__).with_name("cost.js")
# Runs the script without a page, and asks it what stands on standard input.
ASK = """
globalThis.HTMLElement = class {};
globalThis.document = {};
globalThis.customElements = { get() {}, define(name, element) { globalThis.cost = element.cost; } };
require(process.argv[1]);
const { models, cards, precisions, runs } = JSON.parse(require("fs").readFileSync(0));
for (const model of models) for (const list of ["layers", "mlps"]) model[list] = cost.named(model[list]);
console.log(JSON.stringify(runs.map(([name, card, precision, count, prompt, answer, texts]) => {
  const model = models.find((model) => model.name === name);
  const given = { card: cards[card], precision: precisions[precision], cards: count };
  const run = { model, ...given, room: 0.9, delay: 10e-6, slow_step: 1.5, slow_prompt: 1.25 };
  return [
    ...Object.values(cost.rows(run, texts, 1, prompt)).flat(), cost.step(run, texts, prompt), cost.first_token(run, prompt),
    cost.fits(run, prompt), cost.in_time(run, prompt, answer, 0.03), cost.gap(run, prompt, answer, texts),
    cost.price(run, prompt, answer, texts, 2.5),
  ];
})));
"""


def printed():
    """What the page prints for its calculator."""
    return next(
        block.output.text
        for block in read(PAGE).blocks
        if block.output and "calculator" in block.output.options
    )


def reckoned(model, card, precision, cards, prompt, answer, texts):
    """The same numbers by cost.py."""
    run = Run(model, CARDS[card], PRECISIONS[precision], cards, slow_step=1.5, slow_prompt=1.25)
    rows = run.rows(texts, 1, prompt).values()
    return [
        *itertools.chain(*rows), run.step(texts, prompt), run.first_token(prompt),
        run.fits(prompt), run.in_time(prompt, answer, 0.03), run.gap(prompt, answer, texts),
        run.price(prompt, answer, texts, 2.5),
    ]  # fmt: skip


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js")
def test_it_reckons_as_the_part_does_at_every_setting():
    first, models = calculator.read(printed())
    named = {model["name"] for model in models} & MODELS.keys()
    assert len(named) == len(MODELS), "each model of the part's tests is one of the page"
    settings = itertools.product(sorted(named), CARDS, PRECISIONS)
    sizes = itertools.product((1, 2, 8), (1, 127, 8000, 131_072, 9), (1, 1000), (1, 16, 4096, 5))
    runs = [
        (*setting, *size) for setting, size in zip(settings, itertools.cycle(sizes), strict=False)
    ]
    asked = json.dumps(first | {"models": models, "runs": runs})
    command = ["node", "-e", ASK, str(SCRIPT.resolve())]
    answers = subprocess.run(
        command, input=asked, capture_output=True, text=True, check=True
    ).stdout
    made = {name: model_of(MODELS[name], attention_of(MODELS[name])) for name in named}
    for run, answer in zip(runs, json.loads(answers), strict=True):
        assert answer == pytest.approx(reckoned(made[run[0]], *run[1:]), rel=1e-12), run


def test_without_scripts_it_is_a_table_of_the_models():
    rows = BeautifulSoup(calculator.html(printed(), {}), "html.parser").find_all("tr")
    assert [cell.get_text() for cell in rows[1].find_all(["th", "td"])] == [
        "Llama 3.1 8B",
        "8.0",
        "16",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1 of a calculator is not JSON"),
        ("{}", "line 1 of a calculator: wanted cards, precisions, got {}"),
        ('{"cards": {}, "precisions": {}}', "a line for each model"),
        (
            '{"cards": {}, "precisions": {}}\n[1]',
            "line 2 of a calculator: wanted embed_dim, layers",
        ),
    ],
)
def test_a_text_that_is_no_description_is_refused_by_its_line(text, said):
    with pytest.raises(FigureError, match=said):
        calculator.check(text, {})
