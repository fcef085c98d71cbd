"""A layer with the gated delta rule: what its formulas say, read at once or in pieces, each text of a row by itself."""

import torch
import torch.nn.functional as F

from snippets.gated_delta_net import GatedDeltaNet, MemoryCache
from snippets.gated_memory import gated_memory
from tests.snippets.facts import refuses
from tests.snippets.parts import Case, T, close, draw, texts


def layer(part):
    """A layer whose heads share keys, and whose weights differ from those of a new one."""
    torch.manual_seed(0)
    sizes = {"num_key_heads": 2, "head_dim": 5, "value_dim": 3}
    made = part.GatedDeltaNet(8, 4, memory=gated_memory, **sizes).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def test_the_layer_is_what_it_says(part):
    made, x = layer(part), draw(2, 7, 8)

    def mixed(weight, rows):
        """Project, and look at the last four tokens channel by channel."""
        before = F.pad(x @ weight.T, (0, 0, 3, 0))
        kernel = made.convolution.weight[rows, 0]  # (channels, 4)
        return F.silu(sum(before[:, i : i + 7] * kernel[:, i] for i in range(4)))

    query = mixed(made.W_query.weight, slice(0, 10)).unflatten(-1, (2, 5))
    key = mixed(made.W_key.weight, slice(10, 20)).unflatten(-1, (2, 5))
    value = mixed(made.W_value.weight, slice(20, 32)).unflatten(-1, (4, 3))
    rate = made.log_rate.exp() * F.softplus(x @ made.W_decay.weight.T + made.decay_bias)
    beta = (x @ made.W_beta.weight.T).sigmoid()
    heads = []
    for head in range(4):
        q, k = query[:, :, head // 2], key[:, :, head // 2]
        q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
        gates = {"log_decay": -rate[..., head, None], "beta": beta[..., head, None]}
        output, _ = gated_memory(q / 5**0.5, k, value[:, :, head], **gates)
        output = output / (output.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        heads.append(output * made.norm.weight)
    gate = F.silu(x @ made.W_gate.weight.T)
    assert close(made(x), (torch.cat(heads, dim=-1) * gate) @ made.out_proj.weight.T)


def test_it_may_read_in_pieces_and_keeps_the_same_numbers_of_each_text(part):
    made, x = layer(part), draw(2, 11, 8)
    for sizes in ([5, 1, 5], [1] * 11):
        cache = part.MemoryCache()
        pieces = [made(piece, cache=cache) for piece in x.split(sizes, dim=1)]
        assert close(torch.cat(pieces, dim=1), made(x))
        kept = [None if it is None else it.shape for it in (cache.state, cache.recent)]
        assert kept == [(2, 4, 5, 3), (2, 32, 3)]


def test_rows_of_zeros_before_a_text_change_nothing(part):
    made, x = layer(part), draw(2, 7, 8)
    padded = made(F.pad(x, (0, 0, 5, 0)))
    assert close(padded[:, 5:], made(x))
    assert not padded[:, :5].any()


def test_texts_in_one_row_are_kept_apart_and_the_last_goes_on(part):
    """At once, and in pieces; the last piece of the first row says no more where texts begin."""
    made, x = layer(part), draw(2, 12, 8)
    starts = torch.zeros(2, 12, dtype=torch.bool)
    starts[0, [0, 4, 5, 9]] = starts[1, [0, 2, 11]] = True
    alone = [
        torch.cat([made(text[None]) for text in row.tensor_split(begins.nonzero()[1:, 0])], dim=1)
        for row, begins in zip(x, starts, strict=True)
    ]
    for sizes in ([12], [5, 7], [1] * 12):
        cache, pieces = (
            part.MemoryCache(),
            zip(x.split(sizes, 1), starts.split(sizes, 1), strict=True),
        )
        read = [made(piece, cache=cache, starts=begins) for piece, begins in pieces]
        assert close(torch.cat(read, dim=1), torch.cat(alone))
    cache = part.MemoryCache()
    read = [made(x[:1, :10], cache=cache, starts=starts[:1, :10]), made(x[:1, 10:], cache=cache)]
    assert close(torch.cat(read, dim=1), alone[0])


def test_a_new_layer_forgets_little_and_leaves_out_no_channel(part):
    made = part.GatedDeltaNet(12, 3, memory=gated_memory)
    left = (-made.log_rate.exp() * F.softplus(made.decay_bias)).exp()
    assert ((left > 0.98) & (left < 0.99)).all()
    refuses("a head of two channels and a rest", part.GatedDeltaNet, 8, 3, memory=gated_memory)


SHARED = "key = key.unflatten(-1, (-1, self.head_dim)).repeat_interleave(group, dim=2)"
WRONG = {
    "keys of any length": ("_unit(key)", "key"),
    "the convolution looks ahead": ("F.pad(mixed, (before, 0))", "F.pad(mixed, (0, before))"),
    "the heads share keys in another order": (
        SHARED,
        "key = key.unflatten(-1, (-1, self.head_dim)).repeat(1, 1, group, 1)",
    ),
    "the state is not brought up to the last token": ("cache.state = state", "pass"),
    "the state goes on into the next text": (
        'starts[..., None], float("-inf")',
        "starts[..., None], -1.0",
    ),
}


def layer_of_two():
    """Four memories, of which two share queries and keys."""
    return GatedDeltaNet(16, 4, memory=gated_memory, num_key_heads=2, head_dim=8)


def remembered(layer, x):
    """A text read in three pieces, from what a layer keeps of it."""
    cache = MemoryCache()
    return torch.cat([layer(part, cache=cache) for part in x.split([T - 20, 1, 19], dim=1)], dim=1)


def packed(layer, x):
    """Texts of 7 tokens."""
    return layer(x, starts=(torch.arange(T, device=x.device) % 7 == 0).expand(2, T))


CASES = {
    "the layer": Case(lambda m, x: m(x), texts, layer_of_two),
    "packed": Case(packed, texts, layer_of_two),
    "cached": Case(remembered, texts, layer_of_two, backward=False),
}
