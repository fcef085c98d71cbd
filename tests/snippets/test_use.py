"""The parts to take away work where they are taken: compiled, exported, copied, saved, on a GPU."""

import ast
import copy
import getpass
import io
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.files import stored
from tests.snippets import facts
from tests.snippets.problems import (
    BEFORE_ATTENTION,
    NAMES,
    SNIPPETS,
    WITHOUT_WEIGHTS,
    Implementation,
    edited,
)

REAL = Implementation()
MODULES = NAMES[1:]
TAKES_A_MASK = [name for name in NAMES if name != "causal_self_attention"]
every_snippet = pytest.mark.parametrize("snippet", NAMES)
every_module = pytest.mark.parametrize("snippet", MODULES)


def example(snippet, batch=2, T=5, dtype=torch.float32, width=8, head_dim=4):
    """Return (callable, inputs, options) of a snippet, with an empty row where it takes a mask."""
    torch.manual_seed(0)
    module = getattr(REAL, snippet)
    x = torch.randn(batch, T, width, dtype=dtype)
    mask = torch.ones(T, T, dtype=torch.bool).tril(1)
    mask[1] = False
    if snippet == "scaled_dot_product_attention":
        return module.scaled_dot_product_attention, (x, x.flip(1), x.flip(2)), {"attn_mask": mask}
    if snippet == "self_attention":
        return module.SelfAttention(width, head_dim).to(dtype), (x,), {"attn_mask": mask}
    if snippet == "causal_self_attention":
        layer = module.CausalSelfAttention(width, head_dim, dropout=0.1)
        return layer.to(dtype).eval(), (x,), {}
    if snippet == "cross_attention":
        layer = module.CrossAttention(width, width, head_dim)
        return layer.to(dtype), (x, x.flip(1)), {"attn_mask": mask}
    layer = module.MultiHeadAttention(width, width // head_dim)
    return layer.to(dtype), (x,), {"attn_mask": mask, "is_causal": True}


def assert_same(result, wanted, dtype=torch.float32):
    """Assert equal results, each a tensor or a pair of them."""
    pairs = zip(result, wanted, strict=True) if isinstance(result, tuple) else [(result, wanted)]
    for one, other in pairs:
        facts.assert_equal("result", one, other, dtype)


@every_snippet
def test_a_file_stands_alone(snippet):
    """Whoever copies one file needs nothing beside it but torch and Python."""
    tree = ast.parse((SNIPPETS / f"{snippet}.py").read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - sys.stdlib_module_names == {"torch"}


@every_snippet
def test_public_names_have_docstrings(snippet):
    module = getattr(REAL, snippet)
    assert "Source" in module.__doc__
    public = [
        thing
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == snippet
    ]
    assert len(public) == 1
    text = public[0].__doc__ + (getattr(public[0], "forward", public[0]).__doc__)
    for word in ("Args:", "Raises:", "(..., T"):
        assert word in text


@pytest.mark.lab
@pytest.mark.parametrize("need_weights", [False, True])
@every_snippet
def test_compiled_equals_eager(snippet, need_weights):
    run, _, _ = example(snippet)
    torch._dynamo.reset()
    compiled = torch.compile(run, backend="eager", fullgraph=True, dynamic=True)
    for T in (5, 7):  # the second length must not break the graph
        _, inputs, options = example(snippet, T=T)
        options |= {"need_weights": need_weights}
        assert_same(compiled(*inputs, **options), run(*inputs, **options))


def missing_for_the_default_backend() -> str | None:
    """Return what torch.compile's default backend builds with and this machine lacks, or None."""
    by_default = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    compiler = os.environ.get("CXX", by_default)
    try:
        subprocess.run([compiler, "--version"], capture_output=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no C++ compiler (CXX names one): {error}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"no {header}; install Python's headers"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # its own, while it is imported
# A processor that lacks the instructions asked for compiles with the best that it has.
@pytest.mark.filterwarnings("ignore:ignoring invalid value for ATEN_CPU_CAPABILITY:UserWarning")
@pytest.mark.lab
def test_multi_head_attention_compiles_with_the_default_backend(monkeypatch):
    if missing := missing_for_the_default_backend():
        pytest.skip(missing)
    # PyTorch's cache does not tell processors apart: what was compiled for one fails on another.
    cache = f"inductor-{getpass.getuser()}-{torch.backends.cpu.get_cpu_capability()}"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir(), cache)))
    module, inputs, options = example("multi_head_attention")
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True)
    leaves = dict(module.named_parameters())
    output, wanted = compiled(*inputs, **options), module(*inputs, **options)
    assert_same(output, wanted)
    expected = facts.gradients(wanted, leaves)
    for name, gradient in facts.gradients(output, leaves).items():
        facts.assert_equal(name, gradient, expected[name], torch.float32)


