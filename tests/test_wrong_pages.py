"""A chapter cannot hide a wrong mechanism: put one into its own code, and an output gives way.

Each row names a page, a line of its code and the mistake that takes the line's place. The page is
run with that one edit, and at least one of its checked outputs must no longer agree. See the
whole table with: pytest tests/test_wrong_pages.py -s
"""

import shutil
from pathlib import Path

import pytest

from literate import compare
from literate.page import read
from literate.run import Run
from tests.projects import SETTINGS
from tests.wrong import edit

ROOT = Path(__file__).resolve().parent.parent

WRONG = {
    "foundations/averaging.md": {
        "divides by the column": (
            "triangle.sum(dim=1, keepdim=True)  # (tokens, tokens)\nprint",
            "triangle.sum(dim=0)  # (tokens, tokens)\nprint",
        ),
        "forgets to divide": (
            "    shares = triangle / triangle.sum(dim=1, keepdim=True)",
            "    shares = triangle",
        ),
        "masks the past": (
            'scores = scores.masked_fill(triangle == 0, float("-inf"))',
            'scores = scores.masked_fill(triangle == 1, float("-inf"))',
        ),
        "softmax over the columns": (
            "shares = torch.softmax(scores, dim=-1)  # (tokens, tokens)\nprint",
            "shares = torch.softmax(scores, dim=-2)  # (tokens, tokens)\nprint",
        ),
        "the boat chooses the bank": ("scores[6, 3] = 2.0", "scores[3, 6] = 2.0"),
        "leaves the present out": ("so_far = x[: t + 1]", "so_far = x[: max(t, 1)]"),
        "reads ahead": ("so_far = x[: t + 1]", "so_far = x[: t + 2]"),
        "a test that sees no leak": ("if difference[t] > 0", "if difference[t] > 9"),
    },
    "foundations/context.md": {
        "forgets the state": ("word @ W_input + state @ W_state", "word @ W_input"),
        "asks the first word only": ("embed(sentence).mean(dim=0) @ W", "embed(sentence)[0] @ W"),
        "averages the channels": ("print(rows.mean(dim=0),", "print(rows.mean(dim=1),"),
        "the twin is the story": ("twin = boat.clone()  # a copy", "twin = boat"),
        "asks the wrong clue": (
            'weights[1, words.index("paid")]',
            'weights[1, words.index("rowed")]',
        ),
        "votes before it weighs": ("zip(context, context @ W,", "zip(context, embed(BOTH) @ W,"),
        "the last bank first": ("banks.pop(0)", "banks.pop()"),
        "keeps tanh": ("read(twin, keep)", "read(twin)"),
        "counts what is wrong": ("(3 + others > 0)", "(3 + others < 0)"),
    },
    "foundations/dot-product.md": {
        "no transpose": ("product = river @ river.T", "product = (river @ river.T).sqrt()"),
        "softmax over the queries": (
            "weights = torch.softmax(product, dim=-1)  # (tokens, tokens)",
            "weights = torch.softmax(product, dim=0)",
        ),
        "mixes by scores": ("context = weights @ river", "context = product @ river"),
        "the boat asks": ("bank, boat = river[6], river[3]", "bank, boat = river[3], river[6]"),
        "does not subtract the maximum": (
            "torch.exp(scores - scores.amax(dim=-1, keepdim=True))",
            "torch.exp(scores)",
        ),
        "scales where the page does not": (
            "scores = x @ x.transpose(-2, -1)  # (..., tokens, tokens)",
            "scores = x @ x.transpose(-2, -1) / x.shape[-1] ** 0.5",
        ),
        "the wrong derivative": (
            "return torch.diag(weights) - torch.outer(weights, weights)",
            "return torch.diag(weights * (1 - weights))",
        ),
    },
    "foundations/query-key-value.md": {
        "keys made with the query matrix": (
            "queries, keys, values = x @ W_query, x @ W_key, x @ W_value",
            "queries, keys, values = x @ W_query, x @ W_query, x @ W_value",
        ),
        "queries made with the key matrix": (
            "W_query, W_key = matrices[0], matrices[-1]",
            "W_query = W_key = matrices[0]",
        ),
        "no scale": (
            "scores = queries @ keys.T / W_query.shape[1] ** 0.5",
            "scores = queries @ keys.T",
        ),
        "no scale by hand": ("scores = products / 2**0.5", "scores = products"),
        "what is found is not added": ("write(x + attend(x)[1])", "write(x)"),
        "query and key exchanged": (
            "scores = queries @ keys.T / W_query.shape[1]",
            "scores = keys @ queries.T / W_query.shape[1]",
        ),
        "the layer forgets the scale": (
            "scores = queries @ keys.mT / queries.shape[-1] ** 0.5",
            "scores = queries @ keys.mT",
        ),
        "the layer mixes the words, not their values": (
            "torch.softmax(scores, dim=-1) @ values  # (..., tokens, value_dim)",
            "torch.softmax(scores, dim=-1) @ x",
        ),
    },
    "foundations/scaling.md": {
        "no scale": (
            "weights = torch.softmax(dots / head_dim**0.5, dim=-1)",
            "weights = torch.softmax(dots, dim=-1)",
        ),
        "divides by d": ("(dots / d**0.5).var()", "(dots / d).var()"),
        "multiplies": (
            "W_key, scale=head_dim**-0.5)",
            "W_key, scale=head_dim**0.5)",
        ),
        "scales by the token's width": (
            "right = torch.softmax(Q @ K.T / head_dim**0.5",
            "right = torch.softmax(Q @ K.T / embed_dim**0.5",
        ),
        "the root is missing": (
            "for factor in (1.0, d**-0.5, 1 / d)",
            "for factor in (1.0, 1 / d, 1 / d)",
        ),
    },
    "correctness/causal-mask.md": {
        "off by one": (
            "scores(x).masked_fill(~keep",
            "scores(x).masked_fill(~torch.ones(7, 7).tril(1).bool()",
        ),
        "too strict": (
            "keep = torch.ones(7, 7, dtype=torch.bool).tril()",
            "keep = torch.ones(7, 7, dtype=torch.bool).tril(-1)",
        ),
        "inverted": ("scores(x).masked_fill(~keep", "scores(x).masked_fill(keep"),
        "does not renormalise": (
            "return kept / kept.sum(dim=-1, keepdim=True)",
            "return kept",
        ),
        "the honest model cheats too": ("keep.tril(self.diagonal)", "keep.tril(1)"),
        "the short head sees one further": ("bool).triu(1)", "bool).triu(2)"),
        "the chunks are one word longer": ("torch.arange(7) // 3", "torch.arange(7) // 4"),
        "tests no position": ("still = moved[:-1] <= 1e-4", "still = moved[:-1] <= 1e9"),
        "the prefix is one word short": ("prefix = x[: t + 1]", "prefix = x[: max(t, 1)]"),
    },
    "correctness/masks.md": {
        "the wrong corner": (".tril(4 - 2)", ".tril()"),
        "an empty row is shared out": (
            "dim=-1).masked_fill(no_key, 0.0)",
            "dim=-1)",
        ),
        "padding kept, words hidden": ("real[None, :].expand", "~real[None, :].expand"),
        "only one of two conditions": (
            "attend(left_padded, causal & real_left)",
            "attend(left_padded, real_left.expand(5, 5))",
        ),
        "the padding is not hidden": (
            'scores.masked_fill(~real, float("-inf"))',
            'scores.masked_fill(~real & real, float("-inf"))',
        ),
    },
    "model/gpt.md": {
        "the residual is forgotten": (
            "added = added + mean_of_past @ norm(added)",
            "added = mean_of_past @ norm(added)",
        ),
        "the norm comes after": (
            "torch.equal(large + silent(norm(large)), large)",
            "torch.equal(norm(large + silent(large)), large)",
        ),
        "nothing is forgotten": ("Forgetful(32, Causal", "Block(32, Causal"),
        "the account leaves attention out": ("    x = x + found\n", ""),
        "guesses what it has read": (
            "return F.cross_entropy(logits.flatten(0, 1), pieces[:, 1:]",
            "return F.cross_entropy(logits.flatten(0, 1), pieces[:, :-1]",
        ),
        "nothing looks ahead": (
            "torch.ones(128, 128, dtype=torch.bool).tril(1)",
            "torch.ones(128, 128, dtype=torch.bool).tril()",
        ),
    },
    "model/heads.md": {
        "one place off": (
            "letters[:, 1:, None] == letters[:, None, :-1]",
            "letters[:, :-1, None] == letters[:, None, :-1]",
        ),
        "nothing is silenced": ("if number != silent:", "if True:"),
        "no mask": ('scores.masked_fill(future, float("-inf")).softmax', "scores.softmax"),
        "the lag is fixed": (
            "torch.randint(lags.start, lags.stop, (count, 1))",
            "torch.full((count, 1), 12)",
        ),
    },
    "production/served.md": {
        "each request fetches the weights": (
            "shared, own = 2 * W / 1e9",
            "shared, own = 2 * B * W / 1e9",
        ),
        "positions count the padding": ("(column - padding).clamp(min=0)", "column.expand(3, 5)"),
        "the text attends to padding": (
            "keep = (earlier & real[:, None, None]) | itself",
            "keep = (earlier | itself).expand(3, 1, 5, 5)",
        ),
        "the prompts are of one length": (
            '("ROMEO:\\n", "She rowed the boat to the ", "O")',
            '("ROMEO:\\n", "JULIET:", "OTHELLO")',
        ),
        "padding on the left": ("F.pad(p, (0, longest - len(p))", "F.pad(p, (longest - len(p), 0)"),
        "two tokens share a position": (
            "[torch.arange(length) for length in lengths]",
            "[torch.arange(length) // 2 for length in lengths]",
        ),
        "texts of a row see each other": ("keep = (owner == owner[:, None]) & ", "keep = "),
        "a token sees later ones": ("& (positions <= positions[:, None])", ""),
        "the weights take no room": ("(room - 2 * W / 1e9) / block", "room / block"),
        "one generator for all": ("for seed in seeds]", "for seed in [sum(seeds)] * len(seeds)]"),
        "places are counted over nothing": (
            "columns[-positions.shape[1] :], mask",
            "positions, mask",
        ),
        "nothing is forgotten": ("None if mask.shape[-2] == 1 else mask", "mask"),
        "reserves one block too many": ("ceil(tokens / size)", "(tokens // size + 1)"),
        "reads the first blocks of the memory": ("memory[:, table]", "memory[:, :3]"),
        "writes blocks in a row": (
            "part[table[positions // 16], positions",
            "part[positions // 16, positions",
        ),
        "sees what others left": ("torch.arange(48) < 43", "torch.arange(48) < 48"),
        "nobody waits": ("if not wait or batch", "if True or batch"),
        "counts the last turn as idle": ("if left[request] == 0]", "if left[request] < 0]"),
        "a text reads its neighbour's block": (
            "part[self.table].flatten(1, 2)",
            "part[self.table.flip(0)].flatten(1, 2)",
        ),
        "the last block is read whole": (
            "device=device) <= positions[:, :, None, None]",
            "device=device) <= (positions | 15)[:, :, None, None]",
        ),
        "every step reads the whole texts": (
            "read[who], texts[who] = len(texts[who]), ",
            "texts[who] = ",
        ),
        "a block for two": ("tables[who].append(free.pop())", "tables[who].append(free[-1])"),
        "blocks are kept after the end": ("free.append(tables[who].pop())", "tables[who].pop()"),
        "a table outlives its text": (
            "while tables[who]:  # a block is in a table or it is free, never both\n"
            "            free.append(tables[who].pop())",
            "free.extend(tables[who])",
        ),
        "every row draws from one place": (
            "[generators[who] for who in batch]",
            "[generators[0] for who in batch]",
        ),
    },
    "production/scheduling.md": {
        "the newcomer has no limit": (
            "for budget in (256, 16):",
            "for budget in (256, 256):",
        ),
        "a token attends to no key before its piece": (
            "keys = (start + end) / 2",
            "keys = (end - start) / 2",
        ),
        "alone with another draw": ("[draws(seed)], cache=KVCache", "[draws(0)], cache=KVCache"),
        "the memory is large": (
            "for blocks in (64, 6):\n    memory",
            "for blocks in (64, 60):\n    memory",
        ),
        "they come at once": ("if step == 0:", "if step == 1:"),
        "a larger number is even": ("torch.tensor(256.0)", "torch.tensor(64.0)"),
        "the pieces are not rounded": (
            "sum(products.unbind(dim=-1)).to(kept)",
            "sum(products.unbind(dim=-1))",
        ),
        "each position has the first one's logits": ("x[:, None].float()", "x[:1, None].float()"),
        "the kernel does not choose": ("8 if len(x) < 16 else 1)", "8 if len(x) < 1 else 1)"),
        "the fixed order is not fixed": (
            "return product(x, weight, 8)  # cuts all sums alike",
            "return product(x, weight, 8 if len(x) < 16 else 4)",
        ),
        "a name is that of all before": (
            'super().name_of(b"", tokens)',
            "super().name_of(before, tokens)",
        ),
        "a name is forgotten": (
            "        self.known = known\n",
            "        self.known = self.known\n",
        ),
        "one user less, not none": (
            "self.users[block], self.unused[block] = 0, None",
            "self.users[block] -= 0",
        ),
        "the fourth sends other words": (
            "fourth = server.add(start,",
            "fourth = server.add(start.flip(0),",
        ),
        "nothing is found": ("for found in (0, 4000):", "for found in (0, 400):"),
    },
    "production/variants.md": {
        "the window sees the future": (
            "(back >= 0) & (back < self.window)",
            "(back < self.window)",
        ),
        "the cache forgets one too many": (
            "part[..., 1 - self.window :, :]",
            "part[..., 2 - self.window :, :]",
        ),
        "the mask of the wrong keys": (
            "attn_mask[..., -len(place) :]",
            "attn_mask[..., : len(place)]",
        ),
        "padding enters the sum": (
            "key.masked_fill(padding, 0.0)",
            "key.masked_fill(padding, 1.0)",
        ),
        "the sum is forgotten": (
            "cache.state, cache.nbytes = state,",
            "cache.state, cache.nbytes = None,",
        ),
        "heads are copied in turns": (
            "given.repeat_interleave(4 // len(given), dim=0)",
            "given.repeat(4 // len(given), *[1] * (given.dim() - 1))",
        ),
        "the product is the other way round": (
            'weight @ drawn["latent"][name[: name.index(".W_")] + ".W_latent.weight"]',
            '(drawn["latent"][name[: name.index(".W_")] + ".W_latent.weight"].T @ weight.T)',
        ),
        "the window is no longer than before": ("window = 128  #", "window = 16  #"),
        "sparse attention still leaves keys out": (
            "part.reads = part.group = 128",
            "part.group = 128",
        ),
        "the groups are still short": ("part.reads = part.group = 128", "part.reads = 128"),
        "codes of 8 bits": ("QuantizedCache(bits=4", "QuantizedCache(bits=8"),
        "the indexer forgets": (
            "index = None if cache is None else cache.index",
            "index = None",
        ),
        "the indexer's keys are free": (
            "return super().nbytes + self.index.nbytes",
            "return super().nbytes",
        ),
        "padding is written": ("x = x * attn_mask[:, 0, -1, -x.shape[1] :, None]", "pass"),
        "the convolution's tokens are free": (
            "return self.state.nbytes + self.recent.nbytes",
            "return self.state.nbytes",
        ),
        "the keys still speak": ('0 * w if ".W_key" in n', 'w if ".W_key" in n'),
        "the padding is kept out after all": (
            "forward(x, cache=cache)",
            "forward(x, attn_mask=attn_mask, cache=cache)",
        ),
        "the heads are copied in their order": (
            "part.repeat(1, 2, 1, 1)",
            "part.repeat_interleave(2, dim=1)",
        ),
        "the window is no wider": (
            "class OneMoreCache(RollingCache):\n        window = 17",
            "class OneMoreCache(RollingCache):\n        window = 16",
        ),
        "the base is read after all": ('"rope_theta": base}', '"rope_theta": 10_000.0}'),
        "another model comes back": (
            "back.load_hugging_face(weights)",
            "back.load_hugging_face({n: w * 2 for n, w in weights.items()})",
        ),
    },
    "correctness/dropout.md": {
        "never drops": ("dropped = dropout(weights)", "dropped = weights"),
        "drops the scores": (
            "dropped = dropout(weights)",
            "dropped = dropout(scores).softmax(dim=-1)",
        ),
        "nothing is lost while bank learns": (
            "found = (patterns * weights / (1 - p)) @ clue",
            "found = (patterns.clamp(min=1 - p) * weights / (1 - p)) @ clue",
        ),
        "what is kept is not made larger": (
            "found = patterns @ torch.tensor(pair) / (1 - 0.1)",
            "found = patterns @ torch.tensor(pair)",
        ),
    },
    "correctness/order.md": {
        "positions forgotten": ("for word in words]] + positions", "for word in words]]"),
        "every pair at one frequency": (
            "frequency = 10000 ** (-torch.arange(0, channels, 2) / channels)  # (pairs,)",
            "frequency = torch.ones(channels // 2)",
        ),
        "rotated the wrong way": (
            "[[omega.cos(), -omega.sin()], [omega.sin(), omega.cos()]]",
            "[[omega.cos(), omega.sin()], [-omega.sin(), omega.cos()]]",
        ),
        "the key of a word without its position": (
            'keys = x @ position_head["W_key"]',
            'keys = embeddings @ position_head["W_key"]',
        ),
        "softmax over the queries": (
            "torch.softmax(scores + mask, dim=-1)",
            "torch.softmax(scores + mask, dim=0)",
        ),
        "the past hidden": ('float("-inf")).triu(1)', 'float("-inf")).tril(-1)'),
        "the kept keys are lost": (
            "torch.cat([keys, x @ position_head",
            "torch.cat([0 * keys, x @ position_head",
        ),
    },
    "correctness/multi-head.md": {
        "changes of the wrong head": (
            "return x, weights, context @ W_o  #",
            "return x, weights, context @ W_o.flip(0)  #",
        ),
        "heads mixed by view": (
            "return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)",
            "return x.view(x.shape[0], self.num_heads, x.shape[1], -1)",
        ),
        "merged without transposing back": (
            "return x.transpose(1, 2).flatten(-2)",
            "return x.reshape(x.shape[0], x.shape[2], -1).clone()",
        ),
        "no mask": ("if causal:", "if causal and False:"),
        "scaled by the number of tokens": (
            "scores = queries @ keys.mT / keys.shape[-1] ** 0.5  # (batch",
            "scores = queries @ keys.mT / keys.shape[-2] ** 0.5  # (batch",
        ),
        "keys and values exchanged": (
            "keys = self.split(self.W_key(x))",
            "keys = self.split(self.W_value(x))",
        ),
        "the account leaves the word out": (
            'parts = {"word": x @ toward_la',
            'parts = {"word": 0 * x @ toward_la',
        ),
        "the twins are told apart": ("+= nudge", "+= 0.1"),
        "the number of the other head": (
            'two_heads["W_o"][4 * head : 4 * head + 4]',
            'two_heads["W_o"][4 - 4 * head : 8 - 4 * head]',
        ),
        "the thing counted among the others": ("rest[3] = 0.0", "rest[3] += 0.0"),
    },
    "correctness/cross-attention.md": {
        "the writer asks itself": (
            "context, weights = attend(written, source, source)",
            "context, weights = attend(written, written, written)",
        ),
        "keys alone keep their order": (
            "keys[:, order], values[:, order]",
            "keys[:, order], values",
        ),
        "padding hidden from the wrong side": (
            "keep = real[:, None, :]",
            "keep = ~real[:, None, :]",
        ),
        "values from another place than keys": (
            "values = source @ W_value",
            "values = source.flip(1) @ W_value",
        ),
    },
    "production/bandwidth.md": {
        "the tokens are not fetched": (
            "fetched = 2 * (width**2 + 2 * n * width)",
            "fetched = 2 * width**2",
        ),
        "a sum in place of a maximum": ("max(compute, fetch)", "compute + fetch"),
        "a fused kernel hides its products": (
            "sdpa_kernel(SDPBackend.MATH)",
            "sdpa_kernel(SDPBackend.FLASH_ATTENTION)",
        ),
        "keys alone are fetched": (
            "self.numbers += args[1].numel() + args[2].numel()",
            "self.numbers += args[1].numel()",
        ),
        "a multiplication and an addition are one operation": (
            "n * (2 * W + 4 * L * d * T)",
            "n * (W + 2 * L * d * T)",
        ),
        "weights for every text": (
            "2 * weights + texts * cache",
            "texts * (2 * weights + cache)",
        ),
        "one cache for all": (
            "2 * weights + texts * cache",
            "2 * weights + cache",
        ),
    },
    "production/kv-cache.md": {
        "keys are joined in front": (
            "torch.cat([self.keys, keys], dim=-2)",
            "torch.cat([keys, self.keys], dim=-2)",
        ),
        "the right mask begins at the first key": (
            "device=x.device).tril(past)",
            "device=x.device).tril()",
        ),
        "places begin anew": (
            "return self.blocks[0].attention.cache.length",
            "return 0",
        ),
        "the window is not hidden": (
            "block.attention.mask = torch.ones(128, 128, dtype=torch.bool)",
            "block.attention.mask = torch.ones(128, 128, dtype=torch.bool).tril()",
        ),
        "another text is taken for the old one": (
            "if past and not torch.equal(tokens[:, :past], self.held[:, :past]):",
            "if False:",
        ),
        "memory is made for each text": ("if self.keys is None:", "if not self.length:"),
        "an earlier token is written over": (
            "self.length, self.length + keys.shape[2]",
            "max(self.length - 1, 0), self.length + keys.shape[2]",
        ),
        "a test that sees nothing": ("amax(dim=-1)[0] <= 1e-9", "amax(dim=-1)[0] <= 1e9"),
        "the newest key stands in front": (
            "keys = torch.cat([keys, (row @ W_key)[None]])",
            "keys = torch.cat([(row @ W_key)[None], keys])",
        ),
        "positions do not stop": ("min(super().first_position(), 40)", "super().first_position()"),
        "values are not kept": ("token = 2 * 2 * layers * d", "token = 2 * layers * d"),
        "no row is wrong": ("keys[:, :, past - 1] = keys[:, :, past]", "pass"),
    },
    "production/grouped-query.md": {
        "every third head shares": (
            "x.repeat_interleave(share, dim=1) for x in (key, value))  # 0 0",
            "x.repeat(1, share, 1, 1) for x in (key, value))  # 0 0",
        ),
        "head 1 reads the keys of group 1": ("c = h // 2", "c = h % 2"),
        "the control has no more room": ("(4, 1, 8, 120)", "(4, 1, 4, 120)"),
        "the weights take no room": ("(80 - model_size)", "80"),
        "four bytes a number": ("dtype=torch.bfloat16", "dtype=torch.float32"),
        "the sum of a group": ("return heads.mean(dim=1)", "return heads.sum(dim=1)"),
        "groups of heads that are no neighbours": (
            "unflatten(0, (g, 4 // g, 16))",
            "unflatten(0, (4 // g, g, 16)).transpose(0, 1)",
        ),
        "the keys' weights do not grow": ("            layer.W_key.weight *= times\n", ""),
        "never trained": ("        step_loss.backward()\n", ""),
        "the wrong line is never put in": (
            "return by_repeat(*args[:3])",
            "return function(*args, **(kwargs or {}))",
        ),
    },
    "correctness/backward.md": {
        "forgets the row sum": (
            "d_scaled = weights * (d_weights - row_sum)",
            "d_scaled = weights * d_weights",
        ),
        "forgets the scale": ("d_scores = d_scaled * 2**-0.5", "d_scores = d_scaled"),
        "keys for queries": ("d_Q = d_scores @ K", "d_Q = d_scores @ (2 * K)"),
        "values hear from the wrong weights": (
            "d_V = weights.T @ d_context",
            "d_V = scores.T @ d_context",
        ),
    },
    "production/online-softmax.md": {
        "the sum is not corrected": (
            "total = total * factor + torch.exp",
            "total = total + torch.exp",
        ),
        "the values are not corrected": (
            "weighted = weighted * factor + exponential * value  # (channels,)",
            "weighted = weighted + exponential * value  # (channels,)",
        ),
        "keeps the smaller": (
            "    maximum = torch.maximum(a.maximum, b.maximum)",
            "    maximum = torch.minimum(a.maximum, b.maximum)",
        ),
        "the parts change places": (
            "torch.exp(a.maximum - maximum)",
            "torch.exp(b.maximum - maximum)",
        ),
        "reads twice": ("            self.reads += 1", "            self.reads += 2"),
        "the other bank asks": ("scores = queries[9] @ keys.T", "scores = queries[4] @ keys.T"),
        "the uncorrected is corrected": (
            "weighted=a.weighted + b.weighted",
            "weighted=right.weighted",
        ),
    },
    "production/smaller-cache.md": {
        "one step too many": (
            "(x.amax(dim, keepdim=True) - lowest) / (2**bits - 1)",
            "(x.amax(dim, keepdim=True) - lowest) / 2**bits",
        ),
        "rounds down": ("((x - lowest) / step).round()", "((x - lowest) / step).floor()"),
        "channels are tokens": (
            "return rounded(x.unflatten(-2, (-1, tokens)), bits, dim=-2).flatten(-3, -2)",
            "return rounded(x, bits, dim=-1)",
        ),
        "groups are half as long": ("if len(self.newest) == 16", "if len(self.newest) == 8"),
        "the cache rounds keys by token": (
            "rounded(keys, self.bits, self.keys_along)",
            "rounded(keys, self.bits, -1)",
        ),
        "codes alone are counted": ("32 / group + 32 / head_dim", "0"),
        "values share a step as keys do": ("32 / group + 32 / head_dim", "64 / group"),
        "the head is a window": (
            "cache = HeavyHitters(keep=4, recent=2)",
            "cache = HeavyHitters(keep=4, recent=4)",
        ),
        "no heavy hitters": (
            "made.append(HeavyHitters(8, recent=4))",
            "made.append(HeavyHitters(8, recent=8))",
        ),
        "all rooms are windows": (
            "partial(HeavyHitters, keep, recent=keep // 2)",
            "partial(HeavyHitters, keep, recent=keep)",
        ),
        "questions that ask for nothing": ("if t < 127 else 4 * keys", "if t < 128 else 4 * keys"),
        "positions go on": ("read.clamp(max=32)", "read"),
        "the mask is too wide": ("(ages < 32)", "(ages <= 32)"),
        "the prompt sees ahead": (".tril(keys.size(-2) - new)", ".tril(keys.size(-2))"),
        "new tokens begin at position 0": (
            "llama.rotation(torch.arange(past, past + new))",
            "llama.rotation(torch.arange(new))",
        ),
        "cached keys are not rotated": (
            "rotate(heads(layer.W_key(normed)), rotation), heads",
            "heads(layer.W_key(normed)), heads",
        ),
        "all read the first layer": (
            '("pairs share", (0, 0, 2, 2), (0, 0, 2, 2))',
            '("pairs share", (0, 0, 2, 2), (0, 0, 0, 0))',
        ),
        "the pair has two caches": (
            '("pairs share", (0, 0, 2, 2), (0, 0, 2, 2))',
            '("pairs share", (0, 1, 2, 3), (0, 1, 2, 3))',
        ),
    },
    "production/gates-and-sinks.md": {
        "the sink takes no part": (
            "parts = torch.cat([scores, sink[None]]).exp()",
            "parts = torch.cat([scores, sink[None] - 99]).exp()",
        ),
        "one more key has a value": (
            "torch.cat([values, torch.zeros(1, values.shape[1])])",
            "torch.cat([values, torch.ones(1, values.shape[1])])",
        ),
        "the sigmoid of the other difference": (
            "share = (scores.logsumexp(dim=0) - sink).sigmoid()\n    return",
            "share = (sink - scores.logsumexp(dim=0)).sigmoid()\n    return",
        ),
        "the trained sink is left out": (
            'zip([*words, "sink"], weights, strict=True)',
            'zip([*words, "sink"], weights.flip(0), strict=True)',
        ),
        "the gate is not applied": ("{(gate * context).norm():.1f}", "{context.norm():.1f}"),
        "the last weight is not dropped": (
            "torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1] @ value",
            "torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., 1:] @ value",
        ),
        "large scores are not large": ("size=2000.0)", "size=2.0)"),
        "as many tokens as heads": (
            "verdict(version, learned, T=5)",
            "verdict(version, learned, T=4)",
        ),
        "the cap is no cap": ("capped = 5 * (scores / 5).tanh()", "capped = 5 * (scores / 5)"),
    },
    "production/vision.md": {
        "patches column by column": ("patches.transpose(1, 2).reshape(24", "patches.reshape(24"),
        "below is to the right": (
            "things[:, 6:].flatten()",
            "things.roll(-1, 1)[:, :-6].flatten()",
        ),
        "not trained": ("places_of, steps=200", "places_of, steps=1"),
        "one axis for both": ("positions[:, 1:] * frequency]", "positions[:, :1] * frequency]"),
        "the column turns back": ("torch.tensor(-2.0).cos()", "torch.tensor(-1.0).cos()"),
        "the whole width for one axis": (
            "RotaryPositions(8, base=10.0)(query",
            "RotaryPositions(8, base=100.0)(query",
        ),
        "strips for windows": ("return row * columns + column", "return row * columns"),
        "the mask is not used": (
            "scores.masked_fill(~keep, float",
            "scores.masked_fill(keep & ~keep, float",
        ),
        "the words are not trained": (
            "    optimizer.step()\n```\n\n```output\nstep  loss",
            "    optimizer.zero_grad()\n```\n\n```output\nstep  loss",
        ),
        "the answer is to the right": (
            "of_some.gather(1, where + 6)",
            "of_some.gather(1, where + 1)",
        ),
        "the words change places": (
            "some.gather(1, where + columns)",
            "some.gather(1, where.flip(1) + columns)",
        ),
        "swapped is right": ("token // rows, token % rows", "token // columns, token % columns"),
        "the rest is hidden": (
            "result = window_attention(*filled, rows + down, columns + across, window)",
            "return window_attention(query, key, value, rows, columns, window)",
        ),
    },
    "production/sparse.md": {
        "the bound is once the lost weight": ("{2 * lost * longest", "{lost * longest"),
        "the weights are not shared out anew": (
            "read = scores[chosen].softmax(dim=0) @ values[chosen]",
            "read = weights[chosen] @ values[chosen]",
        ),
        "no relu": ("index_factor @ products.relu()", "index_factor @ products"),
        "the queries are not weighed": (
            "one_query = index_factor @ index_query",
            "one_query = index_query.sum(dim=0)",
        ),
        "the indexer is not trained": (
            "    optimizer.step()\n```",
            "    optimizer.zero_grad()\n```",
        ),
        "the earlier is better": (
            "return torch.arange(T).double().masked_fill",
            "return -torch.arange(T).double().masked_fill",
        ),
        "the kept weight is the lost one": ("(weights * ~keep)", "(weights * keep)"),
        "values as wide as keys": ("keys * (576 + 512)", "keys * (576 + 576)"),
        "the indexer's keys are not held": (
            "tokens * (token + index_key)",
            "tokens * (token + 0 * index_key)",
        ),
        "blocks of one key": ("8 // size, size), T)[:, 0]", "8 // size, 1), T)[:, 0]"),
        "the future is hidden in time": (
            "return all_scores(x)  # `best`",
            "return index(x)  # `best`",
        ),
        "the same pairing": ("pairing=neighbours", "pairing=HALVES"),
        "the root is forgotten": ("* (4 * 8) ** 0.5", "* 1 ** 0.5"),
    },
    "production/flash.md": {
        "stores the scores too": (
            "            scores = query @ K.load(columns).T",
            "            scores = query @ K.load(columns).T; Slow.moved += scores.numel()",
        ),
        "fetches the values once": (
            "step(state, scores, V.load(columns))",
            "step(state, scores, V.matrix[columns])",
        ),
        "does not correct the sum": (
            "    total = total * factor + exponentials.sum(dim=-1)\n    weighted",
            "    total = total + exponentials.sum(dim=-1)\n    weighted",
        ),
        "does not correct the values": (
            "weighted = weighted * factor[:, None] + exponentials @ values",
            "weighted = weighted + exponentials @ values",
        ),
        "computes the future": ("if columns.start < rows.stop:", "if True:"),
        "skips no tile": (
            "if is_causal and columns.start >= rows.stop",
            "if is_causal and columns.start > T",
        ),
        "hides the present": ("masked_fill(j > i,", "masked_fill(j >= i,"),
        "takes no care of hidden rows": (
            "finite = larger.masked_fill(larger == -torch.inf, 0.0)",
            "finite = larger",
        ),
        "forgets the row sum": ("weights * (d_weights - D[rows, None])", "weights * d_weights"),
        "keys hear nothing": ("d_keys[columns] += d_scores.T", "d_keys[columns] = d_scores.T"),
        "the wrong head": ("[:, 32:48]", "[:, 16:32]"),
    },
    "production/many-devices.md": {
        "weighs both parts alike": (
            "output * (lse - joined).exp() + other * (other_lse - joined).exp(), joined",
            "(output + other) / 2, joined",
        ),
        "adds the sums of the parts": (
            "joined = torch.logaddexp(lse, other_lse)",
            "joined = lse + other_lse",
        ),
        "asks the near words again": (
            "attend(q, k, v), *attend(q, their_keys, their_values)",
            "attend(q, k, v), *attend(q, k, v)",
        ),
        "takes the keys for one's own": (
            "keep=here >= positions[source])\n        result = merge(*result, *new)\n        if step",
            "keep=here >= here.T)\n        result = merge(*result, *new)\n        if step",
        ),
        "the ring turns the other way": (
            "source = (device.rank - step) % device.size  # whose",
            "source = (device.rank + step) % device.size  # whose",
        ),
        "the last block is sent once more": (
            "        if step < device.size - 1:\n            arrived = device.pass_on",
            "        if True:\n            arrived = device.pass_on",
        ),
        "counts scores of the future": (
            "(positions[rank][:, None] >= positions[(rank - step) % size])",
            "(positions[rank][:, None] <= positions[(rank - step) % size])",
        ),
        "no zig-zag": ("pieces[7 - rank]", "pieces[rank + 4]"),
        "forgets what came home": ("2 * (size - 1) + 2 * (size - 1) + 2 * size", "4 * (size - 1)"),
        "gradients always come home": ("if not home:", "if False:"),
        "counts bits for bytes": ("200e9 / 8", "200e9"),
        "sends keys alone": ("sent = 2 * kv_heads", "sent = kv_heads"),
        "one product of two": ("share * 2 * 2 * heads", "share * 2 * heads"),
        "heads go to the wrong device": (
            "device.send(target, part)",
            "device.send(target, parts[target - 1])",
        ),
        "the device's own tokens come first": (
            "came = range(device.size)",
            "came = [device.rank, *(r for r in range(device.size) if r != device.rank)]",
        ),
        "a device writes to itself": ("if target != device.rank:", "if True:"),
        "context goes back in turns": (
            "context.chunk(n, dim=1)",
            "[context[:, rank::n] for rank in range(n)]",
        ),
        "each part is sent whole": ("shard * (n - 1) // n", "shard * (n - 1)"),
        "one device is not asked": ("for answer in answers[1:]:", "for answer in answers[2:]:"),
    },
    "production/linear.md": {
        "no feature map": ("def phi(x):\n    return F.elu(x) + 1", "def phi(x):\n    return x"),
        "sums the columns": (
            "weights @ values / weights.sum(dim=1, keepdim=True)",
            "weights @ values / weights.sum(dim=0)[:, None]",
        ),
        "the sum of the keys begins at 1": (
            "total, outputs = torch.zeros(",
            "total, outputs = torch.ones(",
        ),
        "forgets the state": (
            "outputs.append(q @ state + (q @ k.T).tril() @ v)  # before",
            "outputs.append((q @ k.T).tril() @ v)  # before",
        ),
        "reads the whole chunk": (
            "outputs.append(q @ state + (q @ k.T).tril() @ v)  # before",
            "outputs.append(q @ state + (q @ k.T) @ v)  # before",
        ),
        "counts the rows": (
            "result.numel() * args[0].shape[-1]",
            "result.numel() * args[0].shape[-2]",
        ),
        "keys of any length": ("words = F.normalize(words, dim=-1)", "words = 1.0 * words"),
        "too few features": ("for degree in (2, 8, 16, 48)", "for degree in (2, 8, 16, 12)"),
        "nothing is learned": ("        optimizer.step()\n", ""),
        "the table is not divided by its weights": (
            "return answers[..., :-1] / answers[..., -1:]",
            "return answers[..., :-1]",
        ),
        "is asked about what it has trained on alone": (
            "lesson, wanted = lessons(200, told)",
            "lesson, wanted = lessons(200, 32)",
        ),
    },
    "production/configurations.md": {
        "values are not counted": ("* (d + d) * 2", "* d * 2"),
        "the keys of each query head": (
            'llama_8b["num_key_value_heads"] * (d',
            'llama_8b["num_attention_heads"] * (d',
        ),
        "another head width": (
            '"head_dim": 256,\n        "partial',
            '"head_dim": 128,\n        "partial',
        ),
        "a layer of another model's norm": ("layers[1], checkpoint", "layers[2], checkpoint"),
        "the window is not ignored": ('{"window": None}', '{"window": 8}'),
        "only the last layer is counted": (
            "for layer in layers)\n\n\nprint",
            "for layer in layers[1:])\n\n\nprint",
        ),
        "a key that has no say": ('"attention_chunk_size": 8192', '"vocab_size": 8192'),
    },
    "production/gated-memory.md": {
        "decay spares what is old": (
            "state = alpha * before + oar.mT @ price",
            "state = before + alpha * oar.mT @ price",
        ),
        "what is old is recalled": ("(alpha**ages * values)", "(alpha ** (127 - ages) * values)"),
        "does not read before it writes": ("(price - oar @ before)", "price"),
        "nothing fades": (
            "    state = alpha * state  # fade",
            "    state = 1 * state  # fade",
        ),
        "beta is not asked for": (
            "    if beta is not None:\n        value",
            "    if False:\n        value",
        ),
        "the gate stays open": ("state = gate * state", "state = 1 * state"),
        "the first of two values is right": ("[-24:]  # the last", "[-48:-24]  # the last"),
        "the right step is compared with itself": (
            "torch.allclose(run(rule, *tokens",
            "torch.allclose(run(step, *tokens",
        ),
        "all layers keep a cache": ("layers, cached = 48, 12", "layers, cached = 48, 48"),
        "equal gates are not equal": (
            "wide, ones = head.expand(100, 16)",
            "wide, ones = channels",
        ),
        "the pieces begin anew": ("beta=b[70:], state=last", "beta=b[70:], state=None"),
        "nothing is learned": ("        optimizer.step()\n", ""),
        "wants the first number, not the last": (
            "asked), numbers[:, -1]",
            "asked), numbers[:, 0]",
        ),
    },
    "production/latent-attention.md": {
        "shared heads keep their own keys": ("mean(dim=2, keepdim=True)", "narrow(2, 0, 1)"),
        "the weakest directions are kept": ("S[:width, None] * V[:width]", "V[:width]"),
        "absorbed on the wrong side": (
            "asked = queries @ W_key.mT  # (heads, tokens, latent_dim)\n    weights",
            "asked = queries @ W_value.mT\n    weights",
        ),
        "products are not counted": ("result.numel() * args[0].shape[-1]", "result.numel()"),
        "the rotary key is not turned": (
            "+ rope_queries @ rope_key.mT)",
            "+ rope_queries @ (x @ W_rope_key).mT)",
        ),
        "turned by the wrong distance": (
            "rotate(queries, positions - s)",
            "rotate(queries, positions + s)",
        ),
        "the operator is told the scale": (
            "(asked, kept, kept) @",
            "(asked, kept, kept, scale=0.5) @",
        ),
        "heads are not cached": ("2 * heads * d_h)", "heads * d_h)"),
        "the layers are not squeezed": ("(stacked[i] @ through(i)).T", "stacked[i].T"),
    },
    "production/sampling-fast.md": {
        "later guesses survive": ("(guess[0] == own[:4]).cumprod(dim=0)", "(guess[0] == own[:4])"),
        "one place off": (
            "logits = large(torch.cat([text, guess], dim=1))[0, known - 1 :]",
            "logits = large(torch.cat([text, guess], dim=1))[0, known - 2 : -1]",
        ),
        "the rest is drawn from p": (
            "    missing = (p - q).clamp(min=0)\n    refused",
            "    missing = p\n    refused",
        ),
        "the table keeps every guess": ("kept = torch.minimum(p, q)  #", "kept = q.clone()  #"),
        "kept the wrong way round": ("keep = (p / q).clamp(max=1)", "keep = (q / p).clamp(max=1)"),
        "the cache sees the future": (
            "dtype=torch.bool).tril(past)",
            "dtype=torch.bool)",
        ),
        "the cache forgets nothing": ("cache.truncate(length)", "cache.truncate(cache.length)"),
        "the overlap is the product": ("torch.minimum(p, q)[0, 6:]", "(p * q)[0, 6:]"),
        "the draft costs nothing": ("+ drafted * weights[1])", "+ 0 * drafted)"),
        "the caches are cut": (
            "self.read = self.read[:, :length]  # and the caches keep what was refused",
            "super().truncate(length)",
        ),
        "both by the right rule": ("torch.where(keep, drafts, afresh)", "afresh"),
        "a guess sees other branches": ("keep[known:, known:] = False  #", "keep[:0] = False  #"),
        "a guess forgets its branch": ("keep[row] = keep[known + guess]", "keep[row, row] = True"),
        "a guess does not see itself": (
            "        keep[row, row] = True",
            "        keep[row, row] = False",
        ),
        "all guesses at one position": (
            "torch.cat([torch.arange(4), 4 + depth])",
            "torch.cat([torch.arange(4), 4 + 0 * depth])",
        ),
        "goes on from any guess": ("if parent == last and guesses[guess]", "if guesses[guess]"),
        "takes the guess of another branch": (
            "if parent == last and guesses[guess] == new[-1]:",
            "if parent == last:",
        ),
        "heads learn the present": (
            "will_say[:, ahead : 125 + ahead] for",
            "will_say[:, 0:125] for",
        ),
        "every guess of the heads is kept": (
            "(guesses == own[: len(guesses)]).cumprod",
            "(guesses == guesses).cumprod",
        ),
        "guesses from the wrong place": (
            "guesses = guess(state[agree])",
            "guesses = guess(state[0])",
        ),
    },
    "production/masks.md": {
        "the window given to the first layer": (
            "keeps = keep_past(40), keep  #",
            "keeps = keep, keep_past(40)  #",
        ),
        "the stack forgets what it read": (
            "x = x + F.scaled_dot_product_attention(x, x, x, attn_mask=keep)",
            "x = F.scaled_dot_product_attention(x, x, x, attn_mask=keep.tril(-1))",
        ),
        "the sink has something to say": ("scores[0], values[0] = 7.0, 0.0", "scores[0] = 7.0"),
        "a slope for the query": ("by_key.expand(8, 20, 20)", "by_key.mT.expand(8, 20, 20)"),
        "the neighbour is seen": (
            "apart = (keep_past(14) & keep_documents(document))[0, 0]",
            "apart = keep_past(14)",
        ),
        "another token is changed": (
            "changed[j] += 1.0\n        before",
            "changed[0] += 1.0\n        before",
        ),
        "padding is never hidden": (
            '"window, padded": keep_window(3, 12) & keep_real(real)',
            '"window, padded": keep_window(3, 12) & keep_real(~real | real)',
        ),
        "the rule counts one token more": ("return i - 2 <= j <= i", "return i - 3 <= j <= i"),
        "a text sees the one before": ("5 if i < 8 else 8", "5 if i < 8 else 5"),
        "FlexAttention sees one token less": ("((i - j < 3) | (j < 2))", "((i - j < 2) | (j < 2))"),
    },
    "production/rope.md": {
        "the key is not rotated": (
            "rotate_one(query, p) @ rotate_one(key, j) for",
            "rotate_one(query, p) @ key for",
        ),
        "both are rotated the same way round": (
            "queries, keys = rotate(queries), rotate(keys)",
            "queries, keys = rotate(queries), keys",
        ),
        "the angles in bfloat16": (
            "positions.double() * frequency",
            "positions.bfloat16() * frequency",
        ),
        "the second half rotates back": (
            "[first * cos - second * sin, first * sin + second * cos], -1).flatten",
            "[first * cos + second * sin, first * sin + second * cos], -1).flatten",
        ),
        "positions without the start": (
            "rotated(x, first + torch.arange(len(x)))",
            "rotated(x, torch.arange(len(x)) * (first < 9))",
        ),
        "the rows are sorted the wrong way": (
            'change_pairing(wide[name].T, 4, to="half").T',
            'change_pairing(wide[name].T, 4, to="interleaved")[[0, 1, 2, 3]].T.flip(1)',
        ),
        "the future is attended to": ("dtype=torch.bool).triu(1)", "dtype=torch.bool).triu(2)"),
        "rotate_half without its sign": ("[-second, first]", "[second, first]"),
    },
    "production/stretching.md": {
        "the control has no window": ("(back < 128)", "(back < 512)"),
        "the far keys are left out": ("(torch.arange(512) < 64))", "(torch.arange(512) < 0))"),
        "a circle of radians": ("frequency / (2 * math.pi) * 24) % 24", "frequency * 24) % 24"),
        "every pair is slowed": (
            "new, slowed = sectors(frequency, 512) - met,",
            "new, slowed = sectors(frequency / 4, 512) - met,",
        ),
        "linear stretching multiplies": (
            "[frequency / s for frequency in as_trained]",
            "[frequency * s for frequency in as_trained]",
        ),
        "NTK-aware stretching with the exponent of the wrong pair": ("(16 / 14)", "(14 / 16)"),
        "YaRN for another length": ("def yarn(s, length=128)", "def yarn(s, length=2048)"),
        "YaRN's ramp upside down": ("(last - i) / (last - first)", "(i - first) / (last - first)"),
        "YaRN counts radians": ("length / (2 * math.pi * turns)", "length / turns"),
        "the control keeps the middle": ("near & (back < 64)}", "near}"),
        "no pair is lowered": ("f / 4 if i in pairs else f", "f if i in pairs else f"),
        "the factor does not grow": (
            "llama.frequencies = way(end / 128)",
            "llama.frequencies = way(1)",
        ),
        "kept keys are not rotated back": ("rotate(keys, (cos, -sin))", "keys"),
        "kept keys are rotated back twice": (
            "return rotate(keys, llama.rotation(positions)), values",
            "return keys, values",
        ),
        "the scores are as they were": ("W_query.weight *= sharper", "W_query.weight *= 1"),
    },
}
SOON = ("foundations/averaging.md", "foundations/dot-product.md")
EDITS = [(page, what, *edit) for page, edits in WRONG.items() for what, edit in edits.items()]


