"""Every rule: a model that breaks it and nothing else, and the remedy that heals it."""

import pytest

from anyformer.errors import SpecError
from anyformer.recipes import recipe
from anyformer.spec import (
    XL,
    Adaptive,
    Add,
    Attention,
    BlockSparse,
    Buckets,
    Classes,
    Convolution,
    Disentangled,
    Distances,
    Double,
    Explicit,
    FeedForward,
    LayerNorm,
    Learned,
    Llama3,
    Looped,
    Lora,
    Parallel,
    Patches,
    Pixels,
    Pretraining,
    Rotary,
    Sandwich,
    Shared,
    Sinusoidal,
    Span,
    Sublayer,
    Superblocks,
    Tokens,
    Untied,
    Vocabulary,
    XLBiases,
    XLTable,
    Yarn,
    check,
    override,
    problems,
)
from anyformer.spec.rules import RULES
from anyformer.spec.walk import head_dim, qk_dim
from tests.spec.loop_cases import LOOP_CASES, LOOP_MORE, SOUND

SIZES = {"dim": 16, "depth": 2, "heads": 2, "vocab": 11, "length": 8}
ENCODER, DECODER = recipe("encoder", **SIZES), recipe("decoder", **SIZES)
BOTH = recipe("encoder-decoder", **SIZES)
SELF = "stack.block.0.branch"
CROSS = "stack.block.1.branch"
CARRY = tuple(Sublayer(branch=Attention(heads=h, carry=True)) for h in (2, 4))
ALIKE = CARRY[:1] * 2
PLAIN = override(ENCODER, "head", None)
CROSSED = (Sublayer(branch=Attention(heads=2, cross=True)),)
COLLABORATIVE = (Sublayer(branch=Attention(heads=2, collaborate=1.0)),)

