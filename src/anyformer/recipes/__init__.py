"""The family tree: every classic model as a short function that returns a spec.

Calling this module lists the recipes, so that `anyformer.recipes()` works whether or not the
module of the same name has been imported.
"""

import sys
from types import ModuleType

from anyformer.recipes import bart, bert, eleuther, generic, gpt, llama, pair, roberta, t5, vit, xl  # noqa: F401  they register
from anyformer.recipes.registry import options, recipe, recipes

__all__ = ["options", "recipe", "recipes"]


class _Recipes(ModuleType):
    """This module, which lists its recipes when called."""

    def __call__(self) -> dict[str, str]:
        return recipes()


sys.modules[__name__].__class__ = _Recipes
