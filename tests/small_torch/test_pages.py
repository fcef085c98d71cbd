"""Every page prints in the small torch what it shows, but for the blocks that it says do not run there."""

import pytest

from literate.page import read as read_page
from tests.pages import RUNNING, each
from tools import in_page

# Pages that take a few seconds; `make test-labs` runs the others.
SOON = [
    "README.md",
    "docs/index.md",
    "docs/start/pytorch.md",
    "docs/foundations/averaging.md",
    "docs/correctness/backward.md",
    "docs/correctness/masks.md",
    "docs/examples/causal-heads.md",
]

pytestmark = pytest.mark.usefixtures("under_node")


@pytest.fixture(scope="module")
def node():
    node = in_page.Node()
    yield node
    node.close()


@each(RUNNING, soon=SOON)
def test_a_page_prints_there_what_it_shows(page, node):
    unrun, reports = in_page.found(page, node)
    assert not reports, "\n\n".join(reports)
    wanted = in_page.recorded().get(page.name, {})
    assert in_page.unrun_blocks(page, unrun) == wanted, (
        f"write it down: python -m tools.in_page {page.name}"
    )


@pytest.fixture
def fresh():
    """A process in which no page has run: memory that has grown is never given back, and none of it is kept."""
    node = in_page.Node()
    yield node
    node.close()


@each(RUNNING, soon=SOON[3:5])
def test_a_block_prints_the_same_from_the_moment_before_it(page, fresh):
    """A page that goes on from before a block that has changed is the page from its beginning.

    The first moment is always kept; of the others as many as there is room for.
    """
    left_out = in_page.recorded().get(page.name, {})
    unrun = {id(page.blocks[int(at)]) for at in left_out}
    first, again = fresh.run_again(page, [step for step in page.steps if id(step) not in unrun])
    assert again[0]
    for before, after in zip(first, again, strict=True):
        if after:
            assert (before["printed"], before["last_line"]) == (
                after["printed"],
                after["last_line"],
            )


def test_the_record_names_the_pages_of_the_book():
    assert in_page.recorded().keys() <= {page.name for page in RUNNING}
    assert all(in_page.recorded().values())


def page_of(tmp_path, *blocks):
    """Return a page of these blocks, each with the output below it, if any."""
    parts = ["# A page"]
    for code, *output in blocks:
        parts.append(f"```python\n{code}\n```")
        parts += [f"```output\n{text}\n```" for text in output]
    (tmp_path / "mkdocs.yml").touch()
    (tmp_path / "page.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return read_page(tmp_path / "page.md")


def test_what_is_lacking_is_named_and_so_is_what_needs_it(tmp_path, node):
    page = page_of(
        tmp_path,
        ["import torch\nfree = torch.ones(2)\nprint(free)", "tensor([1., 1.])"],
        ["import math\nimport torch.distributed as dist\nmade = free + 1\nfree = made"],
        ["print(made + 1)", "tensor([3., 3.])"],
        ["print(free.sum())", "tensor(4.)"],
        ["free = torch.zeros(1)\nprint(free)", "tensor([0.])"],
    )
    unrun, reports = in_page.found(page, node)
    lacks = "torch.distributed is not in the small torch of this page"
    assert unrun == {1: lacks, 2: in_page.NEEDS, 3: in_page.NEEDS}
    assert not reports


def test_a_number_that_differs_is_reported(tmp_path, node):
    page = page_of(tmp_path, ["import torch\nprint(torch.ones(2).sum())", "tensor(3.)"])
    unrun, (report,) = in_page.found(page, node)
    assert unrun == {}
    assert "tensor(2.)" in report


def test_a_page_begins_with_a_torch_of_its_own(tmp_path, node):
    first = page_of(
        tmp_path, ["import torch\ntorch.set_default_dtype(torch.float64)\ntorch.rand(3)"]
    )
    in_page.found(first, node)
    second = page_of(tmp_path, ["import torch\nprint(torch.ones(1).dtype)", "torch.float32"])
    assert in_page.found(second, node) == ({}, [])


def test_every_name_of_torch_is_there_or_is_said_to_be_lacking(tmp_path, node):
    """What the small torch lacks it names, whichever module of PyTorch is asked."""
    lines = ["import torch", "import torch.nn.functional as F"]
    asked = ["torch.stft", "torch.fft.fft", "F.conv2d", "torch.nn.Conv2d", "torch.optim.LBFGS"]
    asked += ["torch.linalg.eigh", "torch.ones(1).numpy", "torch.Generator().clone_state"]
    lines += ["from torch.nn.attention import SDPBackend, sdpa_kernel"]
    asked += ["sdpa_kernel(SDPBackend.FLASH_ATTENTION).__enter__()"]
    for name in asked:
        lines += ["try:", f"    {name}", "except (AttributeError, NotImplementedError) as error:"]
        lines += ["    print('is not in the small torch' in str(error))"]
    page = page_of(tmp_path, ["\n".join(lines), "\n".join(["True"] * len(asked))])
    assert in_page.found(page, node) == ({}, [])
