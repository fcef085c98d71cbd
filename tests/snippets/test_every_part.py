"""What holds of every part: its form, and what it does in each dtype, on each device, exported, copied.

Parts are listed nowhere: each file of snippets/ is asked, with what its own tests say of it (parts.py).
"""

import ast
import copy
import re
import sys
from collections import defaultdict
from functools import cache

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.devices import made_without_device
from tests.snippets import parts
from tests.snippets.facts import assert_equal, first_to_notice
from tests.snippets.parts import FILES

every_file = pytest.mark.parametrize("part", FILES)
# The lines that a file may have: a hundred or so, but for whole models and what reads their files.
LINES = defaultdict(
    lambda: 140,
    {"gpt": 150, "grouped_query_attention": 160, "flash_kernel": 190, "llama": 225}
    | {"cost": 255, "attention_of": 355},
)


def code(part):
    """Return the text of a file, what Python reads in it, and each function and class, within others too."""
    text = FILES[part].read_text(encoding="utf-8")
    tree, kinds = ast.parse(text), ast.FunctionDef | ast.ClassDef
    return text, tree, [node for node in ast.walk(tree) if isinstance(node, kinds)]


@every_file
def test_it_imports_torch_and_python_alone(part):
    imports = re.findall(r"^\s*(?:import|from) ([\w.]+)", code(part)[0], re.MULTILINE)
    named = {"torch", parts.NEEDS.get(part, "torch")}
    assert {name.partition(".")[0] for name in imports} - sys.stdlib_module_names <= named


@every_file
def test_it_is_read_from_top_to_bottom(part):
    text, tree, nodes = code(part)
    assert text.count("\n") <= LINES[part]
    for node in (tree, *nodes):
        name, said = getattr(node, "name", part), ast.get_docstring(node)
        most = 25 if isinstance(node, ast.ClassDef) else 15
        assert (said or "").count("\n") < most, f"{name} has a docstring of more than {most} lines"
        assert said or name.startswith("_") or name == "extra_repr", f"{name} says nothing"
        if name in ("forward", "__init__"):
            lines = node.end_lineno - node.body[said is not None].lineno + 1
            assert lines <= 30, f"{name} has {lines} lines"


@every_file
def test_it_keeps_to_what_pytorch_promises(part):
    text, _, nodes = code(part)
    assert set(re.findall(r"(\w+)\._(?!_)\w", text)) <= {
        "self",
        "cls",
    }  # and nobody's private names
    # Whatever maps the same widths may stand in for a projection: it is called, and not looked into.
    assert re.findall(r"self\.(?:W_\w+|out_proj)\.\w+", text) == []
    overridden = {node.name for node in nodes} & set(dir(torch.nn.Module))
    assert overridden <= {"forward", "extra_repr", "__init__"}
    # The last of them imports sympy, which takes a first call seconds.
    assert not re.search(r"suppress\(|except \w*Error|__name__|broadcast_shapes", text)


@every_file
def test_each_tensor_is_made_where_its_neighbours_are(part):
    assert made_without_device(code(part)[1]) == []


def test_what_has_one_name_in_several_files_is_the_same_code():
    named = defaultdict(set)
    for part in FILES:
        for node in code(part)[1].body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                named[node.name].add(ast.unparse(node))
    assert {name for name, codes in named.items() if len(codes) > 1} == set()


# What is true, and what is wrong and must be noticed

WRONG = parts.told("WRONG")


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_version_breaks_a_fact(what):
    part, edits = WRONG[what]
    assert first_to_notice(parts.facts(part), parts.edited(part, *edits)), "every fact holds"


# Dtypes and devices

CASES = parts.told("CASES")


def test_every_file_is_tried():
    assert {part for part, _ in CASES.values()} == FILES.keys() - {"cost"}  # which has no tensors


