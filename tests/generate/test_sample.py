"""Generation equals recomputing everything for each token; padding, seeds, stops and errors."""

import math

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import Sampling, generate
from anyformer.generate.draw import Numbers
from anyformer.generate.narrow import top_k, top_p
from anyformer.generate.sample import pick
from anyformer.model.model import build
from anyformer.recipes import recipe

VOCAB = 23


def decoder(position=None, memory=0, stack=None, **attention) -> S.Model:
    block = (
        S.Sublayer(branch=S.Attention(heads=2, causal=True, **attention)),
        S.Sublayer(branch=S.FeedForward(hidden=32)),
    )
    return S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=VOCAB), position=position, memory=memory),
        stack=S.Stack(block=block, depth=2, **(stack or {})),
        head=S.Vocabulary(tied=False),
        init=S.Init(std=0.7),
    )


SPECS = {
    "rotary": decoder(rotary=S.Rotary(), kv_heads=1),
    "T5 bias": decoder(
        stack={"relative": (S.Buckets(count=8, max_distance=12, bidirectional=False),)}
    ),
    "learned, memory tokens": decoder(position=S.Learned(length=16), memory=3),
    "memory keys": S.override(decoder(rotary=S.Rotary()), "stack.block.0.branch.memory", 3),
    "window": decoder(window=3, relative=(S.ALiBi(),)),
    "carry": decoder(carry=True, rotary=S.Rotary()),
    "XL": decoder(relative=(S.XL(),), stack={"recurrence": 4}),
    "talking top-k": decoder(talking="both", weigh=S.TopK(k=2), relative=(S.Shaw(clip=3),)),
    "untied": decoder(stack={"untied": S.Untied(length=16)}),
    "reversible": decoder(rotary=S.Rotary(), stack={"reversible": True}),
    "looped": decoder(rotary=S.Rotary(), stack={"schedule": S.Shared(unique=1)}),
}


def model_of(name):
    return build(SPECS[name]).double().eval()


def by_argmax(model, ids, steps, **named):
    """Greedy decoding that forgets everything between tokens."""
    for _ in range(steps):
        ids = torch.cat([ids, model(ids, **named).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


def prompts(*lengths):
    return [torch.randint(VOCAB, (1, n)) for n in lengths]


def padded(rows):
    """Rows of ids, padded on the left, and their mask."""
    longest = max(r.shape[1] for r in rows)
    pad = lambda r, value: torch.nn.functional.pad(r, (longest - r.shape[1], 0), value=value)
    return torch.cat([pad(r, 0) for r in rows]), torch.cat(
        [pad(torch.ones_like(r), 0) for r in rows]
    )


@pytest.mark.parametrize("name", SPECS)
def test_greedy_equals_recomputation(name):
    model, ids = model_of(name), torch.randint(VOCAB, (8, 5))
    out = generate(model, ids, 8)
    assert torch.equal(out, by_argmax(model, ids, 8))
    assert len(out[:, 5:].unique()) > 3  # the model says more than one thing


@pytest.mark.parametrize("name", SPECS)
def test_left_padded_prompts_equal_single_ones(name):
    model, rows = model_of(name), prompts(5, 2, 1)
    ids, mask = padded(rows)
    out = generate(model, ids, 6, attention_mask=mask)
    for row, single in zip(out, rows, strict=True):
        alone = generate(model, single, 6)[0]
        assert torch.equal(row[-len(alone) :], alone)


def test_an_encoder_decoder_continues_its_decoder_ids():
    spec = S.override(recipe("t5", dim=16, depth=2, heads=2, vocab=VOCAB), "init.std", 0.5)
    model = build(spec).double().eval()
    source, mask = padded(prompts(6, 3))
    start = torch.zeros(2, 1, dtype=torch.long)
    out = model.generate(source, 6, attention_mask=mask, decoder_input_ids=start)
    ids = start
    for _ in range(6):
        logits = model(source, attention_mask=mask, decoder_input_ids=ids).logits
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(out, ids)


def test_an_image_is_captioned():
    reader = recipe("vit", dim=16, depth=1, heads=2, image=8, patch=4)
    reader = S.override(reader, "head", None)
    block = (
        S.Sublayer(branch=S.Attention(heads=2, causal=True)),
        S.Sublayer(branch=S.Attention(heads=2, cross=True)),
    )
    spec = S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=VOCAB), position=S.Learned(length=9)),
        stack=S.Stack(block=block, depth=1),
        head=S.Vocabulary(),
        encoder=reader,
    )
    start = torch.zeros(2, 1, dtype=torch.long)
    out = build(spec).generate(
        pixel_values=torch.randn(2, 3, 8, 8), decoder_input_ids=start, max_new_tokens=4
    )
    assert out.shape == (2, 5)