@pytest.mark.parametrize("compiler", ["/nowhere/g++", str(SNIPPETS), ""])
def test_a_missing_compiler_is_named(monkeypatch, compiler):
    monkeypatch.setenv("CXX", compiler)
    missing = missing_for_the_default_backend()
    assert missing.startswith("no C++ compiler")
    assert missing.endswith(f"'{compiler}'")


def test_missing_headers_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", sys.executable)  # something that tells its version
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    wanted = f"no {tmp_path / 'Python.h'}; install Python's headers"
    assert missing_for_the_default_backend() == wanted
    (tmp_path / "Python.h").touch()
    assert missing_for_the_default_backend() is None


@pytest.mark.exact("torch.export traces with tensors that have no numbers")
@pytest.mark.parametrize("need_weights", [False, True])
@every_snippet
def test_exported_once_it_serves_every_length(snippet, need_weights):
    run, inputs, options = example(snippet)
    options = {"need_weights": need_weights} | options

    class Program(torch.nn.Module):
        """torch.export takes modules alone; the mask is an input, to vary with the length."""

        def __init__(self):
            super().__init__()
            self.run = run

        def forward(self, mask, *inputs):
            masked = {"attn_mask": mask} if "attn_mask" in options else {}
            return self.run(*inputs, **options | masked)

    T, batch = torch.export.Dim("T", min=2), torch.export.Dim("batch", min=2)
    mask = options.get("attn_mask", torch.ones(5, 5, dtype=torch.bool))
    exported = torch.export.export(
        Program(),
        (mask, *inputs),
        dynamic_shapes=({0: T, 1: T}, tuple({0: batch, 1: T} for _ in inputs)),
    ).module()
    for size, length in ((2, 5), (3, 9)):
        _, inputs, longer = example(snippet, batch=size, T=length)
        mask = longer.get("attn_mask", torch.ones(length, length, dtype=torch.bool))
        with torch.no_grad():
            assert_same(exported(mask, *inputs), Program()(mask, *inputs))


@every_module
def test_state_dict_goes_round_through_a_file(snippet):
    module, inputs, options = example(snippet)
    torch.manual_seed(1)
    other = type(module)(*arguments(module)).eval()
    assert not torch.equal(other(*inputs, **options), module(*inputs, **options))
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(*inputs, **options), module(*inputs, **options))


def arguments(module):
    """Return the positional arguments that build a module like this one."""
    names = {
        "SelfAttention": ("embed_dim", "head_dim"),
        "CausalSelfAttention": ("embed_dim", "head_dim", "dropout"),
        "MultiHeadAttention": ("embed_dim", "num_heads"),
        "CrossAttention": ("embed_dim", "kv_dim", "head_dim", "value_dim"),
    }[type(module).__name__]
    return [getattr(module, name) for name in names]


@every_module
def test_state_dict_names_are_the_projections(snippet):
    module, _, _ = example(snippet)
    names = {name.removesuffix(".weight").removesuffix(".bias") for name in module.state_dict()}
    out = {"out_proj"} if snippet == "multi_head_attention" else set()
    assert names == {"W_query", "W_key", "W_value"} | out


