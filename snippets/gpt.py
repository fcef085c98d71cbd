"""A small GPT: a language model of causal self-attention, in one file.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", section 2.3
(a norm before each part, one more at the end, the residual projections scaled at the start), and
its public code (learned positions, GELU, the widths); Xiong et al. (2020), "On Layer Normalization
in the Transformer Architecture" (why the norm comes before); Press and Wolf (2017), "Using the
Output Embedding to Improve Language Models" (tied weights).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalMultiHeadAttention(nn.Module):
    """Multi-head self-attention in which token i sees tokens 0 … i.

    The book's MultiHeadAttention without what a GPT does not need. Its state dict fits this one,
    and this one's fits it.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.W_query = nn.Linear(embed_dim, embed_dim)
        self.W_key = nn.Linear(embed_dim, embed_dim)
        self.W_value = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # None is causal, and nothing is stored for it. Whoever wants to change what this layer sees
        # sets a boolean (context_length, context_length), True keeps. As a buffer it moves with the
        # model; because it is not persistent, it is never saved with it.
        self.register_buffer("mask", None, persistent=False)

    def forward(
        self, x: Tensor, *, positions: Tensor | None = None, attn_mask: Tensor | None = None
    ) -> Tensor:
        """(..., T, embed_dim) → (..., T, embed_dim).

        The GPT has added what its positions say. A mask, True keeps, is used instead of the causal
        one; see GPT.forward.
        """
        T = x.size(-2)
        # Each (..., num_heads, T, head_dim): the channels are cut into heads, then T moves after.
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        dropout = self.dropout if self.training else 0.0
        if attn_mask is not None:
            check_mask(attn_mask, (*query.shape[:-1], T))
        elif self.mask is not None:
            attn_mask = self.mask[:T, :T]
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout, is_causal=attn_mask is None
        )
        return self.out_proj(context.transpose(-3, -2).flatten(-2))


