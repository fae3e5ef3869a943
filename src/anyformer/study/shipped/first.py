"""The study of `anyformer compare` where nothing is asked for."""

from __future__ import annotations

from anyformer.study.nodes import Match, StepBudget, Study, Variant
from anyformer.train.settings import Settings


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
        settings=Settings(batch=16, lr=3e-3, device="cpu"),
        budget=StepBudget(steps=500),
        match=Match(on="parameters", by="feedforward"),
        evaluations=8,
        rows=192,
    )
