"""What the shipped studies of a tier have alike."""

from __future__ import annotations

from typing import Any, Literal

from anyformer.study.nodes import StepBudget
from anyformer.train.settings import Settings

Tier = Literal["cpu", "gpu"]
TIERS: tuple[Tier, ...] = ("cpu", "gpu")
PROSE = ("wikitext-2",)  # of the larger tier; the smaller one reads what ships with Python


def common(tier: Tier, steps: int, batch: int, lr: float, rows: int = 128) -> dict[str, Any]:
    """Data, settings, budget and seeds of a tier's studies."""
    precision = "bfloat16" if tier == "gpu" else "float32"
    device = "auto" if tier == "gpu" else "cpu"
    return {
        "data": PROSE if tier == "gpu" else ("python-docs",),
        "settings": Settings(batch=batch, lr=lr, precision=precision, device=device),
        "budget": StepBudget(steps=steps),
        "rows": rows,
        "evaluations": 8,
        "seeds": (0, 1, 2),
    }


def words_of(tier: Tier, kind: str) -> str:
    """The tokenizer of a tier: characters, or so many pieces of a kind."""
    return f"{kind}:8000" if tier == "gpu" else "characters"