@every_module
def test_a_deep_copy_is_equal_and_apart(snippet):
    module, inputs, options = example(snippet)
    twin = copy.deepcopy(module)
    before = module(*inputs, **options)
    assert torch.equal(twin(*inputs, **options), before)
    with torch.no_grad():
        twin.W_value.weight.zero_()
    assert torch.equal(module(*inputs, **options), before)
    assert not torch.equal(twin(*inputs, **options), before)


class Kernels(TorchDispatchMode):
    """Notes the name of every operator that runs."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Note the operator, then run it."""
        self.names.add(function.name())
        return function(*args, **kwargs or {})

    def __enter__(self):
        """Start with none."""
        self.names = set()
        return super().__enter__()


@every_snippet
def test_without_weights_the_fused_kernel_runs_and_no_score_matrix_is_made(snippet):
    run, inputs, options = example(snippet)
    if snippet == "scaled_dot_product_attention":
        inputs = [part.unsqueeze(1) for part in inputs]
    with Kernels() as kernels:
        run(*inputs, **options)
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in kernels.names
    assert not [name for name in kernels.names if "softmax" in name or "bmm" in name]
    with Kernels() as kernels:
        run(*inputs, **options, need_weights=True)
    assert "aten::_softmax" in kernels.names


@pytest.mark.parametrize("need_weights", [False, True])
@every_snippet
def test_autocast_computes_in_bfloat16(snippet, need_weights):
    run, inputs, options = example(snippet)
    wanted = run(*inputs, **options, need_weights=need_weights)
    options = {k: v.float().log() if k == "attn_mask" else v for k, v in options.items()}
    with torch.autocast("cpu", torch.bfloat16):
        result = run(*inputs, **options, need_weights=need_weights)
    assert (result[0] if need_weights else result).dtype == torch.bfloat16
    assert_same(result, wanted, torch.bfloat16)


@every_module
def test_autocast_takes_what_an_earlier_layer_gives(snippet):
    """Under autocast an input may already be bfloat16 while the weights are float32."""
    module, inputs, options = example(snippet)
    wanted = module(*inputs, **options)
    with torch.autocast("cpu", torch.bfloat16):
        result = module(*(part.bfloat16() for part in inputs), **options)
    assert_same(result, wanted, torch.bfloat16)


@pytest.mark.parametrize("need_weights", [False, True])
def test_autocast_takes_three_dtypes_as_the_operator_of_torch_does(need_weights):
    function = REAL.scaled_dot_product_attention.scaled_dot_product_attention
    query, key, value = torch.randn(3, 1, 2, 5, 4)
    mixed = (query, key.bfloat16(), value.half())
    with torch.autocast("cpu", torch.bfloat16):
        result = function(*mixed, need_weights=need_weights)
        wanted = F.scaled_dot_product_attention(*mixed)
    result = result[0] if need_weights else result
    assert result.dtype == wanted.dtype == torch.bfloat16
    assert_same(result, wanted, torch.bfloat16)


class WeightOnlyInt8(torch.nn.Module):
    """A projection stored in int8, a scale for each row, as serving code often does it."""

    def __init__(self, base):
        super().__init__()
        scale = base.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("weight", (base.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = base.bias

    def forward(self, x):
        """(..., in_features) → (..., out_features), in the dtype of x."""
        return F.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype), self.bias)


@every_module
def test_int8_weights_give_nearly_the_same(snippet):
    """Its weight says int8, and takes floating point all the same."""
    module, inputs, options = example(snippet)
    int8 = copy.deepcopy(module)
    for name, projection in list(module.named_children()):
        setattr(int8, name, WeightOnlyInt8(projection))
    for need_weights in (False, True):
        result = int8(*inputs, **options, need_weights=need_weights)
        wanted = module(*inputs, **options, need_weights=need_weights)
        pairs = zip(result, wanted, strict=True) if need_weights else [(result, wanted)]
        for one, other in pairs:
            facts.assert_equal("int8", one, other, torch.bfloat16)


