"""Cases for the operators of the small torch: code, and the tensors it gets, drawn with a fixed seed."""

import math
import random
import re

from tests.small_torch import draws_from_one_stream

FLOATS = ["float32", "float64"]
HALVES = ["float16", "bfloat16"]
WHOLE = ["int64", "int32", "uint8"]


class Draw:
    """Draws the tensors of cases."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def number(self, kind, low=-2.0, high=2.0):
        if kind == "bool":
            return self.chance.random() < 0.5
        if kind in WHOLE:
            return self.chance.randint(0 if kind == "uint8" else -5, 6)
        return round(self.chance.uniform(low, high), 3)

    def tensor(self, kind, shape, low=-2.0, high=2.0):
        """A tensor as `answering.tensor_of` takes it; a third of them lie in memory by columns."""
        count = math.prod(shape)
        numbers = [self.number(kind, low, high) for _ in range(count)]
        turned = len(shape) > 1 and self.chance.random() < 1 / 3
        return [kind, list(shape), numbers, turned]

    def shape(self, most=4, least=0):
        return [self.chance.choice([1, 2, 3, 4]) for _ in range(self.chance.randint(least, most))]

    def pair_of_shapes(self):
        """Two shapes that broadcast."""
        full = self.shape(3)
        first, second = ([1 if self.chance.random() < 0.3 else n for n in full] for _ in range(2))
        cut = self.chance.randint(0, len(full))
        return (first, second[cut:]) if self.chance.random() < 0.5 else (second[cut:], first)

    def of(self, *choices):
        return self.chance.choice(choices)


def case(code, *tensors, gradients=0):
    return {"code": code, "tensors": list(tensors), "gradients": gradients}


def twice(*kinds):
    """Gradients of gradients, in float64 alone, where they mean something to the last digits."""
    return 2 if {*kinds} == {"float64"} else 1 if {*kinds} <= {*FLOATS} else 0


ANY = [*FLOATS, "int64", "bool", *HALVES]
ONE = {  # what each is given, and how its numbers are bounded
    "exp expm1 sin cos tanh sigmoid erf square abs neg relu floor ceil round trunc sign": (-2, 2),
    "log log2 log10 log1p sqrt rsqrt reciprocal": (0.1, 3),
    "asin acos atan sinh cosh tan": (-0.9, 0.9),
    "isnan isinf isfinite isneginf logical_not": (-2, 2),
}
PAIRS = [
    "x + y",
    "x - y",
    "x * y",
    "x / y",
    "torch.maximum(x, y)",
    "torch.minimum(x, y)",
    "torch.where(x > y, x, y)",
]
PAIRS += [
    "x // y",
    "x % y",
    "torch.atan2(x, y)",
    "torch.logaddexp(x, y)",
    "x.lerp(y, 0.3)",
    "torch.add(x, y, alpha=2)",
]
NUMBERS = [
    "x + 2",
    "2 - x",
    "x * 0.5",
    "1 / x",
    "x / 3",
    "x ** 2",
    "x ** 0.5",
    "2 ** x",
    "x // 2",
    "x % 3",
    "-x",
    "x + True",
]
NUMBERS += [
    "x.clamp(1, 2)",
    "x.clamp(min=0.5)",
    "x.clamp(max=0)",
    "torch.pow(x, 3)",
    "x.masked_fill(x > 0, 7)",
    "x > 1",
]
NUMBERS += [
    "x == 1",
    "x != 2",
    "x <= 0.5",
    "torch.where(x > 0, x, 0)",
    "x.nan_to_num(0)",
    "x.add(1, alpha=3)",
    "x.float()",
]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "std",
    "var",
    "norm",
    "logsumexp",
    "max",
    "min",
    "median",
]
REDUCTIONS += [
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "softmax",
    "log_softmax",
    "any",
    "all",
    "argsort",
    "diff",
    "cummax",
]
VIEWS = """x.T if x.dim() == 2 else x.mT|x.transpose(0, -1)|x.permute(2, 0, 1)|x.reshape(-1)|x.reshape(4, -1)|x.flatten(1)|x.unsqueeze(1)
x.unsqueeze(-1)|x.squeeze()|x.expand(5, 2, 3, 4)|x.movedim(0, -1)|x.unflatten(-1, (2, 2))|x.narrow(1, 0, 2)|x.select(2, -1)|x.diagonal(0, 0, 1)
x[1]|x[:, 1:]|x[..., 0]|x[:, None]|x[0, :, -2:]|x[:, ::2]|x[-1, -1, -1]|x[..., None, :]|x[[1, 0]]|x[:, [0, 2, 0]]|x[[0, 1], [1, 2]]
x[x > 0]|x[:, torch.tensor([[0], [2]])]|x[torch.tensor([True, False])]|x[0, torch.tensor([2, 0]), 1:]|x[:, torch.tensor([1]), torch.tensor([3])]
x.split(2, -1)|x.split([1, 2], 1)|x.chunk(2, 2)|x.unbind(1)|torch.stack([x, x * 2], 1)|torch.cat([x, x + 1], -1)|x.flip(0)|x.flip(-1, 1)
x.roll(1, 2)|x.repeat(2, 1, 1)|x.repeat_interleave(2, 1)|x.tile(2)|x.tril()|x.triu(1)|x.tril(-1)|x.contiguous()|x.clone()|x.gather(2, (x > 0).long())
x.index_select(1, torch.tensor([2, 0, 2]))|x.take_along_dim((x > 0).long(), 1)|x.sort(-1)|(x + torch.arange(24).reshape(2, 3, 4) / 100).topk(2)|(x + torch.arange(24).reshape(2, 3, 4) / 100).topk(2, 1, largest=False)|x.view(6, 4) * 2
x.sum_to_size(1, 3, 1)|torch.outer(x[0, 0], x[1, 1])|torch.diag(x[0, 0])|x.nonzero()|torch.broadcast_tensors(x, x[:, :1])|x.mT @ x|x.double()
torch.kron(x[0], x[1, :2])|torch.cartesian_prod(x[0, 0], x[0, 1])|x.float().half().float()|x.count_nonzero(1)|x.unfold(2, 2, 1)|x.swapaxes(0, 1)
x.new_zeros(2, 3)|x.new_full((2,), 3)|torch.zeros_like(x)|torch.full_like(x, 2)|x.is_contiguous()|x.stride()|x.numel()|x.shape|x.tolist()""".replace(
    "\n", "|"
).split("|")
IN_PLACE = """y = x.clone(); y.add_(2); out = y|y = x.clone(); y.mul_(x); out = y|y = x.clone(); y[0] = 1; out = y|y = x.clone(); y[:, 1] *= 3; out = y
y = x.clone(); y[y > 0] = 0; out = y|y = x.clone(); y.masked_fill_(y < 0, 5); out = y|y = x.clone(); y.clamp_(min=0); out = y|y = x * 1; z = y[:, 1:]; z += 1; out = y
y = x.clone(); y[:, [0, 2]] = x[:, [2, 0]]; out = y|y = x * 1; y.sub_(x, alpha=2).div_(3); out = y|y = x.clone(); y.copy_(x[:1]); out = y|y = x * 1; y.zero_(); out = y + x
y = torch.zeros(3, 4, dtype=x.dtype); y.index_add_(0, torch.tensor([0, 2]), x[:, 0]); out = y|y = x * 1; y.transpose(0, 1)[2] = 7; out = y|y = x * 1; y.fill_diagonal_(9) if y.dim() == 2 else y.neg_(); out = y
y = torch.zeros(2, 3, 4, dtype=x.dtype); y.scatter_(2, (x > 0).long(), x); out = y|y = x.detach().clone(); y.normal_(0, 0); out = y|y = x * 1; y[1, 2, 3] = x.sum(); out = y
y = x * 1; y[:, :, None][:, 0] = 4; out = y|y = x.clone(); y[torch.tensor([1, 0])] = x; out = y|y = x * 1; y[0] += y[1]; out = y""".replace(
    "\n", "|"
).split("|")
PRODUCTS = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((2, 2, 3), (3, 4)),
    ((2, 1, 2, 3), (3, 3, 2)),
    ((4, 2, 3), (4, 3, 1)),
    ((2, 3), (2, 3, 2)),
]
LAYERS = """nn.Linear(4, 3)|nn.Linear(4, 2, bias=False)|nn.LayerNorm(4)|nn.LayerNorm(4, bias=False)|nn.LayerNorm((3, 4), elementwise_affine=False)|nn.RMSNorm(4)
nn.RMSNorm(4, eps=1e-6)|nn.GELU()|nn.GELU("tanh")|nn.SiLU()|nn.ReLU()|nn.Dropout(0.4)|nn.Dropout(0.4).eval()|nn.Identity()|nn.Softmax(-1)|nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))""".replace(
    "\n", "|"
).split("|")
ATTENTIONS = [
    "",
    "is_causal=True",
    "attn_mask=torch.ones(3, 5).tril() > 0",
    "attn_mask=torch.zeros(3, 5, dtype=x.dtype).index_fill_(1, torch.tensor([2]), -math.inf)",
]
ATTENTIONS += [
    "scale=0.3",
    "attn_mask=torch.ones(3, 5).tril(-1) > 0",
    "dropout_p=0.4",
    "attn_mask=(torch.ones(3, 5).tril(1) > 0).expand(*x.shape[:-1], 5)",
]
FUNCTIONS = """F.softmax(x, -1)|F.log_softmax(x, 1)|F.gelu(x)|F.silu(x)|F.elu(x)|F.relu(x)|F.normalize(x, dim=-1)|F.normalize(x, p=1, dim=0)
F.pad(x, (1, 2))|F.pad(x, (0, 1, 2, 0), value=3.0)|F.pad(x, (-1, 1))|F.layer_norm(x, (4,))|F.layer_norm(x, x.shape[1:])|F.rms_norm(x, (4,))
F.cosine_similarity(x, x.flip(0), dim=-1)|F.cross_entropy(x.flatten(0, 1), torch.tensor([0, 3, 1, 2, 2, -100]))|F.cross_entropy(x.mT, torch.tensor([[0, 1, 2], [3, 0, 1]]))
F.cross_entropy(x, x.softmax(1).detach())|F.cross_entropy(x[0], torch.tensor([1, 1, 3]), reduction="none")|F.cross_entropy(x[0, 0], torch.tensor(2), reduction="sum")
F.mse_loss(x, x.flip(0))|F.dropout(x, 0.3)|F.dropout(x, 0.3, training=False)|F.linear(x, x[0])|F.embedding(torch.tensor([[0, 1], [1, 1]]), x[:, 0])|F.one_hot(torch.tensor([0, 2]), 4)
F.softplus(x)|F.logsigmoid(x)|F.leaky_relu(x)|torch.logsumexp(x, (0, 2))|torch.cumsum(x, 0)|torch.linalg.norm(x, dim=-1)|torch.cdist(x, x)""".replace(
    "\n", "|"
).split("|")
MAKERS = """torch.arange(5)|torch.arange(1, 6, 2)|torch.arange(0, 1, 0.25)|torch.arange(5.0)|torch.arange(3, dtype=torch.float64)|torch.linspace(0, 1, 5)|torch.eye(3)|torch.eye(2, 3)
torch.zeros(2, 3)|torch.ones((2,), dtype=torch.int64)|torch.full((2, 2), 7)|torch.full((2,), 0.5)|torch.full((1,), True)|torch.tensor([[1, 2], [3, 4]])|torch.tensor([1, 2.5])|torch.tensor(True)
torch.tensor([])|torch.tensor([[], []])|torch.empty(0, 3)|torch.tril(torch.ones(3, 3))|torch.ones(3, 3).triu(1).bool()|torch.tensor(2.0) * torch.arange(3)|torch.tensor(3) / torch.tensor(2)
torch.promote_types(torch.int64, torch.float32)|torch.broadcast_shapes((2, 1), (3,))|torch.finfo(torch.float32).max|torch.iinfo(torch.int64).max|torch.bincount(torch.tensor([0, 2, 2]))
torch.allclose(torch.ones(2), torch.ones(2) + 1e-9)|torch.equal(torch.ones(2), torch.ones(3))|torch.tensor([1.0, math.nan]).isnan()|torch.tensor([3, 1, 2]).sort(descending=True)
torch.randn(3, 2)|torch.rand(17)|torch.randn(33)|torch.randperm(9)|torch.randint(3, 9, (5,))|torch.randn(2, 2, dtype=torch.float64)|torch.rand(4, generator=torch.Generator().manual_seed(3))
torch.multinomial(torch.tensor([0.2, 0.5, 0.3]), 1)|torch.bernoulli(torch.full((6,), 0.5))|torch.empty(20).uniform_(-1, 1)|torch.polar(torch.ones(3), torch.arange(3.0))|torch.randn(2, 3, 2)[..., 1]""".replace(
    "\n", "|"
).split("|")
ERRORS = """torch.ones(2, 3) + torch.ones(2, 4)|torch.ones(2, 3) @ torch.ones(2, 3)|torch.ones(3)[5]|torch.ones(2, 3)[0, 0, 0]|torch.ones(2, 3).view(4)|torch.ones(2, 3).reshape(-1, 4)
torch.cat([torch.ones(2, 3), torch.ones(3, 2)])|torch.stack([torch.ones(2), torch.ones(3)])|torch.ones(2).sum(1)|torch.ones(2, 3).softmax(2)|torch.ones(3).item()|bool(torch.ones(2))
torch.tensor([[1, 2], [3]])|torch.ones(2, 3).expand(3, 3)|torch.ones(2, dtype=torch.int64).mean()|torch.ones(2).backward()|torch.ones(2, requires_grad=True).add_(1)|torch.ones(2, 3).T.view(6)
torch.ones(2, dtype=torch.int64).requires_grad_()|torch.zeros(2).masked_fill(torch.ones(3) > 0, 1.0)|torch.ones(2, 3).mm(torch.ones(2, 3))|torch.ones(2) @ torch.ones(2, dtype=torch.float64)
nn.Linear(3, 2)(torch.ones(2, 4))|nn.Embedding(3, 2)(torch.tensor([3]))|nn.Embedding(3, 2)(torch.ones(2))|nn.LayerNorm(4)(torch.ones(2, 3))|nn.Linear(2, 2).load_state_dict({})|nn.Dropout(1.5)
nn.Linear(3, 2)(torch.ones(2, 3, dtype=torch.float64))|F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3]))|F.cross_entropy(torch.ones(2, 3), torch.tensor([0]))|torch.ones(2).transpose(0, 2)
torch.ones(2, 3).split([1, 1], 1)|torch.ones(4).unflatten(0, (3, 2))|torch.arange(3, 1)|torch.ones(2, 3).gather(1, torch.tensor([[5]]))|torch.ones(2) & torch.ones(2)|torch.ones(2).topk(3)
torch.bmm(torch.ones(2, 2), torch.ones(2, 2))|torch.dot(torch.ones(2), torch.ones(3))|(torch.ones(2, requires_grad=True) * 2).backward()|torch.ones(3)[[0, 4]]|torch.ones(3)[1.0]|torch.ones(2, 2).squeeze(3)
torch.allclose(torch.ones(2), torch.ones(2).double())|torch.randint(3, 3, (2,))|torch.zeros(-1)|torch.tensor("a")|torch.tensor([1, None])|torch.ones(2).nope|nn.Module().nope|nn.MultiheadAttention(5, 2)
F.scaled_dot_product_attention(torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 4))|F.scaled_dot_product_attention(torch.ones(2, 3), torch.ones(2, 3).double(), torch.ones(2, 3))|len(torch.tensor(1))
torch.optim.SGD([], lr=1)|torch.optim.AdamW([torch.ones(1)], lr=-1)|torch.ones(2).permute(0, 0)|torch.ones(2, 2).tril() @ 3|torch.ones(3).scatter(0, torch.tensor([4]), 1.0)|iter(torch.tensor(1))""".replace(
    "\n", "|"
).split("|")

# What modules, optimizers and errors say, and what is left of them; `m` is a model and `told` a list of texts.
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head, self.drop = nn.Linear(4, 5, bias=False), nn.Dropout(0.1)
        self.register_buffer("mask", torch.ones(2, 2).tril())
        self.register_buffer("places", torch.arange(3), persistent=False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.head.weight = nn.Parameter(self.table.weight.detach().T.clone().T)

    def forward(self, x):
        x = self.table(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.drop(x)) * self.scale

def said(code):
    try:
        return repr(eval(code, globals() | {"m": m, "state": state}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

globals().update(torch=torch, nn=nn, F=F)
torch.manual_seed(3)
m = Model()
state = m.state_dict()
"""
TOLD = """m|[*m.state_dict()]|[n for n, _ in m.named_parameters()]|[n for n, _ in m.named_modules()]|[n for n, _ in m.named_children()]|[n for n, _ in m.named_buffers()]
sum(p.numel() for p in m.parameters())|m.load_state_dict(state)|m.load_state_dict({"a": torch.ones(1), **state})|m.load_state_dict({"scale": torch.ones(2)})
m.load_state_dict({"scale": torch.ones(())}, strict=False)|m.nope|m.blocks[1]|m.blocks[:2]|len(m.blocks)|m.double().scale.dtype|m.places.dtype|m.mask.dtype|m.float().head.weight.dtype
m.eval().training|m.drop.training|m.train().drop.training|m.requires_grad_(False).scale.requires_grad|m.get_submodule("blocks.1")|m.get_parameter("blocks.0.bias").shape
setattr(m, "scale", 3)|setattr(m, "scale", None)|m.scale|setattr(m, "mask", torch.zeros(1))|m.mask|setattr(m, "blocks", [1])|delattr(m, "drop")|m.drop|m.register_parameter("x", torch.ones(1))
nn.Sequential(nn.Linear(2, 2), nn.ReLU())[0]|nn.ModuleDict({"a": nn.GELU()})|nn.Parameter(torch.ones(2))|nn.Linear(2, 2).weight.requires_grad|isinstance(nn.Linear(2, 2).bias, nn.Parameter)
torch.optim.AdamW(nn.Linear(2, 2).parameters())|torch.optim.SGD([torch.ones(1)], lr=-1)|torch.optim.SGD(torch.ones(1), lr=1)|nn.MultiheadAttention(8, 2)|nn.MultiheadAttention(7, 2)|nn.RMSNorm(4)
nn.LayerNorm(4)(torch.ones(2, 3))|nn.Linear(3, 2)(torch.ones(2, 4))|nn.Embedding(3, 2)(torch.tensor([3]))|nn.Embedding(3, 2)(torch.ones(2))|F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3]))
F.scaled_dot_product_attention(torch.ones(2, 3), torch.ones(2, 3).double(), torch.ones(2, 3))|F.dropout(torch.ones(2), 2)|torch.testing.assert_close(torch.ones(3), torch.tensor([1.0, 2, 1]))
torch.testing.assert_close(torch.ones(2), torch.ones(3))|torch.testing.assert_close(1.0, 2.0)|torch.testing.assert_close(torch.ones(2), torch.ones(2).double())""".replace(
    "\n", "|"
).split("|")
HOOKS = """
told = []
first = m.head.register_forward_hook(lambda module, x, y: told.append((type(module).__name__, len(x), tuple(y.shape))))
second = m.table.register_forward_hook(lambda module, x, y: y * 0)
third = m.blocks[0].register_forward_pre_hook(lambda module, x: (x[0] + 1,))
m.eval()
found = m(torch.tensor([[1, 2]]))
for hook in (first, second, third):
    hook.remove()
out = told, found, m(torch.tensor([[1, 2]]))
"""


