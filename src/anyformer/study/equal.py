"""What a variant has equal to the baseline, in words: what a verdict about it is relative to."""

from __future__ import annotations

from collections.abc import Mapping

from anyformer.study.nodes import Match, Study, match_of
from anyformer.study.results import Arm

MARGIN = Match().within


def equal(study: Study, arm: Arm, made: Mapping[str, Arm]) -> str:
    """What an arm has as much of as the baseline, by its numbers, and how many more steps."""
    first = made[study.variants[0].name]
    if arm.name == first.name:
        return ""
    match = match_of(study, next(v for v in study.variants if v.name == arm.name))
    within = max(MARGIN, match.within if match else 0.0)
    amounts = {
        "parameters": (arm.parameters, first.parameters),
        "non-embedding parameters": (arm.non_embedding, first.non_embedding),
        "tokens": (_tokens(arm), _tokens(first)),
        "compute": (arm.flops * _tokens(arm), first.flops * _tokens(first)),
    }
    same = [name for name, (mine, theirs) in amounts.items() if _near(mine, theirs, within)]
    if "parameters" in same and "non-embedding parameters" in same:
        same.remove("non-embedding parameters")
    told = _listed(same) or "data"
    times = arm.steps / first.steps
    return told if _near(times, 1.0, within) else f"{told}, with {times:.3g} times the steps"


def _tokens(arm: Arm) -> int:
    return arm.steps * arm.tokens


def _near(mine: float, theirs: float, within: float) -> bool:
    return abs(mine - theirs) <= within * theirs


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
