"""Answers by hand, and what is known of the generated ones: by page, by exercise.

An answer by hand is code that makes an `answer` from the names of the page at its check. A check must
take those of RIGHT, and refuse those of WRONG with a reason. What `tests/tries.py` generates needs no
line here, but where a check treats it otherwise than its name says: PARDONED says why that is no mistake
of the check. WEAK lists the mistakes that are known; it must shrink. What no longer holds fails the test,
which then shows what WEAK should say of the page.
"""

RIGHT: dict[str, dict[int, list[str]]] = {
    "docs/foundations/averaging.md": {
        2: [
            """\
def answer(tokens):
    place = torch.arange(tokens)
    back = place[:, None] - place
    return (-0.693 * back).masked_fill(back < 0, float("-inf"))
""",
            """\
def answer(tokens):
    shares = 0.5 ** (torch.arange(tokens)[:, None] - torch.arange(tokens)).double()
    return shares.tril().log()
""",
        ]
    },
    "docs/foundations/query-key-value.md": {
        3: [
            "answer = lambda W_query, W_key: [-W_query, -W_key]",
            """\
def answer(W_query, W_key):
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    return W_query @ turn, W_key @ turn
""",
        ]
    },
    "docs/start/pytorch.md": {
        2: [
            """\
def answer(table):
    table -= table.mean(dim=1, keepdim=True)
    return table
""",
            "answer = lambda table: torch.stack([row - row.mean() for row in table])",
        ],
    },
}

WRONG: dict[str, dict[int, list[str]]] = {
    "docs/correctness/causal-mask.md": {
        2: ["answer = lambda tokens, prefix: answer_2(tokens, 2)"],
        3: [
            """\
def answer(model, x):
    other = x.clone()
    other[-1] += 1.0
    return bool(leaks(model, x, other))
""",
            """\
def answer(model, x):
    other = x.clone()
    other[1:] += 1.0
    return not torch.allclose(model(other)[0], model(x)[0])
""",
        ],
        4: [
            """\
def answer(query, key, value):
    weights = torch.softmax(query @ key.T / query.shape[-1] ** 0.5, dim=-1)
    return weights.tril() @ value
""",
            """\
def answer(query, key, value):
    return answer_4(query * query.shape[-1] ** 0.5, key, value)
""",
        ],
    },
    "docs/correctness/multi-head.md": {
        3: [
            "answer = lambda model: model",
            "answer = lambda model: answer_3(model) | {'W_o': model['W_o'].flip(0)}",
            "answer = lambda model: answer_3(two_heads)",
        ],
        4: [
            "answer = lambda context: context.flatten(-2)",
            "answer = lambda context: context.permute(0, 2, 3, 1).flatten(-2)",
        ],
    },
    "docs/correctness/order.md": {
        2: ["answer = lambda distance, channels: answer_2(distance, 12)"],
        3: [
            """\
def answer(tokens):
    mask = answer_3(tokens)
    mask[1:-1] = mask[1:-1].clamp(min=-2)
    return mask
""",
            """\
def answer(tokens):
    mask = answer_3(tokens)
    mask[1, 2] = 0.0
    return mask
""",
        ],
    },
    "docs/foundations/averaging.md": {
        2: ["answer = lambda tokens: answer_2(5)"],
    },
    "docs/foundations/dot-product.md": {
        3: ["answer = lambda scores: torch.softmax(scores, dim=-1)"],
    },
    "docs/foundations/query-key-value.md": {
        4: ["answer = lambda x, W_query, W_key, W_value: x @ W_value"],
    },
    "docs/cache/grouped-query.md": {
        3: [
            "answer = lambda layer: layer",
            "answer = lambda layer: GroupedQueryAttention(layer.embed_dim, 4, bias=True)",
        ],
    },
    "docs/foundations/scaling.md": {
        3: [
            """\
def answer(head):
    x, matrices = torch.randn(5, 8), torch.randn(3, 8, 8)
    wanted = F.scaled_dot_product_attention(*(x @ matrix for matrix in matrices))
    assert torch.allclose(head(x, *matrices), wanted, atol=1e-4)
""",
        ],
    },
    "docs/serving/sampling-fast.md": {
        3: [
            "answer = lambda model, k: model",
            "answer = lambda model, k: answer_3(model, 1)",
        ],
    },
    "docs/start/pytorch.md": {
        2: [
            "answer = lambda table: table.zero_()",
            "answer = lambda table: table - table.mean()",
            "answer = lambda table: table - table.mean(dim=0)",
        ],
    },
}

# What no reader's test may be, whatever it tests: it refuses all, or the right one later, or it returns a verdict.
NO_TEST = {
    "refuses all": """\
def answer(thing):
    raise AssertionError("no")
""",
    "refuses all but the first": """\
def answer(thing, asked=[]):
    asked.append(thing)
    assert len(asked) == 1
""",
    "returns a verdict": "answer = lambda thing: True",
}

ANY = "an answer is not the only one, and this is another"
ORDER = "their order does not matter"

PARDONED: dict[str, dict[int, dict[str, str]]] = {
    "docs/correctness/causal-mask.md": {1: {"transposed or reversed": ORDER}},
    "docs/examples/averages.md": {2: {"first moved": "row 0 has a single score"}},
    "docs/examples/causal-heads.md": {1: {"transposed or reversed": ORDER}},
    "docs/examples/rectangular-heads.md": {1: {"transposed or reversed": ORDER}},
    "docs/examples/two-banks.md": {2: {"first moved": ANY, "last moved": ANY}},
    "docs/foundations/averaging.md": {2: {"first moved": "row 0 has a single score"}},
    "docs/foundations/query-key-value.md": {
        2: {"first moved": ANY, "negated": ANY},
        3: {"negated": ANY},
    },
    "docs/cache/kv-cache.md": {
        2: dict.fromkeys(
            ("in float64", "as a view", "with a gradient", "in place"),
            "it must be the memory itself",
        ),
    },
    "docs/positions/rope.md": {
        3: {"negated": "queries and keys are both negated, so no score changes"}
    },
    "docs/serving/served.md": {2: {"first moved": "padding may stand at any place of the table"}},
    "docs/memories/sparse.md": {3: {"negated": "1 and -1 lie as far apart as -1 and 1"}},
}

WEAK: dict[str, dict[int, list[str]]] = {
    "docs/correctness/dropout.md": {2: ["in place"]},
    "docs/correctness/order.md": {3: ["wrong by hand, 2"]},
    "docs/model/gpt.md": {2: ["text"]},
    "docs/memories/linear.md": {3: ["in float64", "constant"]},
    "docs/positions/masks.md": {1: ["nan"], 4: ["nan"]},
    "docs/serving/sampling-fast.md": {1: ["text"]},
    "docs/serving/served.md": {1: ["text", "nan"], 3: ["transposed or reversed", "one short"]},
    "docs/serving/variants.md": {2: ["nan"], 3: ["transposed or reversed"]},
    "docs/start/pytorch.md": {4: ["text"]},
}
