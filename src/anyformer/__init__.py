"""One core of transformer parts; every model of the family tree a short recipe over it.

`recipe("gpt2", depth=6)` is a spec, `build(spec)` a torch module. Names are imported when they
are first used, so that `import anyformer` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyformer.checkpoint import load
    from anyformer.checkpoint.tokenizer import tokenizer
    from anyformer.model.count import count
    from anyformer.model.model import build
    from anyformer.recipes import recipe, recipes
    from anyformer.spec import diff, override
    from anyformer.tasks import task
    from anyformer.tasks.attend import attend

    __version__: str

_HOMES = {
    "attend": "anyformer.tasks.attend",
    "build": "anyformer.model.model",
    "count": "anyformer.model.count",
    "diff": "anyformer.spec",
    "load": "anyformer.checkpoint",
    "override": "anyformer.spec",
    "recipe": "anyformer.recipes",
    "task": "anyformer.tasks",
    "tokenizer": "anyformer.checkpoint.tokenizer",
}

__all__ = [
    "__version__",
    "attend",
    "build",
    "count",
    "diff",
    "load",
    "override",
    "recipe",
    "recipes",
    "task",
    "tokenizer",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name == "recipes":  # the module of that name, which lists the recipes when called
        return import_module("anyformer.recipes")
    if name not in _HOMES:
        raise AttributeError(f"module 'anyformer' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """The version of the installed distribution; a bare checkout has none."""
    from importlib import metadata

    try:
        return metadata.version("anyformer")
    except metadata.PackageNotFoundError:
        return "0+checkout"