class Block(nn.Module):
    """What one layer does: tokens look at each other, then each one thinks for itself.

    Both parts read the residual stream through a norm, and add what they found to the stream.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim)
        if attention is None:
            attention = CausalMultiHeadAttention(embed_dim, num_heads, dropout)
        self.attention = attention
        self.mlp_norm = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim),
            nn.GELU(),
            nn.Linear(4 * embed_dim, embed_dim),
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, **how) -> Tensor:
        """(..., T, embed_dim) → (..., T, embed_dim); what stands in `how` is for the attention."""
        x = x + self.drop(self.attention(self.attention_norm(x), **how))
        return x + self.drop(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """Logits for the next token, at every position of a text at once.

        logits = model(tokens[:, :-1])  # (batch, T, vocab_size)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    Untrained, it holds every next token for about equally likely: the loss is near ln(vocab_size).

    Args:
        vocab_size: number of different tokens.
        context_length: most tokens that the model reads at once; it has a vector for each place.
        embed_dim: width of the residual stream.
        num_heads: number of heads in each layer; divides embed_dim.
        num_layers: number of blocks, one after the other.
        dropout: share of the attention weights, of the sum of embeddings and of each part's output
            that is set to 0 while training, in [0, 1). Not applied after .eval().
        tie_weights: whether one table serves as token embedding and as last projection. It saves
            vocab_size · embed_dim parameters: 31 % of the smallest GPT-2, which ties them, and
            next to nothing where the vocabulary is an alphabet. So here it is off unless asked for.
        attention: makes the attention of one block, called as attention(embed_dim, num_heads), such
            as the class GroupedQueryAttention. What it makes maps (batch, T, embed_dim) to the
            same, hides the future by itself, ends in `out_proj`, and takes what forward is given
            of positions=, attn_mask= and cache=. None: the heads of this file, without a cache.

    Raises:
        ValueError: naming the argument, what came and what was wanted.
    """

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        dropout: float = 0.0,
        tie_weights: bool = False,
        attention: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        for name, size in (
            ("vocab_size", vocab_size),
            ("context_length", context_length),
            ("embed_dim", embed_dim),
            ("num_heads", num_heads),
            ("num_layers", num_layers),
        ):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        if embed_dim % num_heads:
            raise ValueError(
                f"num_heads must divide embed_dim: got num_heads={num_heads}, embed_dim={embed_dim}"
            )
        if not isinstance(dropout, int | float) or not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        super().__init__()
        self.context_length = context_length
        self.token = nn.Embedding(vocab_size, embed_dim)
        self.position = nn.Embedding(context_length, embed_dim)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(embed_dim, num_heads, dropout, attention and attention(embed_dim, num_heads))
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.logits = nn.Linear(embed_dim, vocab_size, bias=False)
        self.apply(self._init)
        for block in self.blocks:  # 2 · num_layers parts add to the stream: keep its size near 1
            for last in (block.attention.out_proj, block.mlp[-1]):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * num_layers))
        self.tie_weights = tie_weights
        self._tie()

    def _tie(self) -> None:
        """Let one table serve at both ends, where that is wanted."""
        if self.tie_weights:
            self.logits.weight = self.token.weight

    def _apply(self, fn, recurse=True):
        """Move the model, and tie it again: .to_empty() makes two tables of one."""
        super()._apply(fn, recurse)
        self._tie()
        return self

    @staticmethod
    def _init(module: nn.Module) -> None:
        """Draw the weights of one module as GPT-2 does."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        attn_mask: Tensor | None = None,
        caches: Sequence[Any] | None = None,
        last: int = 0,
    ) -> Tensor:
        """Return the logits of the token after each position, (..., T, vocab_size).

        Args:
            tokens: (..., T), integers below vocab_size, with 1 ≤ T ≤ context_length. An integer
                that is no token is the error of nn.Embedding: IndexError, on a processor.
            positions: the place of each token, (T,) or (..., T), integers below context_length;
                None means counting on from what the caches hold, or from 0.
            attn_mask: boolean, True keeps: which keys each token sees, (T, keys) or (batch, 1 or
                num_heads, T, keys); None means the past and itself.
            caches: one for each block, for an `attention` that takes one.
            last: of how many positions, at the end, logits are returned; 0 means all. Whoever
                writes after a long prompt needs those of one.

        Raises:
            ValueError: naming the argument, what came and what was wanted.
        """
        self._check(tokens)
        if not isinstance(last, int) or last < 0:
            raise ValueError(f"last must be an integer of at least 0, got {last!r}")
        if caches and isinstance(self.blocks[0].attention, CausalMultiHeadAttention):
            raise ValueError("caches must be None unless `attention` made heads that take one")
        past = check_caches(caches, len(self.blocks)) if caches is not None else 0
        if positions is not None:
            check_positions(positions, tokens)
        elif past + tokens.size(-1) > self.context_length:
            raise ValueError(
                f"tokens must hold at most context_length={self.context_length} tokens, "
                f"got {past + tokens.size(-1)}"
            )
        place = positions
        if positions is None:
            place = torch.arange(past, past + tokens.size(-1), device=tokens.device)
        x = self.token(tokens)  # (..., T, embed_dim)
        try:
            x = self.drop(x + self.position(place))
        except IndexError as error:
            raise ValueError(
                f"positions must be from 0 to {self.context_length - 1}, below context_length: "
                f"got {place.min().item()} to {place.max().item()}"
            ) from error
        how = {"positions": positions, "attn_mask": attn_mask}
        for number, block in enumerate(self.blocks):
            how["cache"] = caches[number] if caches else None
            x = block(x, **{name: given for name, given in how.items() if given is not None})
        return self.logits(self.norm(x[..., -last:, :]))

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        n: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Write n more tokens after each sequence, (..., T) → (..., T + n).

        Call .eval() first, or dropout takes part in the writing.

        Args:
            tokens: (..., T), with T ≥ 1. The last context_length of them are read at each step.
            n: how many tokens to write.
            temperature: divides the logits before the softmax: below 1 the likely tokens become
                likelier. At 0 the likeliest is taken and nothing is drawn.
            generator: where the draws come from, on the device of the tokens; None means
                PyTorch's own.
        """
        self._check(tokens)
        if not isinstance(n, int) or n < 0:
            raise ValueError(f"n must be an integer of at least 0, got {n!r}")
        if not isinstance(temperature, int | float) or not 0.0 <= temperature < math.inf:
            raise ValueError(f"temperature must be a number of at least 0, got {temperature!r}")
        for _ in range(n):
            # What is asked for is one row; a model that is made of this one may return more.
            logits = self(tokens[..., -self.context_length :], last=1)[..., -1, :]
            if temperature == 0:
                chosen = logits.argmax(dim=-1)  # (...,)
            else:
                shares = shares_of(logits, temperature)  # (..., vocab_size)
                numbers = torch.rand(
                    shares.shape[:-1], generator=generator, dtype=shares.dtype, device=shares.device
                )
                chosen = token_at(shares, numbers)  # (...,)
            tokens = torch.cat([tokens, chosen[..., None]], dim=-1)
        return tokens

    @staticmethod
    def _check(tokens: Tensor) -> None:
        """Raise ValueError unless tokens are integers, at least one in each sequence."""
        wanted = "tokens must be a tensor of int64 or int32 with shape (..., at least 1)"
        if not isinstance(tokens, Tensor):
            raise ValueError(f"{wanted}, got {tokens!r}")
        if (
            tokens.dtype not in (torch.int64, torch.int32)
            or 0 in tokens.shape[-1:]
            or not tokens.dim()
        ):
            raise ValueError(f"{wanted}, got {tokens.dtype} of shape {tuple(tokens.shape)}")


def shares_of(logits: Tensor, temperature: float) -> Tensor:
    """Return the probability of each token, (..., vocab_size), in float32 or wider.

    In the 8 bits of bfloat16 a thousand equal tokens could not all be drawn. The largest logit is
    taken off first, so that a small temperature cannot make infinity of it.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.softmax((logits - logits.amax(dim=-1, keepdim=True)) / temperature, dim=-1)


