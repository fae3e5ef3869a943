"""Every rule between fields, with its reason and its remedy, in one table.

A node checks its own fields; what two nodes may not be together is said here. `check` reports
all problems at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anyformer.errors import SpecError
from anyformer.spec.faults import (
    bad_collaborate,
    bad_cross,
    bad_rotary,
    bad_sandwich,
    bad_skip,
    carry_mismatch,
    dressed,
    empty_kinds,
    few_buckets,
    irreversible,
    lost_cross,
    of_attention,
    of_buckets,
    of_model,
    of_stack,
    other_width,
    relative_heads,
    tied_first,
    uneven_parallel,
    uneven_schedule,
    unlike_tokens,
)
from anyformer.spec.model import Model, Patches, Tokens, Vocabulary
from anyformer.spec.walk import crosses, models, selves


@dataclass(frozen=True)
class Rule:
    """What may not be, why, and what to do: `broken` yields the paths where it happens."""

    name: str
    broken: Callable[[Model], Iterator[str]]
    reason: str
    remedy: str


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
        of_attention(bad_cross),
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
        of_attention(other_width),
        "a cross-attention reads another width than the encoder gives, or than one before it reads",
        "set context to the encoder's dim, and to the same width everywhere",
    ),
    Rule(
        "one shape for shared positions",
        of_stack(relative_heads),
        "stack.relative and stack.untied serve every self-attention, which must be alike and exist",
        "give all self-attentions the same heads and head_dim, or set relative on each attention",
    ),
    Rule(
        "one shape for carried scores",
        of_stack(carry_mismatch),
        "carried scores need attentions of one shape",
        "give the attentions with carry=True the same heads, head_dim, memory and scale",
    ),
    Rule(
        "kinds exist",
        of_stack(empty_kinds),
        "a block is empty or never runs, or kinds names a block that is not there",
        "give every block a sublayer and a turn; kinds counts block as 0 and others from 1",
    ),
    Rule(
        "schedule fits depth",
        of_stack(uneven_schedule),
        "the schedule does not give `depth` applications of blocks numbered from 0 without a gap",
        "set depth to the number of applications (looped: prelude + core·loops + coda)",
    ),
    Rule(
        "sandwich",
        of_stack(bad_sandwich),
        "a sandwich needs a block with attention and feed-forward and a coefficient up to depth",
        "choose a coefficient between 1 and depth, and no `others`",
    ),
    Rule(
        "sandwich keeps cross-attention",
        of_stack(lost_cross),
        "with the coefficient at depth no cross-attention would be left",
        "choose a smaller coefficient",
    ),
    Rule(
        "reversible",
        of_stack(irreversible),
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
        lambda spec: (f"{p}encoder" for p, m in models(spec) if m.encoder and dressed(m.encoder)),
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
        of_model(bad_skip),
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
        of_attention(tied_first),
        "untied.cls can take the shared bias from the first token's scores, no other relative part",
        "keep Buckets or ALiBi in stack.relative without talking='pre', or set untied.cls=False",
    ),
    Rule(
        "rotary width",
        of_attention(bad_rotary),
        "rotary.dims must be even and at most the size of a head's q and k",
        "set rotary.dims to an even number up to that size",
    ),
    Rule(
        "collaborative heads",
        of_attention(bad_collaborate),
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
        of_buckets(few_buckets),
        "too few buckets, an odd count for two sides, or a max_distance within exact buckets",
        "use an even count of at least 4 (2 one-sided) and max_distance above the exact buckets",
    ),
    Rule(
        "shared tokens",
        lambda spec: (f"{p}share_tokens" for p, m in models(spec) if unlike_tokens(m)),
        "share_tokens needs an encoder that reads the same vocabulary at the same width",
        "give both models the same Tokens and width, or share_tokens=False",
    ),
    Rule(
        "parallel branches",
        of_stack(uneven_parallel),
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
