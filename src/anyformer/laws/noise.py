"""Whether a number that is off is determined at all.

A stack without norms can have gradients of 1e13 of which no digit is right, however they are
computed. Such a difference says nothing of a law. So weights are moved in their last digits: what
moves by as much as a comparison is off was not determined. Where numbers outgrow float64, the law
is asked with small weights.
"""

from __future__ import annotations

import torch

from anyformer import spec as S
from anyformer.laws.broken import BrokenError, NotFiniteError, Pair, measured, noting
from anyformer.laws.cases import calmed, nudged
from anyformer.laws.table import Law

NUDGES = 3


def is_noise(law: Law, spec: S.Model, seed: int, error: BrokenError) -> bool:
    """Whether all that is off in a law's comparisons is within what small changes move."""
    if isinstance(error, NotFiniteError):
        return _holds_calmly(law, spec, seed)
    if error.off is None:  # nothing that was measured
        return False
    try:
        plain = _compared(law, spec, seed, None)
        others = [_compared(law, spec, seed, which) for which in range(NUDGES)]
    except Exception:  # broken in another way than by numbers that are off
        return False
    if any(len(other) != len(plain) for other in others):
        return False
    off = [at for at, pair in enumerate(plain) if not _close(pair)]
    return bool(off) and all(_moves(plain[at], [other[at] for other in others]) for at in off)


def _holds_calmly(law: Law, spec: S.Model, seed: int) -> bool:
    """Whether a law holds of the same spec with small weights."""
    try:
        with torch.random.fork_rng(devices=()), calmed():
            law.check(spec, seed)
    except Exception:
        return False
    return True


def _compared(law: Law, spec: S.Model, seed: int, which: int | None) -> list[Pair]:
    """All that a law compares, after a small change of the weights or none."""
    with torch.random.fork_rng(devices=()), nudged(which), noting() as noted:
        law.check(spec, seed)
    return noted


def _close(pair: Pair) -> bool:
    off, limit = measured(*pair)
    return off <= limit


def _moves(pair: Pair, others: list[Pair]) -> bool:
    """Whether what was wanted moves by at least as much as what was found is off."""
    wanted = [pair[1], *(other[1] for other in others)]
    if any(t.shape != pair[1].shape for t in wanted):
        return False
    low, high = torch.stack(wanted).aminmax(dim=0)
    return measured(*pair)[0] <= (high - low).max().item()