# rule -> (sound model, changes that break it, changes that heal it)
CASES = {
    "heads divide dim": (ENCODER, {f"{SELF}.heads": 3}, {f"{SELF}.head_dim": 4}),
    "kv heads divide heads": (ENCODER, {f"{SELF}.kv_heads": 3}, {f"{SELF}.kv_heads": 1}),
    "cross without positions": (BOTH, {f"{CROSS}.causal": True}, {f"{CROSS}.causal": False}),
    "blocks look both ways": (
        DECODER,
        {f"{SELF}.blocks": BlockSparse()},
        {f"{SELF}.causal": False},
    ),
    "context is for cross": (ENCODER, {f"{SELF}.context": 16}, {f"{SELF}.context": None}),
    "optional is for cross": (ENCODER, {f"{SELF}.optional": True}, {f"{SELF}.optional": False}),
    "cross needs an encoder's width": (
        BOTH,
        {"share_tokens": False, "encoder.dim": 32},
        {f"{CROSS}.context": 32},
    ),
    "one shape for shared positions": (
        ENCODER,
        {"stack.relative": (Buckets(),), "stack.others": (CARRY[1:],)},
        {"stack.others.0.0.branch.heads": 2},
    ),
    "one shape for carried scores": (ENCODER, {"stack.block": CARRY}, {"stack.block": ALIKE}),
    "kinds exist": (ENCODER, {"stack.kinds": (0, 1)}, {"stack.kinds": (0,)}),
    "schedule fits depth": (
        ENCODER,
        {"stack.schedule": Looped(prelude=1, core=1, coda=1, loops=2)},
        {"stack.depth": 4},
    ),
    "sandwich": (
        ENCODER,
        {"stack.schedule": Sandwich(coefficient=3)},
        {"stack.schedule": Sandwich(coefficient=2)},
    ),
    "sandwich keeps cross-attention": (
        BOTH,
        {"stack.schedule": Sandwich(coefficient=2)},
        {"stack.schedule": Sandwich(coefficient=1)},
    ),
    "own parts": (
        ENCODER,
        {
            "stack.own": ("norm",),
            "stack.block": (Sublayer(branch=Parallel(branches=(Attention(heads=2),))),),
        },
        {"stack.own": ()},
    ),
    "lora adapts something": (
        ENCODER,
        {"stack.lora": Lora()},
        {"stack.schedule": Shared(unique=1)},
    ),
    "reversible": (
        ENCODER,
        {"stack.reversible": True, "stack.block.0.place": "post"},
        {"stack.block.0.place": "pre"},
    ),
    "recurrence looks back": (ENCODER, {"stack.recurrence": 4}, {f"{SELF}.causal": True}),
    "primed memory": (DECODER, {"stack.primed": True}, {"stack.recurrence": 4}),
    "cross has something to read": (
        BOTH,
        {"stack.block": DECODER.stack.block},
        {"encoder": None, "share_tokens": False},
    ),
    "plain encoder": (BOTH, {"encoder.head": Classes(count=3)}, {"encoder.head": None}),
    "bridge needs an encoder": (ENCODER, {"bridge": True}, {"bridge": False}),
    "tied head": (
        ENCODER,
        {"embed.source": Patches(image=4, patch=2)},
        {"head": Classes(count=3)},
    ),
    "pooled token": (
        ENCODER,
        {"head": Classes(count=3, pool="marked")},
        {"head": Classes(count=3, pool="marked", token=1)},
    ),
    "question before the answer": (
        ENCODER,
        {"head": Span(token=3), f"{SELF}.causal": True},
        {f"{SELF}.causal": False},
    ),
    "bands of tokens": (
        ENCODER,
        {"head": None, "embed.source": Tokens(vocab=11, cutoffs=(4, 3), shrink=2)},
        {"embed.source": Tokens(vocab=11, cutoffs=(3, 4), shrink=2)},
    ),
    "adaptive head": (
        ENCODER,
        {"embed.source": Tokens(vocab=11, cutoffs=(3,), shrink=2)},
        {"head": Adaptive(cutoffs=(3,))},
    ),
    "patches fill the image": (
        ENCODER,
        {"head": None, "embed.source": Patches(image=5, patch=2)},
        {"embed.source.image": 4},
    ),
    "pixels are of patches": (
        ENCODER,
        {"head": Pixels()},
        {"embed.source": Patches(image=4, patch=2)},
    ),
    "types are for tokens": (
        ENCODER,
        {"head": None, "embed.source": Patches(image=4, patch=2), "embed.types": 2},
        {"embed.types": 0},
    ),
    "skipped token": (
        ENCODER,
        {"embed.position": Learned(length=8, skip=1)},
        {"embed.position": Learned(length=8, skip=1, offset=1)},
    ),
    "infused everywhere": (
        ENCODER,
        {f"{SELF}.infused": Sinusoidal(skip=1)},
        {f"{SELF}.infused": Sinusoidal()},
    ),
    "untied scale": (
        ENCODER,
        {"stack.untied": Untied(length=8), f"{SELF}.scale": 1.0},
        {f"{SELF}.scale": None},
    ),
    "untied first token": (
        ENCODER,
        {
            "stack.untied": Untied(length=8, cls=True),
            "stack.relative": (Buckets(),),
            f"{SELF}.talking": "pre",
        },
        {f"{SELF}.talking": "post"},
    ),
    "disentangled reads distances": (
        ENCODER,
        {f"{SELF}.disentangled": Disentangled()},
        {"stack.distances": Distances(reach=8)},
    ),
    "distances are read": (
        ENCODER,
        {"stack.distances": Distances(reach=8, buckets=7), f"{SELF}.disentangled": Disentangled()},
        {"stack.distances.buckets": 8},
    ),
    "convolution": (
        ENCODER,
        {"stack.convolution": Convolution(kernel=2)},
        {"stack.convolution.kernel": 3},
    ),
    "enhanced mask decoder": (
        override(ENCODER, "stack.block.*.place", "post"),
        {"head.enhanced": 8, "stack.block.0.place": "pre"},
        {"stack.block.0.place": "post"},
    ),
    "rotary width": (ENCODER, {f"{SELF}.rotary": Rotary(dims=10)}, {f"{SELF}.rotary.dims": 8}),
    "rotary scaling": (
        ENCODER,
        {f"{SELF}.rotary": Rotary(scaling=Llama3(low=4.0))},
        {f"{SELF}.rotary.scaling.high": 8.0},
    ),
    "collaborative heads": (ENCODER, {f"{SELF}.collaborate": 2.0}, {f"{SELF}.collaborate": 0.5}),
    "one-sided buckets": (
        ENCODER,
        {"stack.relative": (Buckets(bidirectional=False),)},
        {"stack.relative.0.bidirectional": True},
    ),
    "bucket count": (
        ENCODER,
        {"stack.relative": (Buckets(count=7),)},
        {"stack.relative.0.count": 8},
    ),
    "one-sided table": (
        ENCODER,
        {"stack.relative": (XLTable(back=4),)},
        {"stack.relative.0.ahead": 4},
    ),
    "shared biases": (
        DECODER,
        {f"{SELF}.relative": (XL(biases=False),)},
        {"stack.relative": (XLBiases(),)},
    ),
    "shared tokens": (
        BOTH,
        {"encoder.embed.source": Tokens(vocab=12)},
        {"embed.source": Tokens(vocab=12)},
    ),
    "parallel branches": (
        ENCODER,
        {SELF: Parallel(branches=(Attention(heads=2), FeedForward()), norms=(LayerNorm(),))},
        {f"{SELF}.norms": ()},
    ),
    **LOOP_CASES,
}