@every_module
def test_lora_trains_its_own_matrices_alone(snippet):
    module, inputs, options = example(snippet)
    module.requires_grad_(False)
    for name, projection in list(module.named_children()):
        setattr(module, name, facts.Adapter(projection))
    module(*inputs, **options).square().sum().backward()
    moved = {name for name, it in module.named_parameters() if it.grad is not None}
    assert moved == {name for name, _ in module.named_parameters() if ".base." not in name}


@pytest.mark.skipif(
    torch.backends.quantized.engine == "none", reason="torch has no int8 kernels here"
)
@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor.*deprecated:UserWarning")
@pytest.mark.exact("int8 kernels are no operations of ATen, which is all that a processor perturbs")
@every_module
def test_int8_projections_give_nearly_the_same(snippet):
    module, inputs, options = example(snippet)
    int8 = torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)
    assert not list(int8.parameters())  # every projection was replaced
    for need_weights in (False, True):
        result = int8(*inputs, **options, need_weights=need_weights)
        wanted = module(*inputs, **options, need_weights=need_weights)
        pairs = zip(result, wanted, strict=True) if need_weights else [(result, wanted)]
        for one, other in pairs:
            facts.assert_equal("int8", one, other, torch.bfloat16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@every_snippet
def test_a_gpu_gives_what_the_cpu_gives(snippet):
    """With an empty row in the mask, in each dtype, on each path, and with finite gradients."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for need_weights in (False, True):
            run, inputs, options = example(snippet, T=16, dtype=torch.float64)
            options["need_weights"] = need_weights
            wanted = run(*inputs, **options)
            if isinstance(run, torch.nn.Module):
                run = run.to("cuda", dtype)
            inputs = [part.to("cuda", dtype).requires_grad_() for part in inputs]
            if "attn_mask" in options:
                options["attn_mask"] = options["attn_mask"].cuda()
            result = run(*inputs, **options)
            result, wanted = (it if need_weights else (it,) for it in (result, wanted))
            assert_same(tuple(part.cpu() for part in result), wanted, dtype)
            for gradient in torch.autograd.grad(result[0].sum(), inputs):
                assert gradient.isfinite().all()


def test_the_lines_that_the_files_share_agree():
    """On the same weights all five give the same context, weights and gradients, both paths."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    function = REAL.scaled_dot_product_attention.scaled_dot_product_attention
    one = REAL.causal_self_attention.CausalSelfAttention(4, 4).double()
    modules = {
        "self": REAL.self_attention.SelfAttention(4, 4).double(),
        "cross": REAL.cross_attention.CrossAttention(4, 4, 4).double(),
        "multi-head": REAL.multi_head_attention.MultiHeadAttention(4, 1, bias=False).double(),
    }
    for module in modules.values():
        module.load_state_dict(one.state_dict(), strict=False)
    torch.nn.init.eye_(modules["multi-head"].out_proj.weight)

    def from_function(**options):
        return function(one.W_query(x), one.W_key(x), one.W_value(x), **options)

    ways = {
        "function, is_causal": (one, lambda **o: from_function(is_causal=True, **o)),
        "function, mask": (one, lambda **o: from_function(attn_mask=causal, **o)),
        "causal": (one, lambda **o: one(x, **o)),
        "self": (modules["self"], lambda **o: modules["self"](x, attn_mask=causal, **o)),
        "cross": (modules["cross"], lambda **o: modules["cross"](x, x, attn_mask=causal, **o)),
        "multi-head": (
            modules["multi-head"],
            lambda **o: modules["multi-head"](x, is_causal=True, **o),
        ),
    }
    scores = one.W_query(x) @ one.W_key(x).mT / 4**0.5
    weights = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    wanted = weights @ one.W_value(x)
    leaves = {"x": x, "W_query": one.W_query.weight, "W_value": one.W_value.weight}
    gradients = facts.gradients(wanted, leaves)
    for way, (module, run) in ways.items():
        context, their_weights = run(need_weights=True)
        facts.assert_equal(way, their_weights.reshape(weights.shape), weights, torch.float64)
        leaves = {"x": x, "W_query": module.W_query.weight, "W_value": module.W_value.weight}
        for output in (context, run(need_weights=False)):
            facts.assert_equal(way, output, wanted, torch.float64)
            for name, gradient in facts.gradients(output, leaves).items():
                facts.assert_equal(f"{way}: {name}", gradient, gradients[name], torch.float64)


@every_snippet
def test_scores_are_divided_before_they_leave_half_precision(snippet):
    """64 · 60² is beyond float16, and an eighth of it is not."""
    run, inputs, options = example(snippet, dtype=torch.half, width=64, head_dim=64)
    inputs = [torch.full_like(part, 60.0) for part in inputs]
    if snippet in MODULES:
        for projection in (run.W_query, run.W_key):
            torch.nn.init.eye_(projection.weight)
    _, weights = run(*inputs, **options, need_weights=True)
    assert weights.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=["boolean", "float"])
