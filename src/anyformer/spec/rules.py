"""Every rule between fields, with its reason and its remedy, in one table.

A node checks its own fields; what two nodes may not be together is said here. `check` reports
all problems at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anyformer.errors import SpecError
from anyformer.spec.attention import Attention
from anyformer.spec.model import Model, Patches, Pooler, Stack, Tokens, Vocabulary
from anyformer.spec.parallel import Parallel
from anyformer.spec.position import ALiBi, Buckets, Learned, Relative
from anyformer.spec.residual import Add, ReZero, Scaled
from anyformer.spec.schedule import Explicit, Looped, Sandwich, Superblocks, layout
from anyformer.spec.walk import attentions, crosses, head_dim, models, qk_dim, selves, sublayers


@dataclass(frozen=True)
class Rule:
    """What may not be, why, and what to do: `broken` yields the paths where it happens."""

    name: str
    broken: Callable[[Model], Iterator[str]]
    reason: str
    remedy: str


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


def _uneven_schedule(stack: Stack, _: Model) -> bool:
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


def _bad_sandwich(stack: Stack, _: Model) -> bool:
    if not isinstance(stack.schedule, Sandwich):
        return False
    ends = {sub.kind for sub in stack.block} >= {"attention", "feedforward"}
    return not ends or stack.schedule.coefficient > stack.depth or bool(stack.others)


def _lost_cross(stack: Stack, _: Model) -> bool:
    full = isinstance(stack.schedule, Sandwich) and stack.schedule.coefficient >= stack.depth
    return full and crosses(stack)


def _irreversible(stack: Stack, _: Model) -> bool:
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
    return not plain or carries or stack.layer_dropout > 0


def _carry_mismatch(stack: Stack, model: Model) -> bool:
    for cross in (False, True):
        shapes = {
            (a.heads, a.kv_heads, head_dim(a, model.dim), a.memory, a.scale, a.collaborate)
            for a in (leaf for sub in sublayers(stack) for leaf in sub.leaves)
            if isinstance(a, Attention) and a.carry and a.cross == cross
        }
        if len(shapes) > 1:
            return True
    return False


def _relative_heads(stack: Stack, model: Model) -> bool:
    dim = model.dim
    shapes = {(a.heads, head_dim(a, dim), qk_dim(a, dim)) for a in selves(stack)}
    return bool(stack.relative or stack.untied) and len(shapes) != 1


def _empty_kinds(stack: Stack, model: Model) -> bool:
    kinds = (stack.block, *stack.others)
    if not all(kinds) or any(k >= len(kinds) for k in stack.kinds):
        return True
    sound = len(kinds) > 1 and not (_bad_sandwich(stack, model) or _uneven_schedule(stack, model))
    return sound and any(kind not in layout(stack).blocks for kind in kinds)


def _bad_cross(a: Attention, _model: Model, _stack: Stack) -> bool:
    positional = a.rotary or a.infused or a.relative or a.window
    return a.cross and bool(positional or a.causal)


def _tied_first(a: Attention, _model: Model, stack: Stack) -> bool:
    if a.cross or stack.untied is None or not stack.untied.cls:
        return False
    mixed = bool(stack.relative) and a.talking in ("pre", "both")
    biases = all(isinstance(r, (Buckets, ALiBi)) for r in stack.relative)
    return mixed or bool(a.relative) or not biases


def _other_width(a: Attention, model: Model, stack: Stack) -> bool:
    branches = [leaf for sub in sublayers(stack) for leaf in sub.leaves]
    read = [b.context or model.dim for b in branches if isinstance(b, Attention) and b.cross]
    wanted = read[:1] if model.encoder is None else [model.encoder.dim]
    return a.cross and [a.context or model.dim] != wanted


def _bad_rotary(a: Attention, model: Model, _stack: Stack) -> bool:
    if a.rotary is None:
        return False
    width = qk_dim(a, model.dim)
    dims = a.rotary.dims or width
    return dims % 2 != 0 or dims > width


def _bad_collaborate(a: Attention, model: Model, _stack: Stack) -> bool:
    most = a.heads * head_dim(a, model.dim)
    return a.collaborate is not None and not 1 <= qk_dim(a, model.dim) <= most


def _relatives(spec: Model) -> Iterator[tuple[str, tuple[Relative, ...], list[Attention]]]:
    """Every tuple of relative positions, with its path and the attentions that it serves."""
    for path, model in models(spec):
        yield f"{path}stack.relative", model.stack.relative, selves(model.stack)
    for path, _, _, _, a in attentions(spec):
        yield f"{path}.relative", a.relative, [a]


def of_buckets(
    test: Callable[[Buckets, list[Attention]], bool],
) -> Callable[[Model], Iterator[str]]:
    """The paths of the T5 buckets for which a test holds, given the attentions that they serve."""
    return lambda spec: (
        f"{path}.{i}"
        for path, items, served in _relatives(spec)
        for i, item in enumerate(items)
        if isinstance(item, Buckets) and test(item, served)
    )


def _few_buckets(b: Buckets, _: list[Attention]) -> bool:
    side = b.count // 2 if b.bidirectional else b.count
    return side < 2 or b.max_distance <= side // 2 or (b.bidirectional and b.count % 2 != 0)


def _bad_skip(model: Model) -> bool:
    """A token without a place where none can be, or where its row of the table is missing."""
    place, source = model.embed.position, model.embed.source
    if place is None or place.skip is None:
        return False
    known = isinstance(source, Tokens) and place.skip < source.vocab
    return not known or (isinstance(place, Learned) and place.offset == 0)


def _dressed(encoder: Model) -> bool:
    """Whether an encoder has more than a stack; a pooler stays, as part of a checkpoint."""
    head = encoder.head is not None and not isinstance(encoder.head, Pooler)
    return head or encoder.encoder is not None or crosses(encoder.stack)


def _unlike_tokens(model: Model) -> bool:
    if not model.share_tokens:
        return False
    if model.encoder is None:
        return True
    mine, theirs = model.embed, model.encoder.embed
    widths = (mine.dim or model.dim, theirs.dim or model.encoder.dim)
    alike = mine.source == theirs.source and isinstance(mine.source, Tokens)
    return not alike or widths[0] != widths[1]


def _uneven_parallel(stack: Stack, _: Model) -> bool:
    found = [sub.branch for sub in sublayers(stack) if isinstance(sub.branch, Parallel)]
    return any(not p.branches or len(p.norms) not in (0, len(p.branches)) for p in found)


RULES: tuple[Rule, ...] = (
    Rule(
        "heads divide dim",
        of_attention(lambda a, m, _: a.head_dim is None and m.dim % a.heads != 0),
        "dim is not a multiple of heads, so the size of a head is not given",
        "set head_dim, or choose heads that divide dim",
    ),
    Rule(
        "kv heads divide heads",
        of_attention(lambda a, _m, _s: a.kv_heads is not None and a.heads % a.kv_heads != 0),
        "heads is not a multiple of kv_heads",
        "choose kv_heads that divide heads",
    ),
    Rule(
        "cross without positions",
        of_attention(_bad_cross),
        "cross-attention reads another sequence: causal, window and positions mean nothing there",
        "leave causal, window, rotary, infused and relative unset where cross=True",
    ),
    Rule(
        "context is for cross",
        of_attention(lambda a, _m, _s: a.context is not None and not a.cross),
        "context gives the width of another sequence, but this attention reads its own",
        "set cross=True or drop context",
    ),
    Rule(
        "cross needs an encoder's width",
        of_attention(_other_width),
        "a cross-attention reads another width than the encoder gives, or than one before it reads",
        "set context to the encoder's dim, and to the same width everywhere",
    ),
    Rule(
        "one shape for shared positions",
        of_stack(_relative_heads),
        "stack.relative and stack.untied serve every self-attention, which must be alike and exist",
        "give all self-attentions the same heads and head_dim, or set relative on each attention",
    ),
    Rule(
        "one shape for carried scores",
        of_stack(_carry_mismatch),
        "carried scores need attentions of one shape",
        "give the attentions with carry=True the same heads, head_dim, memory and scale",
    ),
    Rule(
        "kinds exist",
        of_stack(_empty_kinds),
        "a block is empty or never runs, or kinds names a block that is not there",
        "give every block a sublayer and a turn; kinds counts block as 0 and others from 1",
    ),
    Rule(
        "schedule fits depth",
        of_stack(_uneven_schedule),
        "the schedule does not give `depth` applications of blocks numbered from 0 without a gap",
        "set depth to the number of applications (looped: prelude + core·loops + coda)",
    ),
    Rule(
        "sandwich",
        of_stack(_bad_sandwich),
        "a sandwich needs a block with attention and feed-forward and a coefficient up to depth",
        "choose a coefficient between 1 and depth, and no `others`",
    ),
    Rule(
        "sandwich keeps cross-attention",
        of_stack(_lost_cross),
        "with the coefficient at depth no cross-attention would be left",
        "choose a smaller coefficient",
    ),
    Rule(
        "reversible",
        of_stack(_irreversible),
        "a reversible stack needs pre-norm, added residuals, no carried scores, no layer dropout",
        "use place='pre' with Add(skip=1), ReZero or Scaled(on='branch'), or reversible=False",
    ),
    Rule(
        "recurrence looks back",
        of_stack(lambda s, _: s.recurrence > 0 and not all(a.causal for a in selves(s))),
        "memory of earlier segments is for causal stacks",
        "set causal=True on every self-attention, or recurrence=0",
    ),
    Rule(
        "cross has something to read",
        of_stack(lambda s, m: m.encoder is not None and not crosses(s)),
        "the encoder's output would never be read",
        "add a sublayer with Attention(cross=True), or drop the encoder",
    ),
    Rule(
        "plain encoder",
        lambda spec: (f"{p}encoder" for p, m in models(spec) if m.encoder and _dressed(m.encoder)),
        "of an encoder its hidden states are read: a head, an encoder or a cross-attention in it "
        "would do nothing",
        "leave head and encoder unset there, and use no Attention(cross=True)",
    ),
    Rule(
        "tied head",
        lambda spec: (
            f"{p}head"
            for p, m in models(spec)
            if isinstance(m.head, Vocabulary) and not isinstance(m.embed.source, Tokens)
        ),
        "a vocabulary head needs a model that reads tokens",
        "use Classes or Project, or read Tokens",
    ),
    Rule(
        "patches fill the image",
        of_model(
            lambda m: (
                isinstance(m.embed.source, Patches)
                and m.embed.source.image % m.embed.source.patch != 0
            )
        ),
        "the image is not a whole number of patches",
        "choose a patch size that divides the image size",
    ),
    Rule(
        "types are for tokens",
        of_model(lambda m: m.embed.types > 0 and not isinstance(m.embed.source, Tokens)),
        "token types need tokens",
        "set types=0",
    ),
    Rule(
        "skipped token",
        of_model(_bad_skip),
        "position.skip is a token id of the model, and Learned needs a row before the first",
        "read Tokens with that id, and set offset to 1 at least in Learned",
    ),
    Rule(
        "infused everywhere",
        of_attention(lambda a, _m, _s: a.infused is not None and a.infused.skip is not None),
        "positions inside attention know no token ids, so none can go without a place",
        "leave skip unset in infused",
    ),
    Rule(
        "untied scale",
        of_attention(lambda a, _m, s: s.untied is not None and not a.cross and a.scale is not None),
        "untied positions share the scale 1 / sqrt(2 · head_dim) with the words",
        "leave scale unset on self-attentions, or drop stack.untied",
    ),
    Rule(
        "untied first token",
        of_attention(_tied_first),
        "untied.cls can take the shared bias from the first token's scores, no other relative part",
        "keep Buckets or ALiBi in stack.relative without talking='pre', or set untied.cls=False",
    ),
    Rule(
        "rotary width",
        of_attention(_bad_rotary),
        "rotary.dims must be even and at most the size of a head's q and k",
        "set rotary.dims to an even number up to that size",
    ),
    Rule(
        "collaborative heads",
        of_attention(_bad_collaborate),
        "collaborate is the share of heads·head_dim that q and k keep",
        "choose it between 1 / (heads·head_dim) and 1",
    ),
    Rule(
        "one-sided buckets",
        of_buckets(lambda b, served: not b.bidirectional and not all(a.causal for a in served)),
        "Buckets(bidirectional=False) can't tell keys to the right apart",
        "set bidirectional=True, or causal=True",
    ),
    Rule(
        "bucket count",
        of_buckets(_few_buckets),
        "too few buckets, an odd count for two sides, or a max_distance within exact buckets",
        "use an even count of at least 4 (2 one-sided) and max_distance above the exact buckets",
    ),
    Rule(
        "shared tokens",
        lambda spec: (f"{p}share_tokens" for p, m in models(spec) if _unlike_tokens(m)),
        "share_tokens needs an encoder that reads the same vocabulary at the same width",
        "give both models the same Tokens and width, or share_tokens=False",
    ),
    Rule(
        "parallel branches",
        of_stack(_uneven_parallel),
        "a Parallel has no branches, or norms for some of them",
        "give it branches, and a norm for each of them or none",
    ),
)


def problems(spec: Model) -> list[str]:
    """Everything that is wrong with a model description, in words, each with its remedy."""
    return [
        f"{path}: {rule.reason}. {rule.remedy[0].upper()}{rule.remedy[1:]}."
        for rule in RULES
        for path in rule.broken(spec)
    ]


def check(spec: Model) -> Model:
    """Return the spec if every rule holds, else raise with all problems at once."""
    found = problems(spec)
    if found:
        raise SpecError("\n".join(found))
    return spec
