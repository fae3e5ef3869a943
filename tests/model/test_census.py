"""The census and the FLOPs of a spec equal those of the built model, switch by switch."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import anyformer
from anyformer.model.census import census
from anyformer.model.entry import Entry
from anyformer.recipes import recipe
from anyformer.spec import (
    XL,
    ALiBi,
    Beams,
    Buckets,
    Choices,
    Classes,
    Convolution,
    Detect,
    Disentangled,
    Distances,
    Double,
    Gated,
    LayerNorm,
    Learned,
    Patches,
    Pixels,
    Pooler,
    Project,
    ReZero,
    RMSNorm,
    Sandwich,
    Scaled,
    ScaleNorm,
    Shared,
    Shaw,
    Sinusoidal,
    SoftCap,
    Span,
    Temperature,
    Transform,
    Untied,
    Values,
    Vocabulary,
    XLBiases,
    XLTable,
)

SIZES = {"dim": 16, "depth": 2, "heads": 4, "vocab": 11, "length": 8}
SELF = "stack.block.0.branch"
N, B = 6, 2

CHANGES = [
    {},
    {f"{SELF}.kv_heads": 2, f"{SELF}.head_dim": 8, f"{SELF}.out_bias": False},
    {f"{SELF}.collaborate": 0.5, f"{SELF}.memory": 3},
    {f"{SELF}.memory": 3, f"{SELF}.kv_heads": 1, f"{SELF}.bias": False},
    {f"{SELF}.gate": "glu", f"{SELF}.talking": "both"},
    {f"{SELF}.talking": "pre", f"{SELF}.carry": True},
    {f"{SELF}.mods": (SoftCap(), Temperature()), f"{SELF}.qk_norm": RMSNorm()},
    {f"{SELF}.relative": (ALiBi(learned=True), ALiBi(), Buckets())},
    {"stack.untied": Untied(length=8)},
    {"stack.untied": Untied(length=8, cls=True)},
    {"stack.block.*.place": "sandwich", "stack.block.*.residual": Gated()},
    {"stack.block.*.norm": ScaleNorm(), "stack.block.*.residual": ReZero()},
    {"stack.block.*.norm": LayerNorm(bias=False), "stack.block.*.residual": Scaled()},
    {"stack.block.*.norm": None, "stack.final_norm": None},
    {"stack.block.-1.branch.gated": True, "stack.block.-1.branch.hidden": 5},
    {"stack.schedule": Shared(unique=1)},
    {"stack.schedule": Sandwich()},
    {"stack.reversible": True},
    {"embed.memory": 2, "embed.types": 2, "embed.langs": 3, "embed.norm": RMSNorm()},
    {"embed.position": Sinusoidal()},
    {"embed.position": Learned(length=8, offset=2)},
    {f"{SELF}.k_bias": False},
    {"head": Vocabulary(tied=False, bias=True)},
    {"head": Vocabulary(dense=True, norm=LayerNorm())},
    {"head": Project(size=3)},
    {"head": Classes(count=3, hidden=5, pool="mean")},
    {"head": Classes(count=3, bias=False)},
    {"head": Pooler()},
    {"head": Choices(hidden=5, dropout=0.1)},
    {"head": Choices()},
    {"head": Choices(pool="mean", transform=Transform(norm=LayerNorm()), pool_dropout=0.1)},
    {"head": Classes(count=3, hidden=5, transform=Transform(bias=False))},
    {"head": Span(transform=Transform(act="relu"))},
    {"head": Span(transform=Transform(hidden=5, norm=LayerNorm(), dropout=0.1))},
    {"head": Classes(count=3, transform=Transform(hidden=5, bias=False))},
    {"head": Project(size=3, transform=Transform(norm=RMSNorm()))},
    {"head": Vocabulary(dense=True, dense_bias=False)},
    {"head": Span(dropout=0.1)},
    {"head": Detect()},
    {"head": Beams(starts=3, ends=2, norm=LayerNorm(bias=False))},
    {"head": Double(dropout=0.1)},
    {"head": Double(tokens=Vocabulary(tied=False, bias=True), act="tanh")},
    {"head": None},
]
NARROW = [
    {"embed.dim": 8},
    {"embed.dim": 8, "embed.norm": RMSNorm(), "embed.bias": False, "embed.wide_norm": True},
    {"embed.dim": 8, "head": Vocabulary(dense=True, wide=True, norm=LayerNorm())},
    {"stack.convolution": Convolution(kernel=5, groups=2)},
    {"stack.block.*.place": "post", "head.enhanced": 8},
    {"stack.block.*.place": "post", "head.enhanced": 8, "stack.convolution": Convolution()},
    {"embed.dim": 16},
    {"embed.dim": 8, "head": Vocabulary(dense=True, norm=RMSNorm())},
    {"embed.dim": 8, "head": Vocabulary(tied=False)},
    {"embed.dim": 8, "embed.wide": True, "embed.bias": False, "stack.out": 8},
    {"stack.out": 8, "embed.types": 2},
    {"stack.out": 8, "head": Classes(count=3, hidden=5)},
    {"head": None, "embed.source": Values(size=5, bias=False)},
    {"head": None, "embed.source": Values()},
    {"head": None, "embed.source": Patches(image=4, patch=2, bias=False)},
    {"head": Pooler(), "embed.dim": 8, "embed.source": Patches(image=4, patch=2, cls=False)},
    {"head": Pixels(), "embed.dim": 8, "embed.source": Patches(image=4, patch=2, cls=False)},
    {"head": Pixels(stride=3), "embed.source": Patches(image=4, patch=2), "stack.out": 8},
]
APART = {"stack.distances": Distances(reach=4)}
BUCKETS = {"stack.distances": Distances(reach=9, buckets=4, norm=LayerNorm())}
DISENTANGLED = [
    APART | {f"{SELF}.disentangled": Disentangled()},
    APART | {f"{SELF}.disentangled": Disentangled(bias=False, p2c=False)},
    BUCKETS | {f"{SELF}.disentangled": Disentangled(shared=True)},
    BUCKETS | {f"{SELF}.disentangled": Disentangled(shared=True), f"{SELF}.kv_heads": 2},
    BUCKETS | {f"{SELF}.disentangled": Disentangled(shared=True), f"{SELF}.collaborate": 0.5},
    BUCKETS | {f"{SELF}.disentangled": Disentangled(c2p=False), f"{SELF}.memory": 2},
]
WITH_TABLES = [  # their products are counted by another convention than eager's
    {f"{SELF}.relative": (Shaw(clip=2, key_side=True),)},
    {f"{SELF}.relative": (XL(),)},
    {"stack.relative": (XL(clamp=3),)},
    {"stack.relative": (XLBiases(),), f"{SELF}.relative": (XL(biases=False),)},
    {f"{SELF}.relative": (XLTable(back=3, ahead=2),)},
]


def specs(names, changes):
    return [(recipe(name, **SIZES, **change)) for name in names for change in changes]


ALL = specs(("encoder", "decoder", "encoder-decoder"), CHANGES) + specs(("encoder",), NARROW)
ALL += specs(("encoder", "decoder"), DISENTANGLED)


def inputs(spec):
    source = spec.embed.source
    if isinstance(source, Patches):
        return {"pixel_values": torch.randn(B, 3, source.image, source.image)}
    if isinstance(source, Values):
        return {"input_values": torch.randn(B, N, source.size or spec.dim)}
    ids = torch.randint(0, source.vocab, (B, N))
    ids = ids.view(1, B, N) if isinstance(spec.head, Choices | Double) else ids
    return {"input_ids": ids, "decoder_input_ids": ids} if spec.encoder else {"input_ids": ids}


def eager(spec):
    for path in ("", "encoder.") if spec.encoder else ("",):
        spec = anyformer.override(spec, f"{path}stack.block.*.branch.backend", "eager")
    return spec


@pytest.mark.parametrize("spec", ALL + specs(("encoder", "decoder"), WITH_TABLES))
def test_keys_and_shapes_are_those_of_the_built_model(spec):
    built = {key: tuple(t.shape) for key, t in anyformer.build(spec).state_dict().items()}
    assert census(spec).keys() == built


@pytest.mark.parametrize("spec", ALL)
def test_flops_are_those_of_the_built_model(spec):
    spec = eager(spec)
    model = anyformer.build(spec).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs(spec))
    assert anyformer.count(spec, N, B).flops == counter.get_total_flops()


def test_repeated_entries_are_numbered():
    row = Entry("2", "Block", shapes={"gain": (3,)}, repeats=2)
    tree = Entry("", "ModuleList", children=(Entry("0", "Block"), row))
    assert tree.keys("blocks.") == {"blocks.2.gain": (3,), "blocks.3.gain": (3,)}
    assert tree.size() == 6
    assert [(entry.name, times) for entry, times in tree.walk()] == [("", 1), ("0", 1), ("2", 2)]
