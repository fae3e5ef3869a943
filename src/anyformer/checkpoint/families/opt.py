"""OPT as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, TIES, act, attention_of, tasks
from anyformer.checkpoint.family import Config, Family, Field, Joint, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row
from anyformer.errors import CheckpointError

PLACES = ("stack.block.0.place", "stack.block.1.place")
FIELDS = (
    size("hidden_size", 768, "dim"),
    size("num_hidden_layers", 12, "depth", "stack.depth"),
    size("num_attention_heads", 12, "heads", f"{ATTENTION}.heads"),
    size("ffn_dim", 3072, "hidden", f"{FEED}.hidden"),
    size("vocab_size", 50272, "vocab", "embed.source.vocab"),
    size("max_position_embeddings", 2048, "length", "embed.position.length"),
    act("activation_function", "relu"),
    at("enable_bias", True, f"{ATTENTION}.bias", f"{FEED}.bias"),
    at("dropout", 0.1, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
    at("layerdrop", 0.0, "stack.layer_dropout"),
    at("init_std", 0.02, "init.std"),
    Field(
        "do_layer_norm_before", True, PLACES, None,
        lambda before: "pre" if before else "post", lambda place: place == "pre",
    ),
)  # fmt: skip


def read_ends(spec: S.Model, config: Config) -> S.Model:
    """No final norm behind post-norm layers or where it was taken off; tables of full width."""
    if config.get("word_embed_proj_dim") not in (None, spec.dim):
        raise CheckpointError(
            f"config.json: word_embed_proj_dim={config['word_embed_proj_dim']} has no part here "
            f"yet; one of {spec.dim}, as hidden_size, has"
        )
    bare = spec.stack.block[0].place == "post" or config.get("_remove_final_layer_norm")
    return S.override(spec, "stack.final_norm", None) if bare else spec


def write_ends(spec: S.Model) -> Config:
    """The width of the tables, and whether the final norm was taken off."""
    bare = spec.stack.block[0].place == "pre" and spec.stack.final_norm is None
    return {"word_embed_proj_dim": spec.dim, "_remove_final_layer_norm": bare}


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, layers and the final norm."""
    yield row("decoder.embed_tokens.weight", "embed.token.weight")
    yield row("decoder.embed_positions.weight", "embed.position.weight")
    bias = attention_of(spec).bias
    for i in range(spec.stack.depth):
        theirs, ours = f"decoder.layers.{i}", f"stack.blocks.{i}"
        for name in ("q", "k", "v", "out"):
            yield from linear(f"{theirs}.self_attn.{name}_proj", f"{ours}.0.branch.{name}", bias)
        yield from linear(f"{theirs}.fc1", f"{ours}.1.branch.up", bias)
        yield from linear(f"{theirs}.fc2", f"{ours}.1.branch.down", bias)
        yield from linear(f"{theirs}.self_attn_layer_norm", f"{ours}.0.norm")
        yield from linear(f"{theirs}.final_layer_norm", f"{ours}.1.norm")
    if spec.stack.final_norm is not None:
        yield from linear("decoder.final_layer_norm", "stack.norm")


OPT = register(
    Family(
        model_type="opt",
        recipe="opt",
        prefix="model",
        fields=FIELDS,
        body=body,
        tasks=tasks("OPTModel", "OPTForCausalLM", S.Vocabulary(tied=True)),
        only={"layer_norm_elementwise_affine": True},
        joint=(Joint(read_ends, write_ends), TIES),
    )
)
