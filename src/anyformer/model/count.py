"""Parameters, FLOPs and bytes of a model, from the spec alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from anyformer.errors import SpecError
from anyformer.model.census import census, held, square, vocabulary
from anyformer.model.entry import Entry
from anyformer.model.flops import applications, flops, lora_products, positions, sizes
from anyformer.spec import (
    Adaptive,
    Attention,
    Beams,
    Choices,
    Classes,
    Custom,
    Detect,
    Double,
    FeedForward,
    Leaf,
    Learned,
    Model,
    Parallel,
    Patches,
    Pixels,
    Pooler,
    Pretraining,
    Project,
    Span,
    Sublayer,
    Transform,
    Untied,
    Vocabulary,
    layout,
)
from anyformer.spec.parallel import kind_of
from anyformer.spec.walk import as_read, head_dim, models, qk_dim

DEFAULT_LENGTH = 512
STACK_PARTS = (
    "positions",
    "attention",
    "cross",
    "feedforward",
    "custom",
    "lora",
    "loop",
    "norms",
    "residuals",
    "out",
)


@dataclass(frozen=True)
class Part:
    """What one part of a model has and does: parameters, and FLOPs of a forward pass."""

    name: str
    parameters: int
    flops: int


@dataclass(frozen=True)
class Count:
    """What a model has and does, shared blocks counted once as parameters, each time as FLOPs."""

    parts: tuple[Part, ...]
    embedding: int  # parameters in tables that are looked up: tokens, positions, types
    length: int
    batch: int

    @property
    def parameters(self) -> int:
        """All parameters."""
        return sum(part.parameters for part in self.parts)

    @property
    def non_embedding(self) -> int:
        """Parameters outside the tables that are looked up."""
        return self.parameters - self.embedding

    @property
    def flops(self) -> int:
        """FLOPs of one forward pass of the whole batch."""
        return sum(part.flops for part in self.parts)


@dataclass(frozen=True)
class Memory:
    """Bytes that a model needs besides the work space of its kernels."""

    parameters: int
    cache: int
    activations: int


def count(spec: Model, length: int | None = None, batch: int = 1) -> Count:
    """Parameters and forward FLOPs of a model at a length, which an encoder's input has too.

    Without a length, that of the position table, or 512. Images have the length of their patches.
    """
    length = checked_length(spec, length, batch)
    tree = census(spec)
    parameters, work = _parameters(spec, tree), flops(spec, length, batch)
    tables = sum(e.size() * n for e, n in tree.walk() if e.kind == "Embedding")
    names = [name for name in parameters if parameters[name] or work[name]]
    parts = tuple(Part(name, parameters[name], work[name]) for name in names)
    return Count(parts, tables, positions(spec, length), batch)


def checked_length(spec: Model, length: int | None = None, batch: int = 1) -> int:
    """The length, or the model's own where none is given; an error if the model is shorter."""
    limits = [(p, _limit(m)) for p, m in models(spec)]
    known = [limit for _, limit in limits if limit is not None]
    length = length if length is not None else min(known, default=DEFAULT_LENGTH)
    if length < 1 or batch < 1:
        raise SpecError(f"length and batch are at least 1, not {length} and {batch}")
    for path, limit in limits:
        if limit is not None and length > limit:
            raise SpecError(f"length {length} is beyond the {limit} positions of {path}embed")
    return length


def _limit(model: Model) -> int | None:
    """The longest sequence of tokens that a model has positions for."""
    if isinstance(model.embed.source, Patches):
        return None
    tables = (model.embed.position, model.stack.untied)
    return min((t.length for t in tables if isinstance(t, Learned | Untied)), default=None)


def _parameters(spec: Model, tree: Entry) -> dict[str, int]:
    """Parameters by part, in the order in which a pass meets them."""
    found: dict[str, int] = {}
    if spec.encoder:
        inner = _parameters(spec.encoder, tree.child("encoder"))
        found = {f"encoder.{name}": n for name, n in inner.items()}
        found["bridge"] = tree.child("bridge").size() if spec.bridge else 0
    found["embed"] = tree.child("embed").size()
    found |= _stack_parameters(spec, tree.child("stack"))
    found["head"] = tree.child("head").size() if spec.head else 0
    return found


def _stack_parameters(spec: Model, tree: Entry) -> dict[str, int]:
    found: dict[str, int] = dict.fromkeys(STACK_PARTS, 0)
    for child in tree.children:
        if child.name != "blocks":
            names = {"norm": "norms", "closing": "norms", "out": "out", "loop": "loop"}
            part = names.get(child.name, "positions")
            found[part] += child.size()
    plan = layout(spec.stack)
    lent = [lender != i for i, lender in enumerate(plan.lenders)]
    ways = zip(plan.blocks, zip(lent, plan.loras, strict=True), strict=True)
    uses = Counter((sub, by) for block, by in ways for sub in block)
    for (sub, by), times in uses.items():
        for part, number in _shares(sub, held(sub, spec.dim, spec.stack.own, by)):
            found[part] += number * times
    return found


