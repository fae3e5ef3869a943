"""What becomes of a part's weights when its spec changes: one table of steps per kind of part."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.checkpoint.conversions import attention, embed, feedforward, loop
from anyformer.checkpoint.conversions.base import Part, Piece, Step, biases, mean
from anyformer.checkpoint.conversions.norm import norms

__all__ = ["STEPS", "Part", "Piece", "convert", "mean"]

STEPS: dict[type, tuple[Step, ...]] = {
    S.Attention: (
        attention.layout,
        attention.heads,
        attention.memory,
        attention.gate,
    ),
    S.FeedForward: (feedforward.gating, feedforward.hidden),
    tuple: (attention.relatives,),  # of relative parts
    S.Stack: (embed.untied, loop.steps, loop.routes),
    S.Embed: (
        embed.vocabulary,
        embed.positions,
        embed.types,
        embed.languages,
        embed.memory,
    ),
    S.Vocabulary: (embed.untie, embed.logits),
}
ALWAYS: tuple[Step, ...] = (norms, biases)


def convert(part: Part) -> dict[str, Piece]:
    """The tensors of the new part that come from old ones; the others start fresh."""
    same_width = part.models[0].dim == part.models[1].dim
    steps = STEPS.get(type(part.new), ()) if type(part.new) is type(part.old) else ()
    for step in (*steps, *ALWAYS) if same_width else ():
        step(part)
    return {name: part.pieces[name] for name in part.shapes if part.fits(name)}
