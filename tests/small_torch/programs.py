"""Random programs over the names of torch that the book and beginners use, run in PyTorch and in the small torch.

    python -m tests.small_torch.programs [--seed 7] [--count 3000] [--show 20]

A program makes tensors (zeros, ties, nan, extremes, empty sizes, views), calls one to three functions with arguments
by place and by name, some of them mistaken, and tells what came of it. Each seed gives other programs.
"""

import argparse
import json
import math
import random
import secrets
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

from tests.small_torch import in_page, telling

# What is called, and what each argument is; `?` marks what may be left out. Names that begin with a dot are methods
# of x alone, `F.` and `nn.` say where a name is, the others are functions of torch and methods of x at once.
SIGNATURES = """
abs|neg|square|floor|ceil|trunc|round|sign|relu|exp|exp2|expm1|log|log2|log10|log1p|sqrt|rsqrt|reciprocal (x:t)
sin|cos|tan|asin|acos|atan|sinh|cosh|tanh|sigmoid|erf|isnan|isinf|isfinite|logical_not|bitwise_not|isposinf (x:t)
add|sub (x:t, other:tn, alpha:n?*)
mul|true_divide|floor_divide|remainder|fmod|eq|ne|lt|le|gt|ge|bitwise_and|bitwise_or|logical_xor (x:t, other:tn)
div (x:t, other:tn, rounding_mode:rounding?*)
maximum|minimum|atan2|logaddexp|logical_and|logical_or|dot|mm|bmm|mv|matmul|outer|inner|allclose|equal (x:t, other:t)
pow (x:t, exponent:tn)
clamp (x:t, min:n?, max:n?)
where (condition:b, input:t, other:tn)
lerp (x:t, end:t, weight:n)
addcmul|addcdiv (x:t, tensor1:t, tensor2:t, value:n?*)
nan_to_num (x:t, nan:n?)
masked_fill (x:t, mask:b, value:n)
masked_select (x:t, mask:b)
sum|mean|prod (x:t, dim:dims?, keepdim:flag?, dtype:dtype?*)
amax|amin|all|any (x:t, dim:dims?, keepdim:flag?)
max|min|argmax|argmin|median|cummax|mode (x:t, dim:dim?, keepdim:flag?)
var|std (x:t, dim:dims?, unbiased:flag?, keepdim:flag?)
norm (x:t, p:p?, dim:dims?, keepdim:flag?)
logsumexp (x:t, dim:dim, keepdim:flag?)
softmax|log_softmax (x:t, dim:dim, dtype:dtype?*)
cumsum|cumprod (x:t, dim:dim, dtype:dtype?*)
sort|argsort (x:t, dim:dim?, descending:flag?)
topk (x:t, k:size, dim:dim?, largest:flag?)
count_nonzero (x:t, dim:dim?)
reshape|.view|.expand|.repeat|tile|.permute|flip (x:t, shape:shape)
broadcast_to (x:t, size:shape)
transpose (x:t, dim0:dim, dim1:dim)
squeeze (x:t, dim:dims?)
unsqueeze (x:t, dim:dim)
flatten (x:t, start_dim:dim?, end_dim:dim?)
narrow (x:t, dim:dim, start:size, length:size)
select (x:t, dim:dim, index:index)
unbind (x:t, dim:dim?)
split|chunk (x:t, split_size:size, dim:dim?)
diagonal|tril|triu|diag (x:t, diagonal:index?)
roll (x:t, shifts:index, dims:dim?)
cat|stack (tensors:ts, dim:dim?)
repeat_interleave (x:t, repeats:size, dim:dim?)
gather (x:t, dim:dim, index:i)
index_select (x:t, dim:dim, index:i)
take_along_dim (x:t, indices:i, dim:dim?)
scatter (x:t, dim:dim, index:i, src:t)
scatter_add (x:t, dim:dim, index:i, src:t)
nonzero|t|numel|clone|detach|isreal|ravel|unique|bincount (x:t)
.contiguous|.tolist|.item|.size|.dim|.float|.double|.long|.bool|.t|.numel|.stride|.is_contiguous|.type|.nelement (x:t)
.to (x:t, dtype:dtype)
.add_|.sub_|.mul_|.div_|.pow_|.copy_|.eq_ (x:t, other:tn)
.zero_|.relu_|.exp_|.sqrt_|.abs_|.neg_|.sigmoid_ (x:t)
.fill_|.fill_diagonal_ (x:t, value:n)
.clamp_ (x:t, min:n?, max:n?)
.masked_fill_ (x:t, mask:b, value:n)
.T|.mT|.shape|.dtype|.ndim|.is_leaf|.requires_grad|.device|.data|.grad|.layout (x:attribute)
zeros|ones|rand|randn (size:shape, dtype:dtype?*, requires_grad:flag?*)
zeros_like|ones_like|rand_like|randn_like (x:t, dtype:dtype?*, requires_grad:flag?*)
full (size:shape, fill_value:n, dtype:dtype?*)
full_like (x:t, fill_value:n, dtype:dtype?*)
arange (start:n, end:n?, step:n?, dtype:dtype?*)
linspace (start:n, end:n, steps:size, dtype:dtype?*)
eye (n:size, m:size?, dtype:dtype?*)
tensor (data:data, dtype:dtype?*, requires_grad:flag?*)
as_tensor (data:data, dtype:dtype?)
randint (low:size, high:size, size:shape, dtype:dtype?*)
randperm (n:size)
manual_seed (seed:size)
LongTensor|FloatTensor|BoolTensor|Tensor|IntTensor|DoubleTensor (data:numbers)
is_tensor (obj:t)
meshgrid (tensors:ts)
einsum (equation:equation, x:t, other:t)
isclose (x:t, other:t, rtol:n?, atol:n?)
tril_indices|triu_indices (row:size, col:size, offset:index?)
multinomial (x:t, num_samples:size, replacement:flag?)
bernoulli (x:t, p:n?)
cross (x:t, other:t)
cdist (x:t, other:t)
var_mean|std_mean (x:t, dim:dims?)
diff (x:t, n:size?, dim:dim?)
vstack|hstack|dstack (tensors:ts)
F.relu|F.silu|F.sigmoid|F.tanh|F.logsigmoid (x:t)
F.softplus|F.elu|F.leaky_relu|F.gelu|F.relu6|F.selu|F.mish|F.hardtanh (x:t)
F.softmax|F.log_softmax (x:t, dim:dim?, dtype:dtype?)
F.linear (x:t, weight:t, bias:t?)
F.embedding (x:i, weight:t, padding_idx:index?)
F.one_hot (x:i, num_classes:size?)
F.dropout (x:t, p:n?, training:flag?)
F.pad (x:t, pad:pad, mode:mode?, value:n?)
F.normalize (x:t, p:p?, dim:dim?)
F.cosine_similarity (x:t, other:t, dim:dim?)
F.layer_norm|F.rms_norm (x:t, normalized_shape:shape)
F.cross_entropy|F.nll_loss (x:t, target:i, reduction:reduction?*, ignore_index:index?*)
F.mse_loss|F.l1_loss|F.smooth_l1_loss|F.binary_cross_entropy_with_logits|F.binary_cross_entropy|F.huber_loss|F.kl_div (x:t, target:t, reduction:reduction?*)
F.scaled_dot_product_attention (x:t, key:t, value:t, attn_mask:b?, is_causal:flag?*)
nn.Linear (in_features:size, out_features:size, bias:flag?)(x)
nn.Embedding (num_embeddings:size, embedding_dim:size, padding_idx:index?)(i)
nn.LayerNorm|nn.RMSNorm (normalized_shape:shape, eps:n?)(x)
nn.Dropout (p:n?, inplace:flag?)(x)
nn.ReLU|nn.SiLU (inplace:flag?)(x)
nn.GELU (approximate:approximate?)(x)
nn.Sigmoid|nn.Tanh|nn.Identity|nn.ELU|nn.LeakyReLU|nn.Softplus ()(x)
nn.Softmax|nn.LogSoftmax (dim:dim?)(x)
nn.Flatten (start_dim:dim?, end_dim:dim?)(x)
nn.CrossEntropyLoss (reduction:reduction?*, label_smoothing:n?*)(x, target)
nn.MSELoss|nn.L1Loss|nn.BCEWithLogitsLoss (reduction:reduction?*)(x, y)
nn.Conv1d|nn.Conv2d|nn.BatchNorm1d (n:size, m:size?, k:size?)(x)
nn.Parameter (data:t, requires_grad:flag?)
torch.optim.SGD (params:params, lr:n, momentum:n?, weight_decay:n?)
torch.optim.Adam|torch.optim.AdamW (params:params, lr:n?, betas:betas?, eps:n?, weight_decay:n?)
torch.linalg.norm|torch.linalg.vector_norm (x:t)
"""
WRITTEN = """
x + y|x - y|x * y|x / y|x // y|x % y|x ** y|x @ y|x == y|x < y|x & y|x ^ y|~x|-x|abs(x)|x + 1|2 - x|x * 0.5|1 / x
x ** 2|x ** 0|x ** -1|2 ** x|x - True|x + True|x > 0|x[0]|x[-1]|x[1:]|x[:, 0]|x[..., None]|x[None]|x[i]|x[x > 0]
x / x.norm()|x[:, -1:]|len(x)|float(x)|int(x)|bool(x)|[*x]|x.sum() / 3|x.mean(0)|x.max(0).values|x.max(1)[1]
x.T @ x|x.mT @ x|x.view(-1)|x.reshape(-1, 1)|x.unsqueeze(0).expand(2, *x.shape).sum(0)|x.std(0)|x.var()|x.prod()
x.cumprod(0)|torch.where(y > 0, x, y)|torch.where(i, x, y)|x.masked_fill(x == 0, -inf).softmax(-1)|x.sum(axis=0)
x.mean(axis=-1, keepdims=True)|x.max(axis=0)|torch.flip(x, dims=(0,))|torch.cuda.is_available()|x.cuda()|x.numpy()
x.cpu()|x.to('cpu')|torch.device('cuda')|x.T.stride()|x.t().contiguous().stride()|x.transpose(0, -1).clone().stride()
(x * y).sum()|(x ** 2).sum().sqrt()|x.exp() / x.exp().sum(-1, keepdim=True)|F.softmax(x, dim=-1).log()
x.size(0)|x.shape[0]|x.expand(3, *x.shape).add_(1)|x.to(torch.int64) * 2 ** 60 + 1|x.long() + 2 ** 53
torch.tensor(2 ** 53 + 1)|torch.tensor([2 ** 62]) + 1|torch.randn(17, dtype=torch.bfloat16)|torch.topk(x.flatten(), 2)
x.detach().requires_grad_()|x.clone().fill_diagonal_(0)|torch.maximum(x, 1.5)|torch.bmm(x[None], y[None])|f'{x}'
x.norm(dim=-1)|x.norm(dim=-1, keepdim=True)|torch.stack([x, x]).mean(0)|torch.cat([x, y])|torch.ones(2, 3) @ x
(x > 0).float().mean()|(x.argmax(-1) == i).float().mean()|x.softmax(0).sum(0)|x.log_softmax(-1)[..., 0]|x.requires_grad
x.isnan().any()|x.abs().max()|x.sort()[0]|x.tolist()|str(x.dtype)|x.dtype == torch.float32|torch.is_tensor(x)
F.cross_entropy(x, i)|F.cross_entropy(x, x.softmax(-1))|F.mse_loss(x, y)|F.nll_loss(F.log_softmax(x, -1), i)
torch.atan2(x, x)|x.sum(None)|x.mean(dim=None)|x.all(())|x.any(dim=())|x.sum(dtype=torch.int64)|x.cumprod(0).exp()
F.linear(x, y[0], y)|F.linear(x, x, y[:1])|torch.rand((0,), dtype=torch.int32)|x.roll(1)|x.split(True)|x.flip(None)
(x * 1).fill_(y.sum())|(x * 1).zero_()|x[:0].chunk(3)|x[:0].median()|x.repeat_interleave(2)|F.elu(x / 0)|F.rms_norm(x.t(), (2,))
x.sum().max(0)|x.sum().sort()[0]|x.sum().median(0)[0]|x.gather(0, i.sum())|F.binary_cross_entropy_with_logits(x, y > 0)
F.binary_cross_entropy_with_logits(x, y.double())|torch.linspace(-1.5, inf, 3)|x.unsqueeze(1).transpose(0, -1).clone().stride()
"""
STATEMENTS = """
x += 1|x -= y|x *= 2|x /= 2|x[0] = 0|x[..., 0] = y[..., 0]|x[i] = 1|x[x > 0] = 0|x[0] += 1|x.data *= 2|y = x
y = x.detach()|x = x.clone()|x = x.t()|x = x[1:]|x = x.double()|x = x.unsqueeze(0)|y = x.clone()|x = x * 2|x = x[None]
"""
MISTAKES = ["'a'", "None", "1.5", "[1, 2]", "True", "x", "-7", "torch"]
NUMBERS = ["0", "1", "2", "-1", "0.5", "-1.5", "3", "0.0", "inf", "nan", "True", "1e-3"]
KINDS = ["float32"] * 6 + [
    "float64",
    "int64",
    "int64",
    "bool",
    "float16",
    "bfloat16",
    "int32",
    "uint8",
]
SHAPES = [
    (),
    (3,),
    (2, 3),
    (2, 3),
    (3, 3),
    (2, 2),
    (1, 3),
    (2, 1),
    (0,),
    (2, 0),
    (2, 3, 2),
    (1,),
    (4,),
    (2, 1, 3),
]