def test_seeds():
    model, ids = model_of("rotary"), torch.randint(VOCAB, (2, 4))
    draw = lambda seed: generate(model, ids, 8, do_sample=True, temperature=2.0, seed=seed)
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    state = torch.get_rng_state()
    draw(3)
    assert torch.equal(state, torch.get_rng_state())
    free = generate(model, ids, 8, do_sample=True, temperature=2.0)
    assert not torch.equal(state, torch.get_rng_state())
    assert torch.equal(free[:, :4], ids)


def test_a_tiny_nucleus_and_one_candidate_are_greedy():
    model, ids = model_of("rotary"), torch.randint(VOCAB, (2, 4))
    greedy = generate(model, ids, 6)
    assert torch.equal(generate(model, ids, 6, do_sample=True, top_k=1), greedy)
    assert torch.equal(generate(model, ids, 6, do_sample=True, top_p=1e-9), greedy)
    assert torch.equal(generate(model, ids, 6, do_sample=True, temperature=1e-6), greedy)


def test_draws_follow_the_distribution():
    share = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = share.log().expand(20000, -1)
    numbers = Numbers(None, 20000, 1, logits.device).at(0)
    picked = lambda **o: pick(logits, Sampling(do_sample=True, **o), numbers)
    drawn = lambda **o: picked(**o).bincount(minlength=4) / 20000
    assert torch.allclose(drawn(), share, atol=0.02)
    assert torch.allclose(drawn(top_k=2), torch.tensor([0.625, 0.375, 0, 0]), atol=0.02)
    assert torch.allclose(drawn(top_p=0.7), torch.tensor([0.625, 0.375, 0, 0]), atol=0.02)
    hot = share.square() / share.square().sum()
    assert torch.allclose(drawn(temperature=0.5), hot, atol=0.02)


def test_narrowing_keeps_what_reaches_the_share():
    logits = torch.tensor([[0.05, 0.5, 0.15, 0.3]]).log()
    left = lambda k, p: top_p(top_k(logits, k or 99), p or 1.0)[0].isfinite().tolist()
    assert left(None, 0.5) == [False, True, False, False]
    assert left(None, 0.51) == [False, True, False, True]
    assert left(None, 1.0) == [True] * 4
    assert left(3, None) == [False, True, True, True]
    assert left(99, None) == [True] * 4
    assert left(2, 0.9) == [False, True, False, True]


def test_rows_stop_at_eos_and_are_filled_with_it():
    model, ids = model_of("rotary"), torch.randint(VOCAB, (4, 3))
    free = generate(model, ids, 10)
    eos = int(free[0, 5])  # the third new token of row 0
    out = generate(model, ids, 10, eos_token_id=eos)
    for row, unstopped in zip(out, free, strict=True):
        found = (unstopped[3:] == eos).nonzero()
        stop = 3 + int(found[0]) + 1 if len(found) else len(out[0])
        assert torch.equal(row[:stop], unstopped[:stop])
        assert (row[stop:] == eos).all()


def test_generation_ends_when_all_rows_have():
    model, ids = model_of("rotary"), torch.randint(VOCAB, (1, 3))
    first = int(generate(model, ids, 1)[0, -1])
    assert generate(model, ids, 10, eos_token_id=first).shape == (1, 4)


