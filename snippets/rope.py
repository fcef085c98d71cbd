"""Rotary positions (RoPE): queries and keys are turned, so scores see positions only as distances.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding", section
3.2; Chen et al. (2023), "Extending Context Window of Large Language Models via Positional
Interpolation", section 2.3 (linear); Peng et al. (2023), "YaRN: Efficient Context Window Extension
of Large Language Models", sections 3.2 and 3.3, which is 3.4 in its first versions; Llama 3.1's
public code (llama3).
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

# What each kind of scaling must say, and what it may, in the words of Hugging Face's configs.
KNOWN = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "llama3": (
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
        set(),
    ),
    "yarn": (
        {"factor", "original_max_position_embeddings"},
        {"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"},
    ),
}


class RotaryPositions(nn.Module):
    """Turns each pair of channels of x by an angle that is proportional to the token's position.

        rotate = RotaryPositions(head_dim)
        query, key = rotate(query, positions), rotate(key, positions)  # values are left alone

    Pair i turns by p · base^(-2i / rotary_dim) radians at position p. Apply it to queries and keys
    before the keys are cached: a key is then turned once, by its own position. A cache that gives
    its tokens new positions, as StreamingLLM's does, keeps keys that are not turned yet.

    It has no weights. Angles are made in float64, whatever the dtype of the model (on Apple's MPS,
    which has none, in float32), and x is turned in float32 or wider and handed back in its dtype.
    Not fused: in eager mode it makes about four tensors of the size of x for a moment; under
    torch.compile none but the result.

    Args:
        head_dim: width of a head.
        rotary_dim: how many channels of each head, the first ones, are turned; even. GPT-NeoX
            turns a quarter. None: the partial_rotary_factor of the scaling, or all.
        base: pair i turns once in 2π · base^(2i / rotary_dim) positions; `rope_theta` in configs.
            None: the rope_theta of the scaling, or 10,000.
        pairing: which channels make a pair. "half": i and i + rotary_dim/2, as in GPT-NeoX and in
            transformers' Llama; "interleaved": 2i and 2i + 1, as in the paper, GPT-J and Meta's
            Llama. It belongs to the weights: the wrong one raises no error. See change_pairing.
        scaling: how to stretch to contexts longer than in training, None or a mapping as in the
            `rope_scaling` of a Hugging Face config, such as {"rope_type": "linear", "factor": 4.0}
            or {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}. The
            `rope_parameters` of a newer config are one, too, which names base and rotary_dim.

    Attributes:
        frequencies: radians a position of each pair, a tuple of rotary_dim / 2 numbers.
        attention_factor: queries and keys are multiplied by it, so scores by its square. 1 but for
            YaRN. DeepSeek's models multiply all their scores, those of channels that are not
            turned included, by (0.1 · mscale_all_dim · ln(factor) + 1)² besides. No rotation can do
            that: multiply the scale of the attention by it.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        rotary_dim: int | None = None,
        base: float | None = None,
        pairing: str = "half",
        scaling: Mapping | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(head_dim, int) or head_dim < 1:
            raise ValueError(f"head_dim must be a positive integer, got {head_dim!r}")
        # Newer configs name these two beside the scaling.
        scaling = dict(scaling or {"rope_type": "default"})
        share = scaling.pop("partial_rotary_factor", 1.0)
        rotary_dim = _one("rotary_dim", rotary_dim, int(head_dim * share), share != 1.0)
        theta = scaling.pop("rope_theta", None)
        base = _one("base", base, 10000.0 if theta is None else theta, theta is not None)
        if not isinstance(rotary_dim, int) or rotary_dim < 1:
            raise ValueError(f"rotary_dim must be a positive integer, got {rotary_dim!r}")
        if rotary_dim % 2 or rotary_dim > head_dim:
            raise ValueError(
                f"rotary_dim must be even and at most head_dim={head_dim}, got {rotary_dim}"
            )
        if not isinstance(base, int | float) or not 1.0 < base < math.inf:
            raise ValueError(f"base must be a finite number above 1, got {base!r}")
        if pairing not in ("half", "interleaved"):
            raise ValueError(f"pairing must be 'half' or 'interleaved', got {pairing!r}")
        self.head_dim, self.rotary_dim = head_dim, rotary_dim
        self.base, self.pairing = float(base), pairing
        self.scaling = _checked(scaling)
        self.frequencies, self.attention_factor = _stretched(rotary_dim, self.base, self.scaling)
        self._place(torch.get_default_device())

    def _place(self, device: torch.device) -> None:
        """Put the frequencies on a device, in no buffer: .bfloat16() would round it."""
        wide = torch.float32 if device.type == "mps" else torch.float64
        self.frequency = torch.tensor(self.frequencies, dtype=wide, device=device)  # (pairs,)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x, turned, in its shape and dtype.

        Args:
            x: queries or keys, (..., heads, T, head_dim), floating point.
            positions: the place of each token, (T,), or (batch, T) for x of (batch, heads, T,
                head_dim); integers. Tokens after a cache of n tokens begin at n.
        """
        if x.dim() < 2 or x.size(-1) != self.head_dim:
            raise ValueError(
                f"x must have shape (..., heads, T, {self.head_dim}), got {tuple(x.shape)}"
            )
        fits = positions.shape == x.shape[-2:-1] or (
            x.dim() == 4 and positions.shape == (x.size(0), x.size(-2))
        )
        if not fits or positions.is_floating_point() or positions.dtype == torch.bool:
            raise ValueError(
                f"positions must be integers, ({x.size(-2)},) or (batch, {x.size(-2)}) for x of "
                f"{tuple(x.shape)}, got {positions.dtype} of {tuple(positions.shape)}"
            )
        if self.frequency.device != x.device:  # the model has moved, in whatever way
            self._place(x.device)
        angle = positions[..., None] * self.frequency  # (T, pairs) or (batch, T, pairs)
        if positions.dim() == 2:
            angle = angle[:, None]  # (batch, 1, T, pairs): all heads alike
        wide = torch.promote_types(x.dtype, torch.float32)
        cos = (angle.cos() * self.attention_factor).to(wide)
        sin = (angle.sin() * self.attention_factor).to(wide)
        turned, rest = x[..., : self.rotary_dim].to(wide), x[..., self.rotary_dim :]
        if self.pairing == "half":
            first, second = turned.chunk(2, dim=-1)  # each (..., T, pairs)
        else:
            first, second = turned.unflatten(-1, (-1, 2)).unbind(dim=-1)
        pair = first * cos - second * sin, second * cos + first * sin
        if self.pairing == "half":
            turned = torch.cat(pair, dim=-1)
        else:
            turned = torch.stack(pair, dim=-1).flatten(-2)
        return torch.cat([turned.to(x.dtype), rest], dim=-1)

    def extra_repr(self) -> str:
        return (
            f"head_dim={self.head_dim}, rotary_dim={self.rotary_dim}, base={self.base:g}, "
            f"pairing={self.pairing!r}, scaling={self.scaling}"
        )


def change_pairing(
    weight: Tensor, head_dim: int, *, to: str, rotary_dim: int | None = None
) -> Tensor:
    """Return the weight or bias of W_query or W_key with its rows in the other pairing's order.

    Weights made for one pairing give the same scores under the other once the rows of both
    projections are permuted so. Values and out_proj stay as they are.

    Args:
        weight: (heads · head_dim, ...), as nn.Linear stores it; its first dimension is permuted.
        head_dim: width of a head.
        to: "half" for weights that were "interleaved", "interleaved" for weights that were "half".
        rotary_dim: how many channels of each head are turned, even; None: all.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    if not isinstance(rotary_dim, int) or rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise ValueError(
            f"rotary_dim must be even and at most head_dim={head_dim}, got {rotary_dim!r}"
        )
    if to not in ("half", "interleaved"):
        raise ValueError(f"to must be 'half' or 'interleaved', got {to!r}")
    if weight.size(0) % head_dim:
        raise ValueError(
            f"weight must have a multiple of head_dim={head_dim} rows, got {tuple(weight.shape)}"
        )
    order = torch.arange(rotary_dim, device=weight.device)
    order = order.view(-1, 2).T if to == "half" else order.view(2, -1).T
    order = torch.cat([order.flatten(), torch.arange(rotary_dim, head_dim, device=weight.device)])
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def _one(name: str, given, named, is_named: bool):
    """Return what was given, or what the scaling names; ValueError where the two differ."""
    if given is not None and is_named and given != named:
        raise ValueError(f"{name} must be what the scaling names, {named!r}, got {given!r}")
    return named if given is None else given