class Author:
    """Writes programs, each from a seed of its own."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.calls = [
            (name, *signature.split(" (", 1))
            for line in SIGNATURES.strip().splitlines()
            for signature in [line]
            for name in signature.split(" (", 1)[0].split("|")
        ]

    def often(self, share):
        return self.chance.random() < share

    def number(self, kind):
        if kind == "bool":
            return self.often(0.5)
        if kind in ("int64", "int32", "uint8"):
            return self.chance.choice([0, 0, 1, 1, 2, 3, 5] + ([-1, -2] if kind != "uint8" else []))
        if self.often(0.06):
            return self.chance.choice(["nan", "inf", "-inf", "1e30", "-0.0", "1e-30"])
        return self.chance.choice(
            [0.0, 0.0, 1.0, 1.0, -1.0, 2.0, round(self.chance.gauss(0, 1), 2)]
        )

    def tensor(self, kind, shape):
        numbers = ", ".join(str(self.number(kind)) for _ in range(math.prod(shape)))
        made = f"torch.tensor([{numbers}], dtype=torch.{kind})"
        if len(shape) == 2 and self.often(0.15):
            return f"{made}.reshape({[*shape[::-1]]}).t()"
        return made if len(shape) == 1 else f"{made}.reshape({[*shape]})"

    def program(self):
        """Return the lines of a program: what is made, what is done, and what comes of it."""
        kind, shape = self.chance.choice(KINDS), self.chance.choice(SHAPES)
        other = shape if self.often(0.75) else self.chance.choice(SHAPES)
        self.dims, self.shape = len(shape), shape
        lines = [f"x = {self.tensor(kind, shape)}"]
        if kind.startswith(("float", "bfloat")) and self.often(0.5):
            lines[0] += ".requires_grad_()"
            lines.append("leaf = x")
        lines.append(
            f"y = {self.tensor(kind if self.often(0.8) else self.chance.choice(KINDS), other)}"
        )
        lines.append(f"i = {self.index(shape)}")
        if self.often(0.2):
            lines.append(self.chance.choice(STATEMENTS.replace("\n", "|").strip("|").split("|")))
        if self.often(0.25):
            lines.append(f"x = {self.expression()}")
        return [*lines, f"out = {self.expression()}"]

    def index(self, shape):
        sizes = self.chance.choice([shape, shape[:1], (2,), shape[:-1]])
        numbers = [
            self.chance.choice([0, 0, 1, 1, 2, -1]) if self.often(0.3) else self.often(0.5) + 0
            for _ in range(math.prod(sizes))
        ]
        return f"torch.tensor({numbers}, dtype=torch.int64).reshape({[*sizes]})"

    def expression(self):
        if self.often(0.3):
            return self.chance.choice(WRITTEN.replace("\n", "|").strip("|").split("|"))
        name, _, rest = self.chance.choice(self.calls)
        rest, _, called = rest.partition(")")
        called = f"{called}" if called else ""
        given = [part.split(":") for part in rest.split(", ") if part]
        arguments, by_name = [], False
        for place, (parameter, what) in enumerate(given):
            optional, keyword = "?" in what, "*" in what
            what = what.rstrip("?*")
            if optional and self.often(0.6):
                by_name = True
                continue
            value = self.value(what)
            if self.often(0.02):
                value = self.chance.choice(MISTAKES)
            by_name = by_name or keyword or (optional and self.often(0.5))
            if by_name and place:
                if self.often(0.03):
                    parameter = self.misspelt(parameter)
                if self.often(0.06):
                    parameter = {"dim": "axis", "keepdim": "keepdims"}.get(parameter, parameter)
                arguments.append(f"{parameter}={value}")
            else:
                arguments.append(value)
        if self.often(0.01):
            arguments.append(
                self.chance.choice(
                    ["out=y", "wrong=1", "device='cpu'", "device='cuda'", "names=None"]
                )
            )
        first = given[0][1] if given else ""
        if first == "attribute":
            return f"x{name}"
        if name.startswith("."):
            return f"x{name}({', '.join(arguments[1:])})"
        if "." in name:
            call = f"{name}({', '.join(arguments)})"
            return (
                f"({call}){called.replace('target', 'i').replace('(', '(', 1)}" if called else call
            )
        if first == "t" and self.often(0.4) and len(arguments) and arguments[0] == "x":
            return f"x.{name}({', '.join(arguments[1:])})"
        return f"torch.{name}({', '.join(arguments)})"

    def misspelt(self, name):
        at = self.chance.randrange(len(name))
        return self.chance.choice(
            [name[:at] + name[at + 1 :] or "a", name + "s", name[:at] + name[at] + name[at:]]
        )

    def value(self, what):
        pick, dims = self.chance.choice, max(self.dims, 1)
        if what in ("t", "attribute"):
            return "x" if self.often(0.6) else "y"
        if what == "tn":
            return pick(["y", "y", "x", pick(NUMBERS)])
        if what == "dim":
            return str(self.chance.randrange(-dims, dims) if self.often(0.93) else dims + 1)
        if what == "dims":
            return pick(
                [
                    self.value("dim"),
                    self.value("dim"),
                    f"({self.value('dim')},)",
                    f"[{self.value('dim')}, {self.value('dim')}]",
                    "()",
                    "None",
                ]
            )
        if what == "shape":
            sizes = pick(
                [
                    self.shape,
                    self.shape[::-1],
                    (-1,),
                    (2, 3),
                    (3, 1),
                    (2, -1),
                    self.shape[-1:],
                    (0,),
                ]
            )
            return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
        return {
            "n": lambda: pick(NUMBERS),
            "b": lambda: pick(["y > 0", "x > 0", "x == 0", "y == y", "i", "i > 0"]),
            "i": lambda: "i",
            "ts": lambda: pick(["[x, y]", "(x, x)", "[x]", "[y, x, y]", "[]"]),
            "flag": lambda: pick(["True", "False"]),
            "dtype": lambda: f"torch.{pick(KINDS)}",
            "rounding": lambda: pick(["'floor'", "'trunc'", "None", "'round'"]),
            "p": lambda: pick(["2", "1", "inf", "0", "'fro'", "3"]),
            "size": lambda: pick(["1", "2", "3", "0", "4"]),
            "index": lambda: pick(["0", "1", "-1", "2"]),
            "numbers": lambda: pick(["[1, 2]", "[[1., 2.], [3., 4.]]", "[True, False]", "[]", "[1, 2.5]", "1.5", "'a'", "(1, 0)", "y"]),
            "data": lambda: pick(["[1, 2]", "[[1., 2.], [3., 4.]]", "3", "[True, False]", "[]", "[1, 2.5]", "x", "[[1], [2, 3]]", "(1, 0)", "[2 ** 53 + 1]", "1.5", "[nan, -inf]"]),
            "pad": lambda: pick(["(1, 1)", "(0, 1)", "(1, 0, 0, 1)", "(-1, 0)", "(1,)"]),
            "mode": lambda: pick(["'constant'", "'reflect'", "'replicate'"]),
            "reduction": lambda: pick(["'none'", "'sum'", "'mean'", "'avg'"]),
            "approximate": lambda: pick(["'none'", "'tanh'", "'erf'"]),
            "equation": lambda: pick(["'ij,ij->ij'", "'ij,jk->ik'", "'i,i->'", "'ij,ij->i'", "'...d,...d->...'"]),
            "params": lambda: pick(["[nn.Parameter(y.float())]", "nn.Linear(2, 2).parameters()", "[]", "x"]),
            "betas": lambda: pick(["(0.9, 0.99)", "(1.0, 0.9)"]),
        }[what]()  # fmt: skip


def compared(found, wanted):
    """Say how what the small torch told differs from what PyTorch told: a kind, "" where it does not."""
    if "lacks" in found:
        return "lacks"
    if any(str(number) in wanted.get("text", "") for number in UNDEFINED):
        return ""
    if "raised" in wanted:
        if "raised" not in found:
            return "no error"
        return "" if found["raised"] == wanted["raised"] else "other exception"
    if "raised" in found:
        return "error"
    for part in ("kind", "value", "gradient"):
        if not agree(found.get(part), wanted.get(part)):
            return part
    if found["text"] != wanted["text"]:
        names = [text.partition("grad_fn=")[2] for text in (found["text"], wanted["text"])]
        return "grad_fn" if names[0] != names[1] else "digits"
    return ""


# What a processor makes of inf and nan where whole numbers are asked for; others make other numbers.
UNDEFINED = (-(2**31), 2**31 - 1, -(2**63), 2**63 - 1)
SILENT = ("no error", "kind", "value", "gradient", "grad_fn")
NEAR = {
    "torch.float32": 2e-5,
    "torch.float64": 1e-10,
    "torch.float16": 4e-3,
    "torch.bfloat16": 3e-2,
}


def agree(found, wanted, near=1e-5):
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.keys()
            and all(
                agree(found[key], wanted[key], NEAR.get(wanted.get("dtype"), near))
                for key in wanted
            )
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(agree(a, b, near) for a, b in zip(found, wanted, strict=True))
        )
    if isinstance(wanted, float) and isinstance(found, float):
        return abs(found - wanted) <= near * max(1.0, abs(wanted))
    return found == wanted and type(found) is type(wanted)


AT_ONCE = 40  # programs of one block: what a block may print has an end


def differences(seeds):
    """Run the programs of these seeds in both; return those that differ."""
    return differing({seed: "\n".join(Author(seed).program()) for seed in seeds})


def differing(named):
    """Run programs, each under a name, in both; return (kind, name, program, what each told) where they differ."""
    programs = [*named.values()]
    blocks = ["import json\n" + Path(telling.__file__).read_text(encoding="utf-8")]
    for at in range(0, len(programs), AT_ONCE):
        blocks.append(
            f"print(json.dumps([told_by(each) for each in {programs[at : at + AT_ONCE]!r}]))"
        )
    answers = [each for text in in_page(blocks)[1:] for each in json.loads(text)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = [json.loads(json.dumps(telling.told_by(program))) for program in programs]
    return [
        (kind, name, program, found, wanted)
        for (name, program), found, wanted in zip(named.items(), answers, right, strict=True)
        if (kind := compared(found, wanted))
    ]


def told(kind, seed, program, found, wanted):
    """Return a report of one program that differs."""
    program = program.replace("\n", "\n    ")
    return f"{kind}, seed {seed}:\n    {program}\n  small torch {found}\n  PyTorch     {wanted}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--kind", default="")
    asked = parser.parse_args()
    first = asked.seed * 10_000
    found = differences(range(first, first + asked.count))
    kinds = defaultdict(list)
    for difference in found:
        kinds[difference[0]].append(difference)
    for kind, held in kinds.items():
        for difference in held[: asked.show if asked.kind in ("", kind) else 0]:
            print(told(*difference), end="\n\n")
    counted = Counter(kind for kind, *_ in found)
    silent = sum(counted[kind] for kind in SILENT)
    print(
        f"--seed {asked.seed}: of {asked.count} programs {silent} differ in silence; {dict(counted)}"
    )
    sys.exit(bool(silent))


if __name__ == "__main__":
    main()