@pytest.mark.parametrize(
    "snippet", ["scaled_dot_product_attention", "self_attention", "cross_attention"]
)
def test_one_row_of_a_mask_serves_every_query_on_both_paths(snippet, dtype):
    run, inputs, _ = example(snippet)
    if snippet == "scaled_dot_product_attention":
        inputs = [part.unsqueeze(1) for part in inputs]
    row = torch.tensor([[True, True, False, True, False]])
    row = row if dtype == torch.bool else row.float().log()
    wanted = run(*inputs, attn_mask=row.expand(5, 5))
    assert_same(run(*inputs, attn_mask=row), wanted)
    assert_same(run(*inputs, attn_mask=row, need_weights=True)[0], wanted)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("snippet", TAKES_A_MASK)
def test_a_mask_of_another_float_dtype_is_cast(snippet, need_weights):
    """The operator of torch refuses one of float64 beside queries of float32."""
    run, inputs, options = example(snippet)
    mask = torch.randn(5, 5, dtype=torch.float64)
    options |= {"need_weights": need_weights}
    result = run(*inputs, **options | {"attn_mask": mask})
    assert_same(result, run(*inputs, **options | {"attn_mask": mask.float()}))


class Watched(torch.nn.Linear):
    """A projection that counts how often it is called, and may fail."""

    calls, error = 0, None

    def forward(self, x):
        """(..., in_features) → (..., out_features)."""
        self.calls += 1
        if self.error:
            raise self.error
        return super().forward(x)


@pytest.mark.parametrize("name", ["W_query", "W_key", "W_value", "out_proj"])
def test_a_projection_that_fails_is_called_once_and_its_own_error_comes_out(name):
    layer, inputs, options = example("multi_head_attention")  # with a mask beside is_causal
    projection = Watched(8, 8)
    setattr(layer, name, projection)
    layer(*inputs, **options)
    assert projection.calls == 1
    projection.error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        layer(*inputs, **options)
    assert caught.value is projection.error
    assert projection.calls == 2


FRESH = """
import sys, torch
import torch.nn.functional as F
from snippets import attention_backward, gated_memory, latent_attention, linear_attention
from snippets import scaled_dot_product_attention as formula

before = "sympy" in sys.modules
x = torch.randn(1, 2, 4, 8, requires_grad=True)
keep = torch.ones(4, 4, dtype=torch.bool).tril()
formula.scaled_dot_product_attention(x, x, x, keep, is_causal=True).sum().backward()
formula.scaled_dot_product_attention(x, x[0], x[0], need_weights=True)
attention_backward.attention(x, x[0], x[0], keep).sum().backward()
linear_attention.linear_attention(x, x, x)[0].sum().backward()
gated_memory.gated_memory(x, x, x, beta=x[..., :1].sigmoid())[0].sum().backward()
layer = latent_attention.LatentAttention(8, 2, latent_dim=4, head_dim=4)
for absorb in (False, True):
    layer(x[0], attn_mask=keep, absorb=absorb).sum().backward()
print(before, "sympy" in sys.modules)
"""


