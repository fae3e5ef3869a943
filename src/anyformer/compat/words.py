"""x-transformers' keywords, one row each: the name, what it takes, what it does to a spec.

Rows are applied in the order of the table, not of the call. `switch` puts any of them on any
spec; docs/x_transformers.md says where a keyword means something else than upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from anyformer import spec as S
from anyformer.compat import edit as E
from anyformer.compat import places as P
from anyformer.compat.edit import (
    ATTENTIONS,
    CROSS,
    EVERY,
    FEED,
    SELF,
    in_branch,
    in_embed,
    in_stack,
)
from anyformer.compat.later import LATER
from anyformer.errors import SpecError, known_or_raise
from anyformer.spec.node import Above, Natural, Positive, Rate, coerce

ENCODER, DECODER = "enc_", "dec_"
Side = Literal["enc_", "dec_"]


@dataclass(frozen=True)
class Word:
    """A keyword. Without a prefix it acts on a decoder and its encoder, unless `one_sided`."""

    name: str
    takes: Any  # the type of its value, as of a spec's field
    change: E.Change
    wrapper: bool = False  # upstream it is an argument of the wrapper, not of the layers
    one_sided: bool = False
    resting: Any = False  # the value that asks for nothing new


def _layers(name: str, takes: Any, change: E.Change, **more: Any) -> Word:
    return Word(name, takes, change, **more)


def _wrapper(name: str, takes: Any, change: E.Change, **more: Any) -> Word:
    return Word(name, takes, change, wrapper=True, **more)


def _attn(name: str, takes: Any, change: str | E.Change) -> Word:
    made = in_branch(ATTENTIONS, change) if isinstance(change, str) else change
    return Word(f"attn_{name}", takes, made)


def _ff(name: str, takes: Any, change: str | E.Change) -> Word:
    made = in_branch((FEED,), change) if isinstance(change, str) else change
    return Word(f"ff_{name}", takes, made)


_talking = E.flag(in_branch(ATTENTIONS, "talking"), "both", "no")
_rms = E.flag(in_branch(ATTENTIONS, "qk_norm"), S.RMSNorm(), None)
_act = in_branch((FEED,), "act")
_weigh = in_branch(ATTENTIONS, "weigh")

WORDS: tuple[Word, ...] = (
    # which sublayers there are, and in which order they run
    _layers("causal", bool, in_branch((SELF,), "causal"), one_sided=True),
    _layers("cross_attend", bool, E.cross_attend, one_sided=True),
    _layers("macaron", bool, E.macaron),
    _layers(
        "sandwich_coef", Positive, lambda m, k: in_stack("schedule")(m, S.Sandwich(coefficient=k))
    ),
    _layers("weight_tie_layers", bool, E.to(in_stack("schedule"), S.Shared(unique=1))),
    # norms and residuals
    _layers("pre_norm", bool, E.pre_norm, resting=True),
    _layers("sandwich_norm", bool, E.to(E.in_sublayer(EVERY, "place"), "sandwich")),
    _layers("use_scalenorm", bool, E.norms(S.ScaleNorm())),
    _layers("use_rmsnorm", bool, E.norms(S.RMSNorm(eps=1e-8))),
    _layers("use_rezero", bool, E.rezero),
    _layers("gate_residual", bool, E.residual(S.Gated)),
    _layers("scale_residual", bool, E.residual(S.Scaled, on="skip")),
    _layers("use_layerscale", bool, E.residual(S.Scaled, init=1e-4)),
    _layers("reversible", bool, in_stack("reversible")),
    # feed-forward
    _ff("mult", Above, E.mult),
    _ff("glu", bool, "gated"),
    _ff("swish", bool, E.to(_act, "silu")),
    _ff("relu_squared", bool, E.to(_act, "relu2")),
    _ff("no_bias", bool, E.flag(in_branch((FEED,), "bias"), False, True)),
    _ff("dropout", Rate, "dropout"),
    _ff("sublayer_dropout", Rate, E.in_sublayer((FEED,), "dropout")),
    # attention
    _attn("dim_head", Positive, "head_dim"),
    _attn("kv_heads", Positive, "kv_heads"),
    _attn("one_kv_head", bool, E.to(in_branch(ATTENTIONS, "kv_heads"), 1)),
    _layers("cross_attn_dim_context", Positive, in_branch((CROSS,), "context")),
    _attn("collab_heads", bool, E.flag(in_branch(ATTENTIONS, "collaborate"), 0.3, None)),
    _attn("collab_compression", Above, E.compression),
    _attn("num_mem_kv", Natural, "memory"),
    _attn("max_attend_past", Natural, lambda m, n: in_branch((SELF,), "window")(m, n + 1)),
    _attn("qk_norm", bool, _rms),
    _attn("qk_rmsnorm", bool, _rms),
    _attn("sparse_topk", Positive, lambda m, k: _weigh(m, S.TopK(k=k))),
    _attn("use_entmax15", bool, E.to(_weigh, S.Entmax15())),
    _attn("sigmoid", bool, E.to(_weigh, S.Sigmoid())),
    _layers("talking_heads", bool, _talking),
    _attn("talking_heads", bool, _talking),
    _attn("pre_talking_heads", bool, E.talking("pre")),
    _attn("post_talking_heads", bool, E.talking("post")),
    _attn("softclamp_logits", bool, E.softclamp),
    _attn("logit_softclamp_value", Above, E.softclamp_value),
    _attn("on_attn", bool, E.flag(in_branch(ATTENTIONS, "gate"), "glu", "no")),
    _layers("residual_attn", bool, in_branch((SELF,), "carry")),
    _layers("cross_residual_attn", bool, in_branch((CROSS,), "carry"), one_sided=True),
    _attn("dropout", Rate, "dropout"),
    _attn("sublayer_dropout", Rate, E.in_sublayer(ATTENTIONS, "dropout")),
    _attn("flash", bool, E.flag(in_branch(ATTENTIONS, "backend"), "auto", "eager")),
    _layers("layer_dropout", Rate, in_stack("layer_dropout")),
    # positions of the layers
    _layers("rotary_pos_emb", bool, P.rotary),
    _layers("rotary_emb_dim", Positive, P.rotary_width),
    _layers("position_infused_attn", bool, P.infused),
    _layers("rel_pos_bias", bool, P.buckets),
    _layers("rel_pos_num_buckets", Positive, P.bucket_field("count")),
    _layers("rel_pos_max_distance", Positive, P.bucket_field("max_distance")),
    _layers("alibi_pos_bias", bool, P.alibi),
    _layers("relative_key", Positive, P.shaw(key_side=False)),
    _layers("relative_key_query", Positive, P.shaw(key_side=True)),
    _layers("tupe", bool | Positive, P.untied),
    _layers("tupe_cls", bool, P.untied_cls),
    # embedding, head and memory
    _wrapper("emb_dim", Positive, E.narrow),
    _wrapper("emb_dropout", Rate, in_embed("dropout")),
    _wrapper("post_emb_norm", bool, E.flag(in_embed("norm"), S.LayerNorm(), None)),
    _wrapper("num_memory_tokens", Natural, in_embed("memory")),
    _wrapper("scaled_sinu_pos_emb", bool, P.sinusoids),
    _wrapper("use_abs_pos_emb", bool, P.keep_absolute),
    _wrapper("use_pos_emb", bool, P.keep_absolute),
    _wrapper("max_mem_len", Natural, in_stack("recurrence"), one_sided=True),
    _wrapper("tie_embedding", bool, E.tie, one_sided=True),
    _wrapper("tie_token_emb", bool, lambda m, v: replace(m, share_tokens=v), one_sided=True),
)

NAMES: dict[str, Word] = {word.name: word for word in WORDS}
ABSOLUTE = ("use_abs_pos_emb", "use_pos_emb", "scaled_sinu_pos_emb")  # ask for absolute positions

ONE_OF: tuple[tuple[str, ...], ...] = (  # at most one of each group
    ("use_rezero", "gate_residual", "scale_residual", "use_layerscale"),
    ("use_rezero", "use_scalenorm", "use_rmsnorm"),
    ("use_rezero", "pre_norm", "sandwich_norm"),
    ("sandwich_coef", "weight_tie_layers"),
    ("ff_swish", "ff_relu_squared"),
    ("attn_kv_heads", "attn_one_kv_head"),
    ("attn_sparse_topk", "attn_use_entmax15", "attn_sigmoid"),
    ("relative_key", "relative_key_query"),
)


def switch(spec: S.Model, /, **keywords: Any) -> S.Model:
    """The spec with x-transformers' keywords applied: `switch(recipe("bert"), ff_glu=True)`.

    In an encoder-decoder `enc_` and `dec_` in front of a keyword choose the side.
    """
    return S.check(apply(spec, keywords))


def apply(spec: S.Model, keywords: dict[str, Any], new: bool = False) -> S.Model:
    """The spec with keywords applied, not checked yet; `new`: it was not chosen as it is."""
    given = {spelled: _read(spelled, value, spec) for spelled, value in keywords.items()}
    given = {spelled: value for spelled, value in given.items() if value is not None}
    _refuse_clashes(given)
    sides: dict[Side, S.Model] = {DECODER: spec}
    if spec.encoder is not None:
        sides[ENCODER] = spec.encoder
    for word in WORDS:
        for prefix in ("", DECODER, ENCODER):
            if prefix + word.name in given:
                sides |= _changed(sides, word, prefix, given[prefix + word.name])
    was = {DECODER: spec, ENCODER: spec.encoder}
    for side, model in sides.items():
        before = was[side]
        placed = before is not None and P.brings_positions(before.stack) and not new
        sides[side] = model if placed else _positions(side, model, given)
    return replace(sides[DECODER], encoder=sides.get(ENCODER))


def _read(spelled: str, value: Any, spec: S.Model) -> Any:
    """The value of a keyword, of the right type; None where it asks for nothing."""
    prefixes = ("", ENCODER, DECODER) if spec.encoder is not None else ("",)
    bare = _bare(spelled)
    if spec.encoder is None and bare != spelled and bare in NAMES:
        raise SpecError(f"{spelled!r}: this model has no encoder beside it; write {bare!r}")
    known(spelled, [p + name for p in prefixes for name in NAMES])
    takes = NAMES[bare].takes
    if value is None or (value is False and takes is not bool):
        return None
    return coerce(value, takes, spelled)


def known(spelled: str, words: Iterable[str], what: str = "keyword") -> str:
    """Return a keyword that is one of these words, else raise and say what comes nearest."""
    if _bare(spelled) in LATER and _bare(spelled) not in NAMES:
        raise SpecError(
            f"{spelled!r} is a keyword of x-transformers that anyformer has no part for"
        )
    return known_or_raise(spelled, words, what)


def _refuse_clashes(given: dict[str, Any]) -> None:
    on = {s for s, value in given.items() if value != NAMES[_bare(s)].resting}
    for group in ONE_OF:
        for prefix in (ENCODER, DECODER):
            both = [name for name in group if {name, prefix + name} & on]
            if len(both) > 1:
                raise SpecError(f"{' and '.join(both)} exclude each other: choose one")


def _bare(spelled: str) -> str:
    return spelled.removeprefix(ENCODER).removeprefix(DECODER)


def _changed(
    sides: dict[Side, S.Model], word: Word, prefix: str, value: Any
) -> dict[Side, S.Model]:
    """The sides that a word changes; a side without anything to change is left out."""
    wanted: list[Side] = [s for s in sides if not prefix or s == prefix]
    if not prefix and word.one_sided:
        wanted = [DECODER]
    done: dict[Side, S.Model] = {}
    for side in wanted:
        try:
            done[side] = word.change(sides[side], value)
        except E.NothingError as reason:
            if side == wanted[-1] and not done and value != word.resting:
                raise SpecError(f"{prefix}{word.name} has nothing to change: {reason}") from reason
    return done


def _positions(side: Side, model: S.Model, given: dict[str, Any]) -> S.Model:
    """Absolute positions go where the stack brings its own, unless they are asked for by name."""
    asked = any(given.get(prefix + name) for prefix in ("", side) for name in ABSOLUTE)
    if asked or not P.brings_positions(model.stack):
        return model
    return in_embed("position")(model, None)
