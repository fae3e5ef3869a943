"""The table of keywords: every row changes a spec, every mistake has its message."""

from dataclasses import replace

import pytest

from anyformer import diff, recipe
from anyformer.compat.later import LATER
from anyformer.compat.words import NAMES, ONE_OF, WORDS, switch
from anyformer.errors import SpecError
from anyformer.spec import (
    ALiBi,
    Buckets,
    FeedForward,
    Gated,
    LayerNorm,
    Learned,
    ReZero,
    RMSNorm,
    Rotary,
    Sandwich,
    Shared,
    TopK,
    check,
    override,
)
from anyformer.spec.node import Above, Natural, Positive, Rate

GPT2 = recipe("gpt2", dim=64, depth=2, heads=4)
BERT = recipe("bert", dim=64, depth=2, heads=4)
T5 = recipe("t5", dim=64, depth=2, heads=4)

SAMPLES = {Positive: 2, Natural: 3, Rate: 0.3, Above: 0.5, bool: True}
VALUES = {  # where the sample of the type would not do
    "attn_flash": False,
    "tupe": 16,
    "rel_pos_num_buckets": 16,
    "rel_pos_max_distance": 64,
    "attn_dim_head": 32,
    "use_abs_pos_emb": False,
    "use_pos_emb": False,
    "cross_attn_dim_context": 48,
}
BASES = {  # where a plain decoder would not do
    "causal": BERT,
    "pre_norm": BERT,
    "tie_embedding": override(GPT2, "head.tied", False),
    "attn_collab_compression": switch(GPT2, attn_collab_heads=True),
    "attn_logit_softclamp_value": switch(GPT2, attn_softclamp_logits=True),
    "rotary_emb_dim": switch(GPT2, rotary_pos_emb=True),
    "rel_pos_num_buckets": switch(GPT2, rel_pos_bias=True),
    "rel_pos_max_distance": switch(GPT2, rel_pos_bias=True),
    "tupe_cls": switch(GPT2, tupe=16),
    "cross_attn_dim_context": switch(GPT2, cross_attend=True),
    "cross_residual_attn": switch(GPT2, cross_attend=True),
    "tie_token_emb": replace(T5, share_tokens=False),
}


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_every_row_changes_a_spec(word):
    base = BASES.get(word.name, GPT2)
    value = VALUES.get(word.name, SAMPLES.get(word.takes))
    changed = switch(base, **{word.name: value})
    assert diff(base, changed)
    assert check(changed) is changed


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_every_row_refuses_a_wrong_type(word):
    with pytest.raises(SpecError, match=word.name):
        switch(BASES.get(word.name, GPT2), **{word.name: "yes"})


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_none_keeps_everything(word):
    base = BASES.get(word.name, GPT2)
    assert switch(base, **{word.name: None}) == base


def test_names_are_said_once():
    assert len(NAMES) == len(WORDS)
    assert not set(NAMES) & set(LATER)
    assert len(set(LATER)) == len(LATER)
    assert {name for group in ONE_OF for name in group} <= set(NAMES)


@pytest.mark.parametrize("word", LATER)
def test_words_without_a_part_are_refused_by_name(word):
    with pytest.raises(SpecError, match=f"'{word}' is a keyword of x-transformers"):
        switch(GPT2, **{word: True})


@pytest.mark.parametrize(
    ("spec", "word", "meant"),
    [
        (GPT2, "talking_head", "talking_heads"),
        (GPT2, "attn_sparse_top_k", "attn_sparse_topk"),
        (GPT2, "ff_gluu", "ff_glu"),
        (T5, "enc_ff_gluu", "enc_ff_glu"),
        (T5, "dec_cross_resid_attn", "dec_cross_residual_attn"),
    ],
)
def test_the_nearest_word_is_offered(spec, word, meant):
    with pytest.raises(SpecError, match=f"did you mean '{meant}'"):
        switch(spec, **{word: True})


def test_a_prefix_needs_an_encoder():
    with pytest.raises(SpecError, match="no encoder beside it; write 'ff_glu'"):
        switch(GPT2, dec_ff_glu=True)


@pytest.mark.parametrize("group", ONE_OF, ids=str)
def test_words_that_exclude_each_other(group):
    given = {name: SAMPLES[NAMES[name].takes] for name in group[:2]}
    given |= {"pre_norm": False} if "pre_norm" in group[:2] else {}
    with pytest.raises(SpecError, match="exclude each other"):
        switch(GPT2, **given)


def test_switches_on_a_recipe():
    changed = switch(BERT, talking_heads=True, ff_glu=True)
    assert {(c.path, c.after) for c in diff(BERT, changed)} == {
        ("stack.block.0.branch.talking", "both"),
        ("stack.block.1.branch.gated", True),
    }