def test_modes_are_restored_also_after_an_error(monkeypatch):
    model = build(S.override(SPECS["rotary"], "stack.block.0.branch.dropout", 0.5))
    model.stack.blocks[1].eval()
    before = [m.training for m in model.modules()]
    ids = torch.randint(VOCAB, (2, 3))
    assert torch.equal(generate(model, ids, 5), generate(model, ids, 5))  # no dropout
    assert [m.training for m in model.modules()] == before
    with torch.no_grad():
        model.head.weight.fill_(math.nan)
    with pytest.raises(InputError, match="NaN"):
        generate(model, ids, 5)
    assert [m.training for m in model.modules()] == before


def test_ids_keep_their_dtype():
    ids = torch.randint(VOCAB, (2, 3), dtype=torch.int32)
    assert generate(model_of("rotary"), ids, 2).dtype == torch.int32


def test_the_last_position_can_be_used():
    model = build(decoder(position=S.Learned(length=8)))
    ids = torch.randint(VOCAB, (1, 5))
    assert generate(model, ids, 4).shape == (1, 9)  # the ninth id is never read
    with pytest.raises(InputError, match="max_new_tokens=5 after 5 ids needs 9 positions"):
        generate(model, ids, 5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"top_p": 0.0, "do_sample": True}, "top_p must be a number above 0 and at most 1"),
        ({"top_p": 1.5, "do_sample": True}, "top_p must be"),
        ({"top_p": "0.5", "do_sample": True}, "top_p must be"),
        ({"temperature": 0.0, "do_sample": True}, "temperature must be a number above 0"),
        ({"temperature": math.nan, "do_sample": True}, "temperature must be"),
        ({"temperature": None, "do_sample": True}, "temperature must be"),
        ({"top_k": 0, "do_sample": True}, "top_k must be an int of at least 1"),
        ({"top_k": 2.0, "do_sample": True}, "top_k must be an int"),
        ({"temperature": 0.7}, "temperature change what is drawn: set do_sample=True"),
        ({"top_k": 5}, "set do_sample=True"),
        ({"do_sample": 1}, "do_sample must be True or False"),
        ({"max_new_tokens": 0}, "max_new_tokens must be an int of at least 1"),
        ({"max_new_tokens": None}, "max_new_tokens"),
        ({"eos_token_id": VOCAB}, "eos_token_id is 23, outside 0..22"),
        ({"eos_token_id": -1}, "eos_token_id must be"),
        ({"seed": "1"}, "seed must be"),
        ({"temprature": 0.7}, "did you mean 'temperature'"),
        ({"attention_mask": torch.tensor([[1, 1, 0]])}, "pad prompts on the left"),
        ({"attention_mask": torch.ones(1, 2)}, "attention_mask must have shape"),
        ({"attention_mask": torch.ones(1, 3)}, "attention_mask must hold integers"),
        ({"decoder_input_ids": torch.ones(1, 1, dtype=torch.long)}, "leave decoder_input_ids out"),
        ({"input_ids": None}, "needs input_ids"),
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, "one id a row at least"),
        ({"input_ids": torch.zeros(3, dtype=torch.long)}, "one id a row at least"),
        ({"input_ids": [1, 2]}, "one id a row at least"),
        ({"input_ids": torch.zeros(1, 3)}, "input_ids must be integers"),
        ({"input_ids": torch.tensor([[VOCAB]])}, "input_ids hold 23, outside 0..22"),
    ],
)
def test_bad_options_are_refused(options, says):
    call = {"input_ids": torch.tensor([[1, 2, 3]]), **options}
    with pytest.raises(InputError, match=says):
        generate(build(SPECS["rotary"]), **call)


def test_models_that_cannot_are_refused():
    ids = torch.tensor([[1, 2]])
    with pytest.raises(InputError, match="causal"):
        generate(build(recipe("encoder", dim=8, depth=1, heads=2, vocab=9)), ids)
    with pytest.raises(InputError, match="Vocabulary head"):
        generate(build(S.override(SPECS["rotary"], "head", None)), ids)
    with pytest.raises(InputError, match="continues decoder_input_ids"):
        generate(build(recipe("t5", dim=8, depth=1, heads=2, vocab=9, start=None)), ids)