def _checked(scaling: dict) -> dict:
    """Return the scaling, which names its rope_type and holds what that needs."""
    kind = scaling.setdefault("rope_type", scaling.pop("type", None))
    if kind not in KNOWN:
        raise ValueError(f"scaling must have a rope_type of {', '.join(KNOWN)}, got {kind!r}")
    needed, allowed = KNOWN[kind]
    given = scaling.keys() - {"rope_type"}
    if not needed <= given <= needed | allowed:
        raise ValueError(
            f"scaling must, for rope_type {kind!r}, have {sorted(needed)} and may have "
            f"{sorted(allowed)}: got {sorted(given)}"
        )
    if kind != "default" and not scaling["factor"] >= 1.0:
        raise ValueError(f"scaling must have a factor of at least 1, got {scaling['factor']!r}")
    if kind == "llama3" and not scaling["low_freq_factor"] < scaling["high_freq_factor"]:
        raise ValueError(f"scaling must have low_freq_factor below high_freq_factor, got {scaling}")
    return scaling


# --8<-- [start:stretched]
def _stretched(rotary_dim: int, base: float, scaling: dict) -> tuple[tuple[float, ...], float]:
    """Return the frequency of each pair, in radians a position, and the attention factor."""
    kind, factor = scaling["rope_type"], scaling.get("factor", 1.0)
    frequencies = [base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]
    if kind == "default":
        return tuple(frequencies), 1.0
    if kind == "linear":  # every pair turns more slowly
        return tuple(frequency / factor for frequency in frequencies), 1.0
    # The other two slow down only those that have not gone round often in training: `kept` is 1
    # for a pair that stays as it was, 0 for one that is slowed down in full, between them a ramp.
    trained = scaling["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        rounds = [trained * frequency / (2 * math.pi) for frequency in frequencies]
        kept = [(r - low) / (high - low) for r in rounds]
        attention_factor = 1.0
    else:
        # YaRN's paper ramps over the rounds; its code, and transformers', over the pair's number.
        def pair_with(rounds: float) -> float:
            """The number of the pair, as a fraction, that goes round so often in training."""
            return rotary_dim * math.log(trained / (rounds * 2 * math.pi)) / (2 * math.log(base))

        low = pair_with(scaling.get("beta_fast") or 32)
        high = pair_with(scaling.get("beta_slow") or 1)
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotary_dim - 1)
        kept = [
            1 - (i - low) / (high - low if high > low else 0.001) for i in range(len(frequencies))
        ]
        attention_factor = scaling.get("attention_factor") or _temperature(factor, scaling)
    kept = [min(max(share, 0.0), 1.0) for share in kept]
    slowed = [
        frequency * share + frequency / factor * (1 - share)
        for frequency, share in zip(frequencies, kept, strict=True)
    ]
    return tuple(slowed), attention_factor


def _temperature(factor: float, scaling: dict) -> float:
    """Return √(1/t) of YaRN's section 3.3: scores are multiplied by its square."""
    over, under = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if over and under:  # as DeepSeek's configs have it
        return (0.1 * over * math.log(factor) + 1) / (0.1 * under * math.log(factor) + 1)
    return 0.1 * math.log(factor) + 1


# --8<-- [end:stretched]