def test_order_of_the_call_does_not_matter():
    words = {"macaron": True, "ff_glu": True, "use_rezero": True, "ff_mult": 2}
    backwards = dict(reversed(words.items()))
    changed = switch(GPT2, **words)
    assert changed == switch(GPT2, **backwards)
    assert [s.residual for s in changed.stack.block] == [
        ReZero(branch=0.5), ReZero(), ReZero(branch=0.5)
    ]  # fmt: skip
    feeds = [s.branch for s in changed.stack.block if isinstance(s.branch, FeedForward)]
    assert [(f.gated, f.hidden) for f in feeds] == [(True, 128)] * 2
    assert all(s.norm is None for s in changed.stack.block)


def test_switching_off():
    on = {"talking_heads": True, "rotary_pos_emb": True, "attn_on_attn": True, "ff_glu": True}
    changed = switch(GPT2, use_abs_pos_emb=True, **on)
    assert switch(changed, **dict.fromkeys(on, False)) == GPT2


@pytest.mark.parametrize(
    "words",
    [
        {"rotary_pos_emb": True},
        {"rel_pos_bias": True},
        {"position_infused_attn": True},
        {"alibi_pos_bias": True},
        {"relative_key": 8},
        {"tupe": True},
    ],
)
def test_absolute_positions_go_where_the_stack_brings_its_own(words):
    assert isinstance(GPT2.embed.position, Learned)
    assert switch(GPT2, **words).embed.position is None
    assert switch(GPT2, use_abs_pos_emb=True, **words).embed.position == GPT2.embed.position


def test_positions_of_a_recipe_are_not_touched_by_other_words():
    both = switch(GPT2, use_abs_pos_emb=True, rotary_pos_emb=True)
    assert switch(both, ff_glu=True).embed.position == GPT2.embed.position


def test_rotary_width():
    def dims(**words):
        return switch(GPT2, rotary_pos_emb=True, **words).stack.block[0].branch.rotary

    assert dims() == Rotary(dims=16)  # heads of 16: all that there is
    assert dims(attn_dim_head=48) == Rotary(dims=32)
    assert dims(attn_dim_head=80) == Rotary(dims=40)
    assert dims(rotary_emb_dim=8) == Rotary(dims=8)


def test_both_sides_or_one():
    def sparse(spec):
        return [
            isinstance(s.branch.weigh, TopK) for s in spec.stack.block if s.kind != "feedforward"
        ]

    both = switch(T5, attn_sparse_topk=4)
    assert sparse(both) == [True, True]
    assert sparse(both.encoder) == [True]
    one = switch(T5, enc_attn_sparse_topk=4)
    assert sparse(one) == [False, False]
    assert sparse(one.encoder) == [True]
    crossed = switch(T5, cross_residual_attn=True)  # the encoder has nothing to cross
    assert [s.branch.carry for s in crossed.stack.block[:2]] == [False, True]
    assert crossed.encoder == T5.encoder


def test_norms_move_with_their_place():
    assert switch(BERT, pre_norm=True).stack.final_norm == BERT.stack.block[-1].norm
    assert switch(GPT2, pre_norm=False).stack.final_norm is None
    assert {s.place for s in switch(GPT2, sandwich_norm=True).stack.block} == {"sandwich"}


def test_schedules():
    assert switch(GPT2, sandwich_coef=1).stack.schedule == Sandwich(coefficient=1)
    assert switch(GPT2, weight_tie_layers=True).stack.schedule == Shared(unique=1)
    with pytest.raises(SpecError, match="coefficient"):
        switch(GPT2, sandwich_coef=3)


def test_relative_positions_replace_their_kind():
    once = switch(GPT2, rel_pos_bias=True)
    twice = switch(once, rel_pos_bias=True, rel_pos_num_buckets=16)
    assert twice.stack.relative == (Buckets(bidirectional=False, count=16),)
    assert switch(twice, alibi_pos_bias=True, rel_pos_bias=False).stack.relative == (ALiBi(),)
    assert switch(BERT, rel_pos_bias=True).stack.relative == (Buckets(bidirectional=True),)


def test_residuals_and_norms():
    gated = switch(GPT2, gate_residual=True, macaron=True)
    assert [s.residual for s in gated.stack.block] == [
        Gated(branch=0.5),
        Gated(),
        Gated(branch=0.5),
    ]
    plain = switch(GPT2, use_rmsnorm=True)
    assert all(isinstance(s.norm, RMSNorm) for s in plain.stack.block)
    assert isinstance(plain.stack.final_norm, LayerNorm)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"cross_residual_attn": True}, "no cross sublayer"),
        ({"attn_collab_compression": 0.5}, "attn_collab_heads=True"),
        ({"attn_logit_softclamp_value": 5.0}, "attn_softclamp_logits=True"),
        ({"rotary_emb_dim": 8}, "rotary_pos_emb=True"),
        ({"rel_pos_num_buckets": 8}, "rel_pos_bias=True"),
        ({"tupe_cls": True}, "set tupe"),
        ({"use_abs_pos_emb": True, "max_mem_len": -1}, "max_mem_len must be at least 0"),
        ({"attn_dropout": 1.5}, "attn_dropout must be at least 0 and at most 1"),
        ({"attn_kv_heads": 3}, "kv_heads"),
    ],
)
def test_words_that_would_do_nothing_are_refused(words, message):
    with pytest.raises(SpecError, match=message):
        switch(GPT2, **words)
