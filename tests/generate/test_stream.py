"""Streams, stops, ragged prompts, several sequences, seeds, forced tokens and broken logits."""

from itertools import pairwise

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import generate, sample, stream
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import prompt_of
from anyformer.model.model import build
from anyformer.recipes import recipe

VOCAB = 23
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6]]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    block = (
        S.Sublayer(branch=S.Attention(heads=2, causal=True, rotary=S.Rotary())),
        S.Sublayer(branch=S.FeedForward(hidden=32)),
    )
    spec = S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=VOCAB)),
        stack=S.Stack(block=block, depth=2),
        head=S.Vocabulary(tied=False),
        init=S.Init(std=0.7),
    )
    return build(spec).double().eval()


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(2)
    spec = recipe("t5", dim=16, depth=2, heads=2, vocab=VOCAB)
    return build(S.override(spec, "init.std", 0.5)).double().eval()


def letters(ids):
    """A tokenizer's decode: one letter for each id."""
    return "".join(chr(97 + i) for i in ids)


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "temperature": 2.0, "seed": 3}])
def test_ragged_prompts_equal_single_ones(model, options):
    found = generate(model, PROMPTS, 7, **options)
    for row, prompt in zip(found, PROMPTS, strict=True):
        alone = generate(model, [prompt], 7, **options)[0]
        assert row[-len(alone) :].tolist() == alone.tolist()
        assert alone[: len(prompt)].tolist() == prompt


def test_ragged_sources_equal_single_ones(translator):
    found = generate(translator, PROMPTS, 7)
    for row, prompt in zip(found, PROMPTS, strict=True):
        alone = generate(translator, [prompt], 7, decoder_start_token_id=0)[0]
        assert torch.equal(row, alone) and alone[0] == 0


def test_ragged_beams_equal_single_ones(model):
    options = {"num_beams": 3, "num_return_sequences": 2, "eos_token_id": [4, 7]}
    found = generate(model, PROMPTS, 7, pad_token_id=0, **options)
    for i, prompt in enumerate(PROMPTS):
        alone = generate(model, [prompt], 7, pad_token_id=0, **options)[:, len(prompt) :]
        rows = found[2 * i : 2 * i + 2, 5:]
        assert torch.equal(rows[:, : alone.shape[1]], alone)
        assert (rows[:, alone.shape[1] :] == 0).all()


@pytest.mark.parametrize("options", [{"repetition_penalty": 1.7}, {"no_repeat_ngram_size": 2}])
def test_padding_is_no_token_that_was_written(model, options):
    found = generate(model, PROMPTS, 9, pad_token_id=5, **options)
    assert not torch.equal(found, generate(model, PROMPTS, 9, pad_token_id=5))
    for row, prompt in zip(found, PROMPTS, strict=True):
        alone = generate(model, [prompt], 9, **options)[0]
        assert row[-len(alone) :].tolist() == alone.tolist()


def test_no_pair_comes_twice(model):
    row = generate(model, PROMPTS[:1], 15, no_repeat_ngram_size=2)[0].tolist()
    pairs = list(pairwise(row))
    assert len(set(pairs)) == len(pairs)
    row = generate(model, [[1]], 15, no_repeat_ngram_size=1)[0].tolist()
    assert len(set(row)) == 16


def test_sequences_differ_and_follow_their_prompt(model):
    options = {"do_sample": True, "temperature": 3.0, "seed": 1}
    found = generate(model, PROMPTS, 6, num_return_sequences=4, **options)
    assert found.shape == (12, 11)
    assert len({tuple(row[5:].tolist()) for row in found[:4]}) == 4
    alone = generate(model, PROMPTS[1:2], 6, num_return_sequences=4, **options)
    assert torch.equal(found[4:8, 3:], alone)
    assert torch.equal(alone[:1], generate(model, PROMPTS[1:2], 6, **options))


