"""What a keyword does to a spec: small functions (model, value) -> model, and how to make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.errors import SpecError

Change = Callable[[S.Model, Any], S.Model]
SELF, CROSS, FEED = "attention", "cross", "feedforward"
ATTENTIONS = (SELF, CROSS)
EVERY = (SELF, CROSS, FEED)


class NothingError(SpecError):
    """A keyword found no part that it could change."""


def each(kinds: tuple[str, ...], edit: Callable[[S.Sublayer, Any], S.Sublayer]) -> Change:
    """Change the sublayers of these kinds, in every kind of block."""

    def change(model: S.Model, value: Any) -> S.Model:
        blocks = (model.stack.block, *model.stack.others)
        if not any(sub.kind in kinds for block in blocks for sub in block):
            raise NothingError(f"there is no {' or '.join(kinds)} sublayer")
        first, *others = (
            tuple(edit(sub, value) if sub.kind in kinds else sub for sub in block)
            for block in blocks
        )
        return replace(model, stack=replace(model.stack, block=first, others=tuple(others)))

    return change


def in_sublayer(kinds: tuple[str, ...], field: str) -> Change:
    """Set a field of the sublayers of these kinds."""
    return each(kinds, lambda sub, value: replace(sub, **{field: value}))


def in_branch(kinds: tuple[str, ...], field: str) -> Change:
    """Set a field of the branches of these kinds."""
    return each(kinds, lambda sub, value: S.override(sub, f"branch.{field}", value))


def in_stack(field: str) -> Change:
    """Set a field of the stack."""
    return lambda model, value: replace(model, stack=replace(model.stack, **{field: value}))


def in_embed(field: str) -> Change:
    """Set a field of the embedding."""
    return lambda model, value: replace(model, embed=replace(model.embed, **{field: value}))


def to(change: Change, wanted: Any) -> Change:
    """A flag: True makes the change with a value that is known, False changes nothing."""
    return lambda model, value: change(model, wanted) if value else model


def flag(change: Change, on: Any, off: Any) -> Change:
    """A flag: one value when True, another when False."""
    return lambda model, value: change(model, on if value else off)


def norms(norm: S.Norm) -> Change:
    """Put this norm wherever a sublayer has one."""
    return to(each(EVERY, lambda sub, n: replace(sub, norm=n) if sub.norm else sub), norm)


def residual(kind: type, **options: Any) -> Change:
    """Put this residual on every sublayer; the fixed factor of its branch stays."""

    def edit(sub: S.Sublayer, _: Any) -> S.Sublayer:
        return replace(sub, residual=kind(branch=sub.residual.branch, **options))

    return to(each(EVERY, edit), True)


def rezero(model: S.Model, value: bool) -> S.Model:
    """Gate every branch and take its norm away (arXiv:2003.04887)."""
    bare = to(each(EVERY, lambda sub, _: replace(sub, norm=None, place="pre")), True)
    return residual(S.ReZero)(bare(model, value), value)


def pre_norm(model: S.Model, value: bool) -> S.Model:
    """Norms before the branches, with one more at the end; or after the sums, with none more."""
    subs = [sub for block in (model.stack.block, *model.stack.others) for sub in block]
    if value and all(sub.place != "post" for sub in subs):
        return model
    final = model.stack.final_norm or subs[-1].norm if value else None
    placed = in_sublayer(EVERY, "place")(model, "pre" if value else "post")
    return in_stack("final_norm")(placed, final)


def cross_attend(model: S.Model, value: bool) -> S.Model:
    """A cross-attention behind every self-attention that has none yet."""
    if not value:
        return model
    crossed = lambda block: any(sub.kind == CROSS for sub in block)
    blocks = [b if crossed(b) else _crossed(b) for b in (model.stack.block, *model.stack.others)]
    return replace(model, stack=replace(model.stack, block=blocks[0], others=tuple(blocks[1:])))


def _crossed(block: tuple[S.Sublayer, ...]) -> tuple[S.Sublayer, ...]:
    own = next((sub for sub in block if sub.kind == SELF), None)
    if own is None or not isinstance(own.branch, S.Attention):
        raise NothingError("there is no self-attention to put a cross-attention behind")
    alone: dict[str, Any] = {"rotary": None, "infused": None, "relative": (), "window": None}
    branch = replace(own.branch, cross=True, causal=False, **alone)
    at = block.index(own) + 1
    return (*block[:at], replace(own, branch=branch), *block[at:])


def macaron(model: S.Model, value: bool) -> S.Model:
    """A feed-forward on both sides of the attention, each at half weight (arXiv:1906.02762)."""
    if not value:
        return model
    half = each((FEED,), lambda sub, _: replace(sub, residual=replace(sub.residual, branch=0.5)))
    model = half(model, True)
    doubled = lambda block: (*[s for s in block if s.kind == FEED][:1], *block)
    block, others = doubled(model.stack.block), tuple(map(doubled, model.stack.others))
    return replace(model, stack=replace(model.stack, block=block, others=others))


def talking(side: str) -> Change:
    """Mix heads on one side of the softmax, beside what is mixed already."""

    def edit(sub: S.Sublayer, value: bool) -> S.Sublayer:
        assert isinstance(sub.branch, S.Attention)
        now = {"both": {"pre", "post"}, "no": set[str]()}.get(
            sub.branch.talking, {sub.branch.talking}
        )
        new = now | {side} if value else now - {side}
        word = "both" if len(new) == 2 else next(iter(new), "no")
        return replace(sub, branch=replace(sub.branch, talking=word))

    return each(ATTENTIONS, edit)


def mult(model: S.Model, value: float) -> S.Model:
    """The feed-forward's inner width as a multiple of dim."""
    return in_branch((FEED,), "hidden")(model, int(model.dim * value))


