"""A part changed on a trained model: what is promised of each conversion, and the report."""

import copy
import logging

import pytest
import torch
from torch import nn

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import Report, swap
from anyformer.checkpoint.pairs import spread
from anyformer.errors import CheckpointError, SpecError

VOCAB, LENGTH = 23, 12
SIZES = {"dim": 16, "depth": 4, "heads": 4}
READS = {"gpt2": {"length": LENGTH}, "bert": {"length": LENGTH}, "albert": {"length": LENGTH}}
IDS = torch.arange(18).view(2, 9) % VOCAB


def made(name="gpt2", **options):
    """A model whose weights are all away from their fresh values."""
    torch.manual_seed(0)
    options = SIZES | {"vocab": VOCAB} | READS.get(name, {}) | options
    return disturbed(anyformer.build(anyformer.recipe(name, **options)).eval())


@torch.no_grad()
def disturbed(model):
    random = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=random))
    return model


def images():
    spec = anyformer.recipe("vit", dim=16, depth=1, heads=2, image=16, patch=4)
    return disturbed(anyformer.build(spec).eval())


def changed(model, **options):
    """The model with other values at paths whose dots are written __."""
    spec = model.spec
    for path, value in options.items():
        spec = S.override(spec, path.replace("__", "."), value)
    return swap(model, spec)


def override(model, path, value):
    return swap(model, S.override(model.spec, path, value))


def answer(model, **named):
    return model(IDS, **named).last_hidden_state if model.head is None else model(IDS).logits


def assert_same(before, after, **tolerance):
    torch.testing.assert_close(answer(after), answer(before), **tolerance or CLOSE)


CLOSE = {"rtol": 1e-5, "atol": 1e-5}
EXACT = {"rtol": 0, "atol": 0}


# ------------------------------------------------------------------ the whole


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "gemma2", "albert", "vit"])
def test_the_same_spec_keeps_every_weight_bit_for_bit(name, caplog):
    model = made(name) if name != "vit" else images()
    with caplog.at_level(logging.WARNING, "anyformer"):
        again = swap(model, model.spec)
    before, after = model.state_dict(), again.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert again.report == Report(kept=tuple(before))
    assert not caplog.records


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_same_pair_of_stacks_keeps_every_weight(name):
    model = disturbed(
        anyformer.build(anyformer.recipe(name, dim=16, depth=2, heads=2, vocab=VOCAB))
    )
    assert swap(model, model.spec).report == Report(kept=tuple(model.state_dict()))


def test_weights_are_copies_unless_they_are_shared():
    model = made()
    for share in (False, True):
        again = swap(model, model.spec, share=share)
        pointers = [m.embed.token.weight.data_ptr() for m in (model, again)]
        assert (pointers[0] == pointers[1]) is share


def test_mode_dtype_origin_and_frozen_weights_stay():
    model = made().to(torch.bfloat16)
    model.origin, model.embed.token.weight.requires_grad = "somewhere", False
    again = override(model, "head.bias", True)
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    assert again.origin == "somewhere" and not again.training
    assert not again.embed.token.weight.requires_grad and again.head.bias.requires_grad
    assert override(model.train(), "stack.depth", 2).training


def test_constants_are_there_in_the_dtype_of_the_weights():
    model = override(made().double(), "stack.relative", (S.ALiBi(),))
    slopes = model.stack.relative[0].slopes
    assert slopes.dtype == torch.float64 and slopes[0] == 0.25


def test_the_report_prints_alike_blocks_together_and_is_logged_once(caplog):
    with caplog.at_level(logging.INFO, "anyformer"):
        model = override(made(), "stack.block.0.branch.qk_norm", S.RMSNorm())
    text = str(model.report)
    assert "stack.blocks.*.0.branch.q_norm.weight (4)" in text
    assert text.startswith("weights: 68 kept, 0 converted, 8 fresh, 0 dropped")
    assert [r.message for r in caplog.records] == [
        "a changed spec: weights 68 kept, 0 converted, 8 fresh, 0 dropped; "
        "print(model.report) lists them"
    ]


def test_a_width_that_fits_nothing_starts_fresh_and_what_fits_stays():
    model = changed(made(), dim=32)
    assert model.embed.token.weight.shape == (VOCAB, 32)
    assert "embed.token.weight" in model.report.fresh
    assert "embed.token.weight" in model.report.dropped


