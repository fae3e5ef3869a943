"""Gemma 2 as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import llama
from anyformer.checkpoint.families.decoder import ATTENTION, TIES, act, attention_of, tasks
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register, size
from anyformer.checkpoint.keymap import Row, row
from anyformer.recipes.windows import windowed

CAP = "final_logit_softcapping"
DEFAULTS = {
    "hidden_size": 2304,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 256000,
    "intermediate_size": 9216,
}
NORMS = (  # theirs, ours
    ("input_layernorm", "0.norm"),
    ("post_attention_layernorm", "0.after"),
    ("pre_feedforward_layernorm", "1.norm"),
    ("post_feedforward_layernorm", "1.after"),
)


def mods_of(value: float | None) -> tuple[S.Mod, ...]:
    """A cap of the scores, where there is one."""
    return () if value is None else (S.SoftCap(value=value),)


def cap_of(mods: tuple[S.Mod, ...]) -> Any:
    """The value of the cap, where there is one."""
    return next((mod.value for mod in mods if isinstance(mod, S.SoftCap)), None)


FIELDS = (
    *llama.fields(DEFAULTS),
    size("head_dim", 256, "head_dim", f"{ATTENTION}.head_dim"),
    act("hidden_activation", "gelu_pytorch_tanh"),
    at("attention_bias", False, f"{ATTENTION}.bias"),
    Field(
        "query_pre_attn_scalar", 256, (f"{ATTENTION}.scale",), None,
        lambda count: count**-0.5, lambda scale: round(scale**-2),
    ),
    Field(
        "attn_logit_softcapping", 50.0, (f"{ATTENTION}.mods",), None, mods_of, cap_of,
        nullable=True,
    ),
)  # fmt: skip


def read_windows(spec: S.Model, config: Config) -> S.Model:
    """A window by layer_types, or in every other layer from the first."""
    window, depth = config.get("sliding_window", 4096), spec.stack.depth
    turns = ["full_attention" if i % 2 else "sliding_attention" for i in range(depth)]
    kinds = config.get("layer_types") or turns
    return windowed(spec, [window if k == "sliding_attention" else None for k in kinds])


def write_windows(spec: S.Model) -> Config:
    """layer_types, their window, and the cap of the logits."""
    said = llama.write_windows(spec)
    del said["use_sliding_window"]
    return said | ({CAP: spec.head.cap} if isinstance(spec.head, S.Vocabulary) else {})


def head(_: S.Model, config: Config) -> S.Head:
    """A tied table with capped logits, as config.json says."""
    return S.Vocabulary(tied=config.get("tie_word_embeddings", True), cap=config.get(CAP, 30.0))


def body(spec: S.Model) -> Iterator[Row]:
    """Tokens, layers with four norms and the final norm."""
    yield row("embed_tokens.weight", "embed.token.weight")
    attention, feed = attention_of(spec), spec.stack.block[1].branch
    assert isinstance(feed, S.FeedForward)
    for i in range(spec.stack.depth):
        theirs, ours = f"layers.{i}", f"stack.blocks.{i}"
        for name, short in NORMS:
            yield row(f"{theirs}.{name}.weight", f"{ours}.{short}.weight")
        yield from llama.attention_rows(f"{theirs}.self_attn", f"{ours}.0.branch", attention)
        yield from llama.feed_rows(f"{theirs}.mlp", f"{ours}.1.branch", feed)
    yield row("norm.weight", "stack.norm.weight")


PLAIN = tasks("Gemma2Model", "Gemma2ForCausalLM", S.Vocabulary(tied=True))
LANGUAGE = PLAIN["causal-lm"]
GEMMA2 = register(
    Family(
        model_type="gemma2",
        recipe="gemma2",
        prefix="model",
        fields=FIELDS,
        body=body,
        tasks=PLAIN
        | {"causal-lm": Task(LANGUAGE.architecture, head, LANGUAGE.rows, LANGUAGE.tied)},
        only={"rope_scaling": None, "use_bidirectional_attention": None},
        joint=(Joint(read_windows, write_windows), TIES),
    )
)
