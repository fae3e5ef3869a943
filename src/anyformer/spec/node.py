"""Nodes of a spec tree: frozen, keyword-only dataclasses that check their own fields.

A tree of nodes describes a model completely. It prints as code, hashes, compares, and goes to
JSON and back: `{"is": "Rotary", "theta": 10000.0}` is `Rotary(theta=10000.0)`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from anyformer.errors import SpecError, known_or_raise
from anyformer.spec.strict import parsed

T = TypeVar("T")
TAG = "is"  # names the class in JSON; no field may be called so
KINDS: dict[str, type] = {}  # class name -> class
Fits = Callable[[Any], bool]


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes: low <= value <= high, or low < value where open."""

    low: float
    high: float = float("inf")
    open: bool = False

    def holds(self, value: float) -> bool:
        """Whether value lies in the range."""
        return (self.low < value if self.open else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.open else f"at least {self.low:g}"
        return low if self.high == float("inf") else f"{low} and at most {self.high:g}"


Positive = Annotated[int, Range(1)]
Depth = Annotated[int, Range(1, 10_000)]  # each layer has modules and lines of its own
Natural = Annotated[int, Range(0)]
Rate = Annotated[float, Range(0.0, 1.0)]
Above = Annotated[float, Range(0.0, open=True)]


class Custom:
    """A branch of one's own: a node that derives from it stands where an attention stands.

    `@node class Mine(Custom)` describes it, `@part(Mine)` registers its module, which is built as
    `module(spec, dim)` and called as `forward(x, call, path)`; docs/laws.md shows one.
    """

    causal = True  # no position sees a later one
    recalls = False  # its input begins with what a segment memory has; the last rows are new

    def flops(self, dim: int, batch: int, rows: int) -> int:
        """FLOPs of its matrix products for `batch` rows of `rows` positions; 0 unless it says."""
        return 0


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def node(cls: type[T]) -> type[T]:
    """Make a class a spec node: frozen, keyword-only, checked on construction, known to JSON."""
    if TAG in cls.__annotations__ or cls.__name__ in KINDS:
        raise SpecError(f"node {cls.__name__} uses a reserved field or a name already taken")

    def check_fields(self: Any) -> None:
        for name, hint, fits in _readers(type(self)):
            value = getattr(self, name)
            if not fits(value):
                checked = coerce(value, hint, f"{type(self).__name__}.{name}")
                object.__setattr__(self, name, checked)

    cls.__post_init__ = check_fields  # type: ignore[attr-defined]
    made = dataclass(frozen=True, kw_only=True)(cls)
    made.__init__ = _named_errors(made)
    KINDS[cls.__name__] = made
    return made


def _named_errors(cls: type) -> Any:
    """The constructor of cls; an unknown field is named and the nearest one offered."""
    plain, known = cls.__init__, frozenset(names(cls))
    required = [f.name for f in fields(cls) if _required(f)]

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **options: Any) -> None:
        if args:
            raise SpecError(f"{cls.__name__} takes its fields by name, as {names(cls)[0]}=…")
        for option in (name for name in options if name not in known):
            known_or_raise(option, names(cls), f"field of {cls.__name__}")
        missing = [name for name in required if name not in options]
        if missing:
            raise SpecError(f"{cls.__name__} needs a value for {', '.join(missing)}")
        plain(self, **options)

    return init


