"""What the rules look for in relative positions, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyformer.spec.attention import Attention
from anyformer.spec.model import Model, Stack
from anyformer.spec.position import XL, Buckets, Relative, XLBiases, XLTable
from anyformer.spec.walk import attentions, models, selves


def relatives(spec: Model) -> Iterator[tuple[str, tuple[Relative, ...], list[Attention]]]:
    """Every tuple of relative positions, with its path and the attentions that it serves."""
    for path, model in models(spec):
        yield f"{path}stack.relative", model.stack.relative, selves(model.stack)
    for path, _, _, _, a in attentions(spec):
        yield f"{path}.relative", a.relative, [a]


def of_buckets(
    test: Callable[[Buckets, list[Attention]], bool],
) -> Callable[[Model], Iterator[str]]:
    """The paths of the T5 buckets for which a test holds, given the attentions that they serve."""
    return lambda spec: (
        f"{path}.{i}"
        for path, items, served in relatives(spec)
        for i, item in enumerate(items)
        if isinstance(item, Buckets) and test(item, served)
    )


def one_sided(spec: Model) -> Iterator[str]:
    """The paths of learned tables without a row for keys to the right, where some are seen."""
    for path, items, served in relatives(spec):
        for i, item in enumerate(items):
            if isinstance(item, XLTable) and not item.ahead and not all(a.causal for a in served):
                yield f"{path}.{i}"


def lonely_biases(stack: Stack, _: Model) -> bool:
    """Transformer-XL's shared biases where an attention doesn't ask for them, or the reverse."""
    asks = lambda terms: any(isinstance(t, XL) and not t.biases for t in terms)
    lends = lambda terms: sum(isinstance(t, XLBiases) for t in terms)
    inner = [a.relative for a in selves(stack)]
    if asks(stack.relative) or any(map(lends, inner)) or lends(stack.relative) > 1:
        return True
    found = [asks(terms) for terms in inner]
    return not all(found) if lends(stack.relative) else any(found)


def few_buckets(b: Buckets, _: list[Attention]) -> bool:
    """Buckets that can't be split into exact and logarithmic ones."""
    side = b.count // 2 if b.bidirectional else b.count
    return side < 2 or b.max_distance <= side // 2 or (b.bidirectional and b.count % 2 != 0)
