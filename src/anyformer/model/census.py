"""Every module of a model and every parameter's shape, from the spec alone.

The names are those of the built modules: `census(spec).keys()` equals the shapes of the built
model's state_dict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anyformer.errors import SpecError
from anyformer.model.census_attention import attention, distances, relatives, self_attention, untied
from anyformer.model.census_loop import loop
from anyformer.model.census_lora import additions
from anyformer.model.entry import Entry, dropout, entry, linear, norm, notes, table
from anyformer.spec import (
    Absolute,
    Adaptive,
    Beams,
    Choices,
    Classes,
    Convolution,
    Custom,
    Detect,
    Double,
    Embed,
    FeedForward,
    Gated,
    Head,
    Leaf,
    Learned,
    Lora,
    Model,
    Parallel,
    Patches,
    Pixels,
    Pooler,
    Pretraining,
    Project,
    Residual,
    ReZero,
    Scaled,
    Span,
    Stack,
    Sublayer,
    Tokens,
    Transform,
    Vocabulary,
    layout,
)
from anyformer.spec.schedule import closing
from anyformer.spec.walk import as_read, lora_of, own_maps

EMBED_TOLD = ("source", "dim", "position", "types", "langs", "norm", "bias", "dropout", "memory")
STACK_TOLD = ("block", "others", "kinds", "final_norm", "out", "relative", "untied", "distances")
STACK_TOLD += ("convolution", "loop")


def census(spec: Model) -> Entry:
    """The tree of a model's modules."""
    return _model("", spec)


def _model(name: str, spec: Model, shared_tokens: bool = False) -> Entry:
    encoder = spec.encoder and _model("encoder", spec.encoder, spec.share_tokens)
    return entry(
        name,
        "Model",
        encoder,
        _embed(spec.embed, spec.dim, shared_tokens),
        _stack(spec.stack, spec.dim),
        _head(spec.head, as_read(spec)) if spec.head else None,
        linear("bridge", spec.encoder.dim, spec.dim, bias=True)
        if spec.encoder and spec.bridge
        else None,
    )


# ------------------------------------------------------------------ embedding


def _embed(spec: Embed, dim: int, shared_tokens: bool) -> Entry:
    width = spec.dim or dim
    banded = isinstance(spec.source, Tokens) and bool(spec.source.cutoffs)
    inner = dim if spec.wide or banded else width
    cls = isinstance(spec.source, Patches) and spec.source.cls
    told = notes(spec, *EMBED_TOLD)
    return entry(
        "embed",
        "Embed",
        None if shared_tokens else _source(spec, width, dim),
        _position(spec.position, inner) if spec.position else None,
        table("segment", spec.types, inner) if spec.types else None,
        table("language", spec.langs, inner) if spec.langs else None,
        norm("norm", spec.norm, dim if spec.wide_norm else inner),
        linear("project", width, dim, spec.bias) if spec.dim is not None and not banded else None,
        dropout(spec.dropout),
        detail=", ".join(filter(None, [told, "tokens of the decoder" if shared_tokens else ""])),
        cls=(width,) if cls else None,
        memory=(spec.memory, dim) if spec.memory else None,
    )


