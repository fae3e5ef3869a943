"""Tiny stacks over the whole vocabulary; see anyformer.laws.specs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyformer import spec as S
from anyformer.spec.walk import lora_of, qk_dim, selves

Pick = Callable[..., Any]
LENGTH = 40
ACTS = ("gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh", "sigmoid", "identity")

DISTANCES = (
    S.Distances(reach=4),
    S.Distances(reach=64, norm=S.RMSNorm()),
    S.Distances(reach=7, buckets=4, norm=S.LayerNorm()),
    S.Distances(reach=30, buckets=6),
)
# beyond every length of the laws, since padding moves blocks: sparse rows are in test_sparse.py
FAR_BLOCKS = (S.BlockSparse(size=4, random=0, seed=3), S.BlockSparse(always=True, longest=99))


@dataclass(frozen=True)
class Shape:
    """What all of a stack's attentions agree on where they share positions or scores."""

    dim: int
    causal: bool
    cross: bool = False
    context: int | None = None
    alike: bool = True  # heads and sizes are the same in every attention
    untied: bool = False
    first_apart: bool = False  # untied positions take no other relative ones beside them
    talks: bool = True  # heads may be mixed before the weights
    reversible: bool = False
    short: bool = False  # one or two layers, each run once: the time is in the layers
    apart: S.Disentangled | None = None  # what attentions do with the stack's distances
    options: tuple[tuple[str, Any], ...] = ()  # of every attention


