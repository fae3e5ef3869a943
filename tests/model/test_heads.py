"""Heads that ask for more than ids and labels: choices, spans, replaced tokens, last tokens."""

import pytest
import torch
import torch.nn.functional as F

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.model import build

IDS = torch.arange(24).view(2, 3, 4) % 11


def model_of(head, **embed):
    block = (S.Sublayer(branch=S.Attention(heads=2)), S.Sublayer(branch=S.FeedForward()))
    source = S.Tokens(vocab=11)
    return build(
        S.Model(
            dim=8,
            embed=S.Embed(source=source, **embed),
            stack=S.Stack(block=block, depth=1),
            head=head,
        )
    ).eval()


def test_choices_are_rows_of_their_own():
    torch.manual_seed(0)
    model = model_of(S.Choices(hidden=5))
    mask = torch.ones_like(IDS)
    mask[0, 1, 2:] = 0
    labels = torch.tensor([2, 0])
    out = model(IDS, attention_mask=mask, labels=labels)
    assert out.logits.shape == (2, 3)
    alone = model(IDS[0, 1, :2][None, None]).logits
    torch.testing.assert_close(out.logits[0, 1], alone[0, 0])
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, labels))


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"input_ids": IDS[0]}, "input_ids must have 3 axes"),
        ({"input_ids": IDS, "attention_mask": torch.ones(6, 4)}, "attention_mask must have 3"),
        ({"input_ids": IDS, "token_type_ids": IDS[:, :2]}, "2 shapes"),
        ({"input_ids": IDS, "labels": torch.tensor([3, 0])}, "labels hold 3, outside 0..2"),
        ({"input_ids": IDS, "labels": torch.zeros(6).long()}, r"of shape \(2,\)"),
        ({"input_ids": IDS, "start_positions": torch.zeros(2).long()}, "no Span head"),
    ],
)
def test_choices_refuse(named, says):
    with pytest.raises(InputError, match=says):
        model_of(S.Choices(), types=2)(**named)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"labels": torch.zeros(2).long()}, "start_positions and end_positions"),
        ({"start_positions": torch.zeros(2).long()}, "pass both"),
        ({"start_positions": torch.zeros(2, 1), "end_positions": torch.zeros(2)}, "shape"),
        (dict.fromkeys(("start_positions", "end_positions"), torch.tensor([0, -1])), "hold -1"),
    ],
)
def test_spans_refuse(named, says):
    with pytest.raises(InputError, match=says):
        model_of(S.Span())(IDS[0][:2], **named)


def test_an_answer_in_the_padding_counts_for_nothing():
    model, mask = model_of(S.Span()), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    ends = {"end_positions": torch.tensor([1, 0])}
    inside = model(IDS[0][:2], attention_mask=mask, start_positions=torch.tensor([2, 2]), **ends)
    beyond = model(IDS[0][:2], attention_mask=mask, start_positions=torch.tensor([2, 9]), **ends)
    assert torch.isfinite(inside.loss)
    assert torch.equal(inside.loss, beyond.loss)


def test_a_token_ends_the_question():
    model, ids = (
        model_of(S.Span(token=3), types=2),
        torch.tensor([[1, 2, 3, 4, 3], [1, 2, 4, 5, 6]]),
    )
    types = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
    out, low = model(ids), torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    told = model(ids, token_type_ids=types)
    for found, wanted in ((out.start_logits, told.start_logits), (out.end_logits, told.end_logits)):
        assert torch.equal(found, wanted)
        assert torch.equal(found < -1e5, low)
    vectors = model.embed.token(ids)
    assert (model(inputs_embeds=vectors).start_logits > -1e5).all()
    with pytest.raises(InputError, match=r"head\.token"):
        model(ids, document_ids=torch.zeros_like(ids))


@pytest.mark.parametrize("left", [False, True])
def test_padding_says_nothing_of_the_question(left):
    model, short = model_of(S.Span(token=3), types=2), torch.tensor([[1, 2, 3, 4]])
    pads = torch.tensor([[3, 3]])
    ids = torch.cat([pads, short] if left else [short, pads], 1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1] if left else [1, 1, 1, 1, 0, 0]])
    real = slice(2, 6) if left else slice(0, 4)
    found = model(ids, attention_mask=mask).start_logits[:, real]
    torch.testing.assert_close(found, model(short).start_logits)


def test_replaced_tokens_count_where_they_are_real():
    model, ids = model_of(S.Detect()), IDS[0][:2]
    mask, labels = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), torch.tensor([[0, 1, 0, -100]] * 2)
    out = model(ids, attention_mask=mask, labels=labels)
    real = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()
    wanted = F.binary_cross_entropy_with_logits(out.logits[real], labels[real].float())
    torch.testing.assert_close(out.loss, wanted)
    with pytest.raises(InputError, match=r"outside 0\.\.1"):
        model(ids, labels=labels.clamp(min=0) * 2)


