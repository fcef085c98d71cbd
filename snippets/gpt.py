"""A small GPT: a language model of causal self-attention, in one file.

    logits = model(tokens[:, :-1])  # (batch, T, vocab_size)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

To tie both tables, as GPT-2 does: model.logits.weight = model.token.weight.

Sources: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", section 2.3
(norms before each part and at the end, residual projections scaled at the start), and its public
code (learned positions, GELU, the widths).
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalMultiHeadAttention(nn.Module):
    """Multi-head self-attention in which token i sees tokens 0 … i. It takes no cache."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"num_heads must divide embed_dim: got {num_heads}, {embed_dim}")
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.W_query = nn.Linear(embed_dim, embed_dim)
        self.W_key = nn.Linear(embed_dim, embed_dim)
        self.W_value = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, *, positions=None, attn_mask=None) -> Tensor:
        """(..., T, embed_dim) → the same; the GPT has added to x what positions say."""
        query, key, value = (  # each (..., num_heads, T, head_dim)
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(-3, -2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask, self.dropout * self.training, attn_mask is None
        )
        return self.out_proj(context.transpose(-3, -2).flatten(-2))


class Block(nn.Module):
    """One layer: both parts read the stream through a norm, and add what they found to it."""

    def __init__(self, embed_dim: int, attention: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim)
        self.attention = attention
        self.mlp_norm = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim), nn.GELU(), nn.Linear(4 * embed_dim, embed_dim)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, **how) -> Tensor:
        """(..., T, embed_dim) → the same; what stands in `how` is for the attention."""
        x = x + self.drop(self.attention(self.attention_norm(x), **how))
        return x + self.drop(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """Logits for the next token, at every position of a text of at most context_length tokens.

    `attention`, called as attention(embed_dim, num_heads), makes what each block has in place of
    the heads of this file. It hides the future by itself, and ends in `out_proj`.
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
        attention: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        attention = attention or partial(CausalMultiHeadAttention, dropout=dropout)
        self.context_length = context_length
        self.token = nn.Embedding(vocab_size, embed_dim)
        self.position = nn.Embedding(context_length, embed_dim)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(embed_dim, attention(embed_dim, num_heads), dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.logits = nn.Linear(embed_dim, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for block in self.blocks:  # 2 · num_layers parts add to the stream: keep its size near 1
            for last in (block.attention.out_proj, block.mlp[-1]):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * num_layers))

    def forward(self, tokens, *, positions=None, attn_mask=None, caches=None, last=0) -> Tensor:
        """Return the logits of the token after each of tokens, (..., T) → (..., T, vocab_size).

        Args:
            positions: (T,) or (..., T), below context_length; None counts on from the caches.
            attn_mask: boolean, True keeps: (T, keys) or (batch, 1 or heads, T, keys).
            caches: one for each block, for an `attention` that takes one.
            last: of how many tokens, at the end, logits are returned; 0 means all.
        """
        if attn_mask is not None and (attn_mask.dim() == 3 or attn_mask.dtype != torch.bool):
            came = f"{attn_mask.dtype} of {tuple(attn_mask.shape)}"  # 3: a text's, or a head's?
            raise ValueError(f"attn_mask must be boolean, (T, keys) or four dimensions: got {came}")
        held = {id(cache): cache.length for cache in caches or ()}
        if caches is not None and (len(held) != len(self.blocks) or len({*held.values()}) > 1):
            raise ValueError(f"caches must be one a block, of one length: got {[*held.values()]}")
        past = caches[0].length if caches else 0
        how = {"positions": positions, "attn_mask": attn_mask}
        if positions is None:
            positions = torch.arange(past, past + tokens.size(-1), device=tokens.device)
        if positions.size(-1) != tokens.size(-1):  # one position would be that of all tokens
            raise ValueError(f"positions must be those of {tokens.shape}, got {positions.shape}")
        x = self.drop(self.token(tokens) + self.position(positions))  # (..., T, embed_dim)
        for number, block in enumerate(self.blocks):
            how["cache"] = caches[number] if caches else None
            x = block(x, **{name: given for name, given in how.items() if given is not None})
        return self.logits(self.norm(x[..., -last:, :]))

    @torch.no_grad()
    def generate(self, tokens: Tensor, n: int, temperature=1.0, generator=None) -> Tensor:
        """Write n more tokens after each text, (..., T) → (..., T + n), the likeliest at 0."""
        for _ in range(n):
            logits = self(tokens[..., -self.context_length :], last=1)[..., -1, :]
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logits = logits - logits.amax(dim=-1, keepdim=True)
            shares = torch.softmax(logits / max(temperature, 1e-38), dim=-1)  # (..., vocab_size)
            if temperature < 0 or shares.isnan().any():  # logits with nan or inf, or all -inf
                raise ValueError("logits must be finite, some -inf, and temperature at least 0")
            chosen = shares.argmax(dim=-1)
            if temperature > 0:
                # torch.multinomial draws too, but differently on different processors.
                bounds = shares.cumsum(dim=-1).masked_fill(shares == 0, 0.0)
                how = {"dtype": shares.dtype, "device": shares.device, "generator": generator}
                numbers = torch.rand(*shares.shape[:-1], 1, **how)
                chosen = (numbers * bounds.amax(dim=-1, keepdim=True) < bounds).int().argmax(dim=-1)
            tokens = torch.cat([tokens, chosen[..., None]], dim=-1)
        return tokens