def test_a_first_call_imports_no_sympy():
    """It takes seconds to import, and torch.broadcast_shapes does so."""
    done = subprocess.run(
        [sys.executable, "-c", FRESH],
        cwd=SNIPPETS.parent,
        env=os.environ | {"PYTHONPATH": str(SNIPPETS.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = done.stdout.split()
    if before == "True":
        pytest.skip("this torch imports sympy by itself")
    assert after == "False"


def test_is_causal_counts_from_the_first_key_as_the_operator_of_torch_does():
    query, key, value = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 3)
    function = REAL.scaled_dot_product_attention.scaled_dot_product_attention
    theirs = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    for need_weights in (False, True):
        ours = function(query, key, value, is_causal=True, need_weights=need_weights)
        assert_same(ours[0] if need_weights else ours, theirs)
    weights = function(query, key, value, is_causal=True, need_weights=True)[1]
    assert (weights > 0).tolist() == [[True, False, False, False], [True, True, False, False]]


def test_the_mask_for_a_cache_lets_the_last_query_see_every_key():
    """The recipe in the docstring: the queries are the last of the keys."""
    torch.manual_seed(0)
    x = torch.randn(6, 3)
    function = REAL.scaled_dot_product_attention.scaled_dot_product_attention
    whole = function(x, x, x, is_causal=True)
    cached = function(x[4:], x, x, torch.ones(2, 6, dtype=torch.bool).tril(6 - 2))
    facts.assert_equal("the last two", cached, whole[4:], torch.float32)


def test_multi_head_attention_takes_its_keys_from_the_query_and_its_values_from_the_keys():
    module, (x,), _ = example("multi_head_attention")
    source = x.flip(1)
    assert torch.equal(module(x), module(x, x, x))
    assert torch.equal(module(x, source), module(x, source, source))
    assert not torch.equal(module(x, source), module(x))


LAYERS = {
    "as PyTorch's": ({"kv_dim": 6, "value_dim": 10}, (8, 6, 8, 10, 8), (True, True)),
    "fewer heads of keys": ({"num_heads": 4, "num_kv_heads": 2}, (8, 8, 4, 4, 8), (True, True)),
    "one head of keys": ({"num_heads": 4, "num_kv_heads": 1}, (8, 8, 2, 2, 8), (True, True)),
    "wider heads": ({"head_dim": 5, "num_kv_heads": 1}, (10, 8, 5, 5, 8), (True, True)),
    "another output": ({"out_dim": 3}, (8, 8, 8, 8, 3), (True, True)),
    "bias at the end": ({"qkv_bias": False}, (8, 8, 8, 8, 8), (False, True)),
    "bias at the start": ({"bias": False, "qkv_bias": True}, (8, 8, 8, 8, 8), (True, False)),
}


@pytest.mark.parametrize(("options", "sizes", "biases"), LAYERS.values(), ids=LAYERS)
def test_the_shape_of_every_parameter_is_the_documented_one(options, sizes, biases):
    options = {"embed_dim": 8, "num_heads": 2} | options
    module = REAL.multi_head_attention.MultiHeadAttention(**options)
    queries, kv_dim, keys, values, out_dim = sizes
    joined = module.num_heads // module.num_kv_heads * values  # of all heads of queries
    wanted = {"W_query": (queries, 8), "W_key": (keys, kv_dim), "W_value": (values, kv_dim)}
    wanted["out_proj"] = (out_dim, joined)
    for name, shape in wanted.items():
        projection = getattr(module, name)
        assert tuple(projection.weight.shape) == shape, name
        assert (projection.bias is not None) == biases[name == "out_proj"], name
    assert module(torch.zeros(2, 3, 8), torch.zeros(2, 3, kv_dim)).shape == (2, 3, out_dim)


def test_parameters_are_made_where_and_of_what_is_asked():
    module = REAL.multi_head_attention.MultiHeadAttention(8, 2, device="meta", dtype=torch.half)
    for parameter in module.parameters():
        assert (parameter.device.type, parameter.dtype) == ("meta", torch.half)


@every_module
def test_a_printed_module_says_its_sizes(snippet):
    module, _, _ = example(snippet)
    for name, size in vars(module).items():
        if name.endswith(("_dim", "_heads", "dropout")):
            assert f"{name}={size}" in module.extra_repr().split(", ")


def test_a_layer_starts_as_its_docstring_says():
    """Ours within ±1/√64 = 0.125, biases too; theirs √1.5 or √3 times as wide, with biases of 0."""
    torch.manual_seed(0)
    ours = REAL.multi_head_attention.MultiHeadAttention(64, 2)
    for name in ("W_query", "W_key", "W_value", "out_proj"):
        projection = getattr(ours, name)
        assert 0.99 * 0.125 < projection.weight.abs().max() <= 0.125
        assert 0.8 * 0.125 < projection.bias.abs().max() <= 0.125
    for options, times in (({}, 1.5**0.5), ({"kdim": 64, "vdim": 32}, 3**0.5)):
        theirs = torch.nn.MultiheadAttention(64, 2, **options)
        weight = theirs.q_proj_weight if options else theirs.in_proj_weight
        assert 0.99 * 0.125 < weight.abs().max() / times <= 0.125 + 1e-6
        assert not theirs.in_proj_bias.any()
        assert not theirs.out_proj.bias.any()


def test_weights_stored_before_the_layer_had_more_arguments_still_fit():
    """The book's GPT was trained and stored with the names and shapes that the layer had then."""
    gpt = stored("gpt")
    weights = next(part for part in (gpt, *gpt.values()) if is_state(part))
    first = {name.split("attention.")[1]: it for name, it in weights.items() if in_first(name)}
    embed_dim = first["W_query.weight"].size(1)
    REAL.multi_head_attention.MultiHeadAttention(embed_dim, 4).load_state_dict(first)


def is_state(part):
    """Whether this is a state dict, and not what lies beside one."""
    return isinstance(part, dict) and any("W_query" in str(name) for name in part)


def in_first(name):
    """Whether a parameter is of the first attention layer."""
    return "blocks.0.attention." in name


# Helper → how many files need it.
REPEATED = {
    "_fold": 4,
    "_check_mask": 8,
    "_leading": 2,
    "_casts": 2,
    "_cast": 2,
    "_causal_attention": 2,
    "_at_least_float32": 2,
    "_without_autocast": 2,
    "_start": 2,
    "choose": 2,
    "shares_of": 4,
    "token_at": 4,
}


def test_what_the_files_repeat_is_the_same_in_each():
    """A helper that several files need stands in each of them, to the letter."""
    texts = {}
    for path in SNIPPETS.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name in REPEATED:
                texts.setdefault(node.name, []).append(ast.get_source_segment(source, node))
    assert {name: len(found) for name, found in texts.items()} == REPEATED
    assert {name: len(set(found)) for name, found in texts.items()} == dict.fromkeys(REPEATED, 1)


def test_gated_attention_checks_its_sizes_as_grouped_query_attention_does():
    """It is that layer with sinks and a gate: what its constructor checks is the same, to the letter."""
    files = ("grouped_query_attention", "gated_attention")
    texts = [(SNIPPETS / f"{file}.py").read_text(encoding="utf-8") for file in files]
    bodies = [text.partition("def __init__")[2].partition(") -> None:")[2] for text in texts]
    ours, theirs = (body.partition("super().__init__()")[0] for body in bodies)
    assert ours == theirs
    assert ours.count("raise ValueError") == 3


@pytest.mark.parametrize("file", [*NAMES, *WITHOUT_WEIGHTS, *BEFORE_ATTENTION])
def test_a_file_states_what_it_needs(file):
    needs = "Needs Python 3.10 or newer, PyTorch 2.5 or newer and nothing else."
    assert needs in " ".join(getattr(REAL, file).__doc__.split())


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
@pytest.mark.parametrize("need_weights", [False, True])
@every_snippet
def test_an_empty_row_makes_no_nan_on_the_way(snippet, need_weights):
    run, inputs, options = example(snippet)
    inputs = [part.clone().requires_grad_() for part in inputs]
    with torch.autograd.detect_anomaly():
        output = run(*inputs, **options, need_weights=need_weights)
        (output[0] if need_weights else output).sum().backward()


@every_snippet
def test_leading_dimensions_of_every_number_give_the_same(snippet):
    """(2, 3, T, width) is six samples: as a batch of them, one by one, and with a mask for each."""
    run, inputs, options = example(snippet, batch=6)
    if "attn_mask" in options:
        options["attn_mask"] = torch.rand(6, 5, 5) < 0.7
    heads = snippet == "multi_head_attention"

    def call(*shape):
        given = dict(options)
        if "attn_mask" in given:
            given["attn_mask"] = given["attn_mask"].reshape(*shape, *(1,) * heads, 5, 5)
        return run(*(part.reshape(*shape, *part.shape[1:]) for part in inputs), **given)

    whole = call(6)
    for shape in ((2, 3), (2, 1, 3), (1, 6), (6, 1, 1)):
        assert_same(call(*shape).flatten(0, -3), whole)
    for i, sample in enumerate(zip(*inputs, strict=True)):
        given = {k: v[i] if k == "attn_mask" else v for k, v in options.items()}
        assert_same(run(*sample, **given), whole[i])


@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 3, 1), (1, 1, 2), (1, 1, 1), ()])
@pytest.mark.parametrize(
    "snippet", ["scaled_dot_product_attention", "self_attention", "cross_attention"]
)
def test_a_mask_that_some_leading_dimensions_share_is_laid_over_them(snippet, shape):
    run, inputs, _ = example(snippet, batch=12)
    inputs = [part.reshape(2, 3, 2, *part.shape[1:]) for part in inputs]
    mask = torch.rand(*shape, 5, 5) < 0.7
    wanted = run(*inputs, attn_mask=mask.expand(2, 3, 2, 5, 5))
    assert_same(run(*inputs, attn_mask=mask), wanted)
    assert_same(run(*inputs, attn_mask=mask, need_weights=True)[0], wanted)