def test_sequences_follow_the_models_distribution(model):
    many = 20_000
    found = generate(model, [[3, 1]], 1, do_sample=True, num_return_sequences=many, seed=0)
    wanted = model(torch.tensor([[3, 1]])).logits[0, -1].softmax(-1) * many
    counts = found[:, -1].bincount(minlength=VOCAB)
    real = wanted > 5
    assert ((counts - wanted).square() / wanted)[real].sum() < 2.5 * real.sum()


def test_a_stream_is_what_generate_returns(model):
    options = {"eos_token_id": [4, 7, 11], "pad_token_id": 0}
    steps = list(stream(model, PROMPTS, 10, **options))
    wanted = generate(model, PROMPTS, 10, **options)[:, 5:]
    assert torch.equal(torch.stack([s.tokens for s in steps], 1), wanted)
    for before, after in pairwise(steps):
        assert torch.equal(after.fresh, ~before.done)
        assert (after.tokens[before.done] == 0).all()
    ended = torch.stack([s.done & s.fresh for s in steps], 1)
    assert torch.isin(wanted[ended], torch.tensor([4, 7, 11])).all()


def test_a_stream_comes_step_by_step_and_can_be_left(model):
    model.train()
    calls = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    steps = stream(model, [[1]], 10)
    next(steps)
    assert len(calls) == 1 and not model.training
    assert torch.is_grad_enabled()
    steps.close()
    assert model.training
    hook.remove()
    model.eval()


def test_a_string_ends_a_row(model):
    free = generate(model, PROMPTS, 10)[:, 5:]
    stop = letters(free[0, 3:5].tolist())
    found = generate(model, PROMPTS, 10, stop_strings=stop, decode=letters, pad_token_id=0)[:, 5:]
    for row, whole in zip(found.tolist(), free.tolist(), strict=True):
        text = letters(whole)
        end = text.index(stop) + len(stop) if stop in text else len(row)
        assert row[:end] == whole[:end] and not any(row[end:])
    beams = generate(model, PROMPTS, 10, stop_strings=[stop], decode=letters, num_beams=2)
    assert beams.shape[0] == 3


def test_texts_are_long_enough(model):
    free = generate(model, [[1]], 1)
    eos = int(free[0, -1])
    found = generate(model, [[1]], 8, eos_token_id=eos, min_new_tokens=4)[0, 1:].tolist()
    assert eos not in found[:4]
    found = generate(model, [[1]], 8, forced_eos_token_id=2)[0].tolist()
    assert found[-1] == 2


def test_the_first_tokens_can_be_forced(model):
    found = generate(model, PROMPTS, 5, forced_bos_token_id=[8, 12])[:, 5:]
    assert (found[:, 0] == 8).all() and (found[:, 1] == 12).all()
    longer = [[*prompt, 8, 12] for prompt in PROMPTS]
    assert torch.equal(generate(model, longer, 3)[:, 7:], found[:, 2:])


def test_bad_words_are_not_written(model):
    row = generate(model, [[1]], 10)[0].tolist()
    banned = [[row[1]], row[3:5]]
    found = letters(generate(model, [[1]], 10, bad_words_ids=banned)[0].tolist())
    assert letters(banned[0]) not in found[1:] and letters(banned[1]) not in found


def test_a_memory_of_few_positions_bounds_what_is_kept(model):
    decoder = Growing(model)
    with torch.no_grad():
        decoder.start(prompt_of(model, [[1, 2, 3, 4, 5, 6]], {"mem_len": 4}))
        for token in (7, 8):
            decoder.step(torch.tensor([token]))
    assert decoder.past is not None and decoder.past.length == 4
    every = generate(model, PROMPTS, 9)
    assert torch.equal(generate(model, PROMPTS, 9, mem_len=99), every)
    assert not torch.equal(generate(model, PROMPTS, 9, mem_len=1), every)


