"""Gemma 2 and the text part of Gemma 3 as Hugging Face stores them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import decoder, llama
from anyformer.checkpoint.families.decoder import ATTENTION, FULL, SLIDING
from anyformer.checkpoint.families.rope import rope, two_ropes
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register, size
from anyformer.errors import CheckpointError
from anyformer.recipes.windows import windowed

CAP = "final_logit_softcapping"


def mods_of(value: float | None) -> tuple[S.Mod, ...]:
    """A cap of the scores, where there is one."""
    return () if value is None else (S.SoftCap(value=value),)


def cap_of(mods: tuple[S.Mod, ...]) -> Any:
    """The value of the cap, where there is one."""
    return next((mod.value for mod in mods if isinstance(mod, S.SoftCap)), None)


def fields(vocab: int, own: Field) -> tuple[Field, ...]:
    """The fields of both, and one of their own."""
    scale, act = (f"{ATTENTION}.scale",), decoder.act("hidden_activation", "gelu_pytorch_tanh")
    roots = (lambda count: count**-0.5, lambda scale: round(scale**-2))
    return (
        *llama.fields(2304, 26, 8, vocab, 9216, kv=4, act=act),
        size("head_dim", 256, "head_dim", f"{ATTENTION}.head_dim"),
        Field("query_pre_attn_scalar", 256, scale, None, *roots),
        llama.BIAS,
        own,
    )


def read_windows(period: int, spec: S.Model, config: Config) -> S.Model:
    """A window by layer_types, or in all layers but the last of each period."""
    if config.get("use_bidirectional_attention"):
        raise CheckpointError("config.json: use_bidirectional_attention has no part here yet")
    window, every = config.get("sliding_window", 4096), config.get("sliding_window_pattern", period)
    return windowed(spec, decoder.windows(spec, config, window, lambda i: (i + 1) % every))


def write_windows(spec: S.Model) -> Config:
    """layer_types, their window, and the cap of the logits."""
    said = {"layer_types": decoder.layer_types(spec), "sliding_window": decoder.widest(spec)}
    said = {key: value for key, value in said.items() if value is not None}
    return said | ({CAP: spec.head.cap} if isinstance(spec.head, S.Vocabulary) else {})


def language(name: str, cap: float | None) -> dict[str, Task]:
    """The bare model, and one with a tied table whose logits are capped as config.json says."""
    found = decoder.tasks(name, S.Vocabulary(tied=True), f"{name.removesuffix('Text')}ForCausalLM")
    plain = found["causal-lm"]
    head = lambda *given: S.override(plain.head(*given), "cap", given[1].get(CAP, cap))
    return found | {"causal-lm": replace(plain, head=head)}


NORMS = "input_layernorm post_attention_layernorm pre_feedforward_layernorm"
NORMS += " post_feedforward_layernorm"
SLOTS = (*llama.SLOTS, "0.norm", "0.after", "1.norm", "1.after")
BODY = decoder.body(llama.ENDS, decoder.plain("layers.{}", f"{llama.MAPS} {NORMS}", SLOTS))
CAPPED = (f"{ATTENTION}.mods",)
register(Family(
    "gemma2", "gemma2", "model",
    fields(256000, Field("attn_logit_softcapping", 50.0, CAPPED, None, mods_of, cap_of, True)),
    BODY, language("Gemma2", 30.0) | decoder.readers("Gemma2", ends=None, pad=0),
    joint=(rope(ATTENTION, 8192), Joint(partial(read_windows, 2), write_windows), decoder.TIES),
))  # fmt: skip
THETAS = {FULL: ("rope_theta", 1e6), SLIDING: ("rope_local_base_freq", 10000.0)}
WINDOWS = Joint(partial(read_windows, 6), write_windows)
register(Family(
    "gemma3_text", "gemma3", "model",
    fields(262208, at("rms_norm_eps", 1e-6, f"{ATTENTION}.qk_norm.eps")),
    BODY, language("Gemma3Text", None) | decoder.readers("Gemma3Text", None, None, pad=0),
    joint=(WINDOWS, two_ropes(131072, THETAS), decoder.TIES),
))  # fmt: skip
