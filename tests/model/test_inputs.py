"""What a model can't read is one clear error that names the field, before any compute."""

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.model import build
from anyformer.model.stack import Stack
from anyformer.recipes import recipe

TINY = {"dim": 8, "depth": 1, "heads": 2}
IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
ONES = torch.ones_like(IDS)
START = torch.zeros(2, 1, dtype=torch.long)
HIDDEN = torch.randn(2, 4, 8)


def reader(head: S.Head, source: S.Source = S.Tokens(vocab=11)) -> S.Model:
    block = (S.Sublayer(branch=S.Attention(heads=2)),)
    embed = S.Embed(source=source)
    return S.Model(dim=8, embed=embed, stack=S.Stack(block=block, depth=1), head=head)


def attender() -> S.Model:
    block = (
        S.Sublayer(branch=S.Attention(heads=2, causal=True)),
        S.Sublayer(branch=S.Attention(heads=2, cross=True)),
    )
    embed = S.Embed(source=S.Tokens(vocab=11))
    return S.Model(dim=8, embed=embed, stack=S.Stack(block=block, depth=1), head=S.Vocabulary())


SPECS = {
    "decoder": recipe("decoder", **TINY, vocab=11, length=6),
    "encoder": recipe("encoder", **TINY, vocab=11, length=6),
    "typed": S.override(recipe("encoder", **TINY, vocab=11, length=6), "embed.types", 2),
    "spoken": S.override(recipe("encoder", **TINY, vocab=11, length=6), "embed.langs", 2),
    "both": recipe("encoder-decoder", **TINY, vocab=11, length=6),
    "attender": attender(),
    "xl": recipe("transformer-xl", **TINY, hidden=16, vocab=11, memory=4, dropout=0.0),
    "classes": reader(S.Classes(count=3)),
    "tags": reader(S.Project(size=3)),
    "pooler": reader(S.Pooler()),
    "image": reader(S.Classes(count=3), S.Patches(image=8, patch=4)),
    "values": reader(S.Project(size=2), S.Values(size=5)),
    "memory": S.override(recipe("decoder", **TINY, vocab=11, length=6), "embed.memory", 2),
    "reversible": S.override(recipe("decoder", **TINY, vocab=11), "stack.reversible", True),
    "untied": S.override(
        S.override(recipe("encoder", **TINY, vocab=11), "embed.position", None),
        "stack.untied",
        S.Untied(length=3),
    ),
}

