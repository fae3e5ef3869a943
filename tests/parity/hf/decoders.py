"""Small random configurations of every decoder family; see test_decoders.

`config(family, seed)` gives the fields of a transformers config: odd sizes, flags on both sides.
"""

from __future__ import annotations

import random
from typing import Any

VOCAB = 61


def config(family: str, seed: int) -> dict[str, Any]:
    """The fields of a seed."""
    rng = random.Random(f"{family}{seed}")
    return DRAW[family](lambda *options: rng.choice(options))


def _llama_like(pick: Any) -> dict[str, Any]:
    heads = pick(2, 4, 6)
    return {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(4, 10),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": pick(1, 2, heads),
        "intermediate_size": pick(17, 40),
        "hidden_act": pick("silu", "gelu", "gelu_pytorch_tanh"),
        "rms_norm_eps": pick(1e-6, 1e-2),
        "rope_parameters": {"rope_type": "default", "rope_theta": pick(10000.0, 30.0)},
        "tie_word_embeddings": pick(False, True),
        "attention_dropout": pick(0.0, 0.2),
    }


def _llama(pick: Any) -> dict[str, Any]:
    flags = {"attention_bias": pick(False, True), "mlp_bias": pick(False, True)}
    return _llama_like(pick) | flags | {"head_dim": pick(None, 8, 14)}


def _mistral(pick: Any) -> dict[str, Any]:
    return _llama_like(pick) | {"head_dim": pick(None, 8), "sliding_window": pick(None, 3, 5)}


def _windows(pick: Any) -> dict[str, Any]:
    return {
        "use_sliding_window": pick(False, True),
        "sliding_window": pick(3, 5),
        "max_window_layers": pick(0, 1, 2),
    }


def _qwen3(pick: Any) -> dict[str, Any]:
    flags = {"attention_bias": pick(False, True), "head_dim": pick(6, 8)}
    return _llama_like(pick) | _windows(pick) | flags


def _gpt_like(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 3)
    return {
        "vocab_size": VOCAB,
        "n_embd": heads * pick(4, 10),
        "n_layer": pick(1, 2, 3),
        "n_head": heads,
        "n_positions": 40,
        "layer_norm_epsilon": pick(1e-5, 1e-2),
        "resid_pdrop": pick(0.0, 0.2),
    }


def _gpt2(pick: Any) -> dict[str, Any]:
    flags = {"n_inner": pick(None, 13), "activation_function": pick("gelu_new", "relu")}
    return _gpt_like(pick) | flags | {"tie_word_embeddings": pick(True, False)}


def _ctrl(pick: Any) -> dict[str, Any]:
    return _gpt_like(pick) | {"dff": pick(13, 20), "tie_word_embeddings": pick(True, False)}


def _gpt_neo(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 3)
    types = pick([[["global", "local"], 2]], [[["local"], 1], [["global"], 2]], [[["local"], 2]])
    return {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(4, 10),
        "num_layers": sum(len(names) * times for names, times in types),
        "num_heads": heads,
        "max_position_embeddings": 40,
        "attention_types": types,
        "window_size": pick(2, 5),
        "intermediate_size": pick(None, 13),
        "layer_norm_epsilon": pick(1e-5, 1e-2),
        "tie_word_embeddings": pick(True, False),
    }


def _opt(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 3)
    made = {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(4, 10),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "ffn_dim": pick(13, 20),
        "max_position_embeddings": 40,
        "do_layer_norm_before": pick(True, False),
        "word_embed_proj_dim": pick(None, 5),
        "_remove_final_layer_norm": pick(False, False, True),
        "enable_bias": pick(True, False),
        "activation_function": pick("relu", "gelu"),
        "tie_word_embeddings": pick(True, False),
    }
    return made | {"word_embed_proj_dim": made["word_embed_proj_dim"] or made["hidden_size"]}


def _gptj(pick: Any) -> dict[str, Any]:
    heads, width = pick(1, 2, 3), pick(8, 10)
    return _gpt_like(pick) | {
        "n_embd": heads * width,
        "n_head": heads,
        "rotary_dim": pick(2, 4, width),
        "n_inner": pick(None, 13),
        "tie_word_embeddings": pick(False, True),
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _gpt_neox(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 3)
    share = {"rope_theta": pick(10000.0, 30.0), "partial_rotary_factor": pick(0.25, 0.5, 1.0)}
    return {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(8, 16),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "intermediate_size": pick(13, 20),
        "max_position_embeddings": 40,
        "hidden_act": pick("gelu", "relu"),
        "rope_parameters": {"rope_type": "default", **share},
        "layer_norm_eps": pick(1e-5, 1e-2),
        "attention_bias": pick(True, False),
        "use_parallel_residual": pick(True, False),
        "tie_word_embeddings": pick(False, True),
        "hidden_dropout": pick(0.0, 0.1),
    }


def _gemma2(pick: Any) -> dict[str, Any]:
    made = _llama_like(pick)
    del made["hidden_act"]
    return made | {
        "head_dim": pick(6, 8),
        "hidden_activation": pick("gelu_pytorch_tanh", "silu"),
        "attention_bias": pick(False, True),
        "query_pre_attn_scalar": pick(8, 13),
        "sliding_window": pick(3, 5),
        "attn_logit_softcapping": pick(None, 2.0),
        "final_logit_softcapping": pick(None, 3.0),
    }


def _gemma3(pick: Any) -> dict[str, Any]:
    made = _gemma2(pick)
    del made["attn_logit_softcapping"]
    depth = pick(2, 3, 7)
    kinds = [pick("sliding_attention", "full_attention") for _ in range(depth)]
    slow = pick({"rope_type": "default"}, {"rope_type": "linear", "factor": 8.0})
    ropes = {
        "sliding_attention": {"rope_type": "default", "rope_theta": pick(10000.0, 20.0)},
        "full_attention": slow | {"rope_theta": pick(1e6, 30.0)},
    }
    drawn = {"num_hidden_layers": depth, "layer_types": pick(None, kinds)}
    return made | drawn | {"rope_parameters": pick(None, ropes, ropes)}


DRAW = {
    "gpt2": _gpt2,
    "openai-gpt": lambda pick: _gpt_like(pick) | {"afn": pick("gelu", "relu", "silu")},
    "ctrl": _ctrl,
    "gpt_neo": _gpt_neo,
    "opt": _opt,
    "gptj": _gptj,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": lambda pick: _llama_like(pick) | _windows(pick),
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
}
