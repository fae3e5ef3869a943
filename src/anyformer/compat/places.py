"""What a keyword about positions does to a spec: functions (model, value) -> model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.compat.edit import (
    SELF,
    Change,
    NothingError,
    attentions,
    each,
    in_branch,
    in_embed,
    in_stack,
    to,
)
from anyformer.errors import SpecError
from anyformer.spec.walk import head_dim, qk_dim


def rotary(model: S.Model, value: bool) -> S.Model:
    """Rotary positions over half a head, but 32 channels where a head has as many."""

    def edit(sub: S.Sublayer, _: Any) -> S.Sublayer:
        assert isinstance(sub.branch, S.Attention)
        wanted = max(head_dim(sub.branch, model.dim) // 2, 32)
        dims = min(wanted, qk_dim(sub.branch, model.dim)) // 2 * 2
        return replace(sub, branch=replace(sub.branch, rotary=S.Rotary(dims=dims)))

    off = in_branch((SELF,), "rotary")
    return each((SELF,), edit)(model, value) if value else off(model, None)


def rotary_width(model: S.Model, value: int) -> S.Model:
    """How many channels of each head turn."""

    def edit(sub: S.Sublayer, _: Any) -> S.Sublayer:
        assert isinstance(sub.branch, S.Attention)
        if sub.branch.rotary is None:
            raise NothingError("nothing turns: set rotary_pos_emb=True")
        turned = replace(sub.branch.rotary, dims=value)
        return replace(sub, branch=replace(sub.branch, rotary=turned))

    return each((SELF,), edit)(model, value)


def shared_relative(model: S.Model, item: S.Relative) -> S.Model:
    """One relative position for the whole stack, in place of another of its kind."""
    if not any(not a.cross for a in attentions(model)):
        raise NothingError("there is no self-attention")
    others = without(model, type(item)).stack.relative
    return in_stack("relative")(model, (*others, item))


def without(model: S.Model, kind: type) -> S.Model:
    """The model whose stack has no relative position of a kind."""
    rest = tuple(r for r in model.stack.relative if not isinstance(r, kind))
    return in_stack("relative")(model, rest)


def buckets(model: S.Model, value: bool) -> S.Model:
    """T5's bias, one-sided in a causal stack."""
    if not value:
        return without(model, S.Buckets)
    causal = all(a.causal for a in attentions(model) if not a.cross)
    return shared_relative(model, S.Buckets(bidirectional=not causal))


def alibi(model: S.Model, value: bool) -> S.Model:
    """ALiBi's falling bias."""
    return shared_relative(model, S.ALiBi()) if value else without(model, S.ALiBi)


def infused(model: S.Model, value: bool) -> S.Model:
    """Sinusoids in the inputs of q and k of every self-attention."""
    return in_branch((SELF,), "infused")(model, S.Sinusoidal() if value else None)


def bucket_field(field: str) -> Change:
    """A number of T5's bias."""

    def change(model: S.Model, value: int) -> S.Model:
        found = [r for r in model.stack.relative if isinstance(r, S.Buckets)]
        if not found:
            raise NothingError("there is no T5 bias: set rel_pos_bias=True")
        return shared_relative(model, replace(found[0], **{field: value}))

    return change


def shaw(key_side: bool) -> Change:
    """A table of distances in every self-attention, in place of others like it."""

    def edit(sub: S.Sublayer, clip: int) -> S.Sublayer:
        assert isinstance(sub.branch, S.Attention)
        others = tuple(r for r in sub.branch.relative if not isinstance(r, S.Shaw))
        table = S.Shaw(clip=clip, key_side=key_side)
        return replace(sub, branch=replace(sub.branch, relative=(*others, table)))

    return each((SELF,), edit)


def untied(model: S.Model, length: int | bool) -> S.Model:
    """TUPE for so many positions, or for as many as the model has absolute ones."""
    place = model.embed.position
    if length is True and not isinstance(place, S.Learned):
        raise SpecError("tupe=True takes its length from learned positions: give it, as tupe=512")
    size = place.length if length is True and isinstance(place, S.Learned) else length
    return in_stack("untied")(model, S.Untied(length=size))


def untied_cls(model: S.Model, value: bool) -> S.Model:
    """TUPE's scores for a first token without a position."""
    if model.stack.untied is None:
        raise NothingError("there are no untied positions: set tupe")
    return in_stack("untied")(model, replace(model.stack.untied, cls=value))


def keep_absolute(model: S.Model, value: bool) -> S.Model:
    """No absolute positions; True says that those that are there stay."""
    if value and model.embed.position is None:
        raise NothingError("there are no absolute positions to keep")
    return model if value else in_embed("position")(model, None)


def sinusoids(model: S.Model, value: bool) -> S.Model:
    """Sinusoidal positions, scaled by 1 / sqrt(their width), in place of learned ones."""
    width = model.embed.dim or model.dim
    return to(in_embed("position"), S.Sinusoidal(scale=width**-0.5))(model, value)


def brings_positions(stack: S.Stack) -> bool:
    """Whether a stack knows where tokens stand without absolute positions in the embedding."""
    selves = [
        sub.branch
        for block in (stack.block, *stack.others)
        for sub in block
        if isinstance(sub.branch, S.Attention) and not sub.branch.cross
    ]
    own = any(a.rotary or a.infused or a.relative for a in selves)
    return own or bool(stack.relative) or stack.untied is not None