def out(code):
    return code if "out =" in code else f"out = {code}"


def one(draw):
    for names, (low, high) in ONE.items():
        for name in names.split():
            for kind in ANY:
                x = draw.tensor(kind, draw.shape(), low, high)
                yield case(f"out = torch.{name}(x)", x, gradients=twice(kind))


def pairs(draw):
    for code in PAIRS:
        for _ in range(12):
            mixed = draw.of(True, False) and "logaddexp" not in code and "lerp" not in code
            kinds = (
                [draw.of(*ANY, "int32", "uint8") for _ in "xy"] if mixed else [draw.of(*FLOATS)] * 2
            )
            shapes = draw.pair_of_shapes()
            x, y = (
                draw.tensor(kind, shape, 0.3, 3) for kind, shape in zip(kinds, shapes, strict=True)
            )
            yield case(f"out = {code}", x, y, gradients=0 if "//" in code else twice(*kinds))


def numbers(draw):
    for code in NUMBERS:
        for kind in [*ANY, "int32", "uint8"]:
            yield case(
                f"out = {code}",
                draw.tensor(kind, draw.shape(), 0.2, 3),
                gradients=0 if "//" in code else twice(kind),
            )


def reductions(draw):
    for name in REDUCTIONS:
        for kind in (
            *FLOATS,
            *FLOATS,
            "int64",
            *(["bool"] if name not in ("norm", "median") else []),
            "bfloat16",
        ):
            shape = draw.shape(3, 1)
            dim = draw.of(*range(-len(shape), len(shape)))
            rest = (
                draw.of("", ", keepdim=True")
                if REDUCTIONS.index(name) < 14 and name not in ("cumsum", "cumprod")
                else ""
            )
            where = f"dim={dim}" if name == "diff" else dim
            whole = not rest and name in (
                "sum",
                "mean",
                "prod",
                "amax",
                "amin",
                "std",
                "var",
                "norm",
                "max",
                "min",
                "argmax",
                "any",
                "all",
            )
            code = f"x.{name}()" if whole and draw.of(0, 1) else f"x.{name}({where}{rest})"
            yield case(f"out = {code}", draw.tensor(kind, shape, 0.2, 2), gradients=twice(kind))


