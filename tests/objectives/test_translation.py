"""Parallel texts: masked on both sides, or written from one another with languages' tokens."""

import numpy as np
import pytest

from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.masked import Masked
from anyformer.objectives.translation import Translation, TranslationLM
from anyformer.recipes import recipe
from tests.objectives.samples import Records, rng, tokenizer

PAIRS = Records(
    [
        {"source": "the name", "target": "is a value", "source_lang": "en", "target_lang": "fr"},
        {"source": "a", "target": "the class of it", "source_lang": "fr", "target_lang": "en"},
    ]
)


def xlm(langs=2, **options):
    tok = tokenizer("xlm")
    return recipe("xlm", dim=16, depth=1, heads=2, vocab=len(tok), langs=langs, **options)


def translator(name="m2m-100"):
    return recipe(name, dim=16, depth=1, heads=2, vocab=540)


def test_both_sides_stand_in_one_row_with_positions_of_their_own():
    tok = tokenizer("xlm")
    plan = TranslationLM(masking=Masked(rate=0.0), languages=("en", "fr"))
    found = plan.bind(tok, xlm()).example(PAIRS, 0, rng())
    first, second = ([0, *tok.encode(PAIRS[0][side]), 1] for side in ("source", "target"))
    assert found["input_ids"].tolist() == [*first, *second]
    assert found["position_ids"].tolist() == [*range(len(first)), *range(len(second))]
    assert found["langs"].tolist() == [0] * len(first) + [1] * len(second)


def test_both_sides_are_masked():
    tok = tokenizer("xlm")
    objective = TranslationLM(languages=("en", "fr")).bind(tok, xlm())
    asked = sum(
        (objective.example(PAIRS, 0, rng(0, i))["labels"] != IGNORED).astype(int)
        for i in range(400)
    )
    ids = np.array([0, *tok.encode("the name"), 1, 0, *tok.encode("is a value"), 1])
    special = np.isin(ids, (0, 1))
    assert not asked[special].any() and (asked[~special] > 20).all()


def test_padding_has_no_position_and_no_language():
    objective = TranslationLM(languages=("fr", "en")).bind(tokenizer("xlm"), xlm())
    more = Records([*PAIRS, {**PAIRS[0], "source": "the name of the class"}])
    batch = objective.collate([objective.example(more, i, rng(0, i)) for i in range(3)])
    pads = batch["attention_mask"] == 0
    assert pads.any() and not batch["langs"][pads].any() and not batch["position_ids"][pads].any()


def test_a_long_pair_is_cut_and_languages_are_optional():
    tok = tokenizer("xlm")
    long = Records([{"source": "the name " * 40, "target": "value"}])
    found = TranslationLM(context=24).bind(tok, xlm(langs=0)).example(long, 0, rng())
    assert len(found["input_ids"]) == 24 and "langs" not in found


@pytest.mark.parametrize(
    ("plan", "langs", "message"),
    [
        (TranslationLM(), 2, "name them in the order"),
        (TranslationLM(languages=("a", "b", "c")), 2, "build it with more langs"),
        (TranslationLM(context=5), 0, "no room for two texts: take 6"),
    ],
)
def test_languages_must_fit_the_model(plan, langs, message):
    with pytest.raises(InputError, match=message):
        plan.bind(tokenizer("xlm"), xlm(langs))


def test_records_must_have_their_fields():
    objective = TranslationLM(languages=("en", "de")).bind(tokenizer("xlm"), xlm())
    with pytest.raises(InputError, match="unknown language 'fr'"):
        objective.example(PAIRS, 0, rng())
    with pytest.raises(InputError, match="needs a text 'target'; this one has source"):
        objective.example(Records([{"source": "x"}]), 0, rng())


def test_m2m_puts_languages_in_front():
    tok = tokenizer("m2m_100")
    found = Translation().bind(tok, translator()).example(PAIRS, 0, rng())
    en, fr = tok.id("__en__"), tok.id("__fr__")
    assert found["input_ids"].tolist() == [en, *tok.encode("the name"), 2]
    assert found["labels"].tolist() == [fr, *tok.encode("is a value"), 2]
    assert found["decoder_input_ids"].tolist() == [2, *found["labels"][:-1]]
    both = tok.with_languages("en", "fr")
    assert both("the name")["input_ids"] == found["input_ids"].tolist()


def test_mbart_puts_them_behind_and_starts_with_the_last():
    tok = tokenizer("mbart")
    coded = Records([{**PAIRS[0], "source_lang": "en_XX", "target_lang": "ro_RO"}])
    found = Translation().bind(tok, translator("mbart")).example(coded, 0, rng())
    assert found["labels"].tolist()[-2:] == [2, tok.id("ro_RO")]
    assert found["decoder_input_ids"][0] == tok.id("ro_RO")


def test_a_tokenizer_without_languages_takes_tokens_of_its_vocabulary():
    tok = tokenizer("t5")
    plan = Translation(language="<extra_id_{}>")
    numbered = Records([{**PAIRS[0], "source_lang": "0", "target_lang": "1"}])
    found = plan.bind(tok, translator("t5")).example(numbered, 0, rng())
    assert found["input_ids"].tolist() == [519, *tok.encode("the name"), 1]
    plain = Records([{"source": "the name", "target": "value"}])
    assert plan.bind(tok, translator("t5")).example(plain, 0, rng())["input_ids"][-1] == 1
    with pytest.raises(InputError, match=r"no token for the language 'en': add '__en__'"):
        Translation().bind(tok, translator("t5")).example(PAIRS, 0, rng())


def test_long_texts_keep_their_ends():
    tok = tokenizer("m2m_100")
    long = Records([{**PAIRS[0], "source": "the name " * 50, "target": "is " * 50}])
    found = Translation(context=10, answer=7).bind(tok, translator()).example(long, 0, rng())
    assert [len(found[n]) for n in ("input_ids", "labels", "decoder_input_ids")] == [10, 7, 7]
    assert found["input_ids"][-1] == found["labels"][-1] == 2
