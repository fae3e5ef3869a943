"""What statistics say of a study, as plain data: comparisons, noise and the anchors' gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anyformer.study.pool import Pool
from anyformer.study.reading import Reading

Verdict = Literal[
    "helps", "hurts", "may help", "may hurt", "no evidence", "inconclusive", "diverged"
]

SURE = 0.01  # under it a corrected p-value says that there is a difference
LEVEL = 0.05  # under it that there may be one; one less the intervals' confidence
GATE = 5  # times the seeds' spread: what anchors must differ by


@dataclass(frozen=True)
class Gap:
    """How far the two anchors lie apart, and whether that is far enough to measure against."""

    anchors: tuple[str, str]
    size: float | None  # second less first; None: no seed has both
    spread: float | None  # the larger of their deviations over seeds
    wide: bool


@dataclass(frozen=True)
class Noise:
    """How much the score moves when nothing changes."""

    mean: float | None  # of the baseline at its best rate
    sd: float | None  # of the baseline over seeds
    seeds: int
    repeats: float | None  # deviation of runs that repeat each other, pooled
    groups: int  # of such runs


@dataclass(frozen=True)
class Comparison:
    """A variant against the baseline, each at its own best learning rate."""

    variant: str
    baseline: str
    lr: float | None
    seeds: tuple[int, ...]  # that both have
    differences: tuple[float, ...]  # variant less baseline, by seed
    mean: float | None = None
    sd: float | None = None
    low: float | None = None  # the 95 % interval of the mean
    high: float | None = None
    p: float | None = None  # two-sided; what the verdict rests on
    corrected: float | None = None  # after Holm
    freedom: int | None = None  # degrees of freedom of the noise that it was held against
    pooled: bool = False  # whether that noise is the pool's; else that of its own differences
    own_low: float | None = None  # the plain paired t-test, which knows no other variant
    own_high: float | None = None
    own_p: float | None = None
    verdict: Verdict = "inconclusive"
    words: str = ""
    edge: bool = False  # its best rate or the baseline's lies at the edge of a grid
    recovered: float | None = None  # share of the gap from the first anchor to the second
    share: tuple[float, float] | None = None  # the 95 % interval of that share
    diverged: tuple[int, ...] = ()  # seeds at the best rate; at any where none ended well

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Judgement:
    """What a study says: a comparison for each variant, and the noise they stand against."""

    comparisons: tuple[Comparison, ...]
    noise: Noise
    best: dict[str, float]  # the learning rate of each variant that has one
    readings: dict[str, Reading]
    gap: Gap | None = None
    pool: Pool | None = None  # the noise of all arms together

    def of(self, variant: str) -> Comparison | None:
        """The comparison of a variant; None for the baseline."""
        return next((c for c in self.comparisons if c.variant == variant), None)