def views(draw):
    for code in VIEWS:
        for kind in (*FLOATS, "int64"):
            yield case(out(code), draw.tensor(kind, (2, 3, 4)), gradients=twice(kind))


def in_place(draw):
    for code in IN_PLACE:
        for kind in (*FLOATS, "int64"):
            yield case(out(code), draw.tensor(kind, (2, 3, 4)), gradients=twice(kind))


def products(draw):
    for first, second in PRODUCTS:
        for kind in (*FLOATS, *FLOATS, "int64", "bfloat16"):
            x, y = draw.tensor(kind, first), draw.tensor(kind, second)
            yield case("out = x @ y", x, y, gradients=twice(kind))


def layers(draw):
    for code in LAYERS:
        for kind in FLOATS:
            made = (
                f"torch.manual_seed(1); m = {code}.to(torch.{kind}); parameters = [*m.parameters()]"
            )
            x = draw.tensor(kind, (2, 3, 4))
            yield case(
                f"{made}; out = m(x), *m.state_dict().values(), list(m.state_dict()), m",
                x,
                gradients=1,
            )
    for kind in FLOATS:
        made = f"torch.manual_seed(1); m = nn.Embedding(5, 3, dtype=torch.{kind}); parameters = [*m.parameters()]"
        yield case(
            f"{made}; out = m(torch.tensor([[0, 4], [4, 1]])), m.weight.detach(), m", gradients=1
        )
        for options in ("", "bias=False", "dropout=0.5", "kdim=3, vdim=2"):
            k, v = (3, 2) if "kdim" in options else (4, 4)
            tensors = [draw.tensor(kind, (2, 3, size)) for size in (4, k, v)]
            for more in (
                "",
                "attn_mask=torch.ones(3, 3).triu(1) > 0",
                "need_weights=False",
                "average_attn_weights=False",
            ):
                made = f"torch.manual_seed(1); m = nn.MultiheadAttention(4, 2, batch_first=True, {options}).to(x.dtype)"
                code = f"{made}; parameters = [*m.parameters()]; out = m(x, y, z, {more})"
                yield case(code, *tensors, gradients=1)


