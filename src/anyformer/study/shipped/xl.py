"""What a memory of earlier segments is worth, and which distances let it grow (1901.02860)."""

from __future__ import annotations

from anyformer.study.nodes import Study, Variant
from anyformer.study.shipped.tier import Tier, common, words_of

STUDY = "transformer-xl"
RELATIVE = "stack.block.0.branch.relative"


def panels(tier: Tier) -> tuple[Study, ...]:
    """Does memory help, and which positions stand another memory than in training?"""
    small = tier == "cpu"
    length = 16 if small else 64
    sizes = ("dim=64", "depth=2", "heads=4", "hidden=128") if small else (
        "dim=256", "depth=6", "heads=8", "hidden=1024")  # fmt: skip
    far = 16 * length
    variants = (
        Variant(name="memory"),
        Variant(name="no memory", asks=("memory=0",)),
        Variant(name="one u and v for all layers", words=("shared=true",)),
        Variant(name="learned table", words=(f"table={far}",)),
        Variant(name="Shaw's table", words=(f"{RELATIVE}=(Shaw(clip={far}),)",)),
    )
    memories = (0, length, 2 * length, 4 * length, 8 * length)
    return (
        Study(
            name=f"{STUDY}/memory",
            title="Transformer-XL: memory and positions",
            variants=variants,
            base="transformer-xl",
            options=(*sizes, f"memory={length}", "dropout=0.0"),
            objective="segments",
            asks=("segments=8",),
            tokenizer=words_of(tier, "bpe"),
            length=length,
            retests=tuple(f"eval_memory={n}" for n in memories),
            rates=() if small else (2.5e-4, 5e-4, 1e-3, 2e-3),
            tune="first",
            **common(tier, 400 if small else 1000, 8 if small else 32, 2e-3 if small else 1e-3, 64),
        ),
    )
