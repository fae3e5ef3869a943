"""The next token in packed rows, and the rest of a row behind a prefix."""

import numpy as np
import pytest

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.causal import Causal, PrefixLM
from anyformer.recipes import recipe
from tests.objectives.samples import Rows, rng, tokenizer

IDS = np.arange(10, 19)
DOCUMENTS = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])


def small(name, tok, **options):
    return recipe(name, dim=16, depth=1, heads=2, vocab=len(tok), **options)


def bound(plan, name="gpt2"):
    tok = tokenizer("gpt2")
    return plan.bind(tok, plan.fit(small(name, tok)))


def test_labels_are_the_next_tokens_and_stop_at_documents():
    found = bound(Causal()).example(Rows([IDS], [DOCUMENTS]), 0, rng())
    assert found["input_ids"].tolist() == [10, 11, 12, 13, 14, 15, 16, 17]
    assert found["labels"].tolist() == [11, 12, IGNORED, 14, 15, 16, IGNORED, 18]
    assert found["document_ids"].tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    assert bound(Causal()).length(8) == 9


def test_documents_may_see_each_other():
    found = bound(Causal(cross=True)).example(Rows([IDS], [DOCUMENTS]), 0, rng())
    assert found.keys() == {"input_ids", "labels"} and (found["labels"] == IDS[1:]).all()


def test_rows_of_one_document_need_no_mask():
    objective = bound(Causal())
    both = [objective.example(Rows([IDS], [d]), 0, rng()) for d in (DOCUMENTS, DOCUMENTS * 0)]
    assert "document_ids" in objective.collate(both)
    assert objective.collate(both[1:]).keys() == {"input_ids", "labels"}


def test_a_prefix_is_not_asked_for():
    objective, rows = bound(PrefixLM(cross=True)), Rows([IDS])
    cuts = []
    for i in range(2000):
        found = objective.example(rows, 0, rng(0, i))
        cut = int(found["prefix_lengths"])
        asked = found["labels"] != IGNORED
        assert asked.sum() == len(IDS) - cut and asked[cut - 1 :].all()
        assert (found["labels"][asked] == IDS[cut:]).all()
        cuts.append(cut)
    shares = np.bincount(cuts, minlength=9)[1:] / 2000
    assert len(shares) == 8 and np.abs(shares - 1 / 8).max() < 0.04
    batch = objective.collate([objective.example(rows, 0, rng(0, i)) for i in range(3)])
    assert batch["prefix_lengths"].tolist() == cuts[:3]


def test_a_prefix_can_be_a_share_of_the_row():
    objective = bound(PrefixLM(shortest=0.5, longest=0.5))
    found = objective.example(Rows([np.arange(40)]), 0, rng())
    assert found["prefix_lengths"] == 20
    last = bound(PrefixLM(shortest=1.0)).example(Rows([IDS], [np.arange(9)]), 0, rng())
    assert last["labels"].tolist() == [IGNORED] * 7 + [18]  # something is asked in any case


def test_an_encoder_decoder_reads_the_prefix_and_writes_the_rest():
    tok = tokenizer("t5")
    objective = PrefixLM().bind(tok, small("t5", tok))
    found = objective.example(Rows([IDS]), 0, rng(3))
    assert [*found["input_ids"], *found["labels"]] == list(IDS)
    assert found["decoder_input_ids"].tolist() == [0, *found["labels"][:-1]]
    assert objective.length(8) == 8


@pytest.mark.parametrize(
    ("plan", "name", "options", "message"),
    [
        (
            Causal(),
            "roberta",
            {},
            "Causal is for decoders, and this is an encoder: take .*'masked'",
        ),
        (Causal(), "t5", {}, "this is an encoder-decoder: take .*'span-corruption'"),
        (Causal(), "gpt2", {"head": None}, r"needs a model with the head Vocabulary.*fit\(spec\)"),
        (Causal(), "gpt2", {"embed.memory": 2}, "take cross=True"),
        (PrefixLM(shortest=0.5, longest=0.1), "gpt2", {}, "swap"),
        (PrefixLM(), "t5", {"start": None}, "give the spec start="),
    ],
)
def test_what_does_not_fit_says_what_to_do(plan, name, options, message):
    tok = tokenizer("gpt2")
    with pytest.raises(InputError, match=message):
        plan.bind(tok, small(name, tok, **options))


def test_a_vocabulary_that_is_too_small_is_refused():
    tok = tokenizer("gpt2")
    with pytest.raises(InputError, match=f"build the model with vocab={len(tok)}"):
        Causal().bind(tok, recipe("gpt2", dim=16, depth=1, heads=2, vocab=100))
    with pytest.raises(InputError, match="doesn't read tokens"):
        Causal().bind(tok, recipe("vit", dim=16, depth=1, heads=2))


def test_plans_are_data():
    plan = PrefixLM(cross=True, longest=0.5)
    assert S.from_dict(S.to_dict(plan)) == plan
    assert S.override(plan, "longest", 0.25).longest == 0.25
