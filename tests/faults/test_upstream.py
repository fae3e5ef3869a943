"""Combinations that fail in x-transformers 2.31.10: each works here, or is refused by name."""

import copy

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.compat.words import switch
from anyformer.compat.x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    XTransformer,
)
from anyformer.errors import InputError, SpecError
from anyformer.generate import generate
from tests.faults.helping import assert_refused

SMALL = {"dim": 16, "depth": 2, "heads": 2}
TEXT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def made(**words):
    """A decoder in float64 with x-transformers' keywords, every weight of which shows."""
    torch.manual_seed(0)
    spec = switch(anyformer.recipe("gpt2", **SMALL, vocab=23, length=64, dropout=0.0), **words)
    model = anyformer.build(S.override(spec, "init.std", 0.4)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def assert_learns(model, **given):
    """A finite loss, and finite gradients of every weight that takes part."""
    loss = model(TEXT, labels=TEXT, **given).loss
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert loss.isfinite() and grads and all(g.isfinite().all() for g in grads)


def assert_cached(model, first=5, **given):
    """Decoding token by token from a cache equals the full pass."""
    whole = model(TEXT, **given).logits
    out = model(TEXT[:, :first], use_cache=True, **given)
    parts = [out.logits]
    for at in range(first, TEXT.shape[1]):
        out = model(TEXT[:, at : at + 1], past_key_values=out.past_key_values)
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, **CLOSE)


def assert_segments(model, size=4, **given):
    """Three segments with memory equal one long pass."""
    whole, mems, parts = model(TEXT).logits, None, []
    for start in range(0, TEXT.shape[1], size):
        out = model(TEXT[:, start : start + size], mems=mems, return_mems=True, **given)
        mems = out.mems
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, **CLOSE)


def assert_blind(model, **given):
    """What comes later changes nothing before it."""
    other = TEXT.clone()
    other[0, 7] = 11
    a, b = model(TEXT, **given).logits, model(other, **given).logits
    torch.testing.assert_close(a[:, :7], b[:, :7], **CLOSE)
    assert not torch.allclose(a[:, 7:], b[:, 7:])


def assert_ragged(model):
    """Prompts of unequal lengths give what each gives alone."""
    prompts = [[3, 1, 4, 1, 5], [9, 2], [6]]
    for row, prompt in zip(generate(model, prompts, 6), prompts, strict=True):
        alone = generate(model, [prompt], 6)[0]
        assert row[-len(alone) :].tolist() == alone.tolist()


# ------------------------------------------------------------- what crashes upstream in forward


def test_u1_top_k_of_fewer_keys():
    model = made(attn_sparse_topk=8)
    assert model(TEXT[:, :3]).logits.isfinite().all()
    assert_learns(model)
    assert_cached(model, 2)
    assert_blind(model)


def test_u2_masks_with_memory_keys():
    model = made(attn_num_mem_kv=3)
    mask = torch.ones_like(TEXT)
    mask[:, 9:] = 0
    found = model(TEXT, attention_mask=mask).logits[:, :9]
    torch.testing.assert_close(found, model(TEXT[:, :9]).logits, **CLOSE)
    assert_learns(model, attention_mask=mask)
    assert_cached(model)
    biased = made(attn_num_mem_kv=3, rel_pos_bias=True)
    assert_cached(biased)
    assert_blind(biased)


def test_u3_masks_with_segment_memory():
    model = made(max_mem_len=16)
    assert_segments(model)
    first = model(TEXT[:, :6], return_mems=True)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    found = model(TEXT[:, 6:], mems=first.mems, attention_mask=mask).logits[:, :4]
    short = model(TEXT[:, 6:10], mems=first.mems).logits
    torch.testing.assert_close(found, short, **CLOSE)


@pytest.mark.parametrize("words", [{"attn_num_mem_kv": 3}, {"num_memory_tokens": 2}, {}])
def test_u4_prefixes_with_memory(words):
    model = made(**words)
    lengths = torch.tensor([5])
    assert_learns(model, prefix_lengths=lengths)
    assert_cached(model, 5, prefix_lengths=lengths)
    other = TEXT.clone()
    other[0, 4] = 11
    seen = model(TEXT, prefix_lengths=lengths).logits - model(other, prefix_lengths=lengths).logits
    assert seen[:, 0].any()  # the prefix sees all of itself


def test_u4_prefixes_with_segment_memory():
    model = made(max_mem_len=16)
    lengths = torch.tensor([5])
    out = model(TEXT, prefix_lengths=lengths, return_mems=True)
    plain = model(TEXT, prefix_lengths=lengths)
    torch.testing.assert_close(out.logits, plain.logits, **CLOSE)
    assert model(TEXT, mems=out.mems).logits.isfinite().all()


