"""Studies: variants of a model, several seeds, one budget, and a verdict on each."""

from anyformer.study.nodes import (
    FlopBudget,
    Match,
    StepBudget,
    Study,
    TimeBudget,
    TokenBudget,
    Variant,
)
from anyformer.study.results import Results

__all__ = [
    "FlopBudget",
    "Match",
    "Results",
    "StepBudget",
    "Study",
    "TimeBudget",
    "TokenBudget",
    "Variant",
]
