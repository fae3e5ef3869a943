"""Training: one loop for every spec. Names are imported when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyformer.train.measure import bits_per_byte, evaluate
    from anyformer.train.run import Run, resume, train
    from anyformer.train.settings import Settings
    from anyformer.train.tune import finetune

_HOMES = {
    "Run": "run",
    "Settings": "settings",
    "bits_per_byte": "measure",
    "evaluate": "measure",
    "finetune": "tune",
    "resume": "run",
    "train": "run",
}

__all__ = ["Run", "Settings", "bits_per_byte", "evaluate", "finetune", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'anyformer.train' has no attribute {name!r}")
    return getattr(import_module(f"anyformer.train.{_HOMES[name]}"), name)