# more ways to break a rule: rule -> (model, changes)
MORE = [
    *LOOP_MORE,
    ("shared biases", DECODER, {"stack.relative": (XLBiases(),)}),
    ("shared biases", DECODER, {"stack.relative": (XL(biases=False),)}),
    ("shared biases", DECODER, {f"{SELF}.relative": (XLBiases(),)}),
    (
        "shared biases",
        DECODER,
        {f"{SELF}.relative": (XL(biases=False),), "stack.relative": (XLBiases(), XLBiases())},
    ),
    ("one-sided table", ENCODER, {f"{SELF}.relative": (XLTable(back=4),)}),
    ("sandwich", ENCODER, {"stack.schedule": Sandwich(), "stack.block": ENCODER.stack.block[:1]}),
    ("schedule fits depth", ENCODER, {"stack.schedule": Superblocks(layers=2, each=2)}),
    ("schedule fits depth", ENCODER, {"stack.schedule": Explicit(order=(0, 2))}),
    ("schedule fits depth", ENCODER, {"stack.schedule": Explicit(order=())}),
    ("reversible", ENCODER, {"stack.reversible": True, "stack.layer_dropout": 0.1}),
    ("optional is for cross", BOTH, {f"{CROSS}.optional": True}),
    ("pooled token", ENCODER, {"head": Classes(count=3, token=1)}),
    ("pooled token", ENCODER, {"head": Classes(count=3, pool="last", token=1000)}),
    (
        "pooled token",
        ENCODER,
        {
            "embed.source": Patches(image=4, patch=2),
            "head": Classes(count=3, pool="last", token=1),
        },
    ),
    ("reversible", ENCODER, {"stack.reversible": True, "stack.blank": True}),
    (
        "types are for tokens",
        ENCODER,
        {"head": None, "embed.source": Patches(image=4, patch=2), "embed.langs": 2},
    ),
    ("tied head", ENCODER, {"embed.source": Patches(image=4, patch=2), "head": Pretraining()}),
    ("tied head", ENCODER, {"embed.source": Patches(image=4, patch=2), "head": Double()}),
    ("enhanced mask decoder", ENCODER, {"head": Double(tokens=Vocabulary(enhanced=8))}),
    ("bands of tokens", PLAIN, {"embed.source": Tokens(vocab=11, cutoffs=(3,))}),
    ("bands of tokens", PLAIN, {"embed.source": Tokens(vocab=11, shrink=2)}),
    ("bands of tokens", PLAIN, {"embed.source": Tokens(vocab=11, cutoffs=(3,), shrink=17)}),
    ("adaptive head", ENCODER, {"head": Adaptive(cutoffs=(11,))}),
    ("adaptive head", ENCODER, {"head": Adaptive(), "stack.out": 5}),
    ("adaptive head", PLAIN, {"head": Adaptive(), "embed.source": Patches(image=4, patch=2)}),
    ("primed memory", DECODER, {"stack.primed": True, "stack.recurrence": 2, "embed.memory": 1}),
    (
        "reversible",
        ENCODER,
        {"stack.reversible": True, "stack.schedule": Superblocks(around=True)},
    ),
    ("reversible", ENCODER, {"stack.reversible": True, f"{SELF}.carry": True}),
    ("reversible", ENCODER, {"stack.reversible": True, "stack.block.0.residual": Add(skip=2.0)}),
    ("rotary width", ENCODER, {f"{SELF}.rotary": Rotary(dims=3)}),
    ("rotary scaling", ENCODER, {f"{SELF}.rotary": Rotary(scaling=Yarn(factor=2.0, fast=0.5))}),
    ("rotary scaling", ENCODER, {f"{SELF}.rotary": Rotary(theta=1.0, scaling=Yarn(factor=2.0))}),
    (
        "untied first token",
        ENCODER,
        {"stack.untied": Untied(length=8, cls=True), f"{SELF}.relative": (Buckets(),)},
    ),
    ("kinds exist", ENCODER, {"stack.others": ((),)}),
    ("kinds exist", ENCODER, {"stack.others": (ALIKE,), "stack.depth": 1}),
    ("kinds exist", ENCODER, {"stack.others": (ALIKE,), "stack.kinds": (1,)}),
    (
        "cross needs an encoder's width",
        DECODER,
        {"stack.block": (*CROSSED, override(CROSSED[0], "branch.context", 5))},
    ),
    ("plain encoder", BOTH, {"encoder.stack.block": CROSSED}),
    ("plain encoder", BOTH, {"encoder.stack.out": 8}),
    (
        "one shape for shared positions",
        ENCODER,
        {"stack.relative": (Buckets(),), "stack.others": (COLLABORATIVE,)},
    ),
    ("bucket count", ENCODER, {"stack.relative": (Buckets(max_distance=8),)}),
    ("bucket count", DECODER, {f"{SELF}.relative": (Buckets(bidirectional=False, count=1),)}),
    (
        "one shape for shared positions",
        ENCODER,
        {"stack.relative": (Buckets(),), SELF: FeedForward()},
    ),
    ("shared tokens", ENCODER, {"share_tokens": True}),
    (
        "lora adapts something",
        override(ENCODER, "stack.schedule", Shared(unique=1)),
        {"stack.lora": Lora(on=("q",)), "stack.own": ("attention",)},
    ),
    (
        "lora adapts something",
        override(ENCODER, "stack.schedule", Shared(unique=1)),
        {"stack.lora": Lora(on=("gate",))},
    ),
    ("plain encoder", BOTH, {"encoder.encoder": PLAIN, "encoder.stack.block": CROSSED}),
]