@pytest.mark.parametrize("answers", ["many", "numbers"])
def test_numbers_are_floats(answers):
    model = model_of(S.Classes(count=3, answers=answers))
    with pytest.raises(InputError, match=r"floats of shape \(3, 3\)"):
        model(IDS[0], labels=torch.zeros(3).long())
    assert model(IDS[0], labels=torch.zeros(3, 3)).loss.dim() == 0


@pytest.mark.parametrize(
    "head",
    [
        S.Classes(count=3, dropout=0.5),
        S.Classes(count=3, hidden=5, pool_dropout=0.5),
        S.Project(size=3, dropout=0.5),
        S.Span(dropout=0.5),
        S.Span(transform=S.Transform(hidden=5, dropout=0.5)),
        S.Choices(dropout=0.5),
    ],
)
def test_dropout_acts_in_training_alone(head):
    model = model_of(head)
    ids = IDS if isinstance(head, S.Choices) else IDS[0]
    answer = lambda: model(ids)[0]
    assert torch.equal(answer(), answer())
    model.train()
    assert not torch.equal(answer(), answer())


@pytest.mark.parametrize("token", [None, 10])
def test_the_last_real_token_is_read(token):
    model = model_of(S.Classes(count=3, pool="last", token=token))
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 10, 10], [10, 10, 7, 8]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    found = model(ids, attention_mask=mask).logits
    for row in range(3):
        alone = model(ids[row, mask[row].bool()][None]).logits
        torch.testing.assert_close(found[row : row + 1], alone)
    vectors = model.embed.token(ids)
    torch.testing.assert_close(found, model(inputs_embeds=vectors, attention_mask=mask).logits)


def test_an_id_that_pads_is_no_last_token():
    model = model_of(S.Classes(count=3, pool="last", token=10))
    states = model(IDS[0]).last_hidden_state
    assert IDS[0, 2].tolist() == [8, 9, 10, 0]
    ids = IDS[0].clone()
    ids[2, 3] = 10
    states = model(ids).last_hidden_state
    at = torch.tensor([3, 3, 1])
    torch.testing.assert_close(model(ids).logits, model.head.out(states[torch.arange(3), at]))
    ids[0] = 10  # no other: the first is read
    out = model(ids)
    torch.testing.assert_close(out.logits[0], model.head.out(out.last_hidden_state[0, 0]))


def test_the_last_marked_token_is_read():
    model = model_of(S.Classes(count=3, pool="marked", token=4))
    ids = torch.tensor([[4, 1, 4, 2], [3, 4, 5, 4]])
    states = model(ids, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
    wanted = model.head.out(states.last_hidden_state[[0, 1], [2, 1]])
    torch.testing.assert_close(states.logits, wanted)
    with pytest.raises(InputError, match="every row needs one"):
        model(ids.clamp(max=3))
    with pytest.raises(InputError, match="pass them"):
        model(inputs_embeds=torch.zeros(2, 4, 8))


def test_an_optional_cross_attention_may_go_unused():
    spec = model_of(S.Project(size=3)).spec
    cross = S.Sublayer(branch=S.Attention(heads=2, cross=True, optional=True), place="post")
    own, feed = spec.stack.block
    both = build(S.override(spec, "stack.block", (own, cross, feed))).eval()
    without = build(spec).eval()
    kept = {k: v for k, v in both.state_dict().items() if ".0.1." not in k}
    without.load_state_dict({k.replace(".0.2.", ".0.1."): v for k, v in kept.items()})
    ids, context = IDS[0], torch.randn(3, 5, 8)
    torch.testing.assert_close(both(ids).logits, without(ids).logits)
    assert not torch.equal(both(ids, encoder_hidden_states=context).logits, both(ids).logits)
    must = build(S.override(both.spec, "stack.block.1.branch.optional", False))
    with pytest.raises(InputError, match="nothing to read"):
        must(ids)


def test_a_skipped_token_has_no_place():
    model = model_of(S.Project(size=3), position=S.Learned(length=9, offset=4, skip=3))
    ids = torch.tensor([[5, 3, 6, 7]])
    found = []
    model.embed.position.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    model(ids)
    model(ids, document_ids=torch.tensor([[0, 0, 1, 1]]))
    model(torch.tensor([[8, 5, 3, 6]]), attention_mask=torch.tensor([[0, 1, 1, 1]]))
    model(inputs_embeds=torch.zeros(1, 4, 8))
    assert [rows.tolist()[0] for rows in found] == [
        [4, 3, 5, 6],
        [4, 3, 4, 5],
        [4, 4, 3, 5],
        [4, 5, 6, 7],
    ]


def test_double_heads_read_sequences_of_choices():
    torch.manual_seed(0)
    model = model_of(S.Double(act="tanh"))
    mask = torch.ones_like(IDS)
    mask[0, 1, 2:] = 0
    labels = {"labels": IDS.masked_fill(mask == 0, -100), "mc_labels": torch.tensor([2, 0])}
    out = model(IDS, attention_mask=mask, **labels)
    assert out.logits.shape == (2, 3, 4, 11)
    assert out.mc_logits.shape == (2, 3)
    alone = model(IDS[0, 1, :2][None, None])
    torch.testing.assert_close(out.mc_logits[0, 1], alone.mc_logits[0, 0])
    torch.testing.assert_close(out.mc_loss, F.cross_entropy(out.mc_logits, labels["mc_labels"]))
    wanted = F.cross_entropy(out.logits.flatten(0, 2), labels["labels"].flatten())
    torch.testing.assert_close(out.loss, wanted)  # not causal: at their own positions
    at = torch.tensor([[0, 1, 3], [2, 2, 0]])
    found = model(IDS, attention_mask=mask, mc_token_ids=at)
    states = found.last_hidden_state[torch.arange(6), at.flatten()]
    torch.testing.assert_close(found.mc_logits, model.head.out(states).tanh().view(2, 3))
    assert found.keys()[:2] == ["logits", "mc_logits"]


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"input_ids": IDS[0]}, "input_ids must have 3 axes"),
        ({"input_ids": IDS, "mc_token_ids": torch.zeros(2, 2).long()}, "2 shapes"),
        ({"input_ids": IDS, "mc_token_ids": torch.full((2, 3), 4)}, r"hold 4, outside 0\.\.3"),
        ({"input_ids": IDS, "mc_token_ids": torch.full((2, 3), -100)}, r"hold -100, outside 0"),
        ({"input_ids": IDS, "mc_labels": torch.tensor([3, 0])}, r"hold 3, outside 0\.\.2"),
        ({"input_ids": IDS, "labels": IDS.flatten(0, 1)}, r"of shape \(2, 3, 4\)"),
    ],
)
def test_double_heads_refuse(named, says):
    with pytest.raises(InputError, match=says):
        model_of(S.Double())(**named)
    with pytest.raises(InputError, match="no Double head"):
        model_of(S.Vocabulary())(IDS[0], mc_labels=torch.zeros(3).long())


