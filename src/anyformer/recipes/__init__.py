"""The family tree: every classic model as a short function that returns a spec.

Calling this module lists the recipes, so that `anyformer.recipes()` works whether or not the
module of the same name has been imported.
"""

import sys
from types import ModuleType

from anyformer.recipes import (  # noqa: F401  they register
    bart,
    bert,
    big_bird,
    deberta,
    eleuther,
    generic,
    gpt,
    llama,
    modernbert,
    pair,
    recursive,
    roberta,
    t5,
    vit,
    xl,
    xlm,
)
from anyformer.recipes.registry import options, recipe, recipes, sizes

__all__ = ["options", "recipe", "recipes", "sizes"]


class _Recipes(ModuleType):
    """This module, which lists its recipes when called."""

    def __call__(self) -> dict[str, str]:
        return recipes()


sys.modules[__name__].__class__ = _Recipes
