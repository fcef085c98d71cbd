"""Whole config.json files of public models, by model, with the keys that the files on Hugging Face have.

They are written down from what is known of these files, and were not compared with them byte by byte. Lists that are as long as the model is deep, and the parts about images, are shortened to what matters here.
"""


def file(kind, sizes, **more):
    """Return a file: its model_type, five sizes, what nearly every file has, and the rest.

    The sizes are hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, vocab_size.
    """
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = {"model_type": kind, "architectures": ["ForCausalLM"], "attention_dropout": 0.0}
    config |= dict(zip((*names, "vocab_size"), sizes, strict=True))
    config |= {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "use_cache": True}
    config |= {"initializer_range": 0.02, "intermediate_size": 14336, "rms_norm_eps": 1e-05}
    config |= {"tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    return config | {"transformers_version": "4.43.0", "max_position_embeddings": 32768} | more


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"}
LLAMA3 |= {"original_max_position_embeddings": 8192}
LLAMA = {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}
QWEN = {"max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": False}
QWEN |= {"rope_theta": 1e6, "rms_norm_eps": 1e-06}
QWEN3 = QWEN | {"attention_bias": False, "head_dim": 128, "sliding_window": None}
QWEN3 |= {"rope_scaling": None, "max_window_layers": 36}
EXPERTS = {"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768}
EXPERTS |= {"norm_topk_prob": True, "num_experts": 128, "num_experts_per_tok": 8}
EXPERTS |= {"output_router_logits": False, "router_aux_loss_coef": 0.001}
GEMMA = {"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
GEMMA |= {"cache_implementation": "hybrid", "pad_token_id": 0, "sliding_window": 4096}
GEMMA |= {"rms_norm_eps": 1e-06, "rope_theta": 10000.0, "query_pre_attn_scalar": 256}
GEMMA |= {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}
PHI = {"auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "attention_bias": False}
PHI |= {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "pad_token_id": 32000, "rope_theta": 10000.0}
PHI |= {"_name_or_path": "Phi-3", "original_max_position_embeddings": 4096, "rope_scaling": None}
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
GPT_OSS = {"head_dim": 64, "sliding_window": 128, "attention_bias": True, "rope_theta": 150000}
GPT_OSS |= {"experts_per_token": 4, "num_experts_per_tok": 4, "initial_context_length": 4096}
GPT_OSS |= {"swiglu_limit": 7.0, "output_router_logits": False, "router_aux_loss_coef": 0.9}
GPT_OSS |= {"quantization_config": {"quant_method": "mxfp4"}, "pad_token_id": 199999}
GPT_OSS["rope_scaling"] = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
GPT_OSS["rope_scaling"] |= {"truncate": False, "original_max_position_embeddings": 4096}
DEEPSEEK = {"attention_bias": False, "aux_loss_alpha": 0.001, "ep_size": 1, "hidden_act": "silu"}
DEEPSEEK |= {"first_k_dense_replace": 3, "kv_lora_rank": 512, "moe_intermediate_size": 2048}
DEEPSEEK |= {"moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1}
DEEPSEEK |= {"norm_topk_prob": True, "num_experts_per_tok": 8, "num_nextn_predict_layers": 1}
DEEPSEEK |= {"pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128}
DEEPSEEK |= {"qk_rope_head_dim": 64, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid"}
DEEPSEEK |= {"seq_aux": True, "topk_group": 4, "topk_method": "noaux_tc", "rope_theta": 10000}
DEEPSEEK["rope_scaling"] = {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0}
DEEPSEEK["rope_scaling"] |= {"mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
DEEPSEEK["rope_scaling"]["type"] = "yarn"
DELTA = {"full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128}
DELTA |= {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128}
DELTA |= {"partial_rotary_factor": 0.25, "head_dim": 256, "rope_theta": 10000000}
DELTA |= {"rope_scaling": None, "use_sliding_window": False, "shared_expert_intermediate_size": 512}

# Files of which every layer is made.
MADE = {
    "Llama 2 7B": file(
        "llama", (4096, 32, 32, 32, 32000), **LLAMA, rope_scaling=None, rope_theta=10000.0,
    ),
    "Llama 3.1 8B": file(
        "llama", (4096, 32, 32, 8, 128256), **LLAMA, rope_scaling=LLAMA3, rope_theta=500000.0,
        eos_token_id=[128001, 128008, 128009],
    ),
    "Llama 3.2 1B": file(
        "llama", (2048, 16, 32, 8, 128256), **LLAMA, head_dim=64, rope_theta=500000.0,
        rope_scaling=LLAMA3 | {"factor": 32.0},
    ),
    "TinyLlama 1.1B": file(
        "llama", (2048, 22, 32, 4, 32000), pretraining_tp=1, rope_scaling=None,
    ),
    "SmolLM2 1.7B": file(
        "llama", (2048, 24, 32, 32, 49152), **LLAMA, is_llama_config=True,
        rope_interleaved=False, rope_scaling=None, rope_theta=130000, pad_token_id=2,
        **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}},
    ),
    "DeepSeek R1 Distill Llama 8B": file(
        "llama", (4096, 32, 32, 8, 128256), **LLAMA, rope_scaling=LLAMA3, rope_theta=500000.0,
    ),
    "Mistral 7B v0.1": file(
        "mistral", (4096, 32, 32, 8, 32000), rope_theta=10000.0, sliding_window=4096,
    ),
    "Mistral 7B v0.3": file(
        "mistral", (4096, 32, 32, 8, 32768), rope_theta=1000000.0, sliding_window=None,
    ),
    "Mistral Nemo 12B": file(
        "mistral", (5120, 40, 32, 8, 131072), head_dim=128, rope_theta=1e6, sliding_window=None,
    ),
    "Mistral Small 3.1 24B": {
        "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
        "model_type": "mistral3", "multimodal_projector_bias": False, "vision_feature_layer": -1,
        "projector_hidden_act": "gelu", "spatial_merge_size": 2, "torch_dtype": "bfloat16",
        "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "rope_theta": 10000.0},
        "text_config": file(
            "mistral", (5120, 40, 32, 8, 131072), head_dim=128, rope_theta=1e9, sliding_window=None,
        ),
    },
    "Mixtral 8x7B": file(
        "mixtral", (4096, 32, 32, 8, 32000), num_experts_per_tok=2, num_local_experts=8,
        output_router_logits=False, rope_theta=1e6, router_aux_loss_coef=0.02,
        sliding_window=None,
    ),
    "Qwen2 7B": file("qwen2", (3584, 28, 28, 4, 152064), **QWEN),
    "Qwen2.5 7B": file("qwen2", (3584, 28, 28, 4, 152064), **QWEN, use_mrope=False),
    "QwQ 32B": file("qwen2", (5120, 64, 40, 8, 152064), **QWEN | {"max_window_layers": 64}),
    "Qwen3 8B": file("qwen3", (4096, 36, 32, 8, 151936), **QWEN3),
    "Qwen3 30B A3B": file("qwen3_moe", (2048, 48, 32, 4, 151936), **QWEN3, **EXPERTS),
    "Qwen3-Next 80B": file(
        "qwen3_next", (2048, 48, 16, 2, 151936), **EXPERTS, **DELTA, rms_norm_eps=1e-06,
    ),
    "Gemma 3 1B": file(
        "gemma3_text", (1152, 26, 4, 1, 262144),
        **GEMMA | {"sliding_window": 512, "attn_logit_softcapping": None, "rope_theta": 1000000},
        rope_local_base_freq=10000, sliding_window_pattern=6, rope_scaling=None,
    ),
    "Gemma 3 4B": {  # which leaves most to the library
        "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
        "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
        "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
    },
    "Phi-3 mini 4k": file("phi3", (3072, 32, 32, 32, 32064), **PHI, sliding_window=2047),
    "Phi-4 14B": file(
        "phi3", (5120, 40, 40, 10, 100352), **PHI | {"rope_theta": 250000}, sliding_window=None,
    ),
    "OLMo 2 7B": file(
        "olmo2", (4096, 32, 32, 32, 100352), attention_bias=False, rope_scaling=None,
        rope_theta=500000, rms_norm_eps=1e-06, pad_token_id=100277,
    ),
    "GLM-4 9B": file(
        "glm4", (4096, 40, 32, 2, 151552), attention_bias=False, head_dim=128,
        partial_rotary_factor=0.5, rope_theta=10000.0, pad_token_id=151329,
        eos_token_id=[151329, 151336, 151338],
    ),
    "gpt-oss 20B": file(
        "gpt_oss", (2880, 24, 64, 8, 201088), **GPT_OSS, num_local_experts=32,
        layer_types=["sliding_attention", "full_attention"] * 12,
    ),
    "DeepSeek V3": file(
        "deepseek_v3", (7168, 61, 128, 128, 129280), **DEEPSEEK, rms_norm_eps=1e-06,
        auto_map={"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    ),
}  # fmt: skip
# Files that are described and not made, or refused at once → what the error says.
REFUSED = {
    "Gemma 2 2B": (
        file("gemma2", (2304, 26, 8, 4, 256000), **GEMMA),
        "attn_logit_softcapping: it bends",
    ),
    "Gemma 2 27B": (
        file(
            "gemma2", (4608, 46, 32, 16, 256000),
            **GEMMA | {"head_dim": 128, "query_pre_attn_scalar": 144},
            sliding_window_size=4096, _attn_implementation="eager",
        ),
        "attn_logit_softcapping: it bends",
    ),
    "Phi-3 mini 128k": (
        file("phi3", (3072, 32, 32, 32, 32064), **PHI | {"rope_scaling": LONGROPE}),
        "longrope: it turns cached keys anew",
    ),
    "Phi-4 mini": (
        file(
            "phi3", (3072, 32, 24, 8, 200064), **PHI | {"rope_scaling": LONGROPE},
            full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False,
            partial_rotary_factor=0.75, sliding_window=262144,
        ),
        "longrope: it turns cached keys anew",
    ),
    "DeepSeek R1 0528 Qwen3 8B": (
        file(
            "qwen3", (4096, 36, 32, 8, 151936),
            **QWEN3 | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}
                       | {"original_max_position_embeddings": 32768}
                       | {"attn_factor": 0.8782488562869419}},
        ),
        "attn_factor: vLLM reads it and transformers does not",
    ),
    "Qwen2.5 7B 1M": (
        file(
            "qwen2", (3584, 28, 28, 4, 152064), **QWEN,
            dual_chunk_attention_config={"chunk_size": 262144, "local_size": 8192},
        ),
        "dual_chunk_attention_config=.* it counts positions anew",
    ),
    "Llama 4 Scout": (
        {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            "text_config": file("llama4_text", (5120, 48, 40, 8, 202048), attention_chunk_size=8192),
        },
        "'llama4' cannot be made of the parts: it attends in chunks",
    ),
    "Gemma 3n E4B": (
        {
            "model_type": "gemma3n",
            "text_config": file("gemma3n_text", (2048, 35, 8, 2, 262400), num_kv_shared_layers=15),
        },
        "'gemma3n' cannot be made of the parts: its last layers",
    ),
}  # fmt: skip