def _required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def fields(cls_or_node: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The dataclass fields of a node or a node class."""
    return dataclasses.fields(cls_or_node)


def names(cls_or_node: Any) -> list[str]:
    """The field names of a node or a node class."""
    return [*_names(cls_or_node if isinstance(cls_or_node, type) else type(cls_or_node))]


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    """The same, looked up once for a class."""
    return tuple(f.name for f in fields(cls))


@functools.cache
def hints(cls: type) -> dict[str, Any]:
    """The field types of a node class, with their ranges."""
    return typing.get_type_hints(cls, include_extras=True)


def is_node(value: Any) -> bool:
    """Whether a value is a spec node."""
    return type(value).__name__ in KINDS and dataclasses.is_dataclass(value)


@functools.cache
def _readers(cls: type) -> tuple[tuple[str, Any, Fits], ...]:
    """Every field of a node class: its name, its type, and what tells that a value is of it."""
    return tuple((name, hint, _fits(hint)) for name, hint in hints(cls).items())


def _fits(hint: Any) -> Fits:
    """What is true of values that `coerce` returns as they are; of others it may be false."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        of_base, allowed = _fits(given[0]), given[1]
        return lambda value: of_base(value) and allowed.holds(value)
    if origin in (typing.Union, types.UnionType):
        some = [_fits(option) for option in given]
        return lambda value: type(value) is not int and any(fits(value) for fits in some)
    if origin is Literal:
        return lambda value: type(value) is str and value in given
    if origin is tuple:
        item = _fits(given[0])
        return lambda value: type(value) is tuple and all(map(item, value))
    return lambda value: type(value) is hint


def coerce(value: Any, hint: Any, where: str) -> Any:
    """Return value as the type that a field asks for, or raise and say what it takes."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _in_range(value, hint, where)
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, typing.get_args(hint), where)
    if origin is Literal:
        return _literal(value, typing.get_args(hint), where)
    if origin is tuple:
        return _items(value, typing.get_args(hint)[0], where)
    if hint is float and type(value) is int:
        return float(value)
    if hint is Any or (type(value) is hint) or (hint is types.NoneType and value is None):
        return value
    if hint is Custom and isinstance(value, Custom) and is_node(value):
        return value
    raise SpecError(f"{where} takes {describe(hint)}, not {value!r}")


def _in_range(value: Any, hint: Any, where: str) -> Any:
    base, allowed = typing.get_args(hint)
    number = coerce(value, base, where)
    if not allowed.holds(number):
        raise SpecError(f"{where} must be {allowed}, not {value!r}")
    return number


def _one_of(value: Any, options: tuple[Any, ...], where: str) -> Any:
    last: SpecError | None = None
    for option in options:
        try:
            return coerce(value, option, where)
        except SpecError as error:
            # Keep the message of the option that came closest: the one that read the type.
            if "must be" in str(error) or "unknown" in str(error):
                last = error
    raise last or SpecError(f"{where} takes {' or '.join(map(describe, options))}, not {value!r}")


def _literal(value: Any, options: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, str):
        raise SpecError(f"{where} takes one of {', '.join(map(repr, options))}, not {value!r}")
    return known_or_raise(value, options, f"value of {where}:")


def _items(value: Any, hint: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise SpecError(f"{where} takes a tuple of {describe(hint)}, not {value!r}")
    items: typing.Sequence[Any] = value  # type: ignore[assignment]
    return tuple(coerce(item, hint, f"{where}[{i}]") for i, item in enumerate(items))


def describe(hint: Any) -> str:
    """A field type in words."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        base, allowed = typing.get_args(hint)
        return f"{describe(base)} {allowed}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(describe, typing.get_args(hint)))
    if origin is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    if origin is tuple:
        return f"a tuple of {describe(typing.get_args(hint)[0])}"
    words = {int: "an int", float: "a float", bool: "True or False", str: "a string"}
    words[Custom] = "a Custom node"
    return words.get(
        hint, "None" if hint is types.NoneType else getattr(hint, "__name__", str(hint))
    )


def to_dict(value: Any) -> Any:
    """A tree as plain dicts, lists and scalars."""
    if is_node(value):
        body = {f.name: to_dict(getattr(value, f.name)) for f in fields(value)}
        return {TAG: type(value).__name__, **body}
    return [to_dict(item) for item in value] if isinstance(value, tuple) else value  # type: ignore[misc]


def from_dict(data: Any) -> Any:
    """The tree that `to_dict` wrote."""
    if isinstance(data, dict):
        body: dict[str, Any] = dict(data)  # type: ignore[arg-type]
        if TAG not in body:
            raise SpecError(
                f"a part needs the key {TAG!r} that names its kind; found {sorted(body)}"
            )
        kind = body.pop(TAG)
        return make(str(kind), **{k: from_dict(v) for k, v in body.items()})
    return tuple(map(from_dict, data)) if isinstance(data, list) else data  # type: ignore[arg-type]


def make(kind: str, /, **options: Any) -> Any:
    """A node by the name of its class."""
    return KINDS[known_or_raise(kind, KINDS, "kind of part")](**options)


def to_json(value: Any, indent: int | None = 2) -> str:
    """A tree as JSON text."""
    return json.dumps(to_dict(value), indent=indent)


def from_json(text: str) -> Any:
    """The tree that `to_json` wrote."""
    try:
        return from_dict(parsed(text))
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not JSON: {error}; write a spec with anyformer.spec.to_json") from error
