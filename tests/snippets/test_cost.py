"""cost holds to figures that were published, to sums by hand, and to what it says of itself."""

import pytest

from snippets.attention_of import attention_of

# Public configurations: hidden_size, layers, heads, their keys, intermediate_size, vocab_size.
NAMES = [
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "vocab_size"),
]


def config(kind, sizes, **more):
    return {"model_type": kind} | dict(zip(NAMES, sizes, strict=True)) | more


EIGHT = {"num_experts_per_tok": 8}
OSS = {"head_dim": 64, "num_experts_per_tok": 4, "sliding_window": 128}
DEEPSEEK = EIGHT | {"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1}
MODELS = {
    "Llama 3.1 8B": config("llama", (4096, 32, 32, 8, 14336, 128256)),
    "Llama 3.1 70B": config("llama", (8192, 80, 64, 8, 28672, 128256)),
    "Llama 3.1 405B": config("llama", (16384, 126, 128, 8, 53248, 128256)),
    "Qwen2.5 72B": config("qwen2", (8192, 80, 64, 8, 29568, 152064)),
    "Mixtral 8x7B": config(
        "mixtral", (4096, 32, 32, 8, 14336, 32000), num_local_experts=8, num_experts_per_tok=2
    ),
    "Qwen3 30B A3B": config(
        "qwen3_moe", (2048, 48, 32, 4, 6144, 151936), head_dim=128, num_experts=128,
        moe_intermediate_size=768, **EIGHT,
    ),
    "gpt-oss 20B": config("gpt_oss", (2880, 24, 64, 8, 2880, 201088), num_local_experts=32, **OSS),
    "gpt-oss 120B": config("gpt_oss", (2880, 36, 64, 8, 2880, 201088), num_local_experts=128, **OSS),
    "DeepSeek V3": config(
        "deepseek_v3", (7168, 61, 128, 128, 18432, 129280), first_k_dense_replace=3, **DEEPSEEK
    ),
}  # fmt: skip
# Billion weights in all, of a token (its row of the embeddings is one of them), bytes a token in
# bfloat16. From the models' reports: The Llama 3 Herd of Models; Qwen2.5 Technical Report; Mixtral
# of Experts; Qwen3 Technical Report; gpt-oss model card; DeepSeek-V3 Technical Report. The bytes:
# Zhao et al., Insights into DeepSeek-V3 (2025), table 1.
PUBLISHED = {
    "Llama 3.1 8B": (8.0, None, None),
    "Llama 3.1 70B": (70.6, None, None),
    "Llama 3.1 405B": (405, None, 516_096),
    "Qwen2.5 72B": (72.7, None, 327_680),
    "Mixtral 8x7B": (46.7, 12.9, None),
    "Qwen3 30B A3B": (30.5, 3.3, None),
    "gpt-oss 20B": (20.9, 3.6, None),
    "gpt-oss 120B": (116.8, 5.1, None),
    "DeepSeek V3": (671, 37, 70_272),
}


def made(part, name="Llama 3.1 8B"):
    return part.model_of(MODELS[name], attention_of(MODELS[name]))


def run(part, name="Llama 3.1 8B", card="H100", **more):
    return part.Run(made(part, name), part.CARDS[card], **more)


def test_weights_and_bytes_are_those_that_were_published(part):
    for name, (total, active, kept) in PUBLISHED.items():
        model = made(part, name)
        assert model.total == pytest.approx(1e9 * total, rel=0.006), name
        if active:  # some reports count the table of the embeddings, too
            counted = (model.active, model.active + (0 if model.tied else model.table))
            assert any(one == pytest.approx(1e9 * active, rel=0.02) for one in counted), name
        if kept:
            assert sum(layer.cache_bytes(1) for layer in model.layers) == kept, name


def test_a_layer_counts_the_keys_that_each_new_token_sees(part):
    (layer, *_) = attention_of(MODELS["gpt-oss 20B"] | {"sliding_window": 5})
    for tokens in (1, 4, 5, 6, 9):
        for new in range(1, tokens + 1):
            seen = sum(min(t, 5) for t in range(tokens - new + 1, tokens + 1))
            assert part.attention_operations(layer, new, tokens) == 2 * 64 * 128 * seen


def test_one_new_token_reads_latents_and_a_prompt_reads_keys(part):
    (layer, *_) = attention_of(MODELS["DeepSeek V3"])
    assert part.attention_operations(layer, 1, 10) == 10 * 128 * 2 * (512 + 64 + 512)
    assert part.attention_operations(layer, 2, 2) == 3 * 128 * 2 * (128 + 64 + 128)


def test_a_step_is_the_longer_time_of_its_products_and_of_its_attention_added(part):
    here = run(part)
    products = 2 * (here.model.shared + here.model.table) / 3.35e12  # both to fetch
    assert here.step(1, 1000) == pytest.approx(products + 131_072 * 1000 / 3.35e12)
    many = 512 * 2 * (here.model.shared + here.model.table) / 989e12  # products to compute
    assert here.step(512, 1000) == pytest.approx(many + 512 * 131_072 * 1000 / 3.35e12)


def test_a_prompt_predicts_once_and_sees_half_of_its_scores(part):
    here, n = run(part), 4096
    operations = n * here.model.shared + here.model.table + 32 * 32 * 128 * n * (n + 1)
    assert here.first_token(n) == pytest.approx(2 * operations / 989e12)


def test_many_texts_meet_nearly_all_experts_and_one_meets_the_chosen(part):
    mlp = part.MLP(0, experts=128, chosen=8)
    assert mlp.met(1) == pytest.approx(8)
    assert mlp.met(16) == pytest.approx(82.4, abs=0.1)
    here = run(part, "Qwen3 30B A3B")
    fetched = [here.rows(texts, 1, 1)["experts"][1] for texts in (1, 16, 10_000)]
    each = 48 * 3 * 2048 * 768 * 2 / 3.35e12  # seconds to fetch an expert of each layer
    assert fetched == pytest.approx([each * count for count in (8, mlp.met(16), 128)])


def test_precision_moves_bytes_and_eight_bits_move_the_speed(part):
    rows = {
        name: run(part, precision=precision).rows(1, 1, 1000)
        for name, precision in part.PRECISIONS.items()
    }
    computing, fetching = zip(*(rows[name]["products"] for name in part.PRECISIONS), strict=True)
    assert [fetching[0] / one for one in fetching] == pytest.approx([1, 2, 4, 2])
    assert [computing[0] / one for one in computing] == pytest.approx([1, 1, 1, 1979 / 989])
    scores, kept = zip(*(rows[name]["attention"] for name in part.PRECISIONS), strict=True)
    assert [kept[0] / one for one in kept] == pytest.approx([1, 1, 1, 2])
    assert len(set(scores)) == 1


def test_cards_share_weights_and_heads_but_no_head_and_no_latent(part):
    for name, share in (("Llama 3.1 8B", 8), ("Qwen3 30B A3B", 4), ("DeepSeek V3", 1)):
        alone, together = (run(part, name, cards=cards) for cards in (1, 8))
        layer = alone.model.layers[0]
        assert alone.kept(layer, 100) == share * together.kept(layer, 100), name
    alone, together = (run(part, cards=cards).rows(4, 1, 1000) for cards in (1, 8))
    assert alone["products"][1] == pytest.approx(8 * together["products"][1])
    # Two all-reduces a layer; each moves 7/8 of 4 vectors of 4096 numbers twice, in bfloat16.
    moved = 2 * 7 / 8 * 4 * 4096 * 2 / 450e9
    assert together["all-reduces"][1] == pytest.approx(64 * (10e-6 + moved))
    assert "all-reduces" not in alone


def test_as_many_texts_as_fit_fit_and_one_more_does_not(part):
    here = run(part)
    room = 0.9 * 81_559 * 2**20 - 2 * here.model.total
    texts = here.fits(1000)
    assert texts * 131_072_000 <= room < (texts + 1) * 131_072_000
    assert run(part, "Llama 3.1 405B").fits(1) == 0


def test_as_many_texts_as_are_in_time_are_and_one_more_is_not(part):
    here = run(part)
    texts = here.in_time(4000, 500, 0.02)
    assert here.gap(4000, 500, texts) <= 0.02 < here.gap(4000, 500, texts + 1)
    assert here.in_time(4000, 500, 10.0) == here.fits(4500)
    assert here.in_time(4000, 500, 0.001) == 0


def test_what_was_measured_slows_steps_and_prompts_apart(part):
    bound, slow = run(part), run(part, slow_step=2.0, slow_prompt=3.0)
    assert slow.step(4, 100) == 2 * bound.step(4, 100)
    assert slow.first_token(100) == 3 * bound.first_token(100)


def test_the_price_is_that_of_the_hours_in_which_prompts_are_read_and_answers_written(part):
    here = run(part, cards=2)
    seconds = 1000 * here.first_token(2000) + 1000 * 100 * here.step(16, 2050) / 16
    dollars = 2 * 3.0 * seconds / 3600 / (1000 * 100) * 1e6
    assert here.price(2000, 100, texts=16, dollars=3.0) == pytest.approx(dollars)


def test_a_size_that_the_file_does_not_say_is_named(part):
    for name, missing in (("Llama 3.1 8B", "vocab_size"), ("Qwen3 30B A3B", "num_experts_per_tok")):
        silent = {key: value for key, value in MODELS[name].items() if key != missing}
        with pytest.raises(ValueError, match=f"must have {missing}"):
            part.model_of(silent, attention_of(silent))


def test_which_layers_have_experts_is_as_the_file_says(part):
    for more, dense in (
        ({"mlp_only_layers": [1, 5]}, [1, 5]),
        ({"decoder_sparse_step": 2}, list(range(0, 48, 2))),
    ):
        file = MODELS["Qwen3 30B A3B"] | more
        mlps = part.model_of(file, attention_of(file)).mlps
        assert [index for index, mlp in enumerate(mlps) if not mlp.experts] == dense
    assert [mlp.width for mlp in made(part, "DeepSeek V3").mlps[2:4]] == [18432, 2048]


WRONG = {
    "one maximum over the whole step": (
        "return sum(max(row) for row in self.rows(texts, new, tokens).values())",
        "return max(map(sum, zip(*self.rows(texts, new, tokens).values(), strict=True)))",
    ),
    "each token of a prompt is predicted": ("texts * model.table)", "read * model.table)"),
    "hidden scores are counted": ("- short * (short + 1) // 2", ""),
    "a latent is split": ('1 if layer.kind == "latent" else ', ""),
    "each text meets experts of its own": (
        "self.experts * (1 - (1 - self.chosen / self.experts) ** tokens)", "self.chosen * tokens",
    ),
    "the arithmetic of a cache has 8 bits, too": (
        "operations / self.cards / self.card.speed", "operations / speed",
    ),
    "weights and caches may fill the memory": ("self.room * self.card.memory", "self.card.memory"),
    "reading costs nothing": ("prompt + answer // 2) + reading", "prompt + answer // 2)"),
}  # fmt: skip