def attentions(draw):
    for options in ATTENTIONS:
        for kind in FLOATS:
            lead = draw.of((2, 2), (2,), ())
            x = draw.tensor(kind, (*lead, 3, 4))
            y, z = (draw.tensor(kind, (*lead, 5, size)) for size in (4, draw.of(4, 4, 2)))
            seeded = "torch.manual_seed(2); " if "dropout" in options else ""
            yield case(
                f"{seeded}out = F.scaled_dot_product_attention(x, y, z, {options})",
                x,
                y,
                z,
                gradients=1,
            )
    for kind in FLOATS:
        x, y, z = (draw.tensor(kind, (1, heads, 3, 4)) for heads in (4, 2, 2))
        code = "out = F.scaled_dot_product_attention(x, y, z, enable_gqa=True)"
        yield case(code, x, y, z, gradients=1)


def functions(draw):
    for code in FUNCTIONS:
        for kind in FLOATS:
            yield case(
                f"torch.manual_seed(4); out = {code}", draw.tensor(kind, (2, 3, 4)), gradients=1
            )


def makers(_):
    for code in MAKERS:
        yield case(f"torch.manual_seed(5); out = {code}")
    yield case(
        "g, h = torch.Generator().manual_seed(3), torch.Generator()\ntorch.randn(5, generator=g)\n"
        "h.set_state(g.get_state())\n"
        "out = [torch.randn(3, generator=each) for each in (g, h)], h.initial_seed()"
    )
    yield case("torch.Generator().set_state(torch.zeros(3))")
    yield case("torch.Generator().set_state(torch.zeros(3, dtype=torch.uint8))")


