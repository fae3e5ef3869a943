"""A trained stack as a recursive one, the other way, and with another number of rounds."""

from __future__ import annotations

from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.pairs import Choose
from anyformer.checkpoint.swap import swap
from anyformer.errors import CheckpointError
from anyformer.model.model import Model
from anyformer.spec.schedule import Order, Own


def recursive(
    model: Model,
    unique: int = 1,
    *,
    order: Order = "cycle",
    choose: Choose = "average",
    rank: int | None = None,
    own: tuple[Own, ...] = ("norm",),
) -> Model:
    """The model with `unique` blocks in place of its layers (arXiv:2410.20672).

    A block is the average of its layers, or one of them (stepwise, lower). With a rank each turn
    adds what its layer has beyond the block, truncated by singular values; a rank of the smaller
    side of every weight changes nothing, if norms are `own`.
    """
    biases = any("bias" in name for name, _ in model.stack.blocks.named_parameters())
    stack = replace(
        model.spec.stack,
        schedule=S.Shared(unique=unique, order=order),
        own=own,
        lora=None if rank is None else S.Lora(rank=rank, bias=biases),
        loop=None,
    )
    return swap(model, replace(model.spec, stack=stack), choose=choose)


def untied(model: Model) -> Model:
    """The model with a block for each application, which computes the same."""
    stack, spec = model.spec.stack, model.spec
    plan, kinds = S.layout(stack), (stack.block, *stack.others)
    if stack.loop not in (None, S.Loop()) or isinstance(stack.schedule, S.Sandwich):
        raise CheckpointError(
            "steps, injection, halting and lent keys belong to a loop, and a sandwich to its "
            "order: set stack.loop=None first, which changes the model, or leave it recursive"
        )
    if isinstance(stack.schedule, S.Superblocks) and (stack.schedule.around or stack.schedule.norm):
        raise CheckpointError(
            "what happens where superblocks end belongs to them: a plain stack can't compute it"
        )
    chosen = tuple(kinds.index(plan.blocks[b]) for b in plan.schedule)
    flat = replace(
        stack,
        schedule=S.Plain(),
        own=(),
        lora=None,
        loop=None,
        kinds=chosen if stack.others else (),
    )
    return swap(model, replace(spec, stack=flat))


def with_rounds(model: Model, rounds: int, *, share: bool = True) -> Model:
    """The model with another number of rounds, at test time or before it is trained on.

    Further turns have for themselves what the last one had, and learned steps of zeros; without
    such parts every weight is kept, and shared with the old model by `share`.
    """
    spec = model.spec
    return swap(model, replace(spec, stack=S.with_rounds(spec.stack, rounds)), share=share)
