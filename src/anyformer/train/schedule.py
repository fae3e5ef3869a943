"""Learning rates as pure functions of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from anyformer.train.settings import (
    Constant,
    Cosine,
    InverseRoot,
    LinearDecay,
    Schedule,
    Trapezoid,
)


def factor(schedule: Schedule, step: int, steps: int) -> float:
    """What the learning rate is multiplied by at a step counted from 0, of so many steps."""
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    return _after(schedule, step, steps)


def _after(schedule: Schedule, step: int, steps: int) -> float:
    match schedule:
        case Constant():
            return 1.0
        case LinearDecay(final=final):
            return 1.0 - (1.0 - final) * _part(step, schedule.warmup, steps)
        case Cosine(final=final):
            part = _part(step, schedule.warmup, steps)
            return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * part))
        case InverseRoot(warmup=warmup):
            return math.sqrt(warmup / max(step + 1, warmup))
        case Trapezoid(decay=decay, final=final):
            turn = max(schedule.warmup, steps - round(decay * steps))
            return 1.0 - (1.0 - final) * _part(step, turn, steps) if step >= turn else 1.0


def _part(step: int, start: int, stop: int) -> float:
    """How much of the way from start to stop a step has behind it, 0 to 1."""
    return min(max((step - start) / max(stop - start, 1), 0.0), 1.0)
