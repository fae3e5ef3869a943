"""Counts from the spec alone, against numbers worked out by hand."""

import pytest

from anyformer.errors import SpecError
from anyformer.model.census import census
from anyformer.model.count import count, memory
from anyformer.model.flops import flops
from anyformer.recipes import recipe, recipes
from anyformer.spec import (
    XL,
    Buckets,
    Gated,
    Lora,
    Patches,
    Shared,
    Shaw,
    Untied,
    Values,
    Vocabulary,
    XLTable,
    override,
)

D, N, H, V = 8, 5, 2, 11
SMALL = recipe("decoder", dim=D, depth=1, heads=H, vocab=V, length=16)
SELF = "stack.block.0.branch"
LINEARS, SCORES, FEED = 2 * N * 4 * D * D, 2 * 2 * N * N * D, 2 * 2 * N * D * 4 * D
ONE = 2 * N * N * D  # one more product of all queries with all keys
FAR = 2 * N * (2 * N - 1) * D  # one more product of all queries with all distances


def test_flops_of_a_decoder_by_hand():
    found = flops(SMALL, N)
    assert found["attention"] == LINEARS + SCORES
    assert found["feedforward"] == FEED
    assert found["head"] == 2 * N * D * V
    assert count(SMALL, N).flops == LINEARS + SCORES + FEED + 2 * N * D * V
    assert count(SMALL, N, batch=3).flops == 3 * count(SMALL, N).flops