def _source(spec: Embed, width: int, dim: int) -> Entry | None:
    source = spec.source
    if isinstance(source, Tokens) and source.cutoffs:
        sizes = [
            (end - low, width // source.shrink**i) for i, (low, end) in enumerate(source.bands)
        ]
        bands = [
            entry(str(i), "ModuleList", table("0", count, narrow), linear("1", narrow, dim))
            for i, (count, narrow) in enumerate(sizes)
        ]
        return entry("bands", "ModuleList", *bands)
    if isinstance(source, Tokens):
        return table("token", source.vocab, width)
    if isinstance(source, Patches):
        return linear("patch", source.patch**2 * source.channels, width, source.bias)
    return linear("value", source.size, width, source.bias) if source.size is not None else None


def _position(spec: Absolute, width: int) -> Entry:
    if isinstance(spec, Learned):
        return table("position", spec.length + spec.offset, width)
    return entry("position", "Sinusoidal", detail=notes(spec))


# ---------------------------------------------------------------------- stack


def _stack(spec: Stack, dim: int) -> Entry:
    return entry(
        "stack",
        "Stack",
        entry("blocks", "ModuleList", *_blocks(spec, dim)),
        relatives(spec.relative, self_attention(spec), dim) if spec.relative else None,
        untied(spec.untied, self_attention(spec), dim) if spec.untied else None,
        distances(spec.distances, dim) if spec.distances else None,
        _convolution(spec.convolution, dim) if spec.convolution else None,
        _closing(spec, dim),
        loop(spec, dim) if spec.loop else None,
        norm("norm", spec.final_norm, dim),
        linear("out", dim, spec.out) if spec.out is not None else None,
        detail=notes(spec, *STACK_TOLD),
    )


def _closing(spec: Stack, dim: int) -> Entry | None:
    norms = [norm(str(i), each, dim) for i, each in enumerate(closing(spec))]
    return entry("closing", "ModuleList", *norms) if norms else None


def _convolution(spec: Convolution, dim: int) -> Entry:
    return entry(
        "convolution",
        "Convolution",
        norm("norm", spec.norm, dim),
        dropout(spec.dropout),
        detail=notes(spec, "norm", "dropout"),
        weight=(dim, dim // spec.groups, spec.kernel),
        bias=(dim,),
    )


def _blocks(spec: Stack, dim: int) -> Iterator[Entry]:
    """One entry for each run of equal blocks."""
    plan, start = layout(spec), 0
    lent = [lender != i for i, lender in enumerate(plan.lenders)]
    blocks = [*zip(plan.blocks, lent, plan.loras, strict=True)]
    for i, (block, by, lora) in enumerate(blocks):
        if i + 1 == len(blocks) or blocks[i + 1] != (block, by, lora):
            named = [(sub, str(j)) for j, sub in enumerate(block)]
            subs = tuple(held(sub, dim, spec.own, (by, lora), name) for sub, name in named)
            yield Entry(str(start), "Block", children=subs, repeats=i + 1 - start)
            start = i + 1


def held(
    spec: Sublayer, dim: int, own: tuple[str, ...], by: tuple[bool, Lora | None], name: str = ""
) -> Entry:
    """The modules that a sublayer has itself; `by`: whether it is lent others, and its LoRA."""
    lent, lora = by[0], lora_of(by[1], own, spec, dim)
    whole, found = sublayer(name, spec, dim), list[Entry]()
    parts = {"norm": "norm", "after": "norm", "residual": "gain", "branch": spec.kind}
    for child in whole.children:
        if child.name == "branch" and "relative" in own and spec.kind not in own:
            found += [below for below in child.children if below.name == "relative"]
            rest = tuple(below for below in child.children if below.name != "relative")
            child = replace(child, children=rest)
        if not lent or parts.get(child.name) in own:
            found.append(child)
    maps = own_maps(own, spec, dim) if lent else {}
    made = [linear(name, *size) for name, size in maps.items()]
    found += [entry("maps", "ModuleDict", *made)] if made else []
    found += [additions(lora, spec, dim)] if lora else []
    return replace(whole, children=tuple(found))


def sublayer(name: str, spec: Sublayer, dim: int) -> Entry:
    """The modules of a sublayer."""
    branch = spec.branch
    after = spec.norm if spec.place == "sandwich" else None
    return entry(
        name,
        "Sublayer",
        _parallel(branch, dim) if isinstance(branch, Parallel) else _leaf(branch, dim),
        norm("norm", spec.norm, dim),
        norm("after", after, dim),
        _residual(spec.residual, dim),
        dropout(spec.dropout),
        detail=f"place={spec.place}" if spec.norm else "",
    )


def _residual(spec: Residual, dim: int) -> Entry:
    kind, told = type(spec).__name__, notes(spec)
    if isinstance(spec, Gated):
        wide = 3 * dim
        cell = entry(
            "cell",
            "GRUCell",
            detail=f"{dim}, {dim}",
            weight_ih=(wide, dim),
            weight_hh=(wide, dim),
            bias_ih=(wide,),
            bias_hh=(wide,),
        )
        return entry("residual", kind, cell, detail=told)
    gain = {ReZero: (1,), Scaled: (dim,)}.get(type(spec))
    return entry("residual", kind, detail=told, gain=gain)


def _leaf(spec: Leaf, dim: int, name: str = "branch") -> Entry:
    if isinstance(spec, Custom):
        return _custom(spec, dim, name)
    feed = isinstance(spec, FeedForward)
    return _feedforward(spec, dim, name) if feed else attention(spec, dim, name)


def _custom(spec: Custom, dim: int, name: str) -> Entry:
    """A branch of one's own: its module alone knows what is in it, so it is built without data."""
    import torch

    from anyformer.parts import build

    with torch.device("meta"):
        built = build(spec, dim).state_dict()
    shapes: dict[str, Any] = {key: tuple(t.shape) for key, t in built.items()}
    return entry(name, type(spec).__name__, detail=notes(spec), **shapes)


def _parallel(spec: Parallel, dim: int) -> Entry:
    """Branches side by side, each with its norm where it has one."""
    branches = [_leaf(branch, dim, str(i)) for i, branch in enumerate(spec.branches)]
    norms = [norm(str(i), each, dim) for i, each in enumerate(spec.norms)]
    return entry(
        "branch",
        "Parallel",
        entry("branches", "ModuleList", *branches),
        entry("norms", "ModuleList", *norms) if norms else None,
        dropout(spec.dropout),
    )


def _feedforward(spec: FeedForward, dim: int, name: str) -> Entry:
    hidden = spec.hidden or 4 * dim
    return entry(
        name,
        "FeedForward",
        linear("up", dim, hidden, spec.bias),
        linear("gate", dim, hidden, spec.bias) if spec.gated else None,
        linear("down", hidden, dim, spec.bias),
        dropout(spec.dropout),
        detail=f"act={spec.act}",
    )


# ----------------------------------------------------------------------- head


def _head(spec: Head, model: Model) -> Entry:
    kind, told, dim = type(spec).__name__, notes(spec, "dropout", "transform"), model.dim
    match spec:
        case Vocabulary():
            return _vocabulary(spec, model)
        case Adaptive():
            return _adaptive(spec, model)
        case Pretraining() | Double():
            return _two(spec, model)
        case Pixels():
            out = linear("out", dim, square(spec, model), bias=True)
            return entry("head", kind, out, detail=told, mask=(model.embed.dim or dim,))
        case Classes() | Choices():
            one = isinstance(spec, Choices)
            width = spec.hidden or dim
            hidden = linear("hidden", dim, width, bias=True) if spec.hidden else None
            out = linear("out", width, 1 if one else spec.count, one or spec.bias)
            first = _transform(spec.transform, dim)
            return entry("head", kind, first, hidden, dropout(spec.dropout), out, detail=told)
        case Beams():
            return _beams(spec, dim)
        case Span() | Project():
            size, bias = (2, True) if isinstance(spec, Span) else (spec.size, spec.bias)
            out, first = linear("out", dim, size, bias), _transform(spec.transform, dim)
            return entry("head", kind, first, dropout(spec.dropout), out, detail=told)
        case Detect():
            dense = linear("dense", dim, dim, bias=True)
            return entry("head", kind, dense, linear("out", dim, 1, bias=True), detail=told)
        case Pooler():
            return entry(
                "head", kind, linear("dense", dim, dim, bias=True), detail=f"act={spec.act}"
            )


def _beams(spec: Beams, dim: int) -> Entry:
    ones = [linear(name, dim, 1, name != "answer") for name in ("start", "end", "answer")]
    wide = [linear(name, 2 * dim, dim, bias=True) for name in ("join", "judge")]
    told = notes(spec, "norm")
    return entry("head", "Beams", *ones, *wide, norm("norm", spec.norm, dim), detail=told)


def _two(spec: Pretraining | Double, model: Model) -> Entry:
    """Tokens and something of the whole sequence beside them."""
    tokens, kind = replace(_vocabulary(spec.tokens, model), name="tokens"), type(spec).__name__
    if isinstance(spec, Double):
        out = linear("out", model.dim, 1, bias=True)
        return entry("head", kind, tokens, dropout(spec.dropout), out, detail=f"act={spec.act}")
    pair = Classes(count=2, hidden=model.dim, act=spec.act, dropout=spec.dropout)
    other = replace(_head(pair, model), name="pair")
    return entry("head", kind, tokens, other, detail=f"asks={spec.asks}")


def _transform(spec: Transform | None, dim: int) -> Entry | None:
    if spec is None:
        return None
    dense = linear("dense", dim, spec.hidden or dim, spec.bias)
    down = linear("down", spec.hidden, dim, spec.bias) if spec.hidden else None
    last, told = norm("norm", spec.norm, dim), f"act={spec.act}"
    return entry("transform", "Transform", dense, down, last, detail=told)


def _vocabulary(spec: Vocabulary, model: Model) -> Entry:
    width, vocab = head_width(spec, model), vocabulary(model)
    back = spec.tied and (spec.wide or not spec.dense) and model.embed.dim is not None
    return entry(
        "head",
        "Vocabulary",
        linear("dense", model.dim, width, spec.dense_bias) if spec.dense else None,
        norm("norm", spec.norm, width),
        linear("project", model.dim, model.embed.dim or model.dim) if back else None,
        table("place", spec.enhanced, model.dim) if spec.enhanced else None,
        detail=f"tied={spec.tied}, {vocab}",
        weight=None if spec.tied else (vocab, width),
        bias=(vocab,) if spec.bias else None,
    )


def _adaptive(spec: Adaptive, model: Model) -> Entry:
    narrow, count = model.embed.dim or model.dim, len(spec.cutoffs)
    banded = isinstance(model.embed.source, Tokens) and bool(model.embed.source.cutoffs)
    return entry(
        "head",
        "Adaptive",
        linear("project", model.dim, narrow) if banded or model.embed.dim is not None else None,
        linear("slots", narrow, count, bias=True) if count else None,
        detail=notes(spec),
        bias=(vocabulary(model),),
    )


def vocabulary(model: Model) -> int:
    """The number of tokens that a model reads."""
    if not isinstance(model.embed.source, Tokens):
        raise SpecError("a vocabulary head needs a model that reads tokens")
    return model.embed.source.vocab


def square(spec: Pixels, model: Model) -> int:
    """Numbers of the square of an image that a patch gives."""
    source = model.embed.source
    if not isinstance(source, Patches):
        raise SpecError("a Pixels head needs a model that reads patches")
    return (spec.stride or source.patch) ** 2 * source.channels


def head_width(spec: Vocabulary, model: Model) -> int:
    """Channels of a vocabulary head's norm: those of its dense layer, or dim."""
    return (model.embed.dim or model.dim) if spec.dense and not spec.wide else model.dim
