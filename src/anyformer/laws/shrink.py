"""Plainer specs that still break a law: field by field towards defaults and small numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.laws.crossed import nodes
from anyformer.spec.node import fields

MOST = 400  # specs that are tried


def shrunk(spec: S.Model, breaks: Callable[[S.Model], bool], most: int = MOST) -> S.Model:
    """A spec, as plain as can be found, of which `breaks` is still true.

    Each step takes the first plainer spec that keeps the rules and still breaks; after `most`
    trials the plainest so far is returned.
    """
    tried, left = {spec}, most
    again = True
    while again:
        again = False
        for plainer in _plainer(spec):
            if plainer in tried or S.problems(plainer):
                continue
            if not left:
                return spec
            tried.add(plainer)
            left -= 1
            if breaks(plainer):
                spec, again = plainer, True
                break
    return spec


def size(spec: S.Model) -> int:
    """How much there is to say of a spec: fields that are not at their defaults."""
    return sum(
        not _is_default(f, getattr(node, f.name)) for _, node in nodes(spec) for f in fields(node)
    )


def _plainer(spec: S.Model) -> Iterator[S.Model]:
    """Specs that differ in one field, larger changes first."""
    for path, node in nodes(spec):
        for field in fields(node):
            value = getattr(node, field.name)
            at = f"{path}.{field.name}" if path else field.name
            for other in _smaller(field, value):
                try:
                    yield S.override(spec, at, other)
                except SpecError:  # the field takes no such value
                    continue


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    return field.default is not dataclasses.MISSING and field.default == value


def _smaller(field: dataclasses.Field[Any], value: Any) -> Iterator[Any]:
    """Values to try in place of one: the default, nothing, fewer items, smaller numbers."""
    if not _is_default(field, value) and field.default is not dataclasses.MISSING:
        yield field.default
    if isinstance(value, tuple):
        yield from (value[:i] + value[i + 1 :] for i in range(len(value)))
    elif type(value) is int:
        yield from (n for n in (0, 1, 2, value // 2) if n < value)
    elif dataclasses.is_dataclass(value):
        yield None