def _shares(sub: Sublayer, tree: Entry) -> Iterator[tuple[str, int]]:
    """Parameters of one sublayer by part."""
    for child in tree.children:
        if child.name in ("relative", "maps"):
            yield sub.kind, child.size()
        elif child.name != "branch":
            parts = {"residual": "residuals", "lora": "lora"}
            yield parts.get(child.name, "norms"), child.size()
        elif sub.kind != "parallel":
            yield sub.kind, child.size()
        else:
            made = child.child("branches").children
            sizes = [entry.size() for entry in made]
            yield from zip(map(kind_of, sub.leaves), sizes, strict=True)
            yield "norms", child.size() - sum(sizes)


def memory(spec: Model, length: int, batch: int = 1, bytes_per: int = 4) -> Memory:
    """Bytes for parameters, for the key-value cache at a length, and for training activations.

    The cache holds the keys and values of every application of causal self-attention and of
    cross-attention. Activations are an estimate of what autograd keeps: inputs of norms and of
    matrix products, q, k and v, both sides of activations, and logits; not scores and dropout
    masks, which fused and chunked attention don't keep. A reversible stack keeps two streams and
    what its largest sublayer needs.
    """
    length = checked_length(spec, length, batch)
    parameters = census(spec).size()
    kept = sum(_activations(model, length, batch) for _, model in models(spec))
    cached = sum(_cache(model, length, batch) for _, model in models(spec))
    return Memory(parameters * bytes_per, cached * bytes_per, kept * bytes_per)


def _cache(model: Model, length: int, batch: int) -> int:
    at = sizes(model, length, batch)
    total = 0
    for sub, lent in applications(model.stack):
        for a in sub.leaves:
            if isinstance(a, Attention) and (a.causal or a.cross) and not lent:
                total += batch * (at.source if a.cross else at.rows) * _pair(a, model.dim)
    return total


def _pair(a: Attention, dim: int) -> int:
    """Channels of the keys and values of one position."""
    groups = a.kv_heads or a.heads
    keys = qk_dim(a, dim) * (1 if a.collaborate is not None else groups)
    return keys + groups * head_dim(a, dim)


def _activations(model: Model, length: int, batch: int) -> int:
    at = sizes(model, length, batch)
    runs = applications(model.stack)
    each = [batch * _kept(sub, model.dim, at.rows, at.source) for sub, _ in runs]
    streams = 2 * batch * at.rows * model.dim
    inner = sum(rows * rank for rows, rank, _ in lora_products(model, at))
    stack = streams + max(each) if model.stack.reversible else sum(each) + inner
    ends = batch * at.rows * model.dim * (2 if model.stack.final_norm else 1)
    return stack + ends + _head(as_read(model), length, batch)


def _kept(sub: Sublayer, dim: int, rows: int, source: int) -> int:
    """Numbers that one application of a sublayer keeps for one sequence."""
    norms = {"pre": 1, "post": 1, "sandwich": 2}[sub.place] if sub.norm else 0
    norms += len(sub.branch.norms) if isinstance(sub.branch, Parallel) else 0
    stream = rows * dim * (1 + norms)
    return stream + sum(_kept_inside(leaf, dim, rows, source) for leaf in sub.leaves)


def _kept_inside(a: Leaf, dim: int, rows: int, source: int) -> int:
    """Numbers that one application of a branch keeps beside its input."""
    if isinstance(a, Custom):
        return 2 * rows * dim  # as if it kept what a gate of the stream keeps
    if isinstance(a, FeedForward):
        return rows * (a.hidden or 4 * dim) * (4 if a.gated else 2)
    queries = qk_dim(a, dim) if a.collaborate is not None else a.heads * qk_dim(a, dim)
    out = a.heads * head_dim(a, dim) + (2 * dim if a.gate == "glu" else 0)
    return rows * (queries + out) + (source if a.cross else rows) * _pair(a, dim)


def _words(head: Vocabulary | Adaptive, model: Model) -> int:
    """Numbers that a head of words keeps for one position."""
    if isinstance(head, Adaptive):
        return 2 * vocabulary(model)
    return vocabulary(model) + (2 * model.dim if head.dense else 0)


def _transform(first: Transform | None, dim: int) -> int:
    """Numbers that a dense layer or a block before the last map keeps for one position."""
    return 0 if first is None else 2 * (dim + (first.hidden or 0))


def _head(model: Model, length: int, batch: int) -> int:
    """Numbers that the head keeps: its outputs, and the input of its last product."""
    rows = batch * positions(model, length)
    match model.head:
        case Vocabulary() | Adaptive():
            return rows * _words(model.head, model)
        case Pretraining(tokens=tokens) | Double(tokens=tokens):
            pair = isinstance(model.head, Pretraining)
            return rows * _words(tokens, model) + batch * (2 + 2 * model.dim if pair else 1)
        case Pixels():
            return rows * square(model.head, model)
        case Classes(hidden=hidden, transform=first) | Choices(hidden=hidden, transform=first):
            classes = model.head.count if isinstance(model.head, Classes) else 1
            return batch * (classes + 2 * (hidden or 0) + _transform(first, model.dim))
        case Beams(starts=starts):
            return rows * (1 + starts * (1 + 2 * model.dim)) + batch * 4 * model.dim
        case Span(transform=first) | Project(transform=first):
            size = model.head.size if isinstance(model.head, Project) else 2
            return rows * (size + _transform(first, model.dim))
        case Detect():
            return rows * (1 + 2 * model.dim)
        case Pooler():
            return batch * 2 * model.dim
        case None:
            return 0