# -------------------------------------------------------------------- loading


def test_load_overrides_and_saves_in_our_own_format(tmp_path):
    model = made()
    model.save_pretrained(tmp_path / "a")
    rotary = S.Rotary()
    again = anyformer.load(
        tmp_path / "a", override={"stack.block.0.branch.rotary": rotary, "embed.position": None}
    )
    assert again.spec.stack.block[0].branch.rotary == rotary
    assert again.report.dropped == ("embed.position.weight",) and not again.report.fresh
    again.save_pretrained(tmp_path / "b")
    assert_same(again, anyformer.load(tmp_path / "b"), **EXACT)
    assert anyformer.load(tmp_path / "a").report is None


def test_a_hugging_face_folder_takes_what_its_config_can_say(tmp_path):
    model = made()
    model.origin = anyformer.checkpoint.native.Origin("gpt2", "causal-lm", {})
    model.save_pretrained(tmp_path / "a")
    shorter = anyformer.load(tmp_path / "a", override={"stack.depth": 2})
    shorter.save_pretrained(tmp_path / "b")
    assert_same(shorter, anyformer.load(tmp_path / "b"), **EXACT)
    normed = anyformer.load(tmp_path / "a", override={"stack.final_norm": S.RMSNorm()})
    with pytest.raises(CheckpointError, match=r"can't say stack.*format='anyformer'"):
        normed.save_pretrained(tmp_path / "c")
    normed.save_pretrained(tmp_path / "c", format="anyformer")
    assert_same(normed, anyformer.load(tmp_path / "c"), **EXACT)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("stack.dept", 2, "did you mean 'depth'"),
        ("stack.block.9.norm", None, "index of 2 items"),
        ("stack.block.0.branch.kv_heads", 3, "kv_heads that divide heads"),
        ("stack.depth", "two", "takes an int"),
    ],
)
def test_bad_overrides_are_refused_with_their_remedy(path, value, said, tmp_path):
    made().save_pretrained(tmp_path)
    with pytest.raises(SpecError, match=said):
        anyformer.load(tmp_path, override={path: value})


# ---------------------------------------------------------------------- heads


def test_more_key_heads_are_repeated_and_change_nothing():
    model = made("llama", kv_heads=2)
    wide = override(model, "stack.block.0.branch.kv_heads", 4)
    assert_same(model, wide)
    assert dict(wide.report.converted)["stack.blocks.0.0.branch.k.weight"] == (
        "key heads repeated, 2 to 4"
    )
    back = override(wide, "stack.block.0.branch.kv_heads", 2)
    assert_same(model, back, **EXACT)


def test_fewer_key_heads_are_the_mean_of_their_group():
    model = made()
    few = override(model, "stack.block.0.branch.kv_heads", 2)
    for name in ("k", "v"):
        old, new = (m.stack.blocks[1][0].branch.get_submodule(name) for m in (model, few))
        heads = old.weight.view(2, 2, 4, 16)
        torch.testing.assert_close(new.weight, heads.mean(1).flatten(0, 1))
        torch.testing.assert_close(new.bias, old.bias.view(2, 2, 4).mean(1).flatten())
    assert "pooled by their mean, 4 to 2" in str(few.report)


def test_more_heads_change_nothing_and_are_the_first_to_go():
    model = override(made(), "stack.block.0.branch.head_dim", 4)
    more = override(model, "stack.block.0.branch.heads", 6)
    assert_same(model, more)
    assert not more.report.fresh and not more.report.dropped
    assert_same(model, override(more, "stack.block.0.branch.heads", 4))


def test_more_heads_with_groups_of_the_same_size_change_nothing():
    model = override(made("llama", kv_heads=2), "stack.block.0.branch.head_dim", 4)
    more = changed(model, stack__block__0__branch__heads=8, stack__block__0__branch__kv_heads=4)
    assert_same(model, more)


def test_heads_of_another_size_keep_their_channels():
    model = override(made(), "stack.block.0.branch.heads", 2)
    assert "the same channels, as 2 heads of 8" in str(model.report)
    assert not model.report.fresh
    sized = override(made(), "stack.block.0.branch.head_dim", 6)
    assert "stack.blocks.0.0.branch.q.weight" in sized.report.fresh


