"""Loss against size, data and compute: decoders of several sizes, each trained for several lengths.

One panel for each number of tokens, so that every run has a learning rate that falls to its end.
`anyformer.study.scaling` fits power laws over all of them.
"""

from __future__ import annotations

from dataclasses import replace

from anyformer.study.nodes import Study, TokenBudget, Variant
from anyformer.study.shipped.tier import Tier, common, words_of

STUDY = "scaling"
SIZES: dict[Tier, tuple[tuple[int, int], ...]] = {  # width and depth
    "cpu": ((16, 1), (32, 1), (48, 2), (64, 3)),
    "gpu": ((64, 2), (128, 3), (192, 4), (256, 6), (384, 6)),
}
TOKENS: dict[Tier, tuple[float, ...]] = {
    "cpu": (1e5, 2e5, 4e5, 8e5),
    "gpu": (1e6, 2e6, 4e6, 8e6, 1.6e7),
}


def panels(tier: Tier) -> tuple[Study, ...]:
    """How does the loss fall with size, data and compute, and what size is best for a budget?"""
    small = tier == "cpu"
    how = common(tier, 100, 16 if small else 64, 4e-3 if small else 2e-3)
    variants = tuple(
        Variant(name=f"width {dim}, {depth} layer{'s' * (depth > 1)}",
                words=(f"dim={dim}", f"depth={depth}", f"heads={max(dim // 32, 1)}"))
        for dim, depth in SIZES[tier]
    )  # fmt: skip
    study = Study(
        name=STUDY,
        variants=variants,
        base="gpt2",
        options=("dropout=0.0",),
        tokenizer=words_of(tier, "bpe"),
        length=32 if small else 128,
        **how,
    )
    made: list[Study] = []
    for tokens in TOKENS[tier]:
        told = f"{tokens / 1e6:g}M"
        title = f"Sizes of a decoder at {told} tokens"
        budget = TokenBudget(tokens=tokens)
        made.append(replace(study, name=f"{STUDY}/{told}", title=title, budget=budget))
    return tuple(made)