def wrong_page(page, old, new, folder):
    """Return `page` as it reads with `old` replaced by `new`, once, in a copy of the project."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for name, setting in SETTINGS.items():
        (folder / name).write_text(setting, encoding="utf-8")
    shutil.copytree(ROOT / "snippets", folder / "snippets")
    copy = folder / "docs" / page
    copy.parent.mkdir(parents=True)
    shutil.copytree(ROOT / "docs/files", folder / "docs/files")
    drawings = (ROOT / "docs" / page).with_name("drawings")
    shutil.copytree(drawings, copy.with_name("drawings"))
    copy.write_text(edit(text, old, new, f"docs/{page}"), encoding="utf-8")
    return read(copy)


def first_failure(page):
    """Run `page` and return the report of its first block that does not hold, or None."""
    run = Run(page)
    try:
        for block in page.blocks:
            if failure := compare.check(page, block, run.upto(block)):
                return failure.report
    finally:
        run.close()
    return None


@pytest.mark.parametrize(
    ("page", "old", "new"),
    [
        # Each runs its page anew: `make test` tries a few, `make test-labs` the rest.
        pytest.param(
            page, old, new, id=f"{page}: {what}", marks=[pytest.mark.lab] * (page not in SOON)
        )
        for page, what, old, new in EDITS
    ],
)
def test_a_wrong_line_in_a_chapter_changes_a_checked_output(page, old, new, tmp_path):
    report = first_failure(wrong_page(page, old, new, tmp_path))
    assert report, f"docs/{page} printed the same with {new!r} in place of {old!r}"


def test_a_chapter_that_is_left_as_it_is_holds(tmp_path):
    page, same = "model/heads.md", "if number != silent:"
    assert first_failure(wrong_page(page, same, same, tmp_path)) is None


def test_every_chapter_is_made_wrong():
    chapters = {
        path.relative_to(ROOT / "docs").as_posix()
        for part in ("foundations", "correctness", "model", "production")
        for path in (ROOT / "docs" / part).glob("*.md")
        if path.name != "index.md"
    }
    assert set(WRONG) == chapters
