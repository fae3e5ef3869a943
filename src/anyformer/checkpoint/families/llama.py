"""Llama, Mistral, Qwen2 and Qwen3 as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, TIES, act, tasks
from anyformer.checkpoint.family import Config, Family, Field, Joint, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row
from anyformer.errors import CheckpointError
from anyformer.recipes.windows import windowed, windows_of

UNTIED = S.Vocabulary(tied=False)
THETA = f"{ATTENTION}.rotary.theta"
KNOWN_ROPE = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}


def plain_rope(given: Any) -> dict[str, Any]:
    """rope_parameters, if they ask for nothing but a base and a share of channels."""
    kind = given.get("rope_type", given.get("type", "default"))
    if kind != "default" or set(given) - KNOWN_ROPE:
        raise CheckpointError(
            f"config.json: rotary positions with {given} have no part here yet; "
            "rope_type 'default' has"
        )
    return given


def base_of(given: Any) -> float | None:
    """The base of the angles in rope_parameters."""
    if given is not None and plain_rope(given).get("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError("config.json: partial_rotary_factor has no part in this family yet")
    return None if given is None else given.get("rope_theta")


def rope(theta: float) -> dict[str, Any]:
    """rope_parameters with a base of the angles."""
    return {"rope_type": "default", "rope_theta": theta}


def fields(defaults: Config) -> tuple[Field, ...]:
    """The fields that the lineage shares, with a family's defaults where they are its own."""
    norms = ("stack.final_norm.eps", "stack.block.*.norm.eps")
    usual = {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": None, "vocab_size": 32000, "intermediate_size": 11008,
        "rope_theta": None, "rope_parameters": None,
    } | defaults  # fmt: skip
    given = lambda key, option, path=None: size(key, usual[key], option, path)
    return (
        given("hidden_size", "dim"),
        given("num_hidden_layers", "depth", "stack.depth"),
        given("num_attention_heads", "heads", f"{ATTENTION}.heads"),
        Field(
            "num_key_value_heads", usual["num_key_value_heads"], (f"{ATTENTION}.kv_heads",),
            "kv_heads", nullable=True,
        ),
        given("vocab_size", "vocab", "embed.source.vocab"),
        given("intermediate_size", "hidden", f"{FEED}.hidden"),
        Field("rope_theta", 10000.0, (THETA,)),
        Field("rope_parameters", None, (THETA,), None, base_of, rope),
        at("rms_norm_eps", 1e-6, *norms),
        at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
        at("initializer_range", 0.02, "init.std"),
    )  # fmt: skip


def attention_rows(theirs: str, ours: str, branch: S.Attention) -> Iterator[Row]:
    """q, k, v and o, and the norms of q and k."""
    out_bias = branch.bias if branch.out_bias is None else branch.out_bias
    for name in "qkv":
        yield from linear(f"{theirs}.{name}_proj", f"{ours}.{name}", branch.bias)
    yield from linear(f"{theirs}.o_proj", f"{ours}.out", out_bias)
    for name in ("q_norm", "k_norm") if branch.qk_norm is not None else ():
        yield from linear(f"{theirs}.{name}", f"{ours}.{name}", bias=False)


def feed_rows(theirs: str, ours: str, branch: S.FeedForward) -> Iterator[Row]:
    """The gated feed-forward."""
    for name in ("gate", "up", "down"):
        yield from linear(f"{theirs}.{name}_proj", f"{ours}.{name}", branch.bias)


def body(spec: S.Model) -> Iterator[Row]:
    """Tokens, pre-norm layers and the final norm."""
    yield row("embed_tokens.weight", "embed.token.weight")
    attention, feed = (sub.branch for sub in spec.stack.block)
    assert isinstance(attention, S.Attention)
    assert isinstance(feed, S.FeedForward)
    for i in range(spec.stack.depth):
        theirs, ours = f"layers.{i}", f"stack.blocks.{i}"
        yield row(f"{theirs}.input_layernorm.weight", f"{ours}.0.norm.weight")
        yield row(f"{theirs}.post_attention_layernorm.weight", f"{ours}.1.norm.weight")
        yield from attention_rows(f"{theirs}.self_attn", f"{ours}.0.branch", attention)
        yield from feed_rows(f"{theirs}.mlp", f"{ours}.1.branch", feed)
    yield row("norm.weight", "stack.norm.weight")


def read_windows(spec: S.Model, config: Config) -> S.Model:
    """Windows by layer_types, or for the layers from max_window_layers on."""
    window = config.get("sliding_window", 4096) if config.get("use_sliding_window") else None
    first = config.get("max_window_layers", 28)
    kinds = config.get("layer_types") or [
        "sliding_attention" if i >= first else "full_attention" for i in range(spec.stack.depth)
    ]
    return windowed(spec, [window if k == "sliding_attention" else None for k in kinds])


def write_windows(spec: S.Model) -> Config:
    """layer_types and the window of those that have one."""
    windows = windows_of(spec)
    size = max((w for w in windows if w is not None), default=None)
    kinds = ["full_attention" if w is None else "sliding_attention" for w in windows]
    return {"use_sliding_window": size is not None, "sliding_window": size, "layer_types": kinds}


LLAMA = register(
    Family(
        model_type="llama",
        recipe="llama",
        prefix="model",
        fields=(
            *fields({}),
            act("hidden_act", "silu"),
            at("head_dim", None, f"{ATTENTION}.head_dim"),
            at("attention_bias", False, f"{ATTENTION}.bias"),
            at("mlp_bias", False, f"{FEED}.bias"),
        ),
        body=body,
        tasks=tasks("LlamaModel", "LlamaForCausalLM", UNTIED),
        ignore=("rotary_emb.inv_freq",),
        only={"rope_scaling": None},
        joint=(TIES,),
    )
)
MISTRAL = register(
    Family(
        model_type="mistral",
        recipe="mistral",
        prefix="model",
        fields=(
            *fields({"intermediate_size": 14336, "num_key_value_heads": 8}),
            act("hidden_act", "silu"),
            at("head_dim", None, f"{ATTENTION}.head_dim"),
            Field("sliding_window", 4096, (f"{ATTENTION}.window",), "window", nullable=True),
        ),
        body=body,
        tasks=tasks("MistralModel", "MistralForCausalLM", UNTIED),
        ignore=("rotary_emb.inv_freq",),
        only={"rope_scaling": None, "layer_types": None},
        joint=(TIES,),
    )
)
QWEN = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32}
QWEN2 = register(
    Family(
        model_type="qwen2",
        recipe="qwen2",
        prefix="model",
        fields=(*fields(QWEN), act("hidden_act", "silu")),
        body=body,
        tasks=tasks("Qwen2Model", "Qwen2ForCausalLM", UNTIED),
        ignore=("rotary_emb.inv_freq",),
        only={"rope_scaling": None},
        joint=(Joint(read_windows, write_windows), TIES),
    )
)
QWEN3 = register(
    Family(
        model_type="qwen3",
        recipe="qwen3",
        prefix="model",
        fields=(
            *fields(QWEN),
            act("hidden_act", "silu"),
            Field("rms_norm_eps", 1e-6, (f"{ATTENTION}.qk_norm.eps",)),
            size("head_dim", 128, "head_dim", f"{ATTENTION}.head_dim"),
            at("attention_bias", False, f"{ATTENTION}.bias"),
        ),
        body=body,
        tasks=tasks("Qwen3Model", "Qwen3ForCausalLM", UNTIED),
        only={"rope_scaling": None},
        joint=(Joint(read_windows, write_windows), TIES),
    )
)