BAD = [
    # unknown names and things that are no tensors
    ("decoder", {"input_idz": IDS}, "did you mean 'input_ids'"),
    ("decoder", {"attn_mask": ONES}, r"unknown argument of the model 'attn_mask'.*attention_mask"),
    ("decoder", {"input_ids": [[1, 2]]}, "input_ids must be a tensor, not list"),
    ("decoder", {"attention_mask": [1, 1]}, "attention_mask must be a tensor"),
    ("decoder", {"past_key_values": ((IDS, IDS),)}, "past_key_values must be what an earlier call"),
    # rank, dtype, range
    ("decoder", {"input_ids": IDS[0]}, r"input_ids must be integers of shape \(batch, length\)"),
    ("decoder", {"input_ids": IDS[None]}, "input_ids must be integers of shape"),
    ("decoder", {"input_ids": IDS.float()}, "input_ids must be integers"),
    ("decoder", {"input_ids": IDS.bool()}, "input_ids must be integers"),
    ("decoder", {"input_ids": IDS + 8}, r"input_ids hold 16, outside 0\.\.10"),
    ("decoder", {"input_ids": IDS - 2}, r"input_ids hold -1, outside 0\.\.10"),
    (
        "decoder",
        {"input_ids": None, "inputs_embeds": torch.randn(2, 4, 9)},
        "inputs_embeds must be",
    ),
    ("decoder", {"input_ids": None, "inputs_embeds": torch.ones(2, 4, 8).long()}, "inputs_embeds"),
    (
        "values",
        {"input_values": torch.randn(2, 4, 6)},
        r"input_values must be.*\(batch, length, 5\)",
    ),
    ("values", {"input_values": torch.randn(4, 5)}, "input_values must be floats"),
    ("image", {"pixel_values": torch.randn(2, 3, 8, 9)}, "pixel_values must be floats of shape"),
    ("image", {"pixel_values": torch.randn(3, 8, 8)}, "pixel_values must be"),
    ("image", {"pixel_values": torch.ones(2, 3, 8, 8).byte()}, "pixel_values must be floats"),
    # which input
    ("decoder", {"input_ids": None}, "this model reads input_ids or inputs_embeds.*got nothing"),
    ("decoder", {"inputs_embeds": HIDDEN}, "one of them; got input_ids, inputs_embeds"),
    ("decoder", {"input_ids": None, "input_values": HIDDEN}, "reads input_ids .*got input_values"),
    ("image", {"input_ids": IDS}, "reads pixel_values.*got input_ids"),
    # empty
    ("decoder", {"input_ids": IDS[:, :0]}, "input_ids are empty"),
    ("decoder", {"input_ids": IDS[:0]}, "input_ids are empty"),
    ("both", {"decoder_input_ids": IDS[:, :0]}, "decoder_input_ids are empty"),
    # masks and companions
    ("decoder", {"attention_mask": ONES[:, :3]}, r"attention_mask must have shape \(2, 4\)"),
    ("decoder", {"attention_mask": ONES[:1]}, "attention_mask must have shape"),
    (
        "decoder",
        {"attention_mask": torch.ones(2, 1, 4, 4).long()},
        "attention_mask must have shape",
    ),
    ("decoder", {"attention_mask": ONES.float()}, "attention_mask must hold integers or booleans"),
    ("decoder", {"token_type_ids": ONES}, "leave token_type_ids out"),
    ("typed", {"token_type_ids": ONES + 1}, r"token_type_ids hold 2, outside 0\.\.1"),
    ("typed", {"token_type_ids": ONES[:, :2]}, "token_type_ids must have shape"),
    ("decoder", {"langs": ONES}, "leave langs out"),
    ("spoken", {"langs": ONES + 1}, r"langs hold 2, outside 0\.\.1"),
    ("spoken", {"langs": ONES[:, :2]}, "langs must have shape"),
    ("decoder", {"position_ids": ONES[:, :2]}, "position_ids must have shape"),
    ("decoder", {"position_ids": ONES * 6}, "position_ids reach 6, beyond 5"),
    ("decoder", {"position_ids": ONES - 2}, "position_ids hold -1"),
    ("decoder", {"document_ids": ONES[0]}, "document_ids must have shape"),
    ("memory", {"document_ids": ONES}, "document_ids don't go with"),
    ("decoder", {"document_ids": ONES, "use_cache": True}, "document_ids don't go with"),
    ("decoder", {"prefix_lengths": ONES}, r"prefix_lengths must have shape \(2,\)"),
    ("encoder", {"prefix_lengths": ONES[:, 0]}, "prefix_lengths are for causal attention"),
    # length
    (
        "decoder",
        {"input_ids": IDS.repeat(1, 2)},
        "input_ids reach 8 positions, but the model has 6",
    ),
    ("untied", {"input_ids": IDS}, "4 positions, but the model has 3"),
    ("both", {"decoder_input_ids": IDS.repeat(1, 2)}, "decoder_input_ids reach 8 positions"),
    # memories
    ("decoder", {"return_mems": True}, "mems: this model has no segment memory"),
    ("xl", {"return_mems": True, "mem_len": -1}, "mem_len must be an int of at least 0, not -1"),
    ("xl", {"return_mems": True, "mem_len": 2.0}, "mem_len must be an int of at least 0, not 2.0"),
    ("encoder", {"return_mems": True, "mem_len": 3}, "memory of earlier segments is for causal"),
    ("xl", {"same_length": True, "mem_len": 0}, "same_length sees mem_len keys, which is 0"),
    ("decoder", {"same_length": True}, "same_length sees mem_len keys, which is 0"),
    ("xl", {"return_mems": True, "use_cache": True}, "either past_key_values or mems"),
    ("reversible", {"output_hidden_states": True}, "output_hidden_states"),
    # two sides
    ("both", {}, "needs decoder_input_ids"),
    ("both", {"decoder_input_ids": IDS + 9}, "decoder_input_ids hold 17"),
    ("both", {"decoder_input_ids": START[:1]}, "input_ids have 2 rows, decoder_input_ids 1"),
    ("both", {"decoder_input_ids": START, "input_ids": IDS + 9}, "input_ids hold 17"),
    (
        "both",
        {"decoder_input_ids": START, "decoder_attention_mask": ONES},
        r"decoder_attention_mask must have shape \(2, 1\)",
    ),
    (
        "both",
        {"decoder_input_ids": START, "encoder_attention_mask": ONES},
        "leave encoder_attention_mask out",
    ),
    (
        "both",
        {"decoder_input_ids": START, "encoder_hidden_states": HIDDEN},
        "leave input_ids out: encoder_hidden_states are given",
    ),
    (
        "decoder",
        {"decoder_input_ids": IDS},
        "leave decoder_input_ids out: this model has no encoder",
    ),
    ("decoder", {"encoder_hidden_states": HIDDEN}, "leave encoder_hidden_states out"),
    ("attender", {}, "cross-attention has nothing to read: pass encoder_hidden_states"),
    ("attender", {"encoder_attention_mask": ONES}, "pass encoder_hidden_states"),
    ("attender", {"encoder_hidden_states": HIDDEN[..., :5]}, r"of shape \(batch, length, 8\)"),
    ("attender", {"encoder_hidden_states": HIDDEN[0]}, "encoder_hidden_states must be floats"),
    ("attender", {"encoder_hidden_states": HIDDEN[:1]}, "2 rows, but encoder_hidden_states 1"),
    (
        "attender",
        {"encoder_hidden_states": HIDDEN, "encoder_attention_mask": ONES[:, :3]},
        r"encoder_attention_mask must have shape \(2, 4\)",
    ),
    # labels
    ("decoder", {"labels": IDS[:, :3]}, r"labels must be integers of shape \(2, 4\)"),
    ("decoder", {"labels": IDS.float()}, "labels must be integers"),
    ("decoder", {"labels": IDS + 8}, r"labels hold 11, outside 0\.\.10"),
    ("decoder", {"labels": IDS - 9}, r"labels hold -8, outside"),
    ("decoder", {"input_ids": IDS[:, :1], "labels": IDS[:, :1]}, "two positions at least"),
    ("classes", {"labels": IDS}, r"labels must be integers of shape \(2,\)"),
    ("classes", {"labels": torch.tensor([0, 3])}, r"labels hold 3, outside 0\.\.2"),
    ("tags", {"labels": IDS[:, 0]}, r"labels must be integers of shape \(2, 4\)"),
    ("pooler", {"labels": IDS}, "labels need a head with logits"),
    ("decoder", {"labels": IDS, "logits_to_keep": 1}, "the loss needs all logits"),
    ("decoder", {"logits_to_keep": -1}, "logits_to_keep must be an int"),
    ("decoder", {"logits_to_keep": 1.0}, "logits_to_keep must be an int"),
    ("pooler", {"logits_to_keep": 1}, "logits_to_keep is for heads of a vocabulary"),
]