def draw_sizes(pick: Pick, dim: int) -> dict[str, Any]:
    """Heads, their sizes, and what else carried scores must agree on."""
    heads = pick(2, 4, 1)
    return {
        "heads": heads,
        "kv_heads": pick(None, None, 1, heads, max(1, heads // 2)),
        "head_dim": pick(None, None, 3, 6),
        "memory": pick(0, 0, 1, 3),
        "scale": pick(None, None, 0.7),
        "collaborate": pick(None, None, None, 0.5, 1.0),
    }


def draw_relative(pick: Pick, causal: bool, most: int = 2) -> tuple[S.Relative, ...]:
    """None, one or two relative positions of any kind."""
    one_side = causal and pick(True, False)
    sizes = {"count": pick(4, 8, 32), "max_distance": pick(6, 20, 128)}
    kinds = (
        S.Buckets(bidirectional=not one_side, scale=pick(1.0, 2.0), **_fit(sizes, not one_side)),
        S.ALiBi(learned=pick(False, True)),
        S.Shaw(clip=pick(1, 3, 64), key_side=pick(False, True)),
        S.XL(clamp=pick(None, 2), theta=pick(10000.0, 50.0)),
        S.XLTable(back=pick(1, 3, 64), ahead=pick(1, 64, 0) if causal else pick(1, 64)),
    )
    count = pick(*([0] * 3), *range(1, most + 1))
    return tuple(pick(*kinds) for _ in range(count))


def _fit(sizes: dict[str, int], bidirectional: bool) -> dict[str, int]:
    """Buckets whose exact ones end before max_distance."""
    side = sizes["count"] // 2 if bidirectional else sizes["count"]
    return {**sizes, "max_distance": max(sizes["max_distance"], side // 2 + 1)}


def draw_rotary(pick: Pick, attention: S.Attention, dim: int) -> S.Rotary | None:
    """Rotary positions that fit the size of a head's q and k, or none."""
    width = qk_dim(attention, dim)
    if width < 2 or pick(True, False):
        return None
    dims = 2 if width % 2 else pick(None, 2)
    scalings = (S.Linear(factor=2.0), S.Llama3(length=20), S.Yarn(factor=4.0, length=20))
    return S.Rotary(
        dims=dims,
        layout=pick("halves", "pairs"),
        theta=pick(10000.0, 30.0),
        scaling=pick(None, None, *scalings, S.Yarn(factor=3.0, gain=0.7, whole=False)),
    )


def draw_scores(pick: Pick) -> dict[str, Any]:
    """What happens to the scores, and after them."""
    weighs = (S.Softmax(), S.TopK(k=2), S.TopK(k=50), S.Entmax15(), S.Sparsemax())
    return {
        "bias": pick(True, False),
        "k_bias": pick(None, None, True, False),
        "out_bias": pick(None, None, True, False),
        "dropout": pick(0.0, 0.2),
        "qk_norm": pick(None, None, S.RMSNorm(), S.LayerNorm(), S.ScaleNorm()),
        "talking": pick("no", "no", "no", "pre", "post", "both"),
        "mods": pick((), (), (S.SoftCap(value=2.0),), (S.Temperature(init=1.5), S.SoftCap())),
        "weigh": pick(*[S.Softmax()] * 4, *weighs, S.Sigmoid(bias=-1.0)),
        "gate": pick("no", "no", "glu"),
    }


def draw_attention(pick: Pick, shape: Shape, cross: bool = False) -> S.Attention:
    """An attention; of the stack's shape where they are all alike."""
    sizes = dict(shape.options) if shape.alike else draw_sizes(pick, shape.dim)
    sizes |= {"scale": None} if shape.untied and not cross else {}
    sizes["carry"] = shape.alike and not shape.reversible and pick(False, False, True)
    plain = S.Attention(**sizes, **draw_scores(pick))
    if qk_dim(plain, shape.dim) < 3:  # norms of one or two channels leave ties, which TopK cuts
        plain = dataclasses.replace(plain, qk_norm=None)
    if cross:
        return dataclasses.replace(plain, cross=True, context=shape.context)
    if not shape.talks:
        plain = dataclasses.replace(plain, talking=pick("no", "post"))
    causal = shape.causal or pick(False, False, False, True)
    return dataclasses.replace(
        plain,
        causal=causal,
        blocks=None if causal else pick(None, None, None, *FAR_BLOCKS),
        window=pick(None, None, None, 1, 2, 4),
        rotary=draw_rotary(pick, plain, shape.dim),
        infused=pick(None, None, None, S.Sinusoidal(), S.Sinusoidal(layout="pairs", scale=0.5)),
        relative=() if shape.first_apart else draw_relative(pick, shape.causal),
        disentangled=shape.apart if plain.carry or pick(True, True, False) else None,
    )


def draw_apart(pick: Pick, first_apart: bool) -> S.Disentangled | None:
    """What attentions do with distances, if anything."""
    if first_apart or pick(True, True, False):
        return None
    c2p, p2c = pick((True, True), (True, False), (False, True))
    return S.Disentangled(
        c2p=c2p, p2c=p2c, shared=pick(False, True), bias=pick(True, False), dropout=pick(0.0, 0.1)
    )


def draw_residual(pick: Pick, reversible: bool) -> S.Residual:
    """A way into the stream."""
    always = (S.Add(), S.Add(), S.Add(branch=0.5), S.ReZero(), S.Scaled(init=0.5))
    rest = (S.Add(skip=1.5), S.Gated(), S.Gated(bias=0.5, branch=0.5), S.Scaled(on="skip"))
    return pick(*always, *(() if reversible else rest))


def draw_sublayer(pick: Pick, branch: S.Branch, shape: Shape, norm: Callable) -> S.Sublayer:
    """A branch with its norm and residual."""
    return S.Sublayer(
        branch=branch,
        norm=norm(pick),
        place="pre" if shape.reversible else pick("pre", "pre", "post", "sandwich"),
        residual=draw_residual(pick, shape.reversible),
        dropout=pick(0.0, 0.1),
    )


def draw_parallel(pick: Pick, branches: tuple[S.Leaf, ...], norm: Callable) -> S.Parallel:
    """Branches side by side, with a norm each or none."""
    norms = tuple(norm(pick, none=False) for _ in branches) if pick(False, True) else ()
    return S.Parallel(branches=branches, norms=norms, dropout=pick(0.0, 0.1))


def draw_block(pick: Pick, shape: Shape, norm: Callable) -> tuple[S.Sublayer, ...]:
    """Sublayers in one of many orders: a attention, c cross, f feed-forward, () side by side."""
    alone = ("af", "af", "fa", "faf", "a", "(af)", "f(fa)")
    orders = ("acf", "acf", "caf", "facf", "cf", "(acf)", "a(fc)") if shape.cross else alone
    made: list[S.Sublayer] = []
    group: list[S.Leaf] | None = None
    for letter in pick(*orders):
        if letter == "(":
            group = []
            continue
        if letter == ")":
            branch = draw_parallel(pick, tuple(group or ()), norm)
            group = None
            made.append(draw_sublayer(pick, branch, shape, norm))
            continue
        if letter == "f":
            leaf: S.Leaf = S.FeedForward(
                hidden=pick(None, 10),
                act=pick(*ACTS),
                gated=pick(False, True),
                bias=pick(True, False),
                dropout=pick(0.0, 0.1),
            )
        else:
            leaf = draw_attention(pick, shape, cross=letter == "c")
        if group is None:
            made.append(draw_sublayer(pick, leaf, shape, norm))
        else:
            group.append(leaf)
    return tuple(made)


def _few(pick: Pick, more: bool) -> dict[str, Any]:
    """A depth of as few layers as there are kinds of block, or two."""
    return {"depth": pick(1 + more, 2)}


def draw_schedule(pick: Pick, block: tuple[S.Sublayer, ...], more: bool) -> dict[str, Any]:
    """A schedule and the depth that it gives; `more`: there are further kinds of block."""
    kinds = {sub.kind for sub in block}
    sandwich = not more and kinds >= {"attention", "feedforward"}
    first = pick(1, 0)
    options = [
        {"depth": 1 + more},
        {"depth": 2},
        {"depth": 3, "schedule": S.Shared(unique=2, order=pick("sequence", "cycle"))},
        {"depth": 4, "schedule": S.Shared(unique=3, order=pick("cycle_reverse", "middle_cycle"))},
        {"depth": 5, "schedule": S.Shared(unique=4, order="middle_sequence")},
        {"depth": 3, "schedule": S.Looped(prelude=first, core=1, coda=1 - first, loops=2)},
        {"depth": 3 + more, "schedule": S.Looped(prelude=0, core=1 + more, coda=0, loops=3 - more)},
        {"depth": 4, "schedule": S.Superblocks(layers=2, each=1, repeat=2)},
        {"depth": 3, "schedule": S.Explicit(order=(0, 1, 0))},
    ]
    if sandwich:
        options.append({"depth": 2, "schedule": S.Sandwich(coefficient=1)})
        options.append({"depth": 3, "schedule": S.Sandwich(coefficient=2)})
    return pick(*options)


def draw_ends(pick: Pick, schedule: S.Schedule, norm: Callable) -> S.Schedule:
    """The schedule, with something that happens where superblocks end."""
    if not isinstance(schedule, S.Superblocks):
        return schedule
    around, one = pick(True, False), pick(False, True)
    return dataclasses.replace(schedule, around=around, norm=norm(pick), one_norm=one)


def draw_own(pick: Pick, blocks: tuple[tuple[S.Sublayer, ...], ...]) -> tuple[str, ...]:
    """What applications of a shared block have for themselves."""
    if any(sub.kind == "parallel" for block in blocks for sub in block):
        return ()
    some = (("norm", "relative"), ("gain", "attention"), ("relative",), ("feedforward", "cross"))
    some = (*some, ("out", "norm"), ("down", "out"))
    return pick((), (), *some)


def draw_lora(pick: Pick, stack: S.Stack, dim: int) -> S.Stack:
    """The stack, its applications perhaps with additions to the weights that they share."""
    every = ("q", "k", "v", "out", "up", "gate", "down")
    lora = S.Lora(
        rank=pick(2, 1, 5),
        alpha=pick(None, 3.0),
        on=pick(every, every, ("q", "up"), ("k", "v", "out", "gate", "down")),
        bias=pick(False, True),
    )
    changed = dataclasses.replace(stack, lora=pick(None, None, lora))
    plan = S.layout(changed)
    shared = [(s, lora) for b, lora in zip(plan.blocks, plan.loras, strict=True) for s in b]
    found = any(lora_of(lora, stack.own, sub, dim) for sub, lora in shared)
    return changed if found else stack


def draw_stack(pick: Pick, shape: Shape, norm: Callable) -> S.Stack:
    """A stack, its shared positions among it."""
    untied = pick(None, None, None, S.Untied(length=LENGTH), S.Untied(length=LENGTH, cls=True))
    relative = draw_relative(pick, shape.causal)
    if untied is not None and untied.cls:
        relative = tuple(r for r in relative if isinstance(r, S.Buckets | S.ALiBi))
    shape = _with_shared(pick, shape, untied, relative)
    block = draw_block(pick, shape, norm)
    others = tuple(draw_block(pick, shape, norm) for _ in range(pick(0, 0, 0, 1)))
    options = {
        "kinds": pick((), (0, 1, 1)) if others else (),
        "final_norm": norm(pick),
        "reversible": shape.reversible,
        "recurrence": pick(0, 3) if shape.causal else 0,
        "layer_dropout": 0.0 if shape.reversible else pick(0.0, 0.1),
        "blank": not shape.reversible and pick(False, False, True),
        "own": draw_own(pick, (block, *others)),
        **(_few(pick, bool(others)) if shape.short else draw_schedule(pick, block, bool(others))),
    }
    if not shape.reversible:
        options["schedule"] = draw_ends(pick, options.get("schedule", S.Plain()), norm)
    stack = S.Stack(block=block, others=others, relative=relative, untied=untied, **options)
    stack = _with_distances(pick, _with_selves(stack))
    if shape.alike and not shape.first_apart and selves(stack):
        stack = pick(stack, stack, stack, _with_biases(stack))
    beside = S.Convolution(
        kernel=pick(1, 3, 5),
        groups=pick(1, 2),
        act=pick("tanh", "gelu"),
        norm=norm(pick),
        dropout=pick(0.0, 0.1),
    )
    own = selves(stack)
    onward = stack.reversible or not own or any(a.causal for a in own)
    stack = dataclasses.replace(stack, convolution=None if onward else pick(None, beside))
    return draw_lora(pick, stack, shape.dim)


def _with_shared(
    pick: Pick, shape: Shape, untied: S.Untied | None, relative: tuple[S.Relative, ...]
) -> Shape:
    """What attentions must agree on beside the positions that they share."""
    first_apart = untied is not None and untied.cls
    return dataclasses.replace(
        shape,
        alike=bool(untied or relative) or pick(True, False),
        untied=untied is not None,
        first_apart=first_apart,
        talks=not (first_apart and relative),
        reversible=pick(False, False, False, True),
        apart=draw_apart(pick, first_apart),
        options=tuple(draw_sizes(pick, shape.dim).items()),
    )


def _with_selves(stack: S.Stack) -> S.Stack:
    """Without shared positions where there is no self-attention to serve."""
    blocks = S.layout(stack).blocks
    leaves = [leaf for block in blocks for sub in block for leaf in sub.leaves]
    if any(isinstance(leaf, S.Attention) and not leaf.cross for leaf in leaves):
        return stack
    return dataclasses.replace(stack, relative=(), untied=None)


def _with_biases(stack: S.Stack) -> S.Stack:
    """Every self-attention with Transformer-XL's distances, and one u and v for all of them."""

    def placed(leaf: S.Branch) -> S.Branch:
        if isinstance(leaf, S.Parallel):
            branches: Any = tuple(placed(one) for one in leaf.branches)
            return dataclasses.replace(leaf, branches=branches)
        if not isinstance(leaf, S.Attention) or leaf.cross:
            return leaf
        return dataclasses.replace(leaf, relative=(S.XL(biases=False), *leaf.relative))

    each = lambda block: tuple(dataclasses.replace(sub, branch=placed(sub.branch)) for sub in block)
    others = tuple(each(block) for block in stack.others)
    relative = (*stack.relative, S.XLBiases())
    return dataclasses.replace(stack, block=each(stack.block), others=others, relative=relative)


def _with_distances(pick: Pick, stack: S.Stack) -> S.Stack:
    """With a table by distance where some attention reads it."""
    read = any(a.disentangled for a in selves(stack))
    return dataclasses.replace(stack, distances=pick(*DISTANCES)) if read else stack
