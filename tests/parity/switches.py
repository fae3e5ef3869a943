"""The switches by name, each with the release of x-transformers that it is compared with."""

from dataclasses import dataclass, field
from typing import Any

OLD, MIDDLE, NEW = "0.12.3", "0.25.9", "2.31.10"
LENGTH = 24
BOTH = ("Encoder", "Decoder")


@dataclass(frozen=True)
class Case:
    """A switch, the release that it is compared with, and what both sides are built with."""

    switch: str
    version: str = OLD
    layers: tuple[str, ...] = BOTH
    words: dict[str, Any] = field(default_factory=dict)  # of the layers
    outer: dict[str, Any] = field(default_factory=dict)  # of the wrapper
    theirs: dict[str, Any] | None = None  # words as the release spells them; None: alike
    outer_theirs: dict[str, Any] | None = None
    edits: dict[str, Any] = field(default_factory=dict)  # of our spec
    head_dim: int = 16
    segments: int = 1


def _grouped(groups: int) -> dict[str, Any]:
    return {"attn_kv_heads": groups}


CASES = (
    Case("plain"),
    Case("plain", MIDDLE),
    Case("plain", NEW),
    Case("attn_num_mem_kv", words={"attn_num_mem_kv": 3}),
    Case("num_memory_tokens", outer={"num_memory_tokens": 3}),
    Case("use_scalenorm", words={"use_scalenorm": True}),
    Case("use_rmsnorm", words={"use_rmsnorm": True}),
    Case("ff_glu", words={"ff_glu": True}),
    Case("ff_mult", words={"ff_mult": 2}),
    Case("use_rezero", MIDDLE, words={"use_rezero": True}),
    Case("use_rezero + macaron", MIDDLE, words={"use_rezero": True, "macaron": True}),
    Case("attn_sparse_topk", words={"attn_sparse_topk": 5}),
    Case("attn_sparse_topk beyond the length", words={"attn_sparse_topk": LENGTH + 5}),
    Case("attn_use_entmax15", words={"attn_use_entmax15": True}),
    Case("talking_heads", words={"talking_heads": True}, theirs={"attn_talking_heads": True}),
    Case("attn_talking_heads", MIDDLE, words={"attn_talking_heads": True}),
    Case("attn_pre_talking_heads", NEW, words={"attn_pre_talking_heads": True}),
    Case("attn_post_talking_heads", NEW, words={"attn_post_talking_heads": True}),
    Case("attn_collab_heads", words={"attn_collab_heads": True}),
    Case(
        "attn_collab_compression",
        MIDDLE,
        words={"attn_collab_heads": True, "attn_collab_compression": 0.5},
    ),
    Case("attn_on_attn", words={"attn_on_attn": True}),
    Case("sandwich_coef", words={"sandwich_coef": 1}),
    Case("macaron", MIDDLE, words={"macaron": True}),
    Case("rel_pos_bias", words={"rel_pos_bias": True}),
    Case(
        "rel_pos_num_buckets, rel_pos_max_distance",
        words={"rel_pos_bias": True, "rel_pos_num_buckets": 8, "rel_pos_max_distance": 16},
    ),
    Case("position_infused_attn", words={"position_infused_attn": True}),
    Case("residual_attn", MIDDLE, words={"residual_attn": True}),
    Case("residual_attn + pre_norm", MIDDLE, words={"residual_attn": True, "pre_norm": False}),
    Case(
        "residual_attn + talking_heads + rel_pos_bias",
        MIDDLE,
        words={"residual_attn": True, "attn_talking_heads": True, "rel_pos_bias": True},
    ),
    Case("gate_residual", words={"gate_residual": True}),
    Case("rotary_pos_emb", words={"rotary_pos_emb": True}, head_dim=32),
    Case("rotary_pos_emb, half of a head", words={"rotary_pos_emb": True}, head_dim=80),
    Case(
        "rotary_emb_dim",
        NEW,
        words={"rotary_pos_emb": True, "rotary_emb_dim": 8},
        edits={"stack.block.*.branch.rotary.layout": "pairs"},
    ),
    Case("pre_norm", words={"pre_norm": False}),
    Case("emb_dim", outer={"emb_dim": 24}),
    Case("tie_embedding", outer={"tie_embedding": True}),
    Case(
        "dropouts, silent in evaluation",
        words={"attn_dropout": 0.5, "ff_dropout": 0.5},
        outer={"emb_dropout": 0.5},
    ),
    Case(
        "sublayer dropouts, silent in evaluation",
        NEW,
        words={"attn_sublayer_dropout": 0.5, "ff_sublayer_dropout": 0.5, "layer_dropout": 0.5},
    ),
    Case("use_pos_emb", outer={"use_pos_emb": False}),
    Case("use_abs_pos_emb", MIDDLE, outer={"use_abs_pos_emb": False}),
    Case("attn_dim_head", words={"attn_dim_head": 20}, head_dim=20),
    Case("attn_kv_heads", NEW, words=_grouped(2)),
    Case("attn_one_kv_head", NEW, words={"attn_one_kv_head": True}),
    Case("attn_kv_heads + attn_num_mem_kv", NEW, words=_grouped(2) | {"attn_num_mem_kv": 3}),
    Case(
        "attn_softclamp_logits",
        NEW,
        words={"attn_softclamp_logits": True, "attn_logit_softclamp_value": 0.5},
    ),
    Case("attn_max_attend_past", NEW, ("Decoder",), words={"attn_max_attend_past": 5}),
    Case(
        "alibi_pos_bias",
        NEW,
        words={"alibi_pos_bias": True},
        outer_theirs={"use_abs_pos_emb": False},
    ),
    Case("sandwich_norm", MIDDLE, words={"sandwich_norm": True}),
    Case("sandwich_norm", NEW, words={"sandwich_norm": True}),
    Case("ff_swish", NEW, words={"ff_swish": True, "ff_glu": True}),
    Case("ff_relu_squared", NEW, words={"ff_relu_squared": True}),
    Case("ff_no_bias", NEW, words={"ff_no_bias": True}),
    Case("attn_qk_rmsnorm", NEW, words={"attn_qk_rmsnorm": True}),
    Case("attn_sigmoid", NEW, words={"attn_sigmoid": True}),
    Case("attn_flash", NEW, words={"attn_flash": True}),
    Case("scale_residual", MIDDLE, words={"scale_residual": True}),
    Case("use_layerscale", NEW, words={"use_layerscale": True}),
    Case("weight_tie_layers", NEW, words={"weight_tie_layers": True}),
    Case("post_emb_norm", NEW, outer={"post_emb_norm": True}),
    Case("scaled_sinu_pos_emb", NEW, outer={"scaled_sinu_pos_emb": True}),
    Case(
        "many at once",
        words={
            "attn_num_mem_kv": 3,
            "attn_talking_heads": True,
            "attn_sparse_topk": 9,
            "attn_on_attn": True,
            "ff_glu": True,
            "use_rmsnorm": True,
            "gate_residual": True,
            "sandwich_coef": 1,
        },
        outer={"num_memory_tokens": 2, "emb_dim": 24},
    ),
    # Transformer-XL: three segments, each with the memories of those before it
    Case(
        "max_mem_len + rel_pos_bias",
        NEW,
        ("Decoder",),
        words={"rel_pos_bias": True},
        outer={"max_mem_len": 12},
        segments=3,
    ),
    Case(
        "max_mem_len + rotary_pos_emb",
        NEW,
        ("Decoder",),
        words={"rotary_pos_emb": True, "rotary_emb_dim": 16},
        outer={"max_mem_len": 12},
        edits={"stack.block.*.branch.rotary.layout": "pairs"},
        segments=3,
    ),
    Case(
        "max_mem_len + gate_residual + attn_num_mem_kv",
        NEW,
        ("Decoder",),
        words={"rel_pos_bias": True, "gate_residual": True, "attn_num_mem_kv": 2},
        outer={"max_mem_len": 20},
        segments=3,
    ),
    Case(
        "max_mem_len + position_infused_attn",
        OLD,
        ("Decoder",),
        words={"position_infused_attn": True, "pre_norm": False},
        outer={"max_mem_len": 99},
        segments=3,
    ),
)
