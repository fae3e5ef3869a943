"""How a decoder knows where tokens stand, within its training length and beyond it."""

from __future__ import annotations

from anyformer.study.nodes import Match, Study, Variant
from anyformer.study.shipped.tier import Tier, common, words_of

STUDY = "positions"
NONE = "embed.position=none"
ATTENTION = "stack.block.0.branch"


def panels(tier: Tier) -> tuple[Study, ...]:
    """Which positions are best at the training length, and at two and four times that?"""
    small = tier == "cpu"
    length = 32 if small else 128
    sizes = ("dim=64", "depth=3", "heads=4") if small else ("dim=256", "depth=6", "heads=8")
    variants = (
        Variant(name="learned"),
        Variant(name="sinusoidal", words=("embed.position=Sinusoidal()",)),
        Variant(name="rotary", words=(NONE, f"{ATTENTION}.rotary=Rotary()")),
        Variant(name="ALiBi", words=("alibi_pos_bias",)),
        Variant(name="T5's bias", words=("rel_pos_bias",)),
        Variant(name="Shaw", words=(f"relative_key={length}",)),
        Variant(name="Transformer-XL", words=(NONE, f"{ATTENTION}.relative=(XL(),)")),
        Variant(name="none", words=("use_abs_pos_emb=false",)),
    )
    return (
        Study(
            name=f"{STUDY}/decoder",
            title="Positions of a decoder, within the training length and beyond",
            variants=variants,
            base="gpt2",
            options=(*sizes, "dropout=0.0"),
            tokenizer=words_of(tier, "bpe"),
            length=length,
            lengths=(length, 2 * length, 4 * length),
            match=Match(on="parameters", by="feedforward"),
            rates=() if small else (5e-4, 1e-3, 2e-3, 4e-3),
            tune="first",
            **common(tier, 800 if small else 2000, 16 if small else 64, 4e-3 if small else 2e-3),
        ),
    )
