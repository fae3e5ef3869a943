"""Whether studies can be trusted: of nothing they find nothing, and a known handicap they find.

    python -m benchmarks.studies [--studies 20] [--jobs N] [--out FOLDER]

The null: one model under three names, three seeds a study, every study with seeds of its own. The
power: the same model with a handicap, once in each study. All runs are real ones, of a tiny decoder
on characters of Python's own documentation.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from anyformer.study import Results, StepBudget, Study, Variant
from anyformer.study.run import run
from anyformer.study.stats import judge
from anyformer.train.settings import Settings
from benchmarks.runner import Settings as Shown
from benchmarks.runner import Table

SEEDS = 3  # of each study
HANDICAP = "emb_dim=2"  # letters told apart by 2 numbers


def study_of(studies: int) -> Study:
    """All studies as one: their runs are told apart by seeds."""
    return Study(
        name="null",
        variants=(
            Variant(name="plain"),
            Variant(name="twin"),
            Variant(name="other twin"),
            Variant(name="handicap", words=(HANDICAP,)),
        ),
        options=("dim=32", "depth=2", "heads=2", "dropout=0.0"),
        tokenizer="characters",
        length=32,
        settings=Settings(batch=8, lr=4e-3, device="cpu"),
        budget=StepBudget(steps=400),
        seeds=tuple(range(SEEDS * studies)),
        evaluations=2,
        rows=128,
        twins=True,
    )


def one(found: Results, number: int) -> Results:
    """One of the studies."""
    seeds = tuple(range(SEEDS * number, SEEDS * (number + 1)))
    kept = tuple(o for o in found.outcomes if o.seed in seeds)
    return replace(found, seeds=seeds, outcomes=kept)


def without(found: Results, name: str) -> Results:
    """The results without a variant."""
    arms = tuple(arm for arm in found.arms if arm.name != name)
    return replace(found, arms=arms, outcomes=tuple(o for o in found.outcomes if o.variant != name))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__)
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = run(study_of(given.studies), Path(name) / "study", given.jobs)
    table = Table(f"{given.studies} studies of nothing and of a handicap", list(HEAD))
    null = power = 0
    for number in range(given.studies):
        whole = one(found, number)
        twins = judge(without(whole, "handicap")).comparisons
        marked = next(c for c in judge(whole).comparisons if c.variant == "handicap")
        wrong = [c.variant for c in twins if c.verdict in ("helps", "hurts")]
        null, power = null + bool(wrong), power + (marked.verdict == "hurts")
        told = [f"{c.mean:+.4f} ({c.verdict})" for c in (*twins, marked)]
        table.rows.append([str(number), *told])
    table.rows.append(["found", f"{null} of {given.studies}", "", f"{power} of {given.studies}"])
    table.notes.append(f"three seeds, {study_of(1).budget}; handicap: {HANDICAP}")
    table.show(Shown(out=given.out), "cpu_studies")


HEAD = ("study", "twin", "other twin", "handicap")


if __name__ == "__main__":
    main()
