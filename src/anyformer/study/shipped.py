"""Studies that ship, each as a function of its tier: minutes on a CPU, or longer on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from anyformer.errors import StudyError, known_or_raise
from anyformer.study.nodes import Match, StepBudget, Study, Variant
from anyformer.train.settings import Settings

Tier = Literal["cpu", "gpu"]
STUDIES: dict[str, Callable[[Tier], Study]] = {}


def ships(make: Callable[[Tier], Study]) -> Callable[[Tier], Study]:
    """Make a function of a tier a study that ships, under its name with `-` for `_`."""
    STUDIES[make.__name__.replace("_", "-")] = make
    return make


def study(name: str, tier: Tier | None = None) -> Study:
    """A study by name, for a CPU or a GPU; without a tier for what this machine has."""
    make = STUDIES[known_or_raise(name, STUDIES, "study", StudyError)]
    return make(tier or ("gpu" if torch.cuda.is_available() else "cpu"))


def summaries() -> dict[str, str]:
    """The first line about each study."""
    return {name: (make.__doc__ or "").partition("\n")[0] for name, make in STUDIES.items()}


def first_look() -> Study:
    """What `anyformer compare` runs where nothing is asked for."""
    return Study(
        name="compare",
        title="A small decoder, and four modifications of it",
        variants=(
            Variant(name="plain"),
            Variant(name="rotary positions", words=("rotary",)),
            Variant(name="gated feed-forward", words=("glu",)),
            Variant(name="T5's bias", words=("t5-bias",)),
            Variant(name="one layer four times", words=("recursion",), matched=False),
        ),
        options=("dim=64", "depth=4", "heads=4", "dropout=0.0"),
        tokenizer="characters",
        length=64,
        settings=Settings(batch=16, lr=4e-3, device="cpu"),
        budget=StepBudget(steps=800),
        match=Match(on="parameters", by="feedforward"),
        evaluations=8,
        rows=192,
    )
