"""Objectives by name, and the one that each family's paper had."""

import pytest

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.causal import Causal
from anyformer.objectives.masked import Masked
from anyformer.objectives.registry import (
    OBJECTIVES,
    OWN,
    PLACES,
    default_for,
    fit,
    name_of,
    objective,
    read,
)
from anyformer.objectives.sentences import NextSentence, SentenceOrder
from anyformer.recipes import recipe
from anyformer.recipes.registry import RECIPES
from anyformer.recipes.sizes import SIZES

PAPERS = {
    "bert-large": "NextSentence",
    "roberta-base": "Masked",
    "xlm-roberta": "Masked",
    "albert": "SentenceOrder",
    "electra-small": "ReplacedToken",
    "deberta-v3-base": "ReplacedToken",
    "xlm": "TranslationLM",
    "gpt2-xl": "Causal",
    "llama-3-8b": "Causal",
    "qwen3": "Causal",
    "ctrl": "ControlCodes",
    "t5-11b": "SpanCorruption",
    "mt5-small": "SpanCorruption",
    "bart": "Denoising",
    "mbart": "Denoising",
    "m2m100-418m": "Translation",
}


@pytest.mark.parametrize("name", PLACES)
def test_objectives_are_data_under_their_names(name):
    plan = objective(name)
    assert type(plan) is OBJECTIVES[name] and name_of(plan) == name
    assert read(S.to_dict(plan)) == plan


def test_unknown_names_offer_the_nearest():
    with pytest.raises(InputError, match="did you mean 'masked'"):
        objective("maskd")
    with pytest.raises(InputError, match="unknown objective"):
        read({"is": "Rotary"})
    with pytest.raises(InputError, match="is no objective"):
        name_of(S.LayerNorm())
    with pytest.raises(InputError, match="unknown recipe 'brt'; did you mean 'bert'"):
        default_for("brt")
    assert "masked" in OBJECTIVES and len(OBJECTIVES) == len(PLACES) and "no" not in OBJECTIVES


@pytest.mark.parametrize(("name", "kind"), PAPERS.items())
def test_each_family_has_its_paper_s_objective(name, kind):
    assert type(default_for(name)).__name__ == kind


def test_every_recipe_has_one():
    for name in [*RECIPES, *SIZES]:
        found = SIZES.get(name, (name,))[0]
        if OWN.get(found) in (None, *(own for own in OWN.values() if not isinstance(own, str))):
            assert default_for(name)


def test_static_and_dynamic_masks_are_the_papers():
    assert not default_for("bert").masking.dynamic and default_for("roberta").dynamic
    ngrams = default_for("albert").masking
    assert (ngrams.spans, ngrams.unit, ngrams.longest) == ("ngram", "word", 3)
    assert default_for("modernbert").rate == 0.3


def test_the_head_of_a_spec_decides_between_a_family_s_objectives():
    bert = recipe("bert", dim=16, depth=1, heads=2)
    words = S.override(bert, "head", S.Vocabulary())
    assert default_for("bert", words) == Masked(dynamic=False)
    assert default_for("bert", bert) == NextSentence()
    xlm = recipe("xlm", dim=16, depth=1, heads=2)
    assert default_for("xlm", xlm) == Masked()
    one_way = recipe("xlm", dim=16, depth=1, heads=2, causal=True, langs=3)
    assert default_for("xlm", one_way) == Causal()
    assert default_for("t5", recipe("t5")) == objective("span-corruption")


@pytest.mark.parametrize(
    ("name", "head", "wanted"),
    [
        ("gpt2", None, Causal()),
        ("roberta", None, Masked()),
        ("t5", None, objective("span-corruption")),
        ("bert", S.Pretraining(asks="next"), NextSentence()),
        ("bert", S.Pretraining(asks="order"), SentenceOrder()),
    ],
)
def test_a_spec_alone_tells_by_its_shape(name, head, wanted):
    spec = S.override(recipe(name, dim=16, depth=1, heads=2), "head", head)
    assert default_for(spec) == wanted


def test_a_spec_is_fitted_to_its_objective():
    bert = recipe("bert", dim=16, depth=1, heads=2)
    assert isinstance(fit(NextSentence(), bert).head, S.Pretraining)
    assert isinstance(fit(Masked(), fit(NextSentence(), bert)).head, S.Vocabulary)
    assert fit("anything else", bert) == bert