def compression(model: S.Model, value: float) -> S.Model:
    """The share of heads·head_dim that collaborating heads keep."""
    shared = [a for a in attentions(model) if a.collaborate is not None]
    if not shared:
        raise NothingError("no heads collaborate: set attn_collab_heads=True")
    return in_branch(ATTENTIONS, "collaborate")(model, value)


def softclamp(model: S.Model, value: float | bool) -> S.Model:
    """Soft-capped scores, at 50 unless a number is given."""
    kept = lambda a: tuple(m for m in a.mods if not isinstance(m, S.SoftCap))
    cap = () if value is False else (S.SoftCap() if value is True else S.SoftCap(value=value),)

    def edit(sub: S.Sublayer, _: Any) -> S.Sublayer:
        return S.override(sub, "branch.mods", kept(sub.branch) + cap)

    return each(ATTENTIONS, edit)(model, value)


def softclamp_value(model: S.Model, value: float) -> S.Model:
    """The number at which scores are capped."""
    if not any(isinstance(m, S.SoftCap) for a in attentions(model) for m in a.mods):
        raise NothingError("no scores are capped: set attn_softclamp_logits=True")
    return softclamp(model, value)


def narrow(model: S.Model, value: int) -> S.Model:
    """Token and position tables of this width, projected to dim."""
    return in_embed("dim")(model, None if value == model.dim else value)


def tie(model: S.Model, value: bool) -> S.Model:
    """Logits from the token table, without a bias; or from a table of their own."""
    if not isinstance(model.head, S.Vocabulary):
        raise NothingError("there is no vocabulary head")
    bias = False if value else model.head.bias
    return replace(model, head=replace(model.head, tied=value, bias=bias))


def attentions(model: S.Model) -> list[S.Attention]:
    """The attentions of a model's own stack."""
    blocks = (model.stack.block, *model.stack.others)
    found = [sub.branch for block in blocks for sub in block]
    return [branch for branch in found if isinstance(branch, S.Attention)]