@pytest.mark.exact("what traces a program sees no dispatch mode")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # its own
def test_shared_heads_are_exported_and_compiled_as_they_run():
    module = REAL.multi_head_attention.MultiHeadAttention(8, 4, num_kv_heads=2, value_dim=4)
    x, keep = torch.randn(2, 5, 8), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    options = {"attn_mask": keep, "is_causal": True}
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert_same(compiled(x, **options), module(x, **options))
    exported = torch.export.export(module, (x,), options).run_decompositions()
    assert_same(exported.module()(x, **options), module(x, **options))


LAYERS = {
    "self_attention": lambda module, **where: module.SelfAttention(8, 4, bias=True, **where),
    "causal_self_attention": lambda module, **where: module.CausalSelfAttention(8, 4, **where),
    "cross_attention": lambda module, **where: module.CrossAttention(8, 6, 4, **where),
    "multi_head_attention": lambda module, **where: module.MultiHeadAttention(8, 2, **where),
    "positions": lambda module, **where: module.LearnedPositions(5, 8, **where),
    "grouped_query_attention": lambda module, **where: module.GroupedQueryAttention(
        8, 4, num_kv_heads=2, qk_norm=True, **where
    ),
    "latent_attention": lambda module, **where: module.LatentAttention(
        8, 2, latent_dim=4, head_dim=4, rope_dim=2, query_latent_dim=4, **where
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_made_where_and_of_what_it_is_told(name):
    module = edited(name)
    made = LAYERS[name](module, device="meta", dtype=torch.bfloat16).state_dict()
    plain = LAYERS[name](module).state_dict()
    assert {key: weight.shape for key, weight in made.items()} == {
        key: weight.shape for key, weight in plain.items()
    }
    assert {(weight.device.type, weight.dtype) for weight in made.values()} == {
        ("meta", torch.bfloat16)
    }