def test_u5_sinusoids_and_prompts_of_unequal_lengths():
    model = made(scaled_sinu_pos_emb=True)
    assert_ragged(model)
    assert_cached(model)


def test_u6_a_prefix_and_a_cache():
    model = made()
    assert_cached(model, 5, prefix_lengths=torch.tensor([5]))
    with assert_refused("prefix_lengths", error=InputError):
        generate(model, TEXT, 3, prefix_lengths=torch.tensor([5]))


def test_u7_vectors_with_memory_tokens():
    layers = Decoder(**SMALL)
    model = ContinuousTransformerWrapper(
        dim_in=5, dim_out=3, max_seq_len=16, attn_layers=layers, num_memory_tokens=2
    ).eval()
    x = torch.randn(2, 9, 5)
    assert model(x).shape == (2, 9, 3)
    model(x).sum().backward()
    tokens = made(num_memory_tokens=2)
    vectors = tokens.embed.vectors(TEXT, None)
    found = tokens(inputs_embeds=vectors).logits
    torch.testing.assert_close(found, tokens(TEXT).logits, **CLOSE)


REFUSED = {
    "u8 carried scores and a learned sink": {"residual_attn": True, "attn_head_learned_sink": True},
    "u9 normed values of few heads": {"attn_value_rmsnorm": True, "attn_kv_heads": 1},
    "u10 wide values and memory keys": {"attn_value_dim_head": 4, "attn_num_mem_kv": 2},
    "u11 projected distances and memory keys": {
        "attn_use_rel_proj_pos_bias": True,
        "attn_num_mem_kv": 2,
    },
    "u12 contextual positions": {"attn_use_cope": True, "attn_cope_soft_onehot_pos": True},
    "u13 polar positions and segments": {"polar_pos_emb": True, "max_mem_len": 8},
    "u14 slopes from data and segments": {"attn_data_dependent_alibi": True, "max_mem_len": 8},
    "u15 hyper-connections and segments": {"num_residual_streams": 4, "max_mem_len": 8},
    "u16 residual values and segments": {"add_value_residual": True, "max_mem_len": 8},
    "u17 a class token and a cache": {"use_cls_token": True},
    "u18 blocks left out and layers integrated": {"layer_dropout": 0.1, "integrate_layers": True},
    "u19 z-loss on the fast path": {"attn_z_loss_weight": 0.1, "attn_flash": True},
    "u20 a polar start": {"polar_bias_uniform_init": True},
    "u21 attention on attention that starts at zero": {
        "attn_on_attn": True,
        "zero_init_branch_output": True,
    },
    "u22 aggregated residuals of a small model": {"attn_aggregated_residuals": True},
    "u23 an orthogonal residual": {"orthog_residual": True},
    "u24 orthogonal values": {"attn_orthog_projected_values": True},
    "u25 a residual split in two": {"mv_split_residual": True},
    "u26 slopes from data, row by row": {"attn_data_dependent_alibi_per_row": True},
    "u27 shifted tokens": {"shift_tokens": 1},
    "u28 one's own attention on the fast path": {"attn_flash": True, "attn_custom_attn_fn": len},
    "u29 Gumbel noise on the fast path": {"attn_flash": True, "attn_gumbel_softmax": True},
    "u30 selective attention and segments": {"attn_selective": True, "max_mem_len": 8},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    """What leaks, crashes or is ignored upstream and is no switch here is said to be none."""
    words = REFUSED[name]
    known = {"residual_attn", "attn_kv_heads", "attn_num_mem_kv", "max_mem_len", "layer_dropout",
             "attn_flash", "attn_on_attn"}  # fmt: skip
    strange = next(word for word in words if word not in known)
    with assert_refused(strange, error=SpecError, remedy=False):
        made(**words)


# ------------------------------------------------------------ what is silently wrong upstream


SWITCHES = {
    "top-k": {"attn_sparse_topk": 3},
    "entmax": {"attn_use_entmax15": True},
    "talking heads": {"talking_heads": True},
    "carried scores": {"residual_attn": True},
    "memory keys": {"attn_num_mem_kv": 2},
    "memory tokens": {"num_memory_tokens": 2},
    "ALiBi": {"alibi_pos_bias": True},
    "T5 bias": {"rel_pos_bias": True},
    "rotary": {"rotary_pos_emb": True},
    "gates": {"gate_residual": True, "attn_on_attn": True},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_u31_no_switch_sees_the_future(name):
    assert_blind(made(**SWITCHES[name]))


@pytest.mark.parametrize("name", SWITCHES)
def test_u32_no_switch_makes_a_cache_differ(name):
    assert_cached(made(**SWITCHES[name]))


@pytest.mark.parametrize("name", ["top-k", "talking heads", "T5 bias", "ALiBi"])
def test_u33_nothing_is_ignored_on_the_fast_path(name):
    eager, fast = (made(attn_flash=flash, **SWITCHES[name]) for flash in (False, True))
    fast.load_state_dict(eager.state_dict())
    torch.testing.assert_close(fast(TEXT).logits, eager(TEXT).logits, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(made()(TEXT).logits, fast(TEXT).logits)


def test_u34_a_call_can_not_change_what_is_causal():
    with assert_refused("causal", error=InputError):
        made()(TEXT, causal=False)


@pytest.mark.parametrize("name", ["memory tokens", "memory keys", "top-k", "rotary"])
def test_u35_prompts_of_unequal_lengths(name):
    assert_ragged(made(**SWITCHES[name]))


@pytest.mark.parametrize("name", SWITCHES)
def test_u36_segments_equal_one_pass(name):
    assert_segments(made(**SWITCHES[name], max_mem_len=16))


def test_u37_a_sandwich_that_would_lose_cross_attention():
    spec = anyformer.recipe("t5", **SMALL, vocab=23)
    with assert_refused("no cross-attention would be left", "Choose a smaller", error=SpecError):
        switch(spec, dec_sandwich_coef=SMALL["depth"])


def test_u38_a_bias_counts_once_where_scores_are_carried():
    """Without queries the scores are the bias alone: in every layer the same, not one more each."""
    model = made(residual_attn=True, rel_pos_bias=True)
    with torch.no_grad():
        for block in model.stack.blocks:
            block[0].branch.q.weight.zero_()
            block[0].branch.q.bias.zero_()
    first, second = model(TEXT, output_attentions=True).attentions
    torch.testing.assert_close(second, first, **CLOSE)
    assert first[0, 0, -1].std() > 1e-3


def test_u39_blocks_left_out_keep_their_memories():
    model = made(layer_dropout=0.5, max_mem_len=16)
    assert_segments(model)
    model.train()
    for seed in range(4):
        torch.manual_seed(seed)
        out = model(TEXT[:, :4], return_mems=True)
        kept = [tuple(t.shape) for t in out.mems.hidden.values()]
        assert kept == [(1, 4, 16)] * 2


def test_u40_an_encoder_can_not_be_trained_to_continue():
    model = TransformerWrapper(num_tokens=23, max_seq_len=16, attn_layers=Encoder(**SMALL))
    with assert_refused("needs a TransformerWrapper around a Decoder", error=SpecError):
        AutoregressiveWrapper(model)


def test_u41_modes_are_restored_after_an_error(monkeypatch):
    model = made().train()
    with pytest.raises(InputError):
        generate(model, [[99]], 3)
    assert model.training
    monkeypatch.setattr(model.stack.blocks[1], "forward", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(model, [[3]], 3)
    assert model.training


def test_u42_copies_of_tied_models_stand_alone():
    model = made()
    assert model.spec.head.tied
    twin = copy.deepcopy(model)
    torch.nn.init.zeros_(twin.embed.token.weight)
    assert not torch.equal(model(TEXT).logits, twin(TEXT).logits)
    assert model.embed.token.weight.any()


def test_u43_keywords_are_never_dropped():
    small = {"num_tokens": 23, "max_seq_len": 16, "depth": 1, "heads": 2}
    sides = {f"{side}_{k}": v for side in ("enc", "dec") for k, v in small.items()}
    with assert_refused("bogus", error=SpecError, remedy=False):
        XTransformer(dim=16, bogus=True, **sides)
    with assert_refused("attn_bogus", error=SpecError, remedy=False):
        Decoder(**SMALL, attn_bogus=True)


@pytest.mark.parametrize("norm", [S.ScaleNorm(), S.RMSNorm(eps=1e-8), S.LayerNorm()])
def test_u44_rows_of_zeros_in_half_precision(norm):
    from anyformer.parts import build

    part = build(norm, 8).half()
    assert part(torch.zeros(2, 8, dtype=torch.float16)).isfinite().all()


def test_u45_a_context_that_is_wholly_hidden():
    torch.manual_seed(0)
    model = anyformer.build(anyformer.recipe("t5", **SMALL, vocab=23)).eval()
    out = model(TEXT, attention_mask=torch.zeros_like(TEXT), decoder_input_ids=TEXT[:, :4])
    assert out.logits.isfinite().all()