def token_at(shares: Tensor, numbers: Tensor) -> Tensor:
    """Return the token into whose share each number falls, (..., vocab_size) and (...) → (...).

    The shares need not sum to 1; the numbers are in [0, 1), in float32 or wider. A token without a
    share is never returned. torch.multinomial draws too, but differently on different processors.
    """
    bounds = shares.cumsum(dim=-1, dtype=torch.promote_types(shares.dtype, torch.float32))
    bounds = bounds.masked_fill(shares == 0, 0.0)  # no number is below 0, so none falls here
    numbers = numbers[..., None] * bounds.amax(dim=-1, keepdim=True)
    return (numbers < bounds).int().argmax(dim=-1)  # the first token whose bound is above


def check_positions(positions: Tensor, tokens: Tensor) -> None:
    """Raise ValueError unless there is an integer for each token, or for each of a text."""
    fits = isinstance(positions, Tensor) and positions.dtype in (torch.int64, torch.int32)
    if not fits or not (
        positions.dim() in (1, tokens.dim())
        and positions.shape == tokens.shape[tokens.dim() - positions.dim() :]
    ):
        came = repr(positions)
        if isinstance(positions, Tensor):
            came = f"{positions.dtype} of shape {tuple(positions.shape)}"
        raise ValueError(
            f"positions must be int64 or int32 of shape {tuple(tokens.shape[-1:])} or "
            f"{tuple(tokens.shape)}, got {came}"
        )


def check_mask(attn_mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise ValueError unless the mask is boolean and fits scores of this shape.

    A mask (batch, T, keys) is refused, because it would be read as (heads, T, keys).
    """
    fits = isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool
    if not fits or not (
        attn_mask.dim() in (2, len(scores))
        and all(
            size in (1, wanted)
            for size, wanted in zip(attn_mask.shape[::-1], scores[::-1], strict=False)
        )
    ):
        came = repr(attn_mask)
        if isinstance(attn_mask, Tensor):
            came = f"{attn_mask.dtype} of shape {tuple(attn_mask.shape)}"
        raise ValueError(
            f"attn_mask must be boolean, (T, keys) = {scores[-2:]} or (batch, 1 or heads, T, keys) "
            f"= {scores}, and for one mask per text mask[:, None]: got {came}"
        )


def check_caches(caches: Sequence[Any], blocks: int) -> int:
    """Return how many tokens the caches hold; ValueError unless each block has one, all in step."""
    different = len({id(cache) for cache in caches})
    if not len(caches) == different == blocks:
        raise ValueError(
            f"caches must be {blocks}, one for each block: got {len(caches)}, {different} different"
        )
    lengths = [cache.length for cache in caches]
    if any(length != lengths[0] for length in lengths):
        raise ValueError(
            f"caches must hold the same tokens: got lengths {lengths}; after a pass that failed "
            f"half way, truncate all to {min(lengths)}"
        )
    return lengths[0]