def results(case, tried):
    """Return the results of a case, and its inputs and weights with their gradients, by name."""
    dtype = torch.float32 if tried == "autocast" else getattr(torch, tried)
    torch.manual_seed(0)
    module = case.module()
    if module is not None:
        module = module.bfloat16().to(dtype).eval()
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in case.inputs()]
    leaves = {f"input {i}": x for i, x in enumerate(inputs) if x.is_floating_point()}
    leaves |= {} if module is None else dict(module.named_parameters())
    for leaf in leaves.values():
        leaf.requires_grad_(case.backward)
    with torch.autocast("cpu", torch.bfloat16, enabled=tried == "autocast"):
        made = tensors(case.call(module, *inputs))
    if not case.backward:
        return made, {}
    directions = [parts.some(*one.shape, seed=i).to(one.dtype) for i, one in enumerate(made)]
    found = torch.autograd.grad(made, list(leaves.values()), directions, allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return made, {name: (leaf, it) for (name, leaf), it in pairs if it is not None}


def farthest(result, exact, *terms):
    """The largest error, as a share of the largest number, or of 1 where all are smaller.

    A sum that cancels gives `terms`, too, which are as large as what was added.
    """
    size = max(1.0, *(it.abs().max().item() for it in (exact, *terms)))
    return (result.double() - exact.double()).abs().max().item() / size


@cache
def exact_results(what):
    """The results of a case in float64."""
    return results(CASES[what][1], "float64")


@pytest.mark.filterwarnings("error:Mismatch dtype between input and weight:UserWarning")
@pytest.mark.parametrize("tried", ["float64", "float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("what", CASES)
def test_it_is_right_in_each_dtype(what, tried):
    part, case = CASES[what]
    if part in parts.NEEDS and tried == "bfloat16":
        pytest.skip("Triton's interpreter has none")
    narrow = case.computes_in(tried)
    exact, exact_gradients = exact_results(what)
    made, gradients = exact_results(what) if tried == "float64" else results(case, tried)
    may_lose = case.may_lose(narrow)
    for result, wanted in zip(made, exact, strict=True):
        assert result.dtype == case.returns(narrow)
        assert result.isfinite().all()
        assert farthest(result, wanted) <= may_lose
    assert gradients.keys() == exact_gradients.keys()
    for name, (leaf, result) in gradients.items():
        assert result.dtype == leaf.dtype
        assert result.isfinite().all()
        _, wanted = exact_gradients[name]
        # The gradient of a bias adds up what that of its weight does; that of a key's bias cancels.
        _, terms = exact_gradients.get(name.replace("bias", "weight"), (leaf, wanted))
        # Forward, and twice as many back, from a result that has its error already.
        assert farthest(result, wanted, terms) <= 4 * may_lose


@pytest.mark.parametrize("what", [what for what, (_, case) in CASES.items() if case.meta])
def test_where_tensors_have_no_numbers_it_makes_the_same_shapes(what):
    _, case = CASES[what]
    module, inputs = case.module(), case.inputs()
    here = tensors(case.call(module and module.double(), *inputs))
    inputs = [x.to("meta") for x in inputs]
    there = tensors(case.call(module and module.to("meta"), *inputs))
    assert [(x.shape, x.dtype) for x in there] == [(x.shape, x.dtype) for x in here]
    assert {x.device.type for x in there} == {"meta"}


# Exported, compiled, copied, saved

MODULES = parts.told("MODULES")
every_module = pytest.mark.parametrize("what", MODULES)


def example(module, T):
    """Inputs of T tokens, as many as the module's forward must be given."""
    torch.manual_seed(T)
    if "token" in dict(module.named_children()):
        return (torch.randint(11, (2, T)),)
    x = torch.randn(2, T, 8)
    return (x, x.flip(1)) if type(module).__name__ == "CrossAttention" else (x,)


def assert_same_at(lengths, one, other):
    """Assert that both modules give the same at each of these numbers of tokens."""
    for length in lengths:
        inputs = example(other, length)
        assert_equal(f"{length} tokens", one(*inputs), other(*inputs), torch.float32)


@pytest.mark.lab
@every_module
@torch.no_grad()
def test_exported_once_it_serves_every_length(what):
    module = MODULES[what][1]().eval()
    T = torch.export.Dim("T", min=2, max=32)
    inputs = example(module, 5)
    exported = torch.export.export(module, inputs, dynamic_shapes=tuple({1: T} for _ in inputs))
    assert_same_at((2, 5, 9, 32), exported.module(), module)


@pytest.mark.lab
@every_module
@torch.no_grad()
def test_compiled_once_it_serves_every_length(what):
    module = MODULES[what][1]().eval()
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    assert_same_at([5], compiled, module)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_same_at((9, 32), compiled, module)


@every_module
@torch.no_grad()
def test_a_copy_and_its_weights_give_the_same(what):
    module, other = MODULES[what][1]().eval(), MODULES[what][1]().eval()
    other.load_state_dict(module.state_dict())
    inputs = example(module, 5)
    for one in (copy.deepcopy(module), other):
        assert torch.equal(one(*inputs), module(*inputs))


# What it costs

MIB = parts.told("MIB")


class Bytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operators make: all that live at once, at the most."""

    def __enter__(self):
        """Start with none."""
        self.alive, self.peak = {}, 0
        return super().__enter__()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        """Run the operator, and look which storages there are now."""
        given = {part.untyped_storage()._cdata for part in tensors((args, kwargs))}
        made = operator(*args, **kwargs or {})
        for part in tensors(made):
            storage = part.untyped_storage()
            if storage._cdata not in given:
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {at: it for at, it in self.alive.items() if not it[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return made


def tensors(tree):
    """Return the tensors in what is called, or in what it gives."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("what", MIB)
def test_it_makes_the_bytes_that_are_told(what):
    """Of tensors that have shapes and no numbers, so a count takes no memory."""
    _, (told, make) = MIB[what]
    with FakeTensorMode(), torch.no_grad():
        x = torch.zeros(16_384, 64)
        call = make(x)  # the call; what it needs is made before the count
        with Bytes() as counted:
            call()
    assert counted.peak / 2**20 == pytest.approx(told, abs=0.5)
