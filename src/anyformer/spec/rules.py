"""Every rule between fields, with its reason and its remedy, in one table.

A node checks its own fields; what two nodes may not be together is said here. `check` reports
all problems at once.
"""

from __future__ import annotations

from anyformer.errors import SpecError
from anyformer.spec.faults import (
    bad_adaptive,
    bad_bands,
    bad_collaborate,
    bad_convolution,
    bad_cross,
    bad_distances,
    bad_enhanced,
    bad_optional,
    bad_question,
    bad_rotary,
    bad_sandwich,
    bad_scaling,
    bad_skip,
    bad_token,
    carry_mismatch,
    dressed,
    empty_kinds,
    idle_lora,
    irreversible,
    lost_cross,
    lost_distances,
    of_attention,
    of_model,
    of_stack,
    other_width,
    reads_tokens,
    relative_heads,
    tied_first,
    uneven_parallel,
    uneven_schedule,
    unlike_tokens,
)
from anyformer.spec.faults_position import few_buckets, lonely_biases, of_buckets, one_sided
from anyformer.spec.loop_rules import LOOP_RULES
from anyformer.spec.model import Double, Model, Patches, Pixels, Pretraining, Vocabulary
from anyformer.spec.rule import Rule
from anyformer.spec.walk import crosses, looks_back, models, sublayers

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
        "blocks look both ways",
        of_attention(lambda a, _m, _s: a.blocks is not None and (a.causal or a.cross)),
        "block-sparse attention lays its blocks over one row, and those of its end see all of it",
        "set causal=False and cross=False, or blocks=None (a window stays causal)",
    ),
    Rule(
        "context is for cross",
        of_attention(lambda a, _m, _s: a.context is not None and not a.cross),
        "context gives the width of another sequence, but this attention reads its own",
        "set cross=True or drop context",
    ),
    Rule(
        "optional is for cross",
        of_attention(bad_optional),
        "only a cross-attention that is a sublayer's whole branch, in a model without encoder and "
        "a stack that isn't reversible, can be left out",
        "set optional=False there",
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
        "own parts",
        of_stack(lambda s, _: bool(s.own) and any(b.kind == "parallel" for b in sublayers(s))),
        "parts of a Parallel go together: no application can have some of them for itself",
        "set own=(), or give each branch a sublayer",
    ),
    Rule(
        "lora adapts something",
        of_stack(idle_lora),
        "lora adds to weights that several applications share, and it names none of these here",
        "share blocks by schedule=Shared(unique=…), name their weights in lora.on, leave their "
        "branches out of own, or set lora=None",
    ),
    Rule(
        "reversible",
        of_stack(irreversible),
        "a reversible stack needs pre-norm, added residuals, no carried scores, no layer dropout "
        "blank padding or convolution",
        "use place='pre' with Add(skip=1), ReZero or Scaled(on='branch'), or reversible=False",
    ),
    Rule(
        "recurrence looks back",
        of_stack(lambda s, _: s.recurrence > 0 and not looks_back(s)),
        "memory of earlier segments is for causal stacks",
        "set causal=True on every self-attention, or recurrence=0",
    ),
    Rule(
        "primed memory",
        of_stack(lambda s, m: s.primed and (s.recurrence == 0 or m.embed.memory > 0)),
        "primed fills the memory of earlier segments, which must be there and come first",
        "set recurrence above 0 and embed.memory=0, or primed=False",
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
        "would do nothing, and stack.out would change their width",
        "leave head, encoder and stack.out unset there, and use no Attention(cross=True)",
    ),
    Rule(
        "bridge needs an encoder",
        lambda spec: (f"{p}bridge" for p, m in models(spec) if m.bridge and m.encoder is None),
        "bridge maps an encoder's output, and there is none",
        "set bridge=False, or give the model an encoder",
    ),
    Rule(
        "tied head",
        lambda spec: (
            f"{p}head"
            for p, m in models(spec)
            if isinstance(m.head, Vocabulary | Pretraining | Double) and not reads_tokens(m)
        ),
        "a vocabulary head needs a model that reads tokens",
        "use Classes or Project, or read Tokens",
    ),
    Rule(
        "pooled token",
        lambda spec: (f"{p}head.token" for p, m in models(spec) if bad_token(m)),
        "pool='marked' needs the id of a token in the input, pool='last' may have one; others none",
        "set token to an id of the vocabulary that is read, or leave it unset",
    ),
    Rule(
        "question before the answer",
        lambda spec: (f"{p}head.token" for p, m in models(spec) if bad_question(m)),
        "where a question ends is looked for in a whole row of tokens that all see each other",
        "leave token unset; or read Tokens, without an encoder, a memory or causal attention",
    ),
    Rule(
        "bands of tokens",
        of_model(bad_bands),
        "cutoffs rise within the vocabulary and go with shrink above 1, up to a width of 1",
        "set both or neither, fewer cutoffs or a smaller shrink",
    ),
    Rule(
        "adaptive head",
        lambda spec: (f"{p}head" for p, m in models(spec) if bad_adaptive(m)),
        "a head that uses token tables takes them as they are parted: Adaptive with the cutoffs "
        "of Tokens where these have any, no stack.out, Vocabulary(tied=True) where they have none",
        "use Adaptive with the same cutoffs, Tokens and stack.out=None, or Vocabulary(tied=False)",
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
        "pixels are of patches",
        lambda spec: (
            f"{p}head"
            for p, m in models(spec)
            if isinstance(m.head, Pixels) and not isinstance(m.embed.source, Patches)
        ),
        "Pixels restores the image that the model reads in patches",
        "read Patches, or use another head",
    ),
    Rule(
        "types are for tokens",
        of_model(lambda m: m.embed.types + m.embed.langs > 0 and not reads_tokens(m)),
        "token types and languages need tokens",
        "set types=0 and langs=0",
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
        "disentangled reads distances",
        of_attention(lost_distances),
        "disentangled attention needs the stack's distances, and c2p or p2c to read them by",
        "set stack.distances and one of c2p and p2c, or leave disentangled unset (as in cross)",
    ),
    Rule(
        "distances are read",
        of_stack(bad_distances),
        "stack.distances needs a disentangled attention and an even number of buckets, at least 4, "
        "half of them below reach - 1",
        "set disentangled on an attention, fewer buckets or none, or drop stack.distances",
    ),
    Rule(
        "convolution",
        of_stack(bad_convolution),
        "a convolution sees as many positions to both sides, in groups that divide dim",
        "choose an odd kernel, groups that divide dim, and self-attention that isn't causal",
    ),
    Rule(
        "enhanced mask decoder",
        of_model(bad_enhanced),
        "head.enhanced asks the last block by positions: it needs self-attention that reads the "
        "stream as it is, in both directions, and no memory tokens",
        "use place='post' in the last block, no Parallel, causal, reversible, embed.memory or "
        "Pretraining or Double, or leave enhanced unset",
    ),
    Rule(
        "rotary width",
        of_attention(bad_rotary),
        "rotary.dims must be even and at most the size of a head's q and k",
        "set rotary.dims to an even number up to that size",
    ),
    Rule(
        "rotary scaling",
        of_attention(bad_scaling),
        "slow turns are those below the fast ones, and a ramp needs channels that turn unlike",
        "choose low < high or slow < fast, and theta above 1",
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
        "one-sided table",
        one_sided,
        "XLTable(ahead=0) can't tell keys to the right apart",
        "set ahead to 1 at least, or causal=True",
    ),
    Rule(
        "shared biases",
        of_stack(lonely_biases),
        "XLBiases lends u and v, once and from stack.relative, to an XL(biases=False) in every "
        "self-attention",
        "set biases=True and drop XLBiases, or give each self-attention an XL(biases=False) and "
        "stack.relative one XLBiases",
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
    *LOOP_RULES,
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
