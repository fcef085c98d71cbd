"""A small GPT: a language model of causal self-attention, in one file.

Needs PyTorch 2.5 or newer and nothing else.
Sources: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", section 2.3
(a norm before each part, one more at the end, the residual projections scaled at the start), and
its public code (learned positions, GELU, the widths); Xiong et al. (2020), "On Layer Normalization
in the Transformer Architecture" (why the norm comes before); Press and Wolf (2017), "Using the
Output Embedding to Improve Language Models" (tied weights).
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalMultiHeadAttention(nn.Module):
    """Multi-head self-attention in which token i sees tokens 0 … i.

    The book's MultiHeadAttention without what a GPT does not need. Its state dict fits this one,
    and this one's fits it.
    """

    def __init__(self, embed_dim: int, num_heads: int, context_length: int, dropout: float) -> None:
        super().__init__()
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.W_query = nn.Linear(embed_dim, embed_dim)
        self.W_key = nn.Linear(embed_dim, embed_dim)
        self.W_value = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # True keeps. A buffer moves with the model; not persistent, it is never saved with it.
        keep = torch.ones(context_length, context_length, dtype=torch.bool).tril()
        self.register_buffer("mask", keep, persistent=False)

    def forward(
        self, x: Tensor, *, positions: Tensor | None = None, attn_mask: Tensor | None = None
    ) -> Tensor:
        """(..., T, embed_dim) → (..., T, embed_dim).

        The GPT has added what its positions say. A mask, True keeps, is used instead of the causal
        one; it broadcasts to (..., num_heads, T, T).
        """
        T = x.size(-2)
        # Each (..., num_heads, T, head_dim): the channels are cut into heads, then T moves after.
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        dropout = self.dropout if self.training else 0.0
        keep = self.mask[:T, :T] if attn_mask is None else attn_mask
        context = F.scaled_dot_product_attention(query, key, value, keep, dropout)
        return self.out_proj(context.transpose(-3, -2).flatten(-2))


class Block(nn.Module):
    """What one layer does: tokens look at each other, then each one thinks for itself.

    Both parts read the residual stream through a norm, and add what they found to the stream.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        context_length: int,
        dropout: float,
        attention: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim)
        if attention is None:
            attention = CausalMultiHeadAttention(embed_dim, num_heads, context_length, dropout)
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
            Block(
                embed_dim,
                num_heads,
                context_length,
                dropout,
                attention and attention(embed_dim, num_heads),
            )
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.logits = nn.Linear(embed_dim, vocab_size, bias=False)
        self.apply(self._init)
        for block in self.blocks:  # 2 · num_layers parts add to the stream: keep its size near 1
            for last in (block.attention.out_proj, block.mlp[-1]):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * num_layers))
        if tie_weights:
            self.logits.weight = self.token.weight

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
        caches: list | None = None,
    ) -> Tensor:
        """Return the logits of the token after each position, (..., T, vocab_size).

        Args:
            tokens: (..., T), integers below vocab_size, with 1 ≤ T ≤ context_length. An integer
                that is no token is the error of nn.Embedding: IndexError, on a processor.
            positions: the place of each token, (T,) or (batch, T), integers below context_length;
                None means counting on from what the caches hold, or from 0.
            attn_mask: which keys each token sees, True keeps; None means the past and itself.
            caches: one for each block, for an `attention` that takes one.
        """
        self._check(tokens)
        if caches and isinstance(self.blocks[0].attention, CausalMultiHeadAttention):
            raise ValueError("caches must be None unless `attention` made heads that take one")
        past = caches[0].length if caches and positions is None else 0
        if past + tokens.size(-1) > self.context_length:
            raise ValueError(
                f"tokens must hold at most context_length={self.context_length} tokens, "
                f"got {past + tokens.size(-1)}"
            )
        place = positions
        if positions is None:
            place = torch.arange(past, past + tokens.size(-1), device=tokens.device)
        x = self.drop(self.token(tokens) + self.position(place))  # (..., T, embed_dim)
        how = {"positions": positions, "attn_mask": attn_mask}
        for number, block in enumerate(self.blocks):
            how["cache"] = caches[number] if caches else None
            x = block(x, **{name: given for name, given in how.items() if given is not None})
        return self.logits(self.norm(x))

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
            logits = self(tokens[..., -self.context_length :])[..., -1:, :]  # (..., 1, vocab_size)
            if temperature == 0:
                chosen = logits.argmax(dim=-1)  # (..., 1)
            else:
                # One number in [0, 1) falls into the share of one token. torch.multinomial would
                # do it too, but draws differently on different processors.
                share = torch.softmax(logits / temperature, dim=-1).cumsum(dim=-1)
                drawn = torch.rand(
                    share[..., :1].shape,
                    generator=generator,
                    dtype=share.dtype,
                    device=share.device,
                )
                chosen = (share < drawn * share[..., -1:]).sum(dim=-1)  # (..., 1)
            tokens = torch.cat([tokens, chosen], dim=-1)
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