def test_biases_of_attention_start_at_zero_and_change_nothing():
    model = made("llama")
    biased = override(model, "stack.block.0.branch.bias", True)
    assert_same(model, biased, **EXACT)
    assert "a new bias of zeros: nothing changes" in str(biased.report)
    assert override(biased, "stack.block.0.branch.bias", False).report.dropped


@pytest.mark.parametrize("dims", [None, 2])
def test_a_rotary_layout_is_an_order_of_channels(dims):
    model = override(made("llama", kv_heads=2), "stack.block.0.branch.rotary.dims", dims)
    model = disturbed(override(model, "stack.block.0.branch.qk_norm", S.RMSNorm()))
    pairs = override(model, "stack.block.0.branch.rotary.layout", "pairs")
    assert_same(model, pairs)
    assert_same(model, override(pairs, "stack.block.0.branch.rotary.layout", "halves"), **EXACT)


def test_a_gate_on_attention_starts_half_open_and_changes_nothing():
    model = made()
    gated = override(model, "stack.block.0.branch.gate", "glu")
    assert_same(model, gated)
    assert_same(model, override(gated, "stack.block.0.branch.gate", "no"), **EXACT)


def test_persistent_keys_are_cut_and_lengthened():
    model = disturbed(override(made(), "stack.block.0.branch.memory", 3))
    old = model.stack.blocks[0][0].branch.memory_k
    for count in (2, 5):
        new = override(model, "stack.block.0.branch.memory", count)
        kept = min(count, 3)
        assert torch.equal(new.stack.blocks[0][0].branch.memory_k[:, :kept], old[:, :kept])
        assert not new.report.fresh
    both = changed(model, stack__block__0__branch__memory=5, stack__block__0__branch__kv_heads=2)
    assert "stack.blocks.0.0.branch.memory_k" in both.report.fresh


def test_relative_tables_move_between_stack_and_attentions():
    model = disturbed(override(made(), "stack.relative", (S.Buckets(count=4, max_distance=8),)))
    table = model.spec.stack.relative
    apart = changed(model, stack__relative=(), stack__block__0__branch__relative=table)
    assert_same(model, apart, **EXACT)
    assert "from stack.relative.0.table" in str(apart.report)
    assert_same(
        model, changed(apart, stack__relative=table, stack__block__0__branch__relative=()), **EXACT
    )


def test_a_longer_clip_repeats_the_farthest_distance():
    model = disturbed(override(made(), "stack.block.0.branch.relative", (S.Shaw(clip=2),)))
    far = override(model, "stack.block.0.branch.relative", (S.Shaw(clip=5),))
    assert_same(model, far, **EXACT)
    assert_same(model, override(far, "stack.block.0.branch.relative", (S.Shaw(clip=2),)), **EXACT)


def test_a_longer_learned_table_repeats_its_ends():
    path = "stack.block.0.branch.relative"
    model = disturbed(override(made(), path, (S.XLTable(back=2, ahead=1),)))
    far = override(model, path, (S.XLTable(back=5, ahead=3),))
    assert_same(model, far, **EXACT)
    assert_same(model, override(far, path, (S.XLTable(back=2, ahead=1),)), **EXACT)


# --------------------------------------------------------------- feed-forward


def test_a_wider_feed_forward_changes_nothing_and_learns():
    model = made()
    wide = override(model, "stack.block.1.branch.hidden", 80)
    assert_same(model, wide)
    answer(wide).square().sum().backward()
    down = wide.stack.blocks[0][1].branch.down.weight.grad
    assert down[:, 64:].abs().sum() > 0
    assert_same(model, override(wide, "stack.block.1.branch.hidden", 64), **EXACT)


