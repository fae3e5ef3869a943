"""Recipes by name: register, list and call them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from anyformer.errors import known_or_raise
from anyformer.recipes.sizes import SIZES
from anyformer.spec import Model, check, override
from anyformer.spec.node import Above, Depth, Natural, Positive, Rate, coerce, names

TYPES: dict[str, Any] = {  # what each option takes, whichever recipe has it
    **dict.fromkeys(("dim", "heads", "vocab", "length", "width", "groups"), Positive),
    **dict.fromkeys(("image", "patch", "classes", "size", "rotary_dim"), Positive),
    **dict.fromkeys(("unique", "superblocks"), Positive),
    **dict.fromkeys(("hidden", "head_dim", "kv_heads", "window", "table"), Positive | None),
    **dict.fromkeys(("pad", "langs", "memory"), Natural),
    **dict.fromkeys(("theta", "rotary"), Above),
    **dict.fromkeys(("scaled", "causal", "relative", "own_norms", "shared", "feedforward"), bool),
    "depth": Depth,
    "dropout": Rate,
}


class Options(SimpleNamespace):
    """The options of one call of a recipe, as attributes."""

    def but(self, **changes: Any) -> Options:
        """The same with some changed, or more of them."""
        return Options(**{**vars(self), **changes})


Build = Callable[[Options], Model]


@dataclass(frozen=True)
class Recipe:
    """A function from options to a spec, and what the options are by default."""

    build: Build
    defaults: dict[str, Any]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]


RECIPES: dict[str, Recipe] = {}  # by name


def register(**defaults: Any) -> Callable[[Build], Build]:
    """Make a function a recipe with these options, under its name with `-` for `_`."""
    given = {name: coerce(value, TYPES[name], name) for name, value in defaults.items()}

    def named(build: Build) -> Build:
        RECIPES[build.__name__.replace("_", "-")] = Recipe(build, given)
        return build

    return named


def recipe(name: str, /, **options: Any) -> Model:
    """The checked spec of a recipe or of a published size, as `bert-large`.

    Options are the recipe's own, fields of Model or dotted paths:
    `recipe("bert", depth=6, **{"stack.block.*.dropout": 0.0})`. The recipe's own options build
    the spec, the others then change it in the order given.
    """
    name, published = _known(name)
    found, options = RECIPES[name], {**published, **options}
    _check_names(name, options, found.defaults)
    own = {
        k: coerce(v, TYPES[k], f"{name}: {k}") for k, v in options.items() if k in found.defaults
    }
    spec = found.build(Options(**{**found.defaults, **own}))
    return edited(spec, {k: v for k, v in options.items() if k not in found.defaults})


def edited(spec: Model, changes: dict[str, Any]) -> Model:
    """The checked spec with each dotted path set to its value."""
    for path, value in changes.items():
        spec = override(spec, path, value)
    return check(spec)


def options(name: str) -> dict[str, Any]:
    """The options of a recipe with their defaults, or with those of a published size."""
    name, published = _known(name)
    return {**RECIPES[name].defaults, **published}


def sizes(name: str) -> list[str]:
    """The published sizes of a recipe."""
    return [size for size, (base, _) in SIZES.items() if base == name]


def recipes() -> dict[str, str]:
    """Every recipe's name with the first line of its docstring."""
    return {name: RECIPES[name].summary for name in sorted(RECIPES)}


def _known(name: str) -> tuple[str, dict[str, Any]]:
    """The recipe of a name and the options that a published size sets."""
    return SIZES.get(known_or_raise(name, [*RECIPES, *SIZES], "recipe"), (name, {}))


def _check_names(recipe_name: str, given: Iterable[str], own: Iterable[str]) -> None:
    """Raise for a name that is no option, no field of Model and no path into one."""
    fields = names(Model)
    for option in given:
        if option.partition(".")[0] not in fields or "." not in option:
            known_or_raise(option, [*own, *fields], f"option of recipe {recipe_name!r}")
