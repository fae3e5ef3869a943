"""From words of a command line to specs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anyformer.errors import SpecError
from anyformer.recipes import recipe
from anyformer.recipes.registry import edited
from anyformer.spec import Model, from_json, parse
from anyformer.spec.strict import text_of


def pairs(words: Iterable[str]) -> dict[str, Any]:
    """The settings in words of the form key=value."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise SpecError(f"{word!r} is not of the form key=value, as depth=6")
        found[key] = parse(value)
    return found


def model(name: str, words: Iterable[str] = ()) -> Model:
    """The spec of a recipe, a JSON file or a model's folder, with settings as key=value."""
    changes = pairs(words)
    if os.path.isdir(name):
        from anyformer.checkpoint import load  # torch's modules, which recipes don't need

        return edited(load(name, device="meta").spec, changes)
    if name.endswith(".json") or os.path.isfile(name):
        return edited(from_file(Path(name)), changes)
    return recipe(name, **changes)


def from_file(path: Path) -> Model:
    """The spec in a JSON file."""
    text = text_of(path, SpecError)
    try:
        spec = from_json(text)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error
    if not isinstance(spec, Model):
        raise SpecError(f"{path} describes a {type(spec).__name__}, not a Model: give one")
    return spec
