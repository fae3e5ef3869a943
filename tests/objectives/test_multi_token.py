"""Several tokens ahead: labels by distance, the first head's answer the model's own."""

import numpy as np
import pytest
import torch

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.causal import Causal
from anyformer.objectives.multi_token import MultiToken
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, learns, trainee_of

TOK = T.tokenizer("gpt2")
SIZES = {"dim": 16, "depth": 2, "heads": 2, "vocab": len(TOK)}
SPECS = {
    "gpt2": recipe("gpt2", length=24, dropout=0.0, **SIZES),
    "llama": recipe("llama", kv_heads=1, hidden=24, **SIZES),
    "one layer": recipe("gpt2", length=24, dropout=0.0, **{**SIZES, "depth": 1}),
}


def test_labels_are_the_tokens_ahead_within_the_document():
    ids, documents = np.arange(10, 22), np.array([0] * 5 + [1] * 7)
    objective = MultiToken(ahead=3).bind(TOK, SPECS["gpt2"])
    assert objective.length(9) == 12
    found = objective.example(T.Rows([ids], [documents]), 0, T.rng())
    assert found["labels"].shape == (9, 3) and found["input_ids"].tolist() == list(range(10, 19))
    for t in range(9):
        for i in (1, 2, 3):
            want = ids[t + i] if documents[t + i] == documents[t] else IGNORED
            assert found["labels"][t, i - 1] == want
    crossing = MultiToken(ahead=3, cross=True).bind(TOK, SPECS["gpt2"])
    assert (crossing.example(T.Rows([ids], [documents]), 0, T.rng())["labels"] != IGNORED).all()


@pytest.mark.parametrize("name", SPECS)
def test_gradients_reach_every_block_and_it_learns(name):
    objective = MultiToken(ahead=3).bind(TOK, SPECS[name])
    trainee = trainee_of(objective, SPECS[name])
    batch = batch_of(objective, T.text_rows(TOK, 20, 3))
    check_step(trainee, batch)
    first, last = learns(trainee, batch)
    assert last < first


def test_the_next_token_is_what_the_causal_objective_asks():
    rows = T.text_rows(TOK, 20, 2)
    many, one = MultiToken(ahead=1), Causal()
    totals = []
    for plan in (many, one):
        objective = plan.bind(TOK, SPECS["llama"])
        trainee = trainee_of(objective, SPECS["llama"]).eval()
        totals.append(next(iter(trainee(batch_of(objective, rows)).losses.values())))
    torch.testing.assert_close(*totals)


def test_a_head_that_is_the_last_block_gives_the_models_own_logits():
    spec, rows = SPECS["gpt2"], T.text_rows(TOK, 20, 2)
    objective = MultiToken(ahead=2).bind(TOK, spec)
    trainee = trainee_of(objective, spec).eval()
    batch = batch_of(objective, rows)
    trainee.beside[0].stack.blocks[0].load_state_dict(trainee.model.stack.blocks[-1].state_dict())
    batch["labels"] = batch["labels"][..., :1].expand(-1, -1, 2)
    losses = trainee(batch).losses
    torch.testing.assert_close(losses["ahead 1"], losses["ahead 2"])


def test_what_it_needs_is_told():
    with pytest.raises(InputError, match="is for decoders"):
        MultiToken().bind(TOK, recipe("bert", length=24, **SIZES))
    with pytest.raises(InputError, match="reversible"):
        spec = recipe("gpt2", length=24, **SIZES, **{"stack.reversible": True})
        MultiToken().bind(TOK, spec)
