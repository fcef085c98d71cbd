"""Rotary positions (RoPE): queries and keys are turned, so scores see positions only as distances.

    rotate = RotaryPositions(head_dim)
    query, key = rotate(query, positions), rotate(key, positions)  # values are left alone

Turn keys before they are cached: a key is then turned once, by its own position. It has no weights.
Angles are made in float64, whatever the model's dtype, and x is turned in float32 or wider.
Sources: Su et al. (2021), "RoFormer", section 3.2; Chen et al. (2023), "Extending Context Window of
Large Language Models via Positional Interpolation", section 2.3 (linear); Peng et al. (2023),
"YaRN", 3.2 and 3.3, which is 3.4 in its first versions; Llama 3.1's public code (llama3).
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class RotaryPositions(nn.Module):
    """Turns each pair of channels of x by an angle that is proportional to the token's position.

    rotary_dim: how many channels of a head, the first ones, are turned; None means the scaling's
        partial_rotary_factor of them, or all.
    base: pair i turns by base^(-2i / rotary_dim) radians a position; None means the scaling's
        rope_theta, or 10,000.
    pairing: "half" pairs channel i with i + rotary_dim / 2, as in GPT-NeoX and transformers' Llama;
        "interleaved" 2i with 2i + 1, as in the paper, GPT-J and Meta's Llama. It belongs to the
        weights, and the wrong one raises no error: see change_pairing.
    scaling: the rope_scaling or rope_parameters of a config: see stretched. YaRN also multiplies
        queries and keys by attention_factor. DeepSeek multiplies all scores once more, which the
        scale of the attention must do: by (0.1 · mscale_all_dim · ln(factor) + 1)².
    """

    def __init__(
        self, head_dim: int, *, rotary_dim: int | None = None, base: float | None = None,
        pairing: str = "half", scaling: Mapping | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        scaling = dict(scaling or {"rope_type": "default"})
        share, theta = scaling.pop("partial_rotary_factor", 1.0), scaling.pop("rope_theta", 10000.0)
        if pairing not in ("half", "interleaved"):
            raise ValueError(f"pairing must be 'half' or 'interleaved', got {pairing!r}")
        rotary_dim = int(head_dim * share) if rotary_dim is None else rotary_dim
        if rotary_dim % 2 or rotary_dim > head_dim:
            raise ValueError(f"rotary_dim must be even, {head_dim} at most: got {rotary_dim}")
        base = theta if base is None else base
        self.head_dim, self.rotary_dim, self.pairing = head_dim, rotary_dim, pairing
        self.frequencies, self.attention_factor = stretched(rotary_dim, base, **scaling)
        # The same as a tensor: no buffer, which .bfloat16() would round. forward moves it to x.
        self.radians = torch.tensor(self.frequencies, dtype=torch.float64, device="cpu")

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x, (..., heads, T, head_dim), turned by positions, integers (T,) or (batch, T)."""
        fits = positions.shape in (x.shape[-2:-1], x.shape[:-3] + x.shape[-2:-1])
        if not fits or positions.is_floating_point() or x.size(-1) != self.head_dim:
            raise ValueError(  # numbers rounded, one for all tokens, or a part of the channels
                f"positions must be integers, (T,) or (batch, T), for x of (..., heads, T, "
                f"{self.head_dim}), got {positions.dtype}, {positions.shape} for {x.shape}"
            )
        if self.radians.device != x.device:
            wide = torch.float32 if x.device.type == "mps" else torch.float64  # MPS has no float64
            self.radians = torch.tensor(self.frequencies, dtype=wide, device=x.device)
        angle = positions[..., None] * self.radians  # (T, pairs) or (batch, T, pairs)
        if positions.dim() > 1:
            angle = angle.unsqueeze(-3)  # (batch, 1, T, pairs): all heads alike
        wide = torch.promote_types(x.dtype, torch.float32)
        cos = (angle.cos() * self.attention_factor).to(wide)
        sin = (angle.sin() * self.attention_factor).to(wide)
        turned, rest = x[..., : self.rotary_dim].to(wide), x[..., self.rotary_dim :]
        if self.pairing == "half":
            first, second = turned.chunk(2, dim=-1)  # each (..., T, pairs)
            turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        else:
            first, second = turned.unflatten(-1, (-1, 2)).unbind(dim=-1)
            pairs = [first * cos - second * sin, second * cos + first * sin]
            turned = torch.stack(pairs, dim=-1).flatten(-2)
        return torch.cat([turned.to(x.dtype), rest], dim=-1)


def change_pairing(weight: Tensor, head_dim: int, *, to: str, rotary_dim=None) -> Tensor:
    """Return the weight or bias of W_query or W_key, its rows in the order of the other pairing.

    Where both are changed, scores stay as they are. Values and out_proj have no pairing. A norm
    between projection and rotation has a weight for each channel, (head_dim,): change that, too.
    """
    if to not in ("half", "interleaved"):
        raise ValueError(f"to must be 'half' or 'interleaved', got {to!r}")
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    order = torch.arange(head_dim, device=weight.device)
    turned = order[:rotary_dim].view(-1, 2).T if to == "half" else order[:rotary_dim].view(2, -1).T
    order = torch.cat([turned.flatten(), order[rotary_dim:]])
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def stretched(
    rotary_dim, base, *, rope_type=None, type=None, original_max_position_embeddings=None,
    factor=None, low_freq_factor=None, high_freq_factor=None, beta_fast=None, beta_slow=None,
    truncate=True, attention_factor=None, mscale=None, mscale_all_dim=None,
):  # fmt: skip
    """Return the frequency of each pair, in radians a position, and YaRN's attention factor, or 1.

    A stretched frequency is a mean of the plain one and of a `factor`-th of it. `kept` is the share
    of the plain one: 1 where a pair stays as it is, 0 where it turns `factor` times as slowly.
    """
    kind, trained = rope_type or type, original_max_position_embeddings
    plain = [base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)]
    if kind == "default":
        return tuple(plain), 1.0
    if kind == "linear":  # all pairs alike
        kept = [0.0 for _ in plain]
    elif kind == "llama3":  # a ramp over the rounds that a pair makes in training
        few, many = low_freq_factor, high_freq_factor
        kept = [(trained * each / (2 * math.pi) - few) / (many - few) for each in plain]
    elif kind == "yarn":  # the paper ramps over rounds; its code, and transformers', over pairs
        pairs = rotary_dim / (2 * math.log(base))
        rounds = beta_fast or 32, beta_slow or 1
        first, last = (pairs * math.log(trained / (2 * math.pi * number)) for number in rounds)
        if truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, rotary_dim - 1)
        width = last - first if last > first else 0.001
        kept = [1 - (i - first) / width for i in range(len(plain))]
    else:
        raise ValueError(f"rope_type must be default, linear, llama3 or yarn, got {kind!r}")
    kept = [min(max(share, 0.0), 1.0) for share in kept]
    mean = (f * share + f / factor * (1 - share) for f, share in zip(plain, kept, strict=True))
    if kind != "yarn":
        return tuple(mean), 1.0
    if attention_factor is None:
        over, under = (mscale, mscale_all_dim) if mscale and mscale_all_dim else (1.0, 0.0)
        growth = 0.1 * math.log(factor)  # DeepSeek's files have both scales
        attention_factor = (growth * over + 1) / (growth * under + 1)
    return tuple(mean), attention_factor
