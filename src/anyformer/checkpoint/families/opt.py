"""OPT as Hugging Face stores it."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.checkpoint.families import decoder
from anyformer.checkpoint.families.decoder import ATTENTION, FEED
from anyformer.checkpoint.family import Config, Family, Joint, at, register

NAMES = "hidden_size num_hidden_layers num_attention_heads vocab_size ffn_dim"
FIELDS = (
    *decoder.sizes(f"{NAMES} max_position_embeddings", 768, 12, 12, 50272, 3072, 2048),
    decoder.act("activation_function", "relu"),
    at("enable_bias", True, f"{ATTENTION}.bias", f"{FEED}.bias"),
    at("dropout", 0.1, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
    at("layerdrop", 0.0, "stack.layer_dropout"),
    at("init_std", 0.02, "init.std"),
    decoder.norm_first("do_layer_norm_before", True),
)


def read_ends(spec: S.Model, config: Config) -> S.Model:
    """No final norm behind post-norm layers or where it was taken off; maps at narrow ends."""
    narrow = config.get("word_embed_proj_dim") or spec.dim
    bare = spec.stack.block[0].place == "post" or config.get("_remove_final_layer_norm")
    changes: Config = {"stack.final_norm": None} if bare else {}
    if narrow != spec.dim:
        changes |= {"embed.dim": narrow, "embed.bias": False, "embed.wide": True}
        changes |= {"stack.out": narrow}
    for path, value in changes.items():
        spec = S.override(spec, path, value)
    return spec


def write_ends(spec: S.Model) -> Config:
    """The width of the tables, and whether the final norm was taken off."""
    bare = spec.stack.block[0].place == "pre" and spec.stack.final_norm is None
    return {"word_embed_proj_dim": spec.stack.out or spec.dim, "_remove_final_layer_norm": bare}


ENDS = {"embed_tokens": "embed.token", "embed_positions": "embed.position"}
ENDS |= {"project_in": "embed.project", "project_out": "stack.out"}  # where ends are narrow
ENDS |= {"final_layer_norm": "stack.norm"}
LAYER = " ".join(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
LAYER += " self_attn_layer_norm fc1 fc2 final_layer_norm"
ENDS = {f"decoder.{theirs}": ours for theirs, ours in ENDS.items()}
BODY = decoder.body(ENDS, decoder.plain("decoder.layers.{}", LAYER))
TASKS = decoder.tasks("OPT", S.Vocabulary(tied=True)) | decoder.readers("OPT", None, pad=1)
ONLY, JOINTS = {"layer_norm_elementwise_affine": True}, (Joint(read_ends, write_ends), decoder.TIES)
register(Family("opt", "opt", "model", FIELDS, BODY, TASKS, only=ONLY, joint=JOINTS))
