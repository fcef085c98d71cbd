"""Operators of the small torch give what PyTorch's give: values, dtypes, shapes, gradients, kinds of errors."""

import json
import warnings
from pathlib import Path

import pytest

from tests.small_torch import answering, in_page
from tests.small_torch.cases import GROUPS, cases

pytestmark = pytest.mark.usefixtures("under_node")

# How far numbers of a dtype may differ, beside 1 or the larger of them.
CLOSE = {
    "torch.float64": 1e-11,
    "torch.float32": 4e-6,
    "torch.float16": 4e-3,
    "torch.bfloat16": 3e-2,
}
CLOSE |= {"torch.complex64": 4e-6, "torch.complex128": 1e-11}


AT_ONCE = 20  # cases that one block answers: what a block may print has an end


@pytest.fixture(scope="module")
def answered_in_the_page():
    """What the small torch answers to the cases of all groups, in one run."""
    blocks, begins = [Path(answering.__file__).read_text(encoding="utf-8")], {}
    for group in GROUPS:
        asked = cases(group)
        begins[group] = len(blocks)
        for at in range(0, len(asked), AT_ONCE):
            blocks.append(f"print(answers(json.loads({json.dumps(asked[at : at + AT_ONCE])!r})))")
    printed, ends = in_page(blocks), [*begins.values(), len(blocks)][1:]
    return {
        group: [answer for text in printed[begin:end] for answer in json.loads(text)]
        for (group, begin), end in zip(begins.items(), ends, strict=True)
    }


def agree(found, wanted):
    """Say whether two answers are the same, but for the last places of numbers."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(
            agree(found[key], wanted[key]) for key in wanted
        )
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], str) and wanted[0] in CLOSE:
        return found[:2] == wanted[:2] and all(
            map(near, found[2], wanted[2], [CLOSE[wanted[0]]] * len(wanted[2]))
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list) and len(found) == len(wanted) and all(map(agree, found, wanted))
        )
    return found == wanted


def near(found, wanted, bound):
    if isinstance(found, str) or isinstance(wanted, str):  # nan, inf
        return found == wanted
    return abs(found - wanted) <= bound * max(1.0, abs(wanted))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_operators_give_what_pytorchs_give(group, answered_in_the_page):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = json.loads(answering.answers(cases(group)))
    wrong = []
    for asked, found, right in zip(cases(group), answered_in_the_page[group], wanted, strict=True):
        if "raised" in right:
            found, right = ({"raised": each.get("raised")} for each in (found, right))
        if not agree(found, right):
            wrong.append(
                f"{asked['code']}\n  of {asked['tensors']}\n  gave   {found}\n  wanted {right}"
            )
    assert not wrong, f"{len(wrong)} of {len(wanted)} cases differ:\n" + "\n".join(wrong[:20])
