"""A study that is done in seconds: two variants, two seeds, twelve steps of 16 channels."""

import random
from dataclasses import replace
from pathlib import Path

from anyformer.study.nodes import StepBudget, Study, Variant
from anyformer.train.settings import Settings

WORDS = "the cat sat on a mat and then ran to its red house again".split()


def text(folder: Path) -> Path:
    """A file of sentences at random, always the same."""
    rng, file = random.Random(0), folder / "mine.txt"
    lines = (" ".join(rng.choices(WORDS, k=12)) + "." for _ in range(200))
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def study(data: Path, **more) -> Study:
    """The study over a file; whatever is given otherwise."""
    found = Study(
        name="tiny",
        variants=(Variant(name="plain"), Variant(name="rotary", words=("rotary",))),
        options=("dim=16", "depth=1", "heads=2", "dropout=0.0"),
        data=(str(data),),
        tokenizer="characters",
        length=16,
        settings=Settings(batch=4, lr=4e-3, device="cpu"),
        budget=StepBudget(steps=12),
        seeds=(0, 1),
        evaluations=2,
        rows=16,
    )
    return replace(found, **more)
