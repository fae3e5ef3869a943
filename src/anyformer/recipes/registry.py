"""Recipes by name: register, list and call them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from anyformer.errors import known_or_raise
from anyformer.spec import Model, check, override
from anyformer.spec.node import coerce, names

F = TypeVar("F", bound=Callable[..., Model])
RECIPES: dict[str, Callable[..., Model]] = {}  # name -> function


def register(function: F) -> F:
    """Make a function a recipe, under its name with `-` for `_`."""
    RECIPES[function.__name__.replace("_", "-")] = function
    return function


def recipe(name: str, /, **options: Any) -> Model:
    """The checked spec of a recipe; options are the recipe's own, fields of Model or dotted paths.

    `recipe("bert", depth=6, **{"stack.block.*.dropout": 0.0})`: the recipe's own options build
    the spec, the others then change it in the order given.
    """
    function = RECIPES[known_or_raise(name, RECIPES, "recipe")]
    own = _hints(function)
    _check_names(name, options, own)
    given = {k: coerce(v, own[k], f"{name}: {k}") for k, v in options.items() if k in own}
    return edited(function(**given), {k: v for k, v in options.items() if k not in own})


def edited(spec: Model, changes: dict[str, Any]) -> Model:
    """The checked spec with each dotted path set to its value."""
    for path, value in changes.items():
        spec = override(spec, path, value)
    return check(spec)


def options(name: str) -> dict[str, Any]:
    """The options of a recipe with their defaults."""
    function = RECIPES[known_or_raise(name, RECIPES, "recipe")]
    return {k: p.default for k, p in inspect.signature(function).parameters.items()}


def recipes() -> dict[str, str]:
    """Every recipe's name with the first line of its docstring."""
    return {name: inspect.getdoc(RECIPES[name]).splitlines()[0] for name in sorted(RECIPES)}  # type: ignore[union-attr]


def _hints(function: Callable[..., Model]) -> dict[str, Any]:
    hints = typing.get_type_hints(function, include_extras=True)
    return {name: hint for name, hint in hints.items() if name != "return"}


def _check_names(recipe_name: str, given: Iterable[str], own: Iterable[str]) -> None:
    """Raise for a name that is no option, no field of Model and no path into one."""
    fields = names(Model)
    for option in given:
        if option.partition(".")[0] not in fields or "." not in option:
            known_or_raise(option, [*own, *fields], f"option of recipe {recipe_name!r}")
