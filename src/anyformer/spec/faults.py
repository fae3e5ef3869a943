"""What the rules look for: small tests of a stack, an attention or a model, and where to look."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyformer.spec.attention import Attention
from anyformer.spec.model import (
    Adaptive,
    Classes,
    Double,
    Model,
    Pooler,
    Pretraining,
    Span,
    Stack,
    Tokens,
    Vocabulary,
    ends,
)
from anyformer.spec.parallel import Parallel, kind_of
from anyformer.spec.position import ALiBi, Buckets, Learned, Llama3, Yarn
from anyformer.spec.residual import Add, ReZero, Scaled
from anyformer.spec.schedule import Explicit, Looped, Sandwich, Superblocks, layout
from anyformer.spec.walk import (
    attentions,
    crosses,
    head_dim,
    lora_of,
    models,
    qk_dim,
    selves,
    sublayers,
)


def of_attention(
    test: Callable[[Attention, Model, Stack], bool],
) -> Callable[[Model], Iterator[str]]:
    """The paths of the attentions for which a test holds."""
    return lambda spec: (p for p, model, stack, _, a in attentions(spec) if test(a, model, stack))


def of_stack(test: Callable[[Stack, Model], bool]) -> Callable[[Model], Iterator[str]]:
    """The paths of the stacks for which a test holds."""
    return lambda spec: (f"{p}stack" for p, model in models(spec) if test(model.stack, model))


def of_model(test: Callable[[Model], bool]) -> Callable[[Model], Iterator[str]]:
    """The paths of the models for which a test holds."""
    return lambda spec: (f"{p}embed" for p, model in models(spec) if test(model))


def uneven_schedule(stack: Stack, _: Model) -> bool:
    """A schedule that does not fill the depth."""
    schedule = stack.schedule
    if isinstance(schedule, Looped):
        return stack.depth != schedule.prelude + schedule.core * schedule.loops + schedule.coda
    if isinstance(schedule, Superblocks):
        return stack.depth % (schedule.layers * schedule.each * schedule.repeat) != 0
    if isinstance(schedule, Explicit):
        return len(schedule.order) != stack.depth or set(schedule.order) != set(
            range(max(schedule.order, default=-1) + 1)
        )
    return False


def bad_sandwich(stack: Stack, _: Model) -> bool:
    """A sandwich order without both kinds of sublayer, or too many of one at its ends."""
    if not isinstance(stack.schedule, Sandwich):
        return False
    ends = {sub.kind for sub in stack.block} >= {"attention", "feedforward"}
    return not ends or stack.schedule.coefficient > stack.depth or bool(stack.others)


def closes(stack: Stack) -> bool:
    """Whether something happens where superblocks end."""
    schedule = stack.schedule
    return isinstance(schedule, Superblocks) and bool(schedule.around or schedule.norm)


def lost_cross(stack: Stack, _: Model) -> bool:
    """A sandwich order that leaves no room for cross-attention."""
    full = isinstance(stack.schedule, Sandwich) and stack.schedule.coefficient >= stack.depth
    return full and crosses(stack)


def irreversible(stack: Stack, _: Model) -> bool:
    """Reversible residuals over something that can't be run backwards."""
    if not stack.reversible:
        return False
    plain = all(
        sub.place == "pre"
        and isinstance(sub.residual, (Add, ReZero, Scaled))
        and not (isinstance(sub.residual, Add) and sub.residual.skip != 1.0)
        and not (isinstance(sub.residual, Scaled) and sub.residual.on == "skip")
        for sub in sublayers(stack)
    )
    leaves = [leaf for sub in sublayers(stack) for leaf in sub.leaves]
    carries = any(isinstance(leaf, Attention) and leaf.carry for leaf in leaves)
    beside = bool(stack.convolution) or closes(stack)
    return not plain or carries or stack.layer_dropout > 0 or stack.blank or beside


def carry_mismatch(stack: Stack, model: Model) -> bool:
    """Carried scores between attentions of different shapes."""
    for cross in (False, True):
        shapes = {
            (a.heads, a.kv_heads, head_dim(a, model.dim), a.memory, a.collaborate, *scale_of(a))
            for a in (leaf for sub in sublayers(stack) for leaf in sub.leaves)
            if isinstance(a, Attention) and a.carry and a.cross == cross
        }
        if len(shapes) > 1:
            return True
    return False


def scale_of(a: Attention) -> tuple[float | None, int]:
    """What the scale of an attention's scores follows from, the size of its heads aside."""
    return a.scale, score_kinds(a)


def score_kinds(a: Attention) -> int:
    """Kinds of scores that an attention adds, which share a scale."""
    return 1 + (0 if a.disentangled is None else a.disentangled.terms)


