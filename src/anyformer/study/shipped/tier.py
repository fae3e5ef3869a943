"""What the shipped studies of a tier have alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from anyformer.study.nodes import StepBudget
from anyformer.train.settings import Settings

Tier = Literal["cpu", "gpu"]
TIERS: tuple[Tier, ...] = ("cpu", "gpu")
PROSE = ("wikitext-2",)  # of the larger tier; the smaller one reads what ships with Python


HOW = {  # small models: a GPU is fed by one launch a step, and by batches that are made ahead
    "cpu": Settings(device="cpu"),
    "gpu": Settings(precision="bfloat16", graph=True, workers=1),
}


def common(tier: Tier, steps: int, batch: int, lr: float, rows: int = 128) -> dict[str, Any]:
    """Data, settings, budget and seeds of a tier's studies."""
    return {
        "data": PROSE if tier == "gpu" else ("python-docs",),
        "settings": replace(HOW[tier], batch=batch, lr=lr),
        "budget": StepBudget(steps=steps),
        "rows": rows,
        "evaluations": 8,
        "seeds": (0, 1, 2),
    }


def words_of(tier: Tier, kind: str) -> str:
    """The tokenizer of a tier: characters, or so many pieces of a kind."""
    return f"{kind}:8000" if tier == "gpu" else "characters"