def changed(spec, changes):
    for path, value in changes.items():
        spec = override(spec, path, value)
    return spec


def broken(spec):
    return [rule.name for rule in RULES if list(rule.broken(spec))]


def test_the_table_covers_all_rules():
    assert list(CASES) == [rule.name for rule in RULES]


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_broken_alone_and_its_remedy_heals(name):
    spec, wrong, remedy = CASES[name]
    assert broken(spec) == []
    assert broken(changed(spec, wrong)) == [name]
    assert broken(changed(changed(spec, wrong), remedy)) == []


@pytest.mark.parametrize(("name", "spec", "wrong"), MORE)
def test_more_ways_to_break_a_rule(name, spec, wrong):
    assert broken(changed(spec, wrong)) == [name]


def test_problems_name_the_place_and_the_remedy():
    wrong = changed(BOTH, {"encoder.stack.block.0.branch.kv_heads": 3})
    assert problems(wrong) == [
        "encoder.stack.block.0.branch: heads is not a multiple of kv_heads. "
        "Choose kv_heads that divide heads."
    ]


def test_check_returns_a_sound_spec_and_raises_all_problems_at_once():
    assert check(ENCODER) is ENCODER
    with pytest.raises(SpecError) as caught:
        check(changed(ENCODER, {f"{SELF}.heads": 3, "stack.kinds": (5,)}))
    assert len(str(caught.value).splitlines()) == 2


def test_sizes_of_heads():
    assert head_dim(Attention(heads=4), 32) == 8
    assert head_dim(Attention(heads=4, head_dim=3), 32) == 3
    assert qk_dim(Attention(heads=4), 32) == 8
    assert qk_dim(Attention(heads=4, collaborate=0.5), 32) == 16


def test_a_norm_alone_breaks_nothing():
    assert broken(changed(ENCODER, {"stack.final_norm": LayerNorm(bias=False)})) == []


def test_kinds_that_are_not_there_are_named_beside_other_problems():
    wrong = {"stack.kinds": (5,), "head": Vocabulary(enhanced=8), "stack.lora": Lora(rank=2)}
    spec = ENCODER
    for path, value in wrong.items():
        spec = override(spec, path, value)
    assert any(problem.startswith("stack") for problem in problems(spec))


@pytest.mark.parametrize(("spec", "loop"), SOUND)
def test_loops_that_keep_the_rules(spec, loop):
    assert broken(override(spec, "stack.loop", loop)) == []