def test_a_narrower_feed_forward_keeps_its_strongest_channels():
    model = made("llama")
    with torch.no_grad():
        for block in model.stack.blocks:
            block[1].branch.down.weight[:, ::2] *= 1e-9
    hidden = model.stack.blocks[0][1].branch.down.weight.shape[1]
    narrow = override(model, "stack.block.1.branch.hidden", hidden // 2)
    assert_same(model, narrow)


def test_a_gate_multiplies_by_one_at_the_start():
    model = made()
    gated = override(model, "stack.block.1.branch.gated", True)
    assert_same(model, gated, **EXACT)
    assert not gated.report.fresh
    assert_same(model, override(gated, "stack.block.1.branch.gated", False), **EXACT)
    wide = changed(model, stack__block__1__branch__gated=True, stack__block__1__branch__hidden=80)
    assert_same(model, wide)


def test_a_gate_without_biases_starts_fresh():
    model = override(made(), "stack.block.1.branch.bias", False)
    gated = override(model, "stack.block.1.branch.gated", True)
    assert "stack.blocks.0.1.branch.up.weight" in gated.report.fresh
    before, after = (m.stack.blocks[0][1].branch for m in (model, gated))
    assert torch.equal(before.up.weight, after.gate.weight)


# ------------------------------------------------------------ norms, residuals


def test_a_gain_stays_a_gain():
    model = made()
    rms = override(model, "stack.final_norm", S.RMSNorm())
    assert torch.equal(rms.stack.norm.weight, model.stack.norm.weight)
    assert rms.report.dropped == ("stack.norm.bias",)
    offset = override(rms, "stack.final_norm", S.RMSNorm(offset=True))
    assert_same(rms, offset)
    layer = override(offset, "stack.final_norm", S.LayerNorm())
    torch.testing.assert_close(layer.stack.norm.weight, model.stack.norm.weight)
    assert not layer.stack.norm.bias.any()
    scale = override(rms, "stack.final_norm", S.ScaleNorm())
    torch.testing.assert_close(scale.stack.norm.weight, rms.stack.norm.weight.mean()[None])
    assert_same(scale, override(scale, "stack.final_norm", S.RMSNorm()))


def test_norms_keep_their_weights_wherever_they_are_placed():
    model = made()
    for place in ("post", "sandwich"):
        moved = override(model, "stack.block.*.place", place)
        assert not moved.report.converted and not moved.report.dropped
        assert all(".after." in key for key in moved.report.fresh)
        again = override(moved, "stack.block.*.place", "pre")
        assert_same(model, again, **EXACT)


def test_another_residual_starts_fresh():
    model = override(made(), "stack.block.*.residual", S.Scaled(init=1.0))
    assert_same(made(), model)
    assert len(model.report.fresh) == 8
    assert len(override(model, "stack.block.*.residual", S.ReZero()).report.fresh) == 8


# ---------------------------------------------------------------------- depth


def test_fewer_layers_are_spread_evenly_as_in_distilbert():
    assert [spread(i, 6, 12) for i in range(6)] == [0, 2, 4, 7, 9, 11]
    model = made()
    short = override(model, "stack.depth", 2)
    for new, old in ((0, 0), (1, 3)):
        pair = short.stack.blocks[new], model.stack.blocks[old]
        assert all(map(torch.equal, *(block.parameters() for block in pair)))
    assert "from" in str(short.report) and len(short.report.dropped) == 32


def test_more_layers_are_copies():
    deep = override(made(), "stack.depth", 8)
    assert not deep.report.fresh and not deep.report.dropped
    first, second = (list(deep.stack.blocks[i].parameters()) for i in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("order", ["sequence", "cycle"])
def test_shared_layers_are_the_mean_of_those_they_stand_for(order):
    model = made()
    shared = override(model, "stack.schedule", S.Shared(unique=2, order=order))
    sources = {"sequence": (0, 1), "cycle": (0, 2)}[order]
    weights = [model.stack.blocks[i][1].branch.up.weight for i in sources]
    torch.testing.assert_close(shared.stack.blocks[0][1].branch.up.weight, sum(weights) / 2)
    assert "the mean of 2 parts" in str(shared.report)
    assert not shared.report.fresh and not shared.report.dropped


@pytest.mark.parametrize("times", [3, 5, 7])
def test_a_recursive_model_unrolled_and_rolled_up_again_is_the_same(times):
    loops = S.Looped(prelude=1, core=1, coda=1, loops=times)
    spec = S.override(made().spec, "stack.depth", times + 2)
    recursive = disturbed(anyformer.build(S.override(spec, "stack.schedule", loops)).eval())
    plain = override(recursive, "stack.schedule", S.Plain())
    assert_same(recursive, plain, **EXACT)
    assert len(plain.stack.blocks) == times + 2 and not plain.report.fresh
    rolled = override(plain, "stack.schedule", loops)
    assert_same(recursive, rolled, **EXACT)


def test_a_recursion_keeps_what_each_turn_has_for_itself():
    model = override(made(), "stack.block.0.branch.relative", (S.Shaw(clip=3),))
    model = disturbed(override(model, "stack.block.*.residual", S.Scaled()))
    own = ("norm", "gain", "relative")
    relaxed = changed(model, stack__schedule=S.Shared(unique=2), stack__own=own)
    assert not relaxed.report.fresh and not relaxed.report.dropped
    for i in range(4):
        old, new = (m.stack.blocks[i][0] for m in (model, relaxed))
        assert torch.equal(old.norm.weight, new.norm.weight)
        assert torch.equal(old.residual.gain, new.residual.gain)
        assert torch.equal(old.branch.relative[0].table, new.relative[0].table)
    weights = [model.stack.blocks[i][1].branch.up.weight for i in (2, 3)]
    torch.testing.assert_close(relaxed.stack.blocks[2][1].branch.up.weight, sum(weights) / 2)
    plain = changed(relaxed, stack__schedule=S.Plain(), stack__own=())
    assert_same(relaxed, plain, **EXACT)
    assert_same(
        relaxed, changed(plain, stack__schedule=S.Shared(unique=2), stack__own=own), **EXACT
    )


def test_attention_alone_can_stay_apart():
    model = made()
    shared = changed(model, stack__schedule=S.Shared(unique=1), stack__own=("attention",))
    for i in range(4):
        old, new = (m.stack.blocks[i][0].branch for m in (model, shared))
        assert torch.equal(old.q.weight, new.q.weight)
    assert not shared.report.fresh and not shared.report.dropped


def test_kinds_of_blocks_are_matched_with_their_kind():
    model = made("gemma2")
    short = override(model, "stack.depth", 2)
    assert not short.report.fresh
    for new, old in ((0, 0), (1, 1)):  # a window, then none: the first of each kind
        a, b = (m.stack.blocks[i][0].branch.q.weight for m, i in ((short, new), (model, old)))
        assert torch.equal(a, b)


def test_sandwich_order_moves_sublayers_as_they_run():
    model = made()
    sandwich = override(model, "stack.schedule", S.Sandwich(coefficient=2))
    assert not sandwich.report.fresh and not sandwich.report.dropped
    first = sandwich.stack.blocks[1][0].branch.q.weight
    assert torch.equal(first, model.stack.blocks[1][0].branch.q.weight)
    assert_same(model, override(sandwich, "stack.schedule", S.Plain()), **EXACT)


def test_branches_go_side_by_side_and_back():
    model = made()
    one, two = model.spec.stack.block
    parallel = S.Parallel(branches=(one.branch, two.branch), norms=(one.norm, two.norm))
    beside = override(model, "stack.block", (S.Sublayer(branch=parallel, norm=None),))
    assert not beside.report.fresh and not beside.report.dropped
    assert_same(model, override(beside, "stack.block", (one, two)), **EXACT)


def test_a_new_cross_attention_starts_fresh():
    model = made()
    one, two = model.spec.stack.block
    cross = S.Sublayer(branch=S.Attention(heads=4, cross=True))
    read = override(model, "stack.block", (one, cross, two))
    assert all(".1." in key for key in read.report.fresh) and not read.report.dropped
    back = override(read, "stack.block", (one, two))
    assert_same(model, back, **EXACT)


# ------------------------------------------------------------------ embedding


def test_new_words_are_the_mean_of_the_old_ones():
    for tied in (True, False):
        model = override(made(), "head", S.Vocabulary(tied=tied, bias=True))
        model = disturbed(model)
        more = override(model, "embed.source.vocab", VOCAB + 3)
        table = model.embed.token.weight
        assert torch.equal(more.embed.token.weight[:VOCAB], table)
        torch.testing.assert_close(more.embed.token.weight[VOCAB], table.mean(0))
        torch.testing.assert_close(answer(more)[..., :VOCAB], answer(model), **CLOSE)
        assert not more.report.fresh
        assert_same(model, override(more, "embed.source.vocab", VOCAB), **EXACT)


def test_longer_positions_go_on_with_copies_and_shorter_ones_are_cut():
    model = made()
    long = override(model, "embed.position.length", 30)
    assert_same(model, long, **EXACT)
    table = model.embed.position.weight
    assert torch.equal(long.embed.position.weight[12:24], table)
    assert_same(model, override(long, "embed.position.length", 9), **EXACT)
    assert override(model, "embed.position.length", 9).embed.position.weight.shape == (9, 16)


def test_rows_in_front_of_the_first_position_stay_in_front():
    model = override(made(), "embed.position", S.Learned(length=LENGTH, offset=2))
    assert_same(made(), model, **EXACT)
    more = override(model, "embed.position", S.Learned(length=20, offset=1))
    assert torch.equal(more.embed.position.weight[:13], model.embed.position.weight[1:14])
    assert_same(model, more, **EXACT)


def test_sines_become_learned_positions():
    sines = S.Sinusoidal(scale=0.5, offset=1)
    model = override(made(), "embed.position", sines)
    learned = override(model, "embed.position", S.Learned(length=LENGTH, scale=2.0))
    assert_same(model, learned)
    assert not learned.report.fresh


def test_positions_of_patches_are_interpolated():
    model = images()
    with torch.no_grad():  # a grid that rises evenly along its rows
        rise = torch.arange(4.0)[:, None].expand(4, 4).reshape(16, 1)
        model.embed.position.weight[1:] = rise
    large = changed(model, embed__source__image=32, embed__position__length=65)
    grid = large.embed.position.weight[1:].view(8, 8, 16)
    assert torch.equal(large.embed.position.weight[0], model.embed.position.weight[0])
    risen = torch.tensor([0.75, 1.25, 1.75, 2.25])
    torch.testing.assert_close(grid[2:6, 4, 0], risen, rtol=0, atol=0.1)
    assert torch.equal(grid[:, 0], grid[:, 5])


def test_token_types():
    model = made()
    typed = override(model, "embed.types", 2)
    assert_same(model, typed, **EXACT)
    more = override(disturbed(typed), "embed.types", 3)
    table = more.embed.segment.weight
    torch.testing.assert_close(table[2], table[:2].mean(0))


def test_memory_tokens_are_cut_and_lengthened():
    model = disturbed(override(made(), "embed.memory", 3))
    for count in (2, 5):
        new = override(model, "embed.memory", count).embed.memory
        assert torch.equal(new[:2], model.embed.memory[:2]) and len(new) == count


# ----------------------------------------------------------------------- head


def test_an_untied_head_starts_as_the_table_and_a_tied_one_drops_its_own():
    model = made()
    own = override(model, "head.tied", False)
    assert_same(model, own, **EXACT)
    assert own.head.weight.data_ptr() != own.embed.token.weight.data_ptr()
    tied = override(disturbed(own), "head.tied", True)
    assert tied.report.dropped == ("head.weight",)
    assert torch.equal(
        override(model, "head.tied", True).embed.token.weight, model.embed.token.weight
    )


def test_a_narrow_table_is_projected_into_the_head():
    spec = S.override(made().spec, "embed.dim", 8)
    model = disturbed(anyformer.build(spec).eval())
    assert_same(model, override(model, "head.tied", False))


def test_a_head_of_another_kind_starts_fresh():
    model = override(made(), "head", S.Classes(count=3))
    assert set(model.report.fresh) == {"head.out.weight", "head.out.bias"}
    assert override(model, "head.count", 4).report.fresh == ("head.out.weight", "head.out.bias")
    bare = override(model, "head", None)
    assert set(bare.report.dropped) == {"head.out.weight", "head.out.bias"}


def test_an_encoder_gets_the_table_that_it_read():
    model = disturbed(
        anyformer.build(anyformer.recipe("t5", dim=16, depth=2, heads=2, vocab=VOCAB)).eval()
    )
    own = override(model, "share_tokens", False)
    before, after = (m(IDS, decoder_input_ids=IDS).logits for m in (model, own))
    assert torch.equal(before, after)
    back = override(own, "share_tokens", True)
    assert back.report.dropped == ("encoder.embed.token.weight",)
    short = override(own, "encoder.stack.depth", 1)
    assert all(key.startswith("encoder.stack.blocks.1") for key in short.report.dropped)


def test_the_old_model_is_left_alone():
    model = made()
    before = copy.deepcopy(model.state_dict())
    new = override(model, "stack.depth", 2)
    nn.init.zeros_(new.embed.token.weight)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
