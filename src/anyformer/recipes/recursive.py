"""Models that run few layers many times, after the TSBpt experiments on recursive layers."""

from __future__ import annotations

from typing import Any

from anyformer import spec as S
from anyformer.recipes.gpt import ATTENTION, gpt2
from anyformer.recipes.registry import Options, edited, register
from anyformer.recipes.roberta import roberta

LOOPS = {"unique": 1, "superblocks": 1, "own_norms": False, "feedforward": True}


def _recursive(model: S.Model, o: Options, reach: int) -> S.Model:
    """The model with shared layers, where reach is above 0 with vectors by distance."""
    depth, norm = model.stack.depth, model.stack.block[0].norm
    whole = S.Superblocks(layers=o.unique, each=max(depth // o.unique, 1), around=True, norm=norm)
    changes: dict[str, Any] = {"stack.own": ("norm", "relative") if o.own_norms else ()}
    changes["stack.block"] = model.stack.block[: 2 if o.feedforward else 1]
    changes["stack.schedule"] = S.Shared(unique=o.unique) if o.superblocks == 1 else whole
    changes["stack.depth"] = depth if o.superblocks == 1 else o.superblocks * whole.span
    if reach:
        changes |= {"embed.position": None, f"{ATTENTION}.relative": (S.Shaw(clip=reach),)}
    return edited(model, changes)


@register(dim=768, depth=6, heads=12, vocab=30522, length=512, relative=True, **LOOPS)
def recursive_roberta(o: Options) -> S.Model:
    """RoBERTa whose layers run again and again, with vectors by distance (arXiv:1803.02155).

    `unique` layers run `depth` times in all, each in place; with `own_norms` they share matrices
    alone. More than one of `superblocks` are as many such stacks, each with a residual and a norm
    around it, of layers that run `depth // unique` times each. Without `feedforward` they are
    attention alone. docs/recursion.md says what else a recursion can do.
    """
    model = roberta(o.but(pad=1, dropout=0.1))
    norm = model.stack.block[0].norm
    model = S.override(model, "head", S.Vocabulary(bias=True, dense=True, norm=norm))
    return _recursive(model, o, (o.length + 1) * o.relative)


@register(dim=768, depth=12, heads=12, vocab=50000, length=128, relative=False, **LOOPS)
def recursive_gpt2(o: Options) -> S.Model:
    """GPT-2 whose layers run again and again; options as in recursive-roberta."""
    model = gpt2(o.but(dropout=0.1))
    return _recursive(model, o, (o.length - 1) * o.relative)
