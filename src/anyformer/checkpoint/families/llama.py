"""Llama, Mistral, Qwen2 and Qwen3 as Hugging Face stores them."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.checkpoint.families import decoder
from anyformer.checkpoint.families.decoder import ATTENTION, FEED
from anyformer.checkpoint.families.rope import rope
from anyformer.checkpoint.family import Config, Family, Field, Joint, at, register, size
from anyformer.recipes.windows import windowed

ACT = decoder.act("hidden_act", "silu")
HEAD_DIM = at("head_dim", None, f"{ATTENTION}.head_dim")
BIAS = at("attention_bias", False, f"{ATTENTION}.bias")
ENDS = {"embed_tokens": "embed.token", "norm": "stack.norm"}
MAPS = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj self_attn.q_norm"
MAPS += " self_attn.k_norm mlp.gate_proj mlp.up_proj mlp.down_proj"
SLOTS = tuple(f"0.branch.{name}" for name in ("q", "k", "v", "out", "q_norm", "k_norm"))
SLOTS += ("1.branch.gate", "1.branch.up", "1.branch.down")
LAYER = decoder.plain(
    "layers.{}", f"{MAPS} input_layernorm post_attention_layernorm", (*SLOTS, "0.norm", "1.norm")
)


def fields(*sizes: int, kv: int | None = None, act: Field = ACT) -> tuple[Field, ...]:
    """The fields that the lineage shares, with a family's own sizes."""
    return (
        *decoder.sizes(decoder.NAMES, *sizes),
        Field("num_key_value_heads", kv, (f"{ATTENTION}.kv_heads",), "kv_heads", nullable=True),
        act,
        at("rms_norm_eps", 1e-6, *decoder.EPS),
        at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
        decoder.INIT,
    )


def read_windows(spec: S.Model, config: Config) -> S.Model:
    """Windows by layer_types, or for the layers from max_window_layers on."""
    window = config.get("sliding_window", 4096) if config.get("use_sliding_window") else None
    late = lambda i: i >= config.get("max_window_layers", 28)
    return windowed(spec, decoder.windows(spec, config, window, late))


def write_windows(spec: S.Model) -> Config:
    """layer_types and the window of those that have one."""
    size = decoder.widest(spec)
    said = {"use_sliding_window": size is not None, "sliding_window": size}
    return said | {"layer_types": decoder.layer_types(spec)}


LLAMA = (*fields(4096, 32, 32, 32000, 11008), HEAD_DIM, BIAS, at("mlp_bias", False, f"{FEED}.bias"))
MISTRAL = (*fields(4096, 32, 32, 32000, 14336, kv=8), HEAD_DIM)
MISTRAL += (Field("sliding_window", 4096, (f"{ATTENTION}.window",), "window", nullable=True),)
QWEN = fields(4096, 32, 32, 151936, 22016, kv=32)
QWEN3 = (*QWEN, at("rms_norm_eps", 1e-6, f"{ATTENTION}.qk_norm.eps"), BIAS)
QWEN3 += (size("head_dim", 128, "head_dim", f"{ATTENTION}.head_dim"),)
WINDOWS, WAVES = (Joint(read_windows, write_windows),), ("rotary_emb.inv_freq",)
LINEAGE = (  # name, fields, longest row, more joints, lead beside an answer, to ignore, only
    ("Llama", LLAMA, 2048, (), "transformer", WAVES, {}),
    ("Mistral", MISTRAL, 131072, (), "", WAVES, {"layer_types": None}),
    ("Qwen2", QWEN, 32768, WINDOWS, "transformer", WAVES, {}),
    ("Qwen3", QWEN3, 32768, WINDOWS, "transformer", (), {}),
)
for name, own, length, more, ends, ignore, only in LINEAGE:
    register(Family(
        name.lower(), name.lower(), "model", own, decoder.body(ENDS, LAYER),
        decoder.tasks(name, S.Vocabulary(tied=False)) | decoder.readers(name, ends=ends),
        ignore=ignore, only=only, joint=(rope(ATTENTION, length), *more, decoder.TIES),
    ))  # fmt: skip