@pytest.mark.parametrize("cls", [True, False])
def test_hidden_patches_are_restored(cls):
    source = S.Patches(image=4, patch=2, cls=cls)
    model = build(
        S.override(
            S.override(model_of(S.Pooler()).spec, "embed.source", source), "head", S.Pixels()
        )
    ).eval()
    torch.nn.init.normal_(model.head.mask)
    image, hidden = torch.randn(2, 3, 4, 4), torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0]]).bool()
    out = model(pixel_values=image, bool_masked_pos=hidden)
    assert out.reconstruction.shape == image.shape
    other = image.clone()
    other[0, :, :2, :2] = other[1, :, :2, 2:] = 7.0  # what is hidden is not seen
    again = model(pixel_values=other, bool_masked_pos=hidden)
    torch.testing.assert_close(again.reconstruction, out.reconstruction)
    assert not torch.equal(model(pixel_values=image).reconstruction, out.reconstruction)
    far = (out.reconstruction - image).abs()
    tiles = [far[0, :, :2, :2], far[0, :, 2:, 2:], far[1, :, :2, 2:]]
    torch.testing.assert_close(out.loss, torch.stack(tiles).mean(), atol=1e-5, rtol=1e-5)
    out.loss.backward()
    assert model.head.mask.grad.abs().min() > 0
    with pytest.raises(InputError, match="bool_masked_pos must have shape"):
        model(pixel_values=image, bool_masked_pos=hidden[:, :3])
    with pytest.raises(InputError, match="no Pixels head"):
        model_of(S.Pooler())(IDS[0], bool_masked_pos=hidden)


TWO = {name: torch.zeros(3).long() for name in ("start_positions", "end_positions")}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({}, "have 4 positions"),
        (TWO | {"end_positions": torch.full((3,), 4)}, r"hold 4, outside 0\.\.3"),
        ({"start_positions": torch.zeros(3).long()}, "pass both"),
        (TWO | {"is_impossible": torch.zeros(3)}, "and cls_index"),
        (TWO | {"p_mask": torch.zeros(3, 3)}, r"p_mask must have shape \(3, 4\)"),
        (TWO | {"labels": torch.zeros(3).long()}, "answers are start_positions"),
    ],
)
def test_beams_refuse(named, says):
    with pytest.raises(InputError, match=says):
        model_of(S.Beams())(IDS[0], **named)
    with pytest.raises(InputError, match="no Beams head"):
        model_of(S.Span())(IDS[0], p_mask=torch.zeros(3, 4))


def test_no_beam_is_where_none_may_be():
    model, shut = model_of(S.Beams(starts=2, ends=2)), torch.tensor([[1, 0, 1, 0]] * 3)
    out = model(IDS[0], p_mask=shut)
    assert set(out.start_top_index.flatten().tolist()) == {1, 3}
    assert set(out.end_top_index.flatten().tolist()) == {1, 3}
    torch.testing.assert_close(out.start_top_log_probs.sum(1), torch.ones(3))
