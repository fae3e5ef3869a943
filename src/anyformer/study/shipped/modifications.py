"""The switches of x-transformers, one at a time, on an encoder, a decoder and an encoder-decoder.

After Narang et al. 2021 (arXiv:2102.11972): one set of hyper-parameters for all, the same number of
parameters (feed-forwards are made wider or narrower), and the same steps.
"""

from __future__ import annotations

from anyformer.study.nodes import Match, Study, Variant
from anyformer.study.shipped.tier import Tier, common, words_of

STUDY = "modifications"
ENCODER, DECODER, PAIR = "encoder", "decoder", "encoder-decoder"
BASES = {
    ENCODER: ("bert", "masked", "wordpiece"),
    DECODER: ("gpt2", None, "bpe"),
    PAIR: ("t5", "span-corruption", "unigram"),
}
Words = tuple[str, ...]


def _in(part: str, field: str, kind: str) -> Words:
    """A field of a part of every block, on both sides where there are two."""
    path = f"stack.block.*.{field}={part}"
    return (path, f"encoder.{path}") if kind == PAIR else (path,)


def _act(name: str, kind: str) -> Words:
    return _in(name, "branch.act", kind)


def _layernorm(kind: str) -> Words:
    final = ("stack.final_norm=LayerNorm()", "encoder.stack.final_norm=LayerNorm()")
    return (*_in("LayerNorm()", "norm", kind), *final)


def switches(kind: str, tier: Tier) -> dict[str, Words]:
    """The words of each modification of a kind of model, without what the model has already."""
    apart = ("rel_pos_bias=false",) if kind == PAIR else ()  # in place of T5's own positions
    reach, narrow = (32, 24) if tier == "cpu" else (128, 128)
    found: dict[str, Words] = {
        "ReLU": _act("relu", kind),
        "GELU": _act("gelu_tanh", kind),
        "Swish": ("ff_swish",),
        "sigmoid": _act("sigmoid", kind),
        "squared ReLU": ("ff_relu_squared",),
        "GLU": ("ff_glu", *_act("sigmoid", kind)),
        "LiGLU": ("ff_glu", *_act("identity", kind)),
        "ReGLU": ("ff_glu", *_act("relu", kind)),
        "GeGLU": ("ff_glu", *_act("gelu_tanh", kind)),
        "SwiGLU": ("ff_glu", "ff_swish"),
        "RMSNorm": ("use_rmsnorm",),
        "LayerNorm": _layernorm(kind),
        "ScaleNorm": ("use_scalenorm",),
        "norms first": ("pre_norm=true",),
        "norms last": ("pre_norm=false",),
        "sandwich norm": ("sandwich_norm",),
        "ReZero": ("use_rezero",),
        "gated residual": ("gate_residual",),
        "residual attention": ("residual_attn",),
        "talking heads": ("attn_talking_heads",),
        "one key-value head": ("attn_one_kv_head",),
        "memory keys and values": ("attn_num_mem_kv=8",),
        "memory tokens": ("num_memory_tokens=8",),
        "top-8 attention": ("attn_sparse_topk=8",),
        "entmax attention": ("attn_use_entmax15",),
        "normed queries and keys": ("attn_qk_norm",),
        "attention on attention": ("attn_on_attn",),
        "rotary positions": (*apart, "rotary_pos_emb"),
        "ALiBi": (*apart, "alibi_pos_bias"),
        "T5's bias": ("rel_pos_bias",),
        "Shaw's positions": (*apart, f"relative_key={reach}"),
        "macaron": ("macaron",),
        "sandwich order": ("sandwich_coef=1",),
        "shared layers": ("weight_tie_layers",),
        "narrow embedding": (f"emb_dim={narrow}",),
        "head of its own": ("tie_embedding=false",),
    }
    return {name: words for name, words in found.items() if name not in HAS[kind]}


# What a kind of model has already, or has no place for.
HAS = {
    ENCODER: ("GELU", "LayerNorm", "norms last"),
    DECODER: ("GELU", "LayerNorm", "norms first"),
    PAIR: ("ReLU", "RMSNorm", "norms first", "T5's bias", "sandwich order"),
}
# To be as large as the plain one the first would be another model, and the second have no
# feed-forward left; a residual's gates have more weights than a feed-forward, so all gets narrower.
UNMATCHED = ("shared layers", "head of its own")
NARROWER = {"gated residual": Match(on="parameters", by="width", within=0.05)}


def panels(tier: Tier) -> tuple[Study, ...]:
    """Which of some thirty modifications help an encoder, a decoder, an encoder-decoder?"""
    return tuple(_panel(kind, tier) for kind in BASES)


def _panel(kind: str, tier: Tier) -> Study:
    base, objective, pieces = BASES[kind]
    small = tier == "cpu"
    sizes = ("dim=32", "depth=2", "heads=2") if small else ("dim=256", "depth=4", "heads=8")
    plain = Variant(name="plain")
    changed = [
        Variant(
            name=name,
            words=words,
            matched=name not in UNMATCHED,
            match=NARROWER.get(name),
        )
        for name, words in switches(kind, tier).items()
    ]
    return Study(
        name=f"{STUDY}/{kind}",
        title=f"Modifications of an {kind} ({base})".replace("an decoder", "a decoder"),
        variants=(plain, *changed),
        base=base,
        options=(*sizes, "dropout=0.0"),
        objective=objective,
        tokenizer=words_of(tier, pieces),
        length=32 if small else 128,
        match=Match(on="parameters", by="feedforward"),
        **common(tier, 240 if small else 600, 16 if small else 32, 4e-3 if small else 1e-3),
    )
