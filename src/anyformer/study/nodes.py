"""A study as data: it can be printed, compared, changed and kept beside what it found."""

from __future__ import annotations

from typing import Literal

from anyformer.errors import StudyError
from anyformer.spec.node import Above, Natural, Positive, Rate, node
from anyformer.train.settings import Settings

Amount = Literal["parameters", "non_embedding", "flops"]


@node
class Match:
    """What a variant has as much of as the baseline, or as another; a size is solved for."""

    on: Amount = "parameters"
    by: Literal["width", "feedforward"] = "width"
    within: Rate = 0.03  # how far off is still a match


@node
class Variant:
    """A model of a study: a recipe with words put on it, each a switch or path=value."""

    name: str
    words: tuple[str, ...] = ()
    base: str | None = None  # another recipe than the study's
    matched: bool = True  # whether the study's match changes its size
    match: Match | None = None  # one of its own, instead of the study's
    against: str | None = None  # the variant that it is matched to; None: the baseline
    spends: str | None = None  # as many steps as cost what training that variant costs
    asks: tuple[str, ...] = ()  # key=value of the objective, for it alone


@node
class StepBudget:
    """So many steps for each run."""

    steps: Positive


@node
class TokenBudget:
    """So many tokens for each run."""

    tokens: Above


@node
class FlopBudget:
    """So many FLOPs of training for each run: what costs more for each token reads fewer."""

    flops: Above


@node
class TimeBudget:
    """So many minutes for the whole study on this machine; all runs have the same steps."""

    minutes: Above


Budget = StepBudget | TokenBudget | FlopBudget | TimeBudget


@node
class Study:
    """Variants under one budget, on the same batches for every seed; the first is the baseline."""

    name: str
    variants: tuple[Variant, ...]
    title: str = ""
    base: str = "gpt2"  # a recipe
    options: tuple[str, ...] = ()  # key=value of the recipe, for every variant
    objective: str | None = None  # None: the recipe's own
    asks: tuple[str, ...] = ()  # key=value of the objective
    data: tuple[str, ...] = ("python-docs",)
    tokenizer: str | None = None
    length: Positive | None = None  # tokens that are read at once
    settings: Settings = Settings()
    budget: Budget = StepBudget(steps=600)
    match: Match | None = None
    seeds: tuple[Natural, ...] = (0, 1, 2)
    rates: tuple[Above, ...] = ()  # a grid of learning rates; (): that of the settings
    # all: every rate with every seed; first: with the first seed, then the best with the others,
    # and the next one too where their mean is worse than that one was with the first
    tune: Literal["all", "first"] = "all"
    evaluations: Positive = 10
    rows: Positive | None = None  # validation rows; None: all
    lengths: tuple[Positive, ...] = ()  # contexts at which trained models are evaluated too
    # settings of the objective, or rounds=N of a recursion, under which they are evaluated too
    retests: tuple[str, ...] = ()
    score: str = "loss"  # what verdicts are about
    lower: bool = True  # whether less of it is better
    twins: bool = False  # allow variants that are the same model: a test of the study itself
    anchors: tuple[str, ...] = ()  # two variants whose gap is the yardstick of the others


def check(study: Study) -> Study:
    """The study, or an error that says what doesn't go together and what would."""
    names = [variant.name for variant in study.variants]
    if len(names) < 2:
        raise StudyError("a study compares at least two variants: name another one")
    for name in names:
        if names.count(name) > 1:
            raise StudyError(
                f"two variants are called {name!r}: leave one out, or give each a name of its own"
            )
    if not study.seeds or len({*study.seeds}) < len(study.seeds):
        raise StudyError(f"seeds={study.seeds}: give different ones, at least one")
    if study.anchors and (len(study.anchors) != 2 or not {*study.anchors} <= {*names}):
        raise StudyError(f"anchors={study.anchors}: name two of {', '.join(names)}")
    if len({*study.rates}) < len(study.rates):
        raise StudyError(f"rates={study.rates}: give different ones")
    for variant in study.variants:
        _check_links(study, variant)
    return study


def _check_links(study: Study, variant: Variant) -> None:
    """That a variant names others which are there, and no circle of them."""
    names = [v.name for v in study.variants]
    for field, named in (("against", variant.against), ("spends", variant.spends)):
        if named is not None and named not in names:
            raise StudyError(f"{variant.name}: {field}={named!r}: name one of {', '.join(names)}")
    if variant.against is not None and match_of(study, variant) is None:
        raise StudyError(
            f"{variant.name} is to be matched to {variant.against}: give it a match, as "
            "match=Match(on='parameters')"
        )
    for field in ("against", "spends"):
        target = target_of if field == "against" else lambda _, v: v.spends
        link = {v.name: target(study, v) for v in study.variants}
        seen, at = [variant.name], link[variant.name]
        while at is not None:
            if at in seen:
                raise StudyError(
                    f"{field} goes in a circle: {' → '.join([*seen, at])}; let one of them be "
                    "without it"
                )
            seen.append(at)
            at = link[at]


def match_of(study: Study, variant: Variant) -> Match | None:
    """What a variant's size is solved for: its own match, else the study's, and none if first."""
    if variant.match is not None:
        return variant.match
    first = variant.name == study.variants[0].name
    return study.match if variant.matched and not first else None


def target_of(study: Study, variant: Variant) -> str | None:
    """The variant that one is matched to; None where its size isn't solved for."""
    if match_of(study, variant) is None:
        return None
    return variant.against or study.variants[0].name


def rates_of(study: Study) -> tuple[float, ...]:
    """The learning rates that are tried, from the least on."""
    return tuple(sorted(study.rates)) or (study.settings.lr,)