def optimizers(draw):
    for made in (
        "SGD([x], lr=0.1)", "SGD([x], lr=0.1, momentum=0.9, weight_decay=0.1)", "SGD([x], lr=0.1, momentum=0.9, nesterov=True)",
        "Adam([x], lr=0.1)", "AdamW([x], lr=0.1)", "AdamW([x], lr=0.1, betas=(0.8, 0.9), weight_decay=0.3)",
    ):  # fmt: skip
        for kind in FLOATS:
            code = f"x.requires_grad_()\nsteps = torch.optim.{made}\nfor _ in range(5):\n    steps.zero_grad()\n"
            code += "    (x.square().sum() + x.cos().prod()).backward()\n    steps.step()\nout = x.detach(), steps"
            yield case(code, draw.tensor(kind, (2, 3)))


def modules(_):
    yield case(MODEL + f"out = [said(code) for code in {TOLD!r}]")
    yield case(MODEL + HOOKS)
    yield case(
        MODEL
        + "import copy\nother = copy.deepcopy(m)\nm.scale.data.fill_(5)\nout = [*other.parameters()], m.scale"
    )
    yield case(
        MODEL
        + "m.drop.p = 0.0\nparameters = [*m.parameters()]\nout = m(torch.tensor([[0, 3], [1, 1]]))"
    )


def errors(_):
    for code in ERRORS:
        yield case(out(code))


GROUPS = [
    one,
    pairs,
    numbers,
    reductions,
    views,
    in_place,
    products,
    layers,
    attentions,
    functions,
    makers,
    optimizers,
    modules,
    errors,
]


# What draws from another stream where PyTorch is built with MKL.
MASKS = re.compile(r"dropout|bernoulli|multinomial")


def cases(group):
    """The cases of a group whose numbers PyTorch draws here as the small torch does."""
    made = [*group(Draw(group.__name__))]
    if draws_from_one_stream():
        return made
    return [each for each in made if not MASKS.search(each["code"])]