def lost_distances(a: Attention, _model: Model, stack: Stack) -> bool:
    """Disentangled attention without distances to read, or that reads none of them."""
    none = a.cross or stack.distances is None or score_kinds(a) == 1
    return a.disentangled is not None and none


def bad_distances(stack: Stack, _: Model) -> bool:
    """Distances that no attention reads, or buckets that can't be exact and then logarithmic."""
    found = stack.distances
    if found is None:
        return False
    count, unread = found.buckets, not any(a.disentangled for a in selves(stack))
    uneven = count is not None and (count < 4 or count % 2 != 0 or found.reach <= count // 2 + 1)
    return unread or uneven


def bad_convolution(stack: Stack, model: Model) -> bool:
    """A convolution without a middle, of uneven groups, or that looks ahead where none may."""
    found = stack.convolution
    if found is None:
        return False
    onward = not selves(stack) or any(a.causal for a in selves(stack))
    return found.kernel % 2 == 0 or model.dim % found.groups != 0 or onward


def bad_enhanced(model: Model) -> bool:
    """A last block that can't be asked by positions, its keys and values made from the stream."""
    head, stack = model.head, model.stack
    if isinstance(head, Pretraining | Double):
        return head.tokens.enhanced is not None
    if not isinstance(head, Vocabulary) or head.enhanced is None or unsound(stack, model):
        return False
    last = layout(stack).blocks[layout(stack).schedule[-1]]
    asked = [sub for sub in last if any(kind_of(leaf) == "attention" for leaf in sub.leaves)]
    plain = all(s.kind == "attention" and (s.norm is None or s.place == "post") for s in asked)
    onward = any(a.causal for a in selves(stack)) or stack.out is not None
    return not asked or not plain or onward or stack.reversible or model.embed.memory > 0


def relative_heads(stack: Stack, model: Model) -> bool:
    """Positions shared by attentions of different shapes."""
    dim = model.dim
    shapes = {(a.heads, head_dim(a, dim), qk_dim(a, dim)) for a in selves(stack)}
    return bool(stack.relative or stack.untied) and len(shapes) != 1


def empty_kinds(stack: Stack, model: Model) -> bool:
    """Kinds of block that are empty, unknown or never used."""
    kinds = (stack.block, *stack.others)
    if not all(kinds) or any(k >= len(kinds) for k in stack.kinds):
        return True
    sound = len(kinds) > 1 and not (bad_sandwich(stack, model) or uneven_schedule(stack, model))
    return sound and any(kind not in layout(stack).blocks for kind in kinds)


def unsound(stack: Stack, model: Model) -> bool:
    """A stack whose blocks can't be laid out; other rules say why."""
    bad = (bad_sandwich, uneven_schedule, empty_kinds)
    return any(fault(stack, model) for fault in bad)


def idle_lora(stack: Stack, model: Model) -> bool:
    """A LoRA without a weight that several applications share and that it names."""
    if stack.lora is None or unsound(stack, model):
        return False
    plan = layout(stack)
    shared = zip(plan.blocks, plan.loras, strict=True)
    subs = [(sub, lora) for block, lora in shared for sub in block]
    return not any(lora_of(lora, stack.own, sub, model.dim) for sub, lora in subs)


def bad_cross(a: Attention, _model: Model, _stack: Stack) -> bool:
    """Cross-attention with what needs one sequence of positions."""
    positional = a.rotary or a.infused or a.relative or a.window
    return a.cross and bool(positional or a.causal)


def tied_first(a: Attention, _model: Model, stack: Stack) -> bool:
    """A first token without a position beside relative parts that give it one."""
    if a.cross or stack.untied is None or not stack.untied.cls:
        return False
    mixed = bool(stack.relative) and a.talking in ("pre", "both")
    biases = all(isinstance(r, (Buckets, ALiBi)) for r in stack.relative)
    return mixed or bool(a.relative or a.disentangled) or not biases


def other_width(a: Attention, model: Model, stack: Stack) -> bool:
    """Cross-attention over another width than the encoder's."""
    branches = [leaf for sub in sublayers(stack) for leaf in sub.leaves]
    read = [b.context or model.dim for b in branches if isinstance(b, Attention) and b.cross]
    given = model.encoder.dim if model.encoder is not None and not model.bridge else model.dim
    wanted = read[:1] if model.encoder is None else [given]
    return a.cross and [a.context or model.dim] != wanted


def bad_rotary(a: Attention, model: Model, _stack: Stack) -> bool:
    """Rotary channels that are odd or too many."""
    if a.rotary is None:
        return False
    width = qk_dim(a, model.dim)
    dims = a.rotary.dims or width
    return dims % 2 != 0 or dims > width


def bad_scaling(a: Attention, _model: Model, _stack: Stack) -> bool:
    """Slower turns whose bounds are the wrong way round, or channels that all turn alike."""
    scaling = a.rotary.scaling if a.rotary is not None else None
    if isinstance(scaling, Llama3):
        return scaling.high <= scaling.low
    alike = a.rotary is not None and a.rotary.theta <= 1
    return isinstance(scaling, Yarn) and (scaling.fast <= scaling.slow or alike)


def bad_collaborate(a: Attention, model: Model, _stack: Stack) -> bool:
    """A share of heads that leaves no channel, or more than there are."""
    most = a.heads * head_dim(a, model.dim)
    return a.collaborate is not None and not 1 <= qk_dim(a, model.dim) <= most


def reads_tokens(model: Model) -> bool:
    """Whether a model reads ids of a vocabulary."""
    return isinstance(model.embed.source, Tokens)


def bad_token(model: Model) -> bool:
    """A class head whose token is missing, tells it nothing or is none of the input's."""
    head = model.head
    if not isinstance(head, Classes) or (head.token is None and head.pool != "marked"):
        return False
    reads = model.encoder if head.pool == "marked" and model.encoder else model
    source = reads.embed.source
    known = isinstance(source, Tokens) and head.token is not None and head.token < source.vocab
    return head.pool in ("first", "mean") or not known


def bad_question(model: Model) -> bool:
    """A head whose token ends a question where no whole row of tokens is seen at once."""
    head = model.head
    if not isinstance(head, Span) or head.token is None:
        return False
    whole = reads_tokens(model) and model.encoder is None and not model.stack.recurrence
    return not whole or any(attention.causal for attention in selves(model.stack))


def bad_optional(a: Attention, model: Model, stack: Stack) -> bool:
    """Optional reading where there is nothing to leave out."""
    alone = [sub.branch for sub in sublayers(stack)]
    read = a.cross and model.encoder is None and any(a is branch for branch in alone)
    return a.optional and (not read or stack.reversible)


def bad_skip(model: Model) -> bool:
    """A token without a place where none can be, or where its row of the table is missing."""
    place, source = model.embed.position, model.embed.source
    if place is None or place.skip is None:
        return False
    known = isinstance(source, Tokens) and place.skip < source.vocab
    return not known or (isinstance(place, Learned) and place.offset == 0)


def dressed(encoder: Model) -> bool:
    """Whether an encoder has more than a stack; a pooler stays, as part of a checkpoint."""
    head = encoder.head is not None and not isinstance(encoder.head, Pooler)
    narrow = encoder.stack.out is not None
    return head or narrow or encoder.encoder is not None or crosses(encoder.stack)


def rising(cutoffs: tuple[int, ...], vocab: int) -> bool:
    """Whether cutoffs part a vocabulary into bands of one id at least."""
    return all(low < end for low, end in ends(cutoffs, vocab))


def bad_bands(model: Model) -> bool:
    """Token tables of several widths that can't be."""
    source, width = model.embed.source, model.embed.dim or model.dim
    if not isinstance(source, Tokens):
        return False
    several = bool(source.cutoffs)
    narrow = width // source.shrink ** len(source.cutoffs) < 1
    return not rising(source.cutoffs, source.vocab) or several != (source.shrink > 1) or narrow


def bad_adaptive(model: Model) -> bool:
    """A head that can't use the token tables as they are parted."""
    head, source = model.head, model.embed.source
    if isinstance(head, Adaptive):
        if not isinstance(source, Tokens) or not rising(head.cutoffs, source.vocab):
            return True
        return source.cutoffs not in ((), head.cutoffs) or model.stack.out is not None
    tokens = head.tokens if isinstance(head, Pretraining | Double) else head
    tied = isinstance(tokens, Vocabulary) and tokens.tied
    return tied and isinstance(source, Tokens) and bool(source.cutoffs)


def unlike_tokens(model: Model) -> bool:
    """A shared token table between unlike vocabularies or widths."""
    if not model.share_tokens:
        return False
    if model.encoder is None:
        return True
    mine, theirs = model.embed, model.encoder.embed
    widths = (mine.dim or model.dim, theirs.dim or model.encoder.dim)
    alike = isinstance(mine.source, Tokens) and not mine.source.cutoffs
    alike = alike and mine.source == theirs.source
    return not alike or widths[0] != widths[1]


def uneven_parallel(stack: Stack, _: Model) -> bool:
    """Parallel branches without branches, or with another number of norms."""
    found = [sub.branch for sub in sublayers(stack) if isinstance(sub.branch, Parallel)]
    return any(not p.branches or len(p.norms) not in (0, len(p.branches)) for p in found)
