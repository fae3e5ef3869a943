"""Outputs by name, key and index; losses, hidden states, attentions and pooling."""

import pytest
import torch
import torch.nn.functional as F

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.model.output import Output
from anyformer.recipes import recipe

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
DECODER = recipe("decoder", dim=8, depth=3, heads=2, vocab=11, length=6)


def test_fields_that_are_there():
    loss, logits = torch.tensor(1.0), torch.zeros(2)
    out = Output(loss=loss, logits=logits)
    assert out.keys() == list(out) == ["loss", "logits"]
    assert len(out) == 2
    assert out["loss"] is out[0] is out.loss is loss
    assert out[:2] == out.to_tuple() == (loss, logits)
    assert "logits" in out
    assert "mems" not in out
    assert {**out} == {"loss": loss, "logits": logits}
    assert out.mems is None


def test_what_is_not_there_is_no_key():
    with pytest.raises(KeyError, match="loss"):
        Output()["loss"]
    with pytest.raises(IndexError):
        Output()[0]


def test_the_loss_comes_first_and_logits_next():
    out = build(DECODER)(IDS, labels=IDS)
    assert out.keys()[:2] == ["loss", "logits"]
    assert out.logits.shape == (2, 4, 11)
    assert out.last_hidden_state.shape == (2, 4, 8)


def test_causal_models_predict_the_next_token():
    out = build(DECODER)(IDS, labels=torch.where(IDS == 3, -100, IDS))
    logits, want = out.logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()
    keep = want != 3
    torch.testing.assert_close(out.loss, F.cross_entropy(logits[keep], want[keep]))


def test_encoders_predict_the_same_position():
    out = build(recipe("encoder", dim=8, depth=1, heads=2, vocab=11))(IDS, labels=IDS)
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits.flatten(0, 1), IDS.flatten()))


def test_decoders_with_an_encoder_predict_the_same_position():
    model = build(recipe("encoder-decoder", dim=8, depth=1, heads=2, vocab=11))
    out = model(IDS, decoder_input_ids=IDS, labels=IDS)
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits.flatten(0, 1), IDS.flatten()))
    assert out.encoder_last_hidden_state.shape == (2, 4, 8)


def test_hidden_states_and_attentions():
    out = build(DECODER).eval()(IDS, output_hidden_states=True, output_attentions=True)
    assert [h.shape for h in out.hidden_states] == [(2, 4, 8)] * 4
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
    assert [a.shape for a in out.attentions] == [(2, 2, 4, 4)] * 3
    for weights in out.attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 4))
        assert (weights.triu(1) == 0).all()
    plain = build(DECODER)(IDS)
    assert plain.hidden_states is None
    assert plain.attentions is None


@pytest.mark.parametrize("memory", [0, 2])
def test_hidden_states_are_those_of_the_input_also_after_left_padding(memory):
    spec = S.override(DECODER, "embed.memory", memory) if memory else DECODER
    model = build(spec).double().eval()
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1]])
    both = model(IDS, attention_mask=mask, output_hidden_states=True).hidden_states
    alone = model(IDS[1:, 3:], output_hidden_states=True).hidden_states
    for padded, single in zip(both, alone, strict=True):
        torch.testing.assert_close(padded[1:, 3:], single)


def classifier(pool, memory=0):
    block = (S.Sublayer(branch=S.Attention(heads=2)),)
    embed = S.Embed(source=S.Tokens(vocab=11), memory=memory, position=S.Sinusoidal())
    stack = S.Stack(block=block, depth=2)
    head = S.Pooler() if pool == "pooler" else S.Classes(count=3, pool=pool)
    return build(S.Model(dim=8, embed=embed, stack=stack, head=head, init=S.Init(std=0.5))).double()


@pytest.mark.parametrize("pool", ["first", "mean", "pooler"])
@pytest.mark.parametrize("memory", [0, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pooling_leaves_padding_out(pool, memory, side):
    model = classifier(pool, memory)
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    mask = mask if side == "left" else mask.flip(1)
    both = model(IDS, attention_mask=mask)
    alone = model(IDS[1:, 2:] if side == "left" else IDS[1:, :2])
    name = "pooler_output" if pool == "pooler" else "logits"
    torch.testing.assert_close(both[name][1:], alone[name])
    assert both[name].shape == (2, 8 if pool == "pooler" else 3)


def test_memories_are_returned_under_their_names():
    spec = recipe("transformer-xl", dim=8, depth=1, heads=2, hidden=16, vocab=11, memory=3)
    out = build(spec)(IDS, return_mems=True)
    assert "mems" in out
    assert "past_key_values" not in out
    assert out.mems.length == 3
    out = build(spec)(IDS, use_cache=True)
    assert "mems" not in out
    assert out.past_key_values.length == 4


@torch.no_grad()
def test_logits_of_the_last_positions_alone():
    model = build(recipe("decoder", dim=8, depth=1, heads=2, vocab=11)).eval()
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    whole = model(ids)
    for count in (1, 3, 4, 9):
        found = model(ids, logits_to_keep=count)
        assert torch.allclose(found.logits, whole.logits[:, -count:], atol=1e-6)
        assert torch.equal(found.last_hidden_state, whole.last_hidden_state)
