"""Floating-point operations of a forward pass, from the spec alone.

A product of (m, k) and (k, n) counts 2·m·n·k; only matrix products count. Attention counts all
queries times all keys, whatever the mask leaves out, and relative tables of vectors all queries
times all distances: what the reference, eager, multiplies. Every application of a block counts.
Letters: B batch, Q queries, S positions that are read, H heads, G key heads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from anyformer.model.census import head_width, square, vocabulary
from anyformer.model.census_attention import self_attention
from anyformer.model.census_loop import lent, products
from anyformer.spec import (
    XL,
    Adaptive,
    Attention,
    Beams,
    Choices,
    Classes,
    Custom,
    Detect,
    Disentangled,
    Double,
    FeedForward,
    Gated,
    Leaf,
    Model,
    Patches,
    Pixels,
    Pooler,
    Pretraining,
    Relative,
    Shaw,
    Span,
    Stack,
    Sublayer,
    Tokens,
    Transform,
    Values,
    Vocabulary,
    XLTable,
    layout,
)
from anyformer.spec.model import ends
from anyformer.spec.parallel import kind_of
from anyformer.spec.walk import as_read, head_dim, lora_of, qk_dim, updates


@dataclass(frozen=True)
class Sizes:
    """What a stack works on: batch, its own positions, and those of the sequence it may read."""

    batch: int
    rows: int
    source: int


def positions(model: Model, length: int) -> int:
    """Positions that leave the model: the length, or an image's patches and class token."""
    source = model.embed.source
    if isinstance(source, Patches):
        return (source.image // source.patch) ** 2 + source.cls
    return length


def sizes(model: Model, length: int, batch: int) -> Sizes:
    """What the stack of a model works on; memory tokens stay inside their own stack."""
    source = positions(model.encoder, length) if model.encoder else length
    return Sizes(batch, positions(model, length) + model.embed.memory, source)


def applications(stack: Stack, twice: bool = False) -> Iterator[tuple[Sublayer, bool]]:
    """Every sublayer as it runs, and whether it is lent keys and values.

    `twice`: the last block runs twice.
    """
    plan = layout(stack)
    order = [*zip(plan.schedule, lent(stack), strict=True)]
    order += order[-1:] if twice else []
    return ((sub, by) for i, by in order for sub in plan.blocks[i])


def flops(model: Model, length: int, batch: int = 1) -> Counter[str]:
    """FLOPs of one forward pass by part: embed, attention, cross, feedforward, head and others."""
    at = sizes(model, length, batch)
    twice = isinstance(model.head, Vocabulary) and model.head.enhanced is not None
    found = Counter({"embed": _embed(model, length, batch)})
    found["positions"] = _untied(model, at) + _convolution(model, at, twice)
    carried: Counter[str] = Counter()
    for sub, by in applications(model.stack, twice):
        for leaf in sub.leaves:
            found[kind_of(leaf)] += _leaf(leaf, model, at, carried, by)
        if isinstance(sub.residual, Gated):
            found["residuals"] += 2 * at.batch * at.rows * 6 * model.dim**2
    found["lora"] = sum(2 * math.prod(one) for one in lora_products(model, at, twice))
    found["loop"] = 2 * batch * at.rows * products(model.stack, model.dim)
    found["out"] = 2 * batch * at.rows * model.dim * (model.stack.out or 0)
    found["head"] = _head(as_read(model), batch * positions(model, length), batch)
    if model.encoder:
        if model.bridge:
            found["bridge"] = 2 * batch * at.source * model.encoder.dim * model.dim
        inner = flops(model.encoder, length, batch)
        found.update({f"encoder.{part}": n for part, n in inner.items()})
    return found


def _embed(model: Model, length: int, batch: int) -> int:
    source, width = model.embed.source, model.embed.dim or model.dim
    rows = batch * positions(model, length)
    narrow = [] if model.embed.dim is None else [width]
    if isinstance(source, Tokens) and source.cutoffs:
        narrow = [width // source.shrink**i for i in range(len(source.bands))]
    total = 2 * rows * sum(narrow) * model.dim
    if isinstance(source, Patches):
        patches = rows - batch * source.cls
        total += 2 * patches * source.patch**2 * source.channels * width
    if isinstance(source, Values) and source.size is not None:
        total += 2 * rows * source.size * width
    return total


def _leaf(leaf: Leaf, model: Model, at: Sizes, carried: Counter[str], by: bool) -> int:
    """Of one application of a branch; `carried` counts those that carry, `by`: keys are lent."""
    if isinstance(leaf, FeedForward):
        return _feedforward(leaf, model.dim, at)
    if isinstance(leaf, Custom):
        return leaf.flops(model.dim, at.batch, at.rows)
    kind = kind_of(leaf)
    carried[kind] += leaf.carry
    whole = _attention(leaf, model, at, carried[kind] - 1 if leaf.carry else 0)
    return whole - _key_values(leaf, model.dim, at) if by else whole


def _feedforward(spec: FeedForward, dim: int, at: Sizes) -> int:
    matrices = 3 if spec.gated else 2
    return 2 * at.batch * at.rows * dim * (spec.hidden or 4 * dim) * matrices


def _attention(spec: Attention, model: Model, at: Sizes, earlier: int) -> int:
    """Of one application; `earlier` applications below carry their scores to it."""
    read = at.source if spec.cross else at.rows
    pairs = at.batch * spec.heads * at.rows * (read + spec.memory)
    values, keys = head_dim(spec, model.dim), qk_dim(spec, model.dim)
    mixes = {"no": 0, "pre": 1, "post": 1, "both": 2}[spec.talking] if spec.heads > 1 else 0
    terms = () if spec.cross else (*spec.relative, *model.stack.relative)
    channels = keys * (1 + earlier) + values + spec.heads * mixes
    if model.stack.untied and not spec.cross:
        channels += values + 2 * model.stack.untied.cls
    distances = at.rows + read - 1
    by_distance = at.batch * spec.heads * at.rows * distances * keys * _tables(terms, spec)
    own = _projected(terms, spec, model.dim, at.rows) + _disentangled(spec, model, at.rows)
    return 2 * (pairs * channels + by_distance) + _linears(spec, model.dim, at) + own


def _linears(spec: Attention, dim: int, at: Sizes) -> int:
    """The maps to q, k and v and from the heads to the stream."""
    keys = qk_dim(spec, dim)
    to_q = keys if spec.collaborate is not None else spec.heads * keys
    out = spec.heads * head_dim(spec, dim) * (2 if spec.gate == "glu" else 1)
    return 2 * at.batch * at.rows * dim * (to_q + out) + _key_values(spec, dim, at)


def _key_values(spec: Attention, dim: int, at: Sizes) -> int:
    """The maps to k and v."""
    groups, keys = spec.kv_heads or spec.heads, qk_dim(spec, dim)
    to_k = keys if spec.collaborate is not None else groups * keys
    read = at.source * (spec.context or dim) if spec.cross else at.rows * dim
    return 2 * at.batch * read * (to_k + groups * head_dim(spec, dim))


def _tables(terms: tuple[Relative, ...], spec: Attention) -> int:
    """Products with tables of vectors by distance: one for the queries' side, one for the keys'."""
    apart = spec.disentangled or Disentangled(c2p=False, p2c=False)
    by_query = any(isinstance(term, Shaw | XL | XLTable) for term in terms) or apart.c2p
    by_key = any(isinstance(term, Shaw) and term.key_side for term in terms) or apart.p2c
    return by_query + by_key


def _disentangled(spec: Attention, model: Model, rows: int) -> int:
    """The maps of the stack's vectors by distance to keys and queries."""
    apart, distances = spec.disentangled, model.stack.distances
    if apart is None or distances is None:
        return 0
    first, last = distances.rows(1 - rows, rows - 1)
    keys, shared = qk_dim(spec, model.dim), spec.collaborate is not None
    heads = {"k": spec.heads, "q": spec.heads}
    if apart.shared:
        heads = {"k": 1, "q": 1} if shared else {"k": spec.kv_heads or spec.heads, "q": spec.heads}
    maps = apart.c2p * heads["k"] + apart.p2c * heads["q"]
    return 2 * (last - first + 1) * model.dim * keys * maps


def lora_products(model: Model, at: Sizes, twice: bool = False) -> Iterator[tuple[int, int, int]]:
    """Rows, rank, and inputs and outputs together of every update of every application."""
    stack, plan = model.stack, layout(model.stack)
    for i in (*plan.schedule, *(plan.schedule[-1:] if twice else ())):
        for sub in plan.blocks[i]:
            lora = lora_of(plan.loras[i], stack.own, sub, model.dim)
            for leaf in sub.leaves:
                found = {} if lora is None else updates(lora, leaf, model.dim)
                for name, ((rank, into, out), _) in found.items():
                    yield _update_rows(name, leaf, model, at), rank, into + out


def _update_rows(name: str, leaf: Leaf, model: Model, at: Sizes) -> int:
    """Rows that a linear map of a branch reads: positions, and distances where they share it."""
    if not isinstance(leaf, Attention):
        return at.batch * at.rows
    rows = at.batch * (at.source if leaf.cross and name in ("k", "v") else at.rows)
    apart, distances = leaf.disentangled, model.stack.distances
    if apart is None or distances is None or not apart.shared:
        return rows
    first, last = distances.rows(1 - at.rows, at.rows - 1)
    return rows + (last - first + 1) * {"k": apart.c2p, "q": apart.p2c}.get(name, False)


def _projected(terms: tuple[Relative, ...], spec: Attention, dim: int, rows: int) -> int:
    """Transformer-XL's projection of the sinusoids of all distances, and its bias by distance."""
    width = spec.heads * qk_dim(spec, dim)
    total = 0
    for term in terms:
        if isinstance(term, XL):
            back = min(rows - 1, term.clamp or rows)
            total += 2 * (back + 1 if spec.causal else 2 * back + 1) * (dim + 1) * width
        if isinstance(term, XLTable):  # its bias alone
            ahead = 0 if spec.causal else min(rows - 1, term.ahead)
            total += 2 * (min(rows - 1, term.back) + ahead + 1) * width
    return total


def _untied(model: Model, at: Sizes) -> int:
    """The projections of positions that the stack makes once for all of its self-attentions."""
    if model.stack.untied is None:
        return 0
    served = self_attention(model.stack)
    return 2 * 2 * at.rows * model.dim * served.heads * head_dim(served, model.dim)


def _convolution(model: Model, at: Sizes, twice: bool) -> int:
    """The convolution beside the first block, which a last block that runs twice leaves out."""
    found, alone = model.stack.convolution, len(layout(model.stack).schedule) == 1
    if found is None or (alone and twice):
        return 0
    return 2 * at.batch * at.rows * model.dim**2 * found.kernel // found.groups


def _head(model: Model, rows: int, batch: int) -> int:
    head, dim = model.head, model.dim
    if head is None:
        return 0
    if isinstance(head, Vocabulary):
        return 2 * rows * _vocabulary(head, model)
    if isinstance(head, Adaptive):
        return 2 * rows * _adaptive(head, model)
    if isinstance(head, Pretraining | Double):
        beside = dim * (dim + 2) if isinstance(head, Pretraining) else dim
        return 2 * rows * _vocabulary(head.tokens, model) + 2 * batch * beside
    if isinstance(head, Pixels):
        source = model.embed.source
        cls = batch if isinstance(source, Patches) and source.cls else 0
        return 2 * (rows - cls) * dim * square(head, model)
    if isinstance(head, Beams):  # without labels
        whole = dim * (head.starts * dim + 2 * dim + 1)  # starts, an answer
        return 2 * (rows * dim * (1 + dim + head.starts) + batch * whole)
    if isinstance(head, Classes | Choices):
        width, count = head.hidden or dim, head.count if isinstance(head, Classes) else 1
        first = _transform(head.transform, dim)
        return 2 * batch * (first + (dim * width if head.hidden else 0) + width * count)
    if isinstance(head, Pooler):
        return 2 * batch * dim**2
    if isinstance(head, Detect):
        return 2 * rows * (dim**2 + dim)
    out = 2 if isinstance(head, Span) else head.size
    return 2 * rows * (dim * out + _transform(head.transform, dim))


def _transform(first: Transform | None, dim: int) -> int:
    """Multiplications of a dense layer, or of both maps of a block, for one position."""
    if first is None:
        return 0
    return dim * dim if first.hidden is None else 2 * dim * first.hidden


def _adaptive(head: Adaptive, model: Model) -> int:
    """Multiplications for one position: the first ids and the slots, then every rarer band."""
    source, width = model.embed.source, model.embed.dim or model.dim
    assert isinstance(source, Tokens)
    mapped = bool(source.cutoffs) or model.embed.dim is not None
    total = len(head.cutoffs) * width
    for i, (low, end) in enumerate(ends(head.cutoffs, source.vocab)):
        narrow = width // source.shrink**i
        total += narrow * (end - low + (model.dim if mapped else 0))
    return total


def _vocabulary(head: Vocabulary, model: Model) -> int:
    """Multiplications for one position."""
    width, narrow = head_width(head, model), model.embed.dim
    total = model.dim * width if head.dense else 0
    if head.tied and narrow is not None and (head.wide or not head.dense):
        return total + model.dim * narrow + narrow * vocabulary(model)
    return total + width * vocabulary(model)
