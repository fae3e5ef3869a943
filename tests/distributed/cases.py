"""One small model of each branch of the tree, with its own objective and rows to train on."""

from __future__ import annotations

from typing import Any

import numpy as np

from anyformer import spec as S
from anyformer.objectives.registry import objective
from anyformer.recipes import recipe
from anyformer.train.settings import AdamW, Cosine, Evaluation, Saving, Settings
from tests.objectives.samples import Records, Rows, text_rows, tokenizer

SIZES = {"dim": 16, "depth": 2, "heads": 4, "dropout": 0.0}
WORDS = {"length": 24, **SIZES}
BARE = {"dim": 16, "depth": 2, "heads": 4, "hidden": 24}
LOOPS = {
    **{"dim": 16, "depth": 4, "heads": 4, "length": 24},
    **{"unique": 2, "own_norms": True, "relative": True},
    **{"embed.dropout": 0.0, "stack.block.*.dropout": 0.0, "stack.block.0.branch.dropout": 0.0},
}

AROUND = {**WORDS, "depth": 4, "stack.schedule": S.Shared(unique=2, order="cycle")}
LOOPED = S.Loop(step="learned", inject="concat", halt=S.Act(), keys="first")

# Name -> recipe, its options, objective, its options, tokenizer.
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any], str | None]] = {
    "gpt2": ("gpt2", WORDS, "causal", {"cross": True}, "gpt2"),
    "bert": ("bert", WORDS, "masked", {}, "bert"),
    "t5": ("t5", {**SIZES, "hidden": 32}, "span-corruption", {}, "t5"),
    "vit": ("vit", {**SIZES, "image": 8, "patch": 4}, "image-classification", {}, None),
    "transformer-xl": ("transformer-xl", {**SIZES, "memory": 8}, "causal", {"cross": True}, "gpt2"),
    "segments": (
        "transformer-xl", {**SIZES, "memory": 8, "shared": True}, "segments", {"segments": 2},
        "gpt2",
    ),
    "albert": ("albert", {**WORDS, "width": 8}, "masked", {}, "albert"),
    "recursive-gpt2": ("recursive-gpt2", LOOPS, "causal", {"cross": True}, "gpt2"),
    "looped": ("gpt2", {**AROUND, "stack.loop": LOOPED}, "causal", {"cross": True}, "gpt2"),
    "exits": (
        "gpt2", {**AROUND, "stack.loop": S.Loop(halt=S.Exit())}, "causal", {"cross": True}, "gpt2",
    ),
    "qwen3": ("qwen3", {**BARE, "kv_heads": 2, "head_dim": 8}, "causal", {"cross": True}, "gpt2"),
    "one key head": ("llama", {**BARE, "kv_heads": 1}, "causal", {"cross": True}, "gpt2"),
    "deberta": ("deberta", WORDS, "masked", {}, "bert"),
    "reversible": ("gpt2", {**WORDS, "stack.reversible": True}, "causal", {"cross": True}, "gpt2"),
    "realformer": (
        "bert", {**WORDS, "stack.block.0.branch.carry": True}, "masked", {}, "bert",
    ),
    "electra": ("electra", WORDS, "replaced-token", {}, "bert"),
}  # fmt: skip


def _images(count: int) -> Records:
    draw = np.random.default_rng(0)
    image = lambda: draw.integers(0, 255, (8, 8, 3)).astype(np.uint8)
    return Records([{"image": image(), "label": "ab"[i % 2]} for i in range(count)])


def parts(name: str) -> dict[str, Any]:
    """What `train` is called with, but for folder and settings."""
    family, options, asks, more, words = CASES[name]
    if words is None:
        plan = objective(asks, labels=("a", "b"), **more)
        spec = plan.fit(recipe(family, **options))
        return {"model": spec, "samples": (_images(20), _images(6)), "objective": plan}
    tok = tokenizer(words)
    plan = objective(asks, **more)
    spec = recipe(family, vocab=len(tok), **options)
    fit = getattr(plan, "fit", None)
    spec = spec if fit is None else fit(spec)
    length = plan.bind(tok, spec).length(24)
    rows = text_rows(tok, length, 40).rows
    samples = (Rows(rows[:30], fingerprint="train"), Rows(rows[30:], fingerprint="rest"))
    return {"model": spec, "samples": samples, "objective": plan, "tokenizer": tok}


def settings(**changes: Any) -> Settings:
    """Few steps in two micro-batches per rank of up to four, with averages and evaluation."""
    given: dict[str, Any] = {
        "steps": 4,
        "batch": 8,
        "lr": 3e-3,
        "log_every": 1,
        "clip": 0.5,
        "micro": 1,
        "ema": 0.9,
        "optimiser": AdamW(eps=1e-4),  # a gradient of nothing but rounding moves nothing
        "schedule": Cosine(warmup=1, final=0.5),
        "evaluation": Evaluation(every=3),
        "saving": Saving(every=2, keep=3),
    }
    return Settings(**(given | changes))