@pytest.mark.parametrize(("name", "given", "says"), BAD)
def test_bad_input_is_refused_before_any_compute(name, given, says, monkeypatch):
    model = build(SPECS[name])

    def computes(*_):
        raise AssertionError("computed something")

    monkeypatch.setattr(Stack, "forward", computes)
    main = {} if name in ("image", "values") else {"input_ids": IDS}
    with pytest.raises(InputError, match=says):
        model(**{**main, **given})


def test_caches_and_memories_are_told_apart():
    model = build(SPECS["xl"])
    cache, mems = model(IDS, use_cache=True).past_key_values, model(IDS, return_mems=True).mems
    with pytest.raises(InputError, match="either past_key_values or mems"):
        model(IDS, past_key_values=cache, mems=mems)
    with pytest.raises(InputError, match="past_key_values are segment memories"):
        model(IDS, past_key_values=mems)
    with pytest.raises(InputError, match="mems are a cache"):
        model(IDS, mems=cache)
    with pytest.raises(InputError, match="1 rows, but past_key_values remember 2"):
        model(IDS[:1], past_key_values=cache)
    with pytest.raises(InputError, match="1 rows, but mems remember 2"):
        model(IDS[:1], mems=mems)
    with pytest.raises(InputError, match="no segment memory"):
        build(SPECS["decoder"])(IDS, mems=mems)
    with pytest.raises(InputError, match="document_ids don't go with"):
        model(IDS, past_key_values=cache, document_ids=ONES)
    with pytest.raises(InputError, match="prefix_lengths don't go with"):
        model(IDS, past_key_values=cache, prefix_lengths=ONES[:, 0])