@pytest.mark.parametrize(
    ("path", "value", "more"),
    [
        (f"{SELF}.kv_heads", 1, -2 * N * D * D),
        (f"{SELF}.head_dim", 8, LINEARS + SCORES),
        (f"{SELF}.collaborate", 0.5, -2 * N * D * D),  # q and k half as wide, as wide for each head
        (f"{SELF}.memory", 3, 2 * 2 * N * 3 * D),
        (f"{SELF}.gate", "glu", 2 * N * D * D),
        (f"{SELF}.talking", "both", 2 * 2 * N * N * H * H),
        (f"{SELF}.relative", (Shaw(clip=2),), FAR),
        (f"{SELF}.relative", (Shaw(clip=2, key_side=True),), 2 * FAR),
        (f"{SELF}.relative", (Buckets(bidirectional=False),), 0),
        (f"{SELF}.relative", (XL(),), FAR + 2 * N * (D + 1) * D),
        (f"{SELF}.relative", (XL(clamp=2),), FAR + 2 * 3 * (D + 1) * D),
        (f"{SELF}.relative", (XLTable(back=2),), FAR + 2 * 3 * D),
        (f"{SELF}.relative", (XLTable(back=99),), FAR + 2 * N * D),
        ("stack.untied", Untied(length=16), ONE + 2 * 2 * N * D * D),
        ("stack.untied", Untied(length=16, cls=True), ONE + 2 * 2 * N * D * D + 2 * N * N * H * 2),
        ("stack.block.1.branch.gated", True, FEED // 2),
        ("stack.block.0.residual", Gated(), 2 * N * 6 * D * D),
        ("stack.depth", 3, 2 * (LINEARS + SCORES + FEED)),
        ("embed.dim", 4, 2 * N * 4 * D + 2 * N * D * 4 - 2 * N * 4 * V),
        ("head", Vocabulary(dense=True), 2 * N * D * D),
    ],
)
def test_what_a_switch_adds_to_the_flops(path, value, more):
    assert count(override(SMALL, path, value), N).flops - count(SMALL, N).flops == more


def test_carried_scores_grow_with_depth():
    deep = override(SMALL, "stack.depth", 3)
    carrying = override(deep, f"{SELF}.carry", True)
    assert count(carrying, N).flops - count(deep, N).flops == (1 + 2) * ONE


def test_shared_blocks_count_once_as_parameters_and_each_time_as_flops():
    deep = override(SMALL, "stack.depth", 4)
    shared = override(deep, "stack.schedule", Shared(unique=1))
    assert count(shared, N).flops == count(deep, N).flops
    assert count(shared, N).parameters == count(SMALL, N).parameters


def test_lora_by_hand():
    deep = override(override(SMALL, "stack.depth", 3), "stack.schedule", Shared(unique=1))
    relaxed = override(deep, "stack.lora", Lora(rank=2, on=("q", "down")))
    more = {part.name: part for part in count(relaxed, N).parts}["lora"]
    assert more.parameters == 3 * 2 * (D + D + 4 * D + D)
    assert more.flops == 2 * N * more.parameters
    assert count(relaxed, N).flops - count(deep, N).flops == more.flops
    kept = [memory(spec, N, bytes_per=1).activations for spec in (deep, relaxed)]
    assert kept[1] - kept[0] == 3 * N * 2 * 2


def test_an_encoder_reads_the_same_length():
    both = recipe("encoder-decoder", dim=D, depth=1, heads=H, vocab=V, length=16)
    parts = {part.name: part.flops for part in count(both, N).parts}
    assert parts["encoder.attention"] == parts["cross"] == parts["attention"] == LINEARS + SCORES


def test_images_have_the_length_of_their_patches():
    vit = recipe("vit", dim=D, depth=1, heads=H, image=4, patch=2, classes=3)
    counted = count(vit, length=1000)
    assert counted.length == 5
    assert {p.name: p.flops for p in counted.parts}["embed"] == 2 * 4 * 12 * D
    assert {p.name: p.flops for p in counted.parts}["head"] == 2 * D * 3


def test_values_and_memory_tokens():
    spec = override(override(SMALL, "head", None), "embed.source", Values(size=3))
    assert flops(spec, N)["embed"] == 2 * N * 3 * D
    longer = override(SMALL, "embed.memory", 2)
    assert flops(longer, N)["feedforward"] == FEED * (N + 2) // N
    assert flops(longer, N)["head"] == flops(SMALL, N)["head"]


@pytest.mark.parametrize("name", recipes())
def test_parts_add_up_to_the_census(name):
    spec = recipe(name)
    counted = count(spec)
    assert counted.parameters == census(spec).size()
    assert counted.embedding + counted.non_embedding == counted.parameters


def test_the_length_that_is_not_given():
    assert count(recipe("gpt2")).length == 1024
    assert count(recipe("t5")).length == 512
    assert count(override(recipe("t5"), "stack.untied", Untied(length=9)), None).length == 9


@pytest.mark.parametrize(("length", "batch"), [(0, 1), (-3, 1), (5, 0), (17, 1)])
def test_a_length_that_can_not_be(length, batch):
    with pytest.raises(SpecError, match="length"):
        count(SMALL, length, batch)


def test_memory_by_hand():
    needs = memory(SMALL, N, batch=2, bytes_per=2)
    assert needs.parameters == 2 * census(SMALL).size()
    assert needs.cache == 2 * 2 * N * 2 * D
    attention, feed = 2 * D + D + D + 2 * D, 2 * D + 2 * 4 * D
    assert needs.activations == 2 * 2 * N * (attention + feed + 2 * D + V)


def test_an_encoder_has_no_cache_and_fewer_key_heads_need_less():
    assert memory(recipe("bert"), 512).cache == 0
    grouped = override(SMALL, f"{SELF}.kv_heads", 1)
    assert memory(grouped, N).cache == memory(SMALL, N).cache // 2


def test_a_reversible_stack_keeps_the_same_at_any_depth():
    deep = override(override(SMALL, "stack.reversible", True), "stack.depth", 9)
    assert memory(deep, N).activations == memory(override(deep, "stack.depth", 2), N).activations


def test_patches_without_a_class_token():
    vit = recipe("vit", dim=D, depth=1, heads=H, image=4, patch=2)
    plain = override(vit, "embed.source", Patches(image=4, patch=2, cls=False))
    assert count(plain).length == 4
