"""Specs crossed with one another: fields of one spec put into another, whatever comes of it.

Drawn specs keep the rules by how they are drawn. These ask the rules themselves: what they accept
must build and run.
"""

from __future__ import annotations

import functools
import random
from typing import Any

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.laws.broken import finite, finite_each
from anyformer.laws.cases import case, each
from anyformer.laws.counts import law_parameters
from anyformer.laws.padding import gradients, weighed
from anyformer.laws.specs import sample, tells_apart
from anyformer.spec.node import is_node, names

TRIES = 30


def nodes(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every node of a tree with its path."""
    if isinstance(tree, tuple):
        pairs = [(f"{path}.{i}", item) for i, item in enumerate(tree)]
        return [found for at, item in pairs for found in nodes(item, at)]
    if not is_node(tree):
        return []
    below = [(f"{path}.{name}" if path else name, getattr(tree, name)) for name in names(tree)]
    return [(path, tree), *(found for at, item in below for found in nodes(item, at))]


def crossed(spec: S.Model, seed: int) -> S.Model | None:
    """The spec with a few fields of others, if the rules accept any of a few tries."""
    rng = random.Random(seed)
    for _ in range(TRIES):
        found = spec
        try:
            for _ in range(rng.randint(2, 8)):
                found = _cross(found, _giver(rng.randrange(10**9)), rng)
        except SpecError:
            continue
        if found != spec and not S.problems(found) and tells_apart(found):
            return found
    return None


@functools.lru_cache(64)
def _giver(seed: int) -> S.Model:
    """A spec that gives fields; a spec crossed twice by one seed meets the same ones again."""
    return sample(seed)


def _cross(spec: S.Model, other: S.Model, rng: random.Random) -> S.Model:
    path, node = rng.choice(nodes(spec))
    givers = [giver for _, giver in nodes(other) if type(giver) is type(node)]
    if not givers or not names(node):
        return spec
    name = rng.choice(names(node))
    value = getattr(rng.choice(givers), name)
    return S.override(spec, f"{path}.{name}" if path else name, value)


def law_accepted(spec: S.Model, seed: int) -> None:
    """What the rules accept builds, runs, learns and is counted."""
    found = crossed(spec, seed)
    if found is None:
        return
    c = case(found, seed, length=6)
    out = each(c())
    finite(out, "outputs")
    finite_each(gradients(c, weighed(out)), "gradients of {}")
    law_parameters(found, seed)