@pytest.mark.parametrize("change", [{"stack.primed": True}, {"embed.memory": 2}])
def test_ragged_prompts_of_segment_memories(change):
    torch.manual_seed(0)
    block = (S.Sublayer(branch=S.Attention(heads=2, causal=True, relative=(S.XL(),))),)
    spec = S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=VOCAB)),
        stack=S.Stack(block=block, depth=2, recurrence=4),
        head=S.Vocabulary(tied=False),
        init=S.Init(std=0.7),
    )
    model = build(S.override(spec, *next(iter(change.items())))).double()
    options = {"mem_len": 4, "eos_token_id": [4, 7], "pad_token_id": 0}
    for beams in ({}, {"num_beams": 2}):
        found = generate(model, PROMPTS, 9, **options, **beams)[:, 5:]
        for row, prompt in zip(found, PROMPTS, strict=True):
            alone = generate(model, [prompt], 9, **options, **beams)[0, len(prompt) :]
            assert torch.equal(row[: len(alone)], alone) and not row[len(alone) :].any()


def test_broken_logits_name_the_row_and_the_step(model):
    class Broken(Growing):
        def step(self, tokens):
            logits = super().step(tokens)
            if self.past.length == 8:
                logits[1, 3] = float("nan")
            return logits

    with pytest.raises(InputError, match="row 1, new token 3 hold NaN"):
        generate(model, PROMPTS, 9, decoder=Broken(model))


@pytest.mark.parametrize("every", [2, 16])
def test_rare_looks_change_nothing(model, every, monkeypatch):
    options = {"eos_token_id": [4, 7, 11, 12, 13, 1], "pad_token_id": 0}
    wanted = [generate(model, [prompt], 20, **options) for prompt in [*PROMPTS, [2, 2]]]
    assert min(row.shape[1] for row in wanted) < 12
    monkeypatch.setattr(sample, "_every", lambda *_: every)
    for prompt, row in zip([*PROMPTS, [2, 2]], wanted, strict=True):
        assert torch.equal(generate(model, [prompt], 20, **options), row)


def test_bans_of_everything_are_refused(model):
    with pytest.raises(InputError, match="leave no token for row 0, new token 0"):
        generate(model, [[1]], 3, bad_words_ids=[[i] for i in range(VOCAB)])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stop_strings": "a"}, "need decode"),
        ({"stop_strings": [""], "decode": letters}, "not empty"),
        ({"num_beams": 2, "do_sample": True}, "leave one of them out"),
        ({"num_beams": 2, "num_return_sequences": 3}, "ask for more beams"),
        ({"num_beams": 2, "early_stopping": "often"}, "early_stopping must be"),
        ({"num_beams": 2, "length_penalty": "1"}, "length_penalty must be a number"),
        ({"length_penalty": 2.0}, "set num_beams above 1"),
        ({"num_return_sequences": 2}, "set do_sample=True or num_beams"),
        ({"min_new_tokens": 30}, "min_new_tokens is above"),
        ({"min_p": 0.0, "do_sample": True}, "min_p must be"),
        ({"typical_p": 2.0, "do_sample": True}, "typical_p must be"),
        ({"entmax_alpha": 1.0, "do_sample": True}, "entmax_alpha must be above 1"),
        ({"min_p": 0.1}, "min_p change what is drawn"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be"),
        ({"bad_words_ids": [[]]}, "a word without ids"),
        ({"bad_words_ids": [[VOCAB]]}, "bad_words_ids is 23"),
        ({"forced_bos_token_id": list(range(21))}, "more ids than max_new_tokens"),
        ({"eos_token_id": [1, "2"]}, "eos_token_id must be"),
        ({"attention_mask": torch.ones(3, 5, dtype=torch.long)}, "padded inside"),
        ({"input_ids": []}, "one id a row at least"),
        ({"input_ids": [[1], []]}, "one id a row at least"),
        ({"input_ids": [[1.5]]}, "input_ids must be integers"),
        ({"input_ids": [[1, VOCAB]]}, "outside 0..22"),
    ],
)
def test_bad_options_are_refused(model, options, says):
    with pytest.raises(InputError, match=says):
        generate(model, **{"input_ids": PROMPTS, **options})


def test_beams_do_not_stream(model):
    with pytest.raises(InputError, match="leave num_beams out"):
        next(stream(model, PROMPTS, 3, num_beams=2))
