"""Smaller models of the same structure: what a law says of one, it says of the other.

Widths, heads, vocabulary, tables of positions, images and depth are cut; how parts are put
together is kept. Sizes that were equal stay equal, since the new size depends on the old one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anyformer import spec as S
from anyformer.laws.crossed import nodes
from anyformer.laws.specs import LENGTH, VOCAB
from anyformer.spec.node import is_node, names
from anyformer.spec.walk import models

WIDTHS = (16, 24, 32, 40, 48, 56)  # from the narrowest stream on; heads, 1 to 4, divide them
BANDS = (5, 11, 17, 23)  # where a small vocabulary is cut
OTHER_ROWS = (S.Choices, S.Double, S.Detect, S.Beams)  # heads whose answers the laws can't read


@dataclass(frozen=True)
class Reduced:
    """A spec to try in place of another, and what was done to it."""

    spec: S.Model
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Widths:
    """New widths for old ones, in the same order."""

    of: dict[int, int]
    dim: int  # the old width of the stream that a node belongs to

    def __call__(self, width: int | None) -> int | None:
        """The new width for an old one; None stays."""
        return None if width is None else self.of.get(width, min(width, 20))


def reduced(spec: S.Model) -> Reduced:
    """The spec cut to sizes at which every law takes a moment, as far as the rules allow."""
    notes: list[str] = []
    if isinstance(spec.head, OTHER_ROWS):
        notes.append(f"head {type(spec.head).__name__} left out: the laws can't read its answers")
        spec = replace(spec, head=None)
    narrow = _narrow(spec)
    for small in (lower(narrow), narrow):
        if not S.problems(small):
            return Reduced(small, (*notes, *_told(spec, small)))
    return Reduced(spec, (*notes, "not made smaller: no smaller one keeps the rules"))


def lower(spec: S.Model) -> S.Model:
    """The spec with as few applications as show how its stacks are built."""
    found = spec
    for path, model in models(spec):
        found = S.override(found, f"{path}stack", shallow(model.stack))
    return found


def _told(old: S.Model, new: S.Model) -> list[str]:
    """What was cut, in words."""
    found: list[str] = []
    for (path, a), (_, b) in zip(models(old), models(new), strict=True):
        pairs = {"width": (a.dim, b.dim), "depth": (a.stack.depth, b.stack.depth)}
        sources = a.embed.source, b.embed.source
        if isinstance(sources[0], S.Tokens) and isinstance(sources[1], S.Tokens):
            pairs["vocabulary"] = sources[0].vocab, sources[1].vocab
        cut = [f"{name} {x:,} → {y:,}" for name, (x, y) in pairs.items() if x != y]
        found += [f"made smaller{' (encoder)' if path else ''}: {', '.join(cut)}"] if cut else []
    return found


# -------------------------------------------------------------- narrower parts


def _narrow(spec: S.Model) -> S.Model:
    found = {model.dim for _, model in models(spec)}
    found |= {model.embed.dim for _, model in models(spec) if model.embed.dim}
    contexts = [node.context for _, node in nodes(spec) if isinstance(node, S.Attention)]
    found |= {width for width in contexts if width}
    given = dict(zip(sorted(found), WIDTHS, strict=False))
    return _cut(spec, Widths({old: min(old, given.get(old, old)) for old in found}, spec.dim))


def _cut(tree: Any, widths: Widths) -> Any:
    """A tree with every node of the table cut, from the leaves up."""
    if isinstance(tree, tuple):
        return tuple(_cut(item, widths) for item in tree)
    if not is_node(tree):
        return tree
    inner = replace(widths, dim=tree.dim) if isinstance(tree, S.Model) else widths
    below = {name: _cut(getattr(tree, name), inner) for name in names(tree)}
    changes = CUTS[type(tree)](tree, inner) if type(tree) in CUTS else {}
    return replace(tree, **{**below, **changes})


def _attention(a: S.Attention, w: Widths) -> dict[str, Any]:
    heads = a.heads if a.heads in (1, 2, 4) else 2 if a.heads == 3 else 4
    groups = a.kv_heads
    if groups is not None:
        groups = heads if groups == a.heads else 1 if groups == 1 else max(1, heads // 2)
    size, rotary = a.head_dim, a.rotary
    if size is not None:
        size = (w(w.dim) or w.dim) // heads if size * a.heads == w.dim else min(size, 6)
    whole = rotary is None or rotary.dims is None or rotary.dims == (a.head_dim or w.dim // a.heads)
    if rotary is not None and rotary.dims is not None:
        rotary = replace(rotary, dims=None if whole else 2)
    weigh = replace(a.weigh, k=min(a.weigh.k, 3)) if isinstance(a.weigh, S.TopK) else a.weigh
    return {
        "heads": heads,
        "kv_heads": groups,
        "head_dim": size,
        "context": w(a.context),
        "window": a.window and min(a.window, 4),
        "memory": min(a.memory, 3),
        "rotary": rotary,
        "weigh": weigh,
    }


def _feedforward(f: S.FeedForward, w: Widths) -> dict[str, Any]:
    dim = w(w.dim) or w.dim
    hidden = f.hidden and (4 * dim if f.hidden == 4 * w.dim else min(f.hidden, 20))
    return {"hidden": hidden}


def _tokens(t: S.Tokens, w: Widths) -> dict[str, Any]:
    bands = t.cutoffs if t.vocab <= VOCAB else BANDS[: len(t.cutoffs)]
    return {"vocab": min(t.vocab, VOCAB), "cutoffs": bands, "shrink": min(t.shrink, 2)}


def _patches(p: S.Patches, w: Widths) -> dict[str, Any]:
    return {"image": 4, "patch": 2} if p.image > 4 else {}


def _embed(e: S.Embed, w: Widths) -> dict[str, Any]:
    few = {name: min(getattr(e, name), 3) for name in ("types", "langs", "memory")}
    return {"dim": w(e.dim), **few}


def _stack(s: S.Stack, w: Widths) -> dict[str, Any]:
    return {"out": w(s.out), "recurrence": min(s.recurrence, 8)}


def _model(m: S.Model, w: Widths) -> dict[str, Any]:
    start = m.start if not isinstance(m.start, int) else _id(m.start)
    return {"dim": w(m.dim), "start": start, "pad": None if m.pad is None else _id(m.pad)}


def _id(token: int) -> int:
    """A token that a small vocabulary has."""
    return token if token < VOCAB else VOCAB - 1


def _token(head: Any, w: Widths) -> dict[str, Any]:
    return {"token": None if head.token is None else _id(head.token)}


def _classes(c: S.Classes, w: Widths) -> dict[str, Any]:
    return {"count": min(c.count, 5), "hidden": w(c.hidden), **_token(c, w)}


def _placed(p: S.Learned | S.Sinusoidal, w: Widths) -> dict[str, Any]:
    return {"skip": None if p.skip is None else _id(p.skip)}


CUTS: dict[type, Callable[[Any, Widths], dict[str, Any]]] = {
    S.Model: _model,
    S.Stack: _stack,
    S.Attention: _attention,
    S.FeedForward: _feedforward,
    S.Tokens: _tokens,
    S.Patches: _patches,
    S.Embed: _embed,
    S.Learned: lambda p, w: {"length": LENGTH, **_placed(p, w)},
    S.Sinusoidal: _placed,
    S.Untied: lambda u, w: {"length": LENGTH},
    S.Adaptive: lambda a, w: {"cutoffs": BANDS[: len(a.cutoffs)]},
    S.Classes: _classes,
    S.Span: _token,
    S.Project: lambda p, w: {"size": min(p.size, 5)},
    S.Transform: lambda t, w: {"hidden": w(t.hidden)},
    S.Vocabulary: lambda v, w: {"enhanced": v.enhanced and LENGTH},
    S.Lora: lambda r, w: {"rank": min(r.rank, 2)},
    S.Convolution: lambda c, w: {"groups": min(c.groups, 2), "kernel": min(c.kernel, 3)},
}


# -------------------------------------------------------------- fewer blocks


def shallow(stack: S.Stack) -> S.Stack:
    """The stack with as few applications as show how it is built."""
    first = next(
        (i for i in range(len(stack.kinds)) if {*stack.kinds[: i + 1]} == {*stack.kinds}), 0
    )
    stack = replace(stack, kinds=stack.kinds[: first + 1])  # until each kind had its turn
    kinds = len(stack.kinds) or 1 + len(stack.others)
    match stack.schedule:
        case S.Plain():
            return replace(stack, depth=min(stack.depth, max(2, kinds)))
        case S.Shared(unique=unique):
            most = min(unique, max(3, kinds))
            schedule = replace(stack.schedule, unique=most)
            return replace(stack, schedule=schedule, depth=min(stack.depth, most + 2))
        case S.Looped(prelude=first, core=core, coda=last, loops=loops):
            few = S.Looped(
                prelude=min(first, 1), core=min(core, kinds), coda=min(last, 1), loops=min(loops, 3)
            )
            depth = few.prelude + few.core * few.loops + few.coda
            return replace(stack, schedule=few, depth=depth)
        case S.Superblocks(layers=layers, each=each, repeat=repeat):
            few = replace(
                stack.schedule, layers=min(layers, 2), each=min(each, 2), repeat=min(repeat, 2)
            )
            times = 1 if stack.depth <= stack.schedule.span else 2
            return replace(stack, schedule=few, depth=times * few.span)
        case S.Sandwich(coefficient=coefficient):
            few = S.Sandwich(coefficient=min(coefficient, 2))
            return replace(stack, schedule=few, depth=min(stack.depth, 3))
        case _:
            return stack