def test_a_cache_counts_towards_the_positions():
    model = build(SPECS["decoder"])
    cache = model(IDS, use_cache=True).past_key_values
    assert model(IDS[:, :2], past_key_values=cache).logits.shape == (2, 2, 11)
    with pytest.raises(InputError, match="7 positions, but the model has 6"):
        model(IDS[:, :3], past_key_values=cache)


def test_masks_after_a_cache_may_cover_all_or_the_new():
    model = build(SPECS["decoder"])
    cache = model(IDS, use_cache=True).past_key_values
    for width in (2, 6):
        mask = torch.ones(2, width, dtype=torch.long)
        out = model(IDS[:, :2], past_key_values=cache, attention_mask=mask)
        assert out.logits.shape == (2, 2, 11)
    with pytest.raises(InputError, match=r"attention_mask must have shape \(2, 2\) or \(2, 6\)"):
        model(IDS[:, :2], past_key_values=cache, attention_mask=ONES)


def test_a_cache_that_holds_the_context_wants_it_no_more():
    model = build(SPECS["both"])
    cache = model(IDS, decoder_input_ids=START, use_cache=True).past_key_values
    assert model(decoder_input_ids=START, past_key_values=cache).logits.shape == (2, 1, 11)
    with pytest.raises(InputError, match="leave input_ids out: the cache holds"):
        model(IDS, decoder_input_ids=START, past_key_values=cache)


GOOD = [
    ("decoder", {"input_ids": IDS.int()}),
    ("decoder", {"input_ids": None, "inputs_embeds": HIDDEN}),
    ("decoder", {"attention_mask": ONES.bool()}),
    ("decoder", {"position_ids": torch.arange(4)[None]}),
    ("decoder", {"prefix_lengths": ONES[:, 0]}),
    ("decoder", {"document_ids": ONES}),
    ("decoder", {"labels": IDS.int()}),
    ("decoder", {"labels": torch.where(IDS < 4, -100, IDS)}),
    ("typed", {"token_type_ids": ONES}),
    ("spoken", {"langs": ONES}),
    ("classes", {"labels": torch.tensor([0, 2])}),
    ("tags", {"labels": IDS % 3}),
    ("both", {"decoder_input_ids": START, "attention_mask": ONES}),
    ("both", {"decoder_input_ids": START, "input_ids": None, "encoder_hidden_states": HIDDEN}),
    ("attender", {"encoder_hidden_states": HIDDEN, "encoder_attention_mask": ONES}),
    ("image", {"input_ids": None, "pixel_values": torch.randn(2, 3, 8, 8)}),
    ("values", {"input_ids": None, "input_values": torch.randn(2, 4, 5)}),
]


@pytest.mark.parametrize(("name", "given"), GOOD)
def test_good_input_is_read(name, given):
    out = build(SPECS[name])(**{"input_ids": IDS, **given})
    assert out.logits.isfinite().all()
    assert (out.loss is None) == ("labels" not in given)


def test_types_default_to_zero():
    model = build(SPECS["typed"])
    assert torch.equal(model(IDS).logits, model(IDS, token_type_ids=ONES * 0).logits)
    assert not torch.equal(model(IDS).logits, model(IDS, token_type_ids=ONES).logits)


def test_languages_that_are_not_said_add_nothing():
    model = build(SPECS["spoken"])
    assert not torch.equal(model(IDS).logits, model(IDS, langs=ONES).logits)
    with torch.no_grad():
        model.embed.language.weight[1] = 0
    assert torch.equal(model(IDS).logits, model(IDS, langs=ONES).logits)
