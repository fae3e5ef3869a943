"""A draft changes how fast texts come, not which."""

import math

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import Draft, Sampling, generate
from anyformer.generate.draw import Numbers, draw
from anyformer.generate.narrow import probabilities
from anyformer.generate.speculative import Luck, judged
from anyformer.model.model import build
from anyformer.recipes import recipe

VOCAB = 13
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6]]


def decoder(seed, depth=2, vocab=VOCAB, std=0.7):
    torch.manual_seed(seed)
    block = (
        S.Sublayer(branch=S.Attention(heads=2, causal=True, rotary=S.Rotary())),
        S.Sublayer(branch=S.FeedForward(hidden=32)),
    )
    spec = S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=vocab), position=S.Learned(length=24)),
        stack=S.Stack(block=block, depth=depth),
        head=S.Vocabulary(tied=False),
        init=S.Init(std=std),
    )
    return build(spec).double().eval()


def drafts(model):
    """One that is always right, one that is often wrong, one that is sometimes right."""
    near = decoder(1)
    with torch.no_grad():
        for weight in near.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return {"itself": model, "another": decoder(2, 1), "near": near}


GUESSES = [(n, name) for n in (1, 3, 7) for name in ("itself", "another", "near")]
SOME = [(1, "near"), (3, "another"), (3, "near"), (7, "itself")]  # each number and each draft
MORE = [pytest.param(*case, marks=pytest.mark.slow) for case in GUESSES if case not in SOME]


@pytest.mark.parametrize(("tokens", "name"), [*SOME, *MORE])
def test_greedy_texts_are_the_same(tokens, name):
    model = decoder(1)
    draft = Draft(drafts(model)[name], tokens)
    for options in (
        {},
        {"eos_token_id": [2, 7], "pad_token_id": 0},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"forced_bos_token_id": [4, 5], "forced_eos_token_id": 3},
    ):
        wanted = generate(model, PROMPTS, 19, **options)
        assert torch.equal(generate(model, PROMPTS, 19, draft=draft, **options), wanted)
    assert torch.equal(generate(model, PROMPTS, 1, draft=draft), generate(model, PROMPTS, 1))


def test_an_encoder_decoder_has_a_draft_too():
    torch.manual_seed(3)
    make = lambda depth: build(
        S.override(recipe("t5", dim=16, depth=depth, heads=2, vocab=VOCAB), "init.std", 0.5)
    ).double()
    model, small = make(2), make(1)
    wanted = generate(model, PROMPTS, 9)
    assert torch.equal(generate(model, PROMPTS, 9, draft=small), wanted)


def test_a_good_draft_saves_calls():
    model = decoder(1)
    calls = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    twin = decoder(1)
    generate(model, [[1]], 17, draft=Draft(twin, 3))
    hook.remove()
    assert len(calls) == 1 + 4  # the prompt, then four tokens a call


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("top_k", [None, 3])
def test_judged_guesses_follow_the_models_distribution(seed, top_k):
    many, drawn = 20_000, torch.Generator().manual_seed(seed)
    p, q = (torch.randn(1, VOCAB, generator=drawn, dtype=torch.float64) * 2 for _ in range(2))
    options = Sampling(do_sample=True, top_k=top_k)
    p, q = (probabilities(x, options).expand(many, -1) for x in (p, q))
    luck = Luck(Numbers(seed, many, many, p.device))
    token, kept = judged(p, q, draw(q, luck.next()), luck)
    wanted = p[0] * many
    assert 0.02 < kept.double().mean() < 0.98 or top_k
    counts, real = token.bincount(minlength=VOCAB), p[0] > 0
    assert not counts[~real].any()
    free = int(real.sum()) - 1
    statistic = ((counts - wanted).square() / wanted)[real].sum()
    assert statistic < free + 4.5 * math.sqrt(2 * free)


def test_drawn_texts_follow_the_models_distribution():
    model, draft = decoder(1, 1, 4, 0.5), Draft(decoder(2, 1, 4, 0.5), 2)
    options = {"do_sample": True, "seed": 1, "num_return_sequences": 600}
    found = generate(model, [[1]], 3, draft=draft, **options)[:, 1:]
    every = torch.cartesian_prod(*[torch.arange(4)] * 3)
    whole = torch.cat([torch.ones(64, 1, dtype=torch.long), every], 1)
    chance = model(whole[:, :-1]).logits.log_softmax(-1).gather(2, whole[:, 1:, None])
    wanted = chance.sum((1, 2)).exp() * len(found)
    counts = (found * torch.tensor([16, 4, 1])).sum(1).bincount(minlength=64)
    real = wanted > 4
    statistic = ((counts - wanted).square() / wanted)[real].sum()
    assert statistic < int(real.sum()) + 4 * math.sqrt(2 * int(real.sum()))
    assert real.sum() > 12


def test_bad_drafts_are_refused():
    model = decoder(1)
    with pytest.raises(InputError, match="use one of its vocabulary"):
        generate(model, PROMPTS, 3, draft=decoder(1, vocab=9))
    with pytest.raises(InputError, match="draft_tokens must be"):
        generate(model, PROMPTS, 3, draft=Draft(model, 0))
    with pytest.raises(InputError, match="leave num_beams or draft out"):
        generate(model, PROMPTS, 3, draft=model, num_beams=2)
    with pytest.raises(InputError, match="can't go back"):
        generate(model, PROMPTS, 6, draft=decoder(2), mem_len=8)
