"""Studies that ship, each as panels by its tier: minutes on a CPU, or longer on a GPU.

A panel is a Study, called as recursive-layers/masked-relative.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from anyformer.errors import StudyError, known_or_raise
from anyformer.study.nodes import Study, rates_of
from anyformer.study.shipped.first import first_look
from anyformer.study.shipped.tier import Tier

__all__ = ["STUDIES", "Tier", "first_look", "panels", "runs", "summaries"]

# Name -> the module in this folder, whose `panels` makes its studies of a tier.
STUDIES = {
    "recursive-layers": "recursive",
    "transformer-xl": "xl",
    "modifications": "modifications",
    "positions": "positions",
    "scaling": "scale",
}


def panels(name: str, tier: Tier | None = None) -> tuple[Study, ...]:
    """The panels of a study by name, or one of them; without a tier for what this machine has."""
    study, _, one = name.partition("/")
    known_or_raise(study, STUDIES, "study", StudyError)
    found = _maker(study)(tier or ("gpu" if torch.cuda.is_available() else "cpu"))
    if not one:
        return found
    known_or_raise(name, [panel.name for panel in found], "panel", StudyError)
    return tuple(panel for panel in found if panel.name == name)


def _maker(study: str) -> Callable[[Tier], tuple[Study, ...]]:
    return import_module(f"anyformer.study.shipped.{STUDIES[study]}").panels


def runs(study: Study) -> int:
    """How many runs a study has."""
    seeds, rates = len(study.seeds), len(rates_of(study))
    each = rates + seeds - 1 if study.tune == "first" else rates * seeds
    return len(study.variants) * each


def summaries() -> dict[str, str]:
    """The first line about each study."""
    return {name: (_maker(name).__doc__ or "").partition("\n")[0] for name in STUDIES}
