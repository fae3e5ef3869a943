"""Small random configurations of encoder-decoder and image families; see test_seq2seq.

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


def _t5(pick: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "d_model": pick(21, 36),
        "d_kv": pick(5, 12),
        "d_ff": pick(17, 40),
        "num_layers": pick(1, 2),
        "num_decoder_layers": pick(None, 1, 3),
        "num_heads": pick(1, 3, 4),
        "relative_attention_num_buckets": pick(8, 32),
        "relative_attention_max_distance": pick(17, 20, 128),
        "dropout_rate": pick(0.0, 0.2),
        "layer_norm_epsilon": pick(1e-6, 1e-2),
        "feed_forward_proj": pick("relu", "gelu", "gated-gelu", "gated-silu"),
        "decoder_start_token_id": pick(0, 3),
        "pad_token_id": pick(0, 2),
    }


def _bart(pick: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "d_model": pick(12, 36),
        "max_position_embeddings": pick(31, 40),
        "encoder_layers": pick(1, 2),
        "decoder_layers": pick(1, 3),
        "encoder_attention_heads": pick(1, 3),
        "decoder_attention_heads": pick(2, 4),
        "encoder_ffn_dim": pick(17, 40),
        "decoder_ffn_dim": pick(15, 33),
        "activation_function": pick("gelu", "relu", "silu"),
        "dropout": pick(0.0, 0.2),
        "attention_dropout": pick(0.0, 0.2),
        "activation_dropout": pick(0.0, 0.2),
        "encoder_layerdrop": pick(0.0, 0.1),
        "decoder_layerdrop": pick(0.0, 0.1),
        "scale_embedding": pick(False, True),
        "decoder_start_token_id": pick(2, 5),
        "pad_token_id": pick(0, 1, 4),
    }


def _vit(pick: Any) -> dict[str, Any]:
    patch = pick(2, 3, 5)
    return {
        "hidden_size": pick(12, 36),
        "num_hidden_layers": pick(1, 3),
        "num_attention_heads": pick(1, 3, 4),
        "intermediate_size": pick(17, 40),
        "hidden_act": pick("gelu", "relu", "gelu_new"),
        "hidden_dropout_prob": pick(0.0, 0.2),
        "attention_probs_dropout_prob": pick(0.0, 0.2),
        "layer_norm_eps": pick(1e-12, 1e-2),
        "image_size": patch * pick(1, 2, 3),
        "patch_size": patch,
        "num_channels": pick(1, 2, 3),
        "qkv_bias": pick(False, True),
        "num_labels": pick(2, 5),
    }


DRAW = {"t5": _t5, "mt5": _t5, "bart": _bart, "mbart": _bart, "m2m_100": _bart, "vit": _vit}
