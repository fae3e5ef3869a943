"""Recipes: published sizes, JSON round trips, errors that help."""

import math

import pytest
import torch
import transformers

import anyformer
from anyformer.errors import SpecError
from anyformer.model.census import census
from anyformer.recipes import options, recipe, recipes
from anyformer.spec import XL, Model, RMSNorm, from_json, problems, to_json

PUBLISHED = {
    "bert": ({}, 109_482_240),
    "bert-large": ({"dim": 1024, "depth": 24, "heads": 16}, 335_141_888),
    "gpt2": ({}, 124_439_808),
    "gpt2-xl": ({"dim": 1600, "depth": 48, "heads": 25}, 1_557_611_200),
    "t5": ({}, 60_506_624),
    "t5-base": ({"dim": 768, "depth": 12, "heads": 12}, 222_903_552),
    "vit": ({}, 86_567_656),
    "vit-large": ({"dim": 1024, "depth": 24, "heads": 16}, 304_326_632),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name):
    given, published = PUBLISHED[name]
    assert anyformer.count(recipe(name.partition("-")[0], **given)).parameters == published


LONG = {"type_vocab_size": 1, "max_position_embeddings": 514}
BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
ENCODERS = {
    "bert": ("BertModel", {}),
    "distilbert": ("DistilBertModel", {}),
    "albert": ("AlbertModel", BASE),
    "electra": ("ElectraForPreTraining", {}),
    "roberta": ("RobertaModel", LONG),
    "xlm-roberta": ("XLMRobertaModel", {**LONG, "vocab_size": 250002}),
    "roberta-prelayernorm": ("RobertaPreLayerNormModel", LONG),
    "xlm": ("XLMWithLMHeadModel", {}),
    "modernbert": ("ModernBertForMaskedLM", {}),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_have_as_many_parameters_as_those_of_transformers(name):
    kind, fields = ENCODERS[name]
    theirs = getattr(transformers, kind)
    with torch.device("meta"):
        model = theirs(theirs.config_class(**fields))
    assert anyformer.count(recipe(name)).parameters == model.num_parameters()


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_is_sound_and_survives_json(name):
    spec = recipe(name)
    assert isinstance(spec, Model)
    assert problems(spec) == []
    assert from_json(to_json(spec)) == spec
    assert spec == recipe(name, **options(name))


@pytest.mark.parametrize("name", recipes())
def test_every_option_does_something(name):
    sizes = {"dim": 64, "vocab": 8, "image": 4}
    small = {k: sizes.get(k, 2) for k, value in options(name).items() if type(value) is int}
    changed = {"dim": 128, "vocab": 16, "image": 8, "kv_heads": 1}
    for option, value in options(name).items():
        kinds = {float: 0.5, bool: not value, str: "relu"}
        other = changed.get(option) or kinds.get(type(value), 4)
        assert recipe(name, **small) != recipe(name, **{**small, option: other}), option


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_says_what_it_is(name):
    assert 20 < len(recipes()[name]) < 100
    assert recipes()[name].endswith(".")


def test_names():
    assert list(recipes()) == sorted(recipes())
    assert {"bert", "gpt2", "t5", "vit", "transformer-xl", "encoder-decoder"} <= set(recipes())


def test_paths_change_the_spec_after_the_options():
    spec = recipe("bert", depth=3, **{"stack.block.*.norm": RMSNorm(), "head": None})
    assert spec.stack.depth == 3
    assert {sub.norm for sub in spec.stack.block} == {RMSNorm()}
    assert spec.head is None


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("brt", {}, "unknown recipe 'brt'; did you mean 'bert'"),
        ("bert", {"dept": 3}, "unknown option of recipe 'bert' 'dept'; did you mean 'depth'"),
        ("bert", {"stack.dept": 3}, "did you mean 'depth'"),
        ("bert", {"stac.depth": 3}, "unknown option of recipe 'bert' 'stac.depth'"),
        ("bert", {"depth": "six"}, "bert: depth takes an int, not 'six'"),
        ("bert", {"depth": 0}, "bert: depth must be at least 1 and at most 10000, not 0"),
        ("gpt2", {"dropout": 2.0}, "at most 1"),
        ("vit", {"patch": 0}, "vit: patch must be at least 1"),
        ("vit", {"patch": 15}, "choose a patch size that divides the image size"),
        ("bert", {"heads": 7}, "dim is not a multiple of heads"),
    ],
)
def test_bad_input(name, given, message):
    with pytest.raises(SpecError, match=f"(?i){message}"):
        recipe(name, **given)


def test_t5_shares_its_tokens():
    keys = census(recipe("t5", depth=1)).keys()
    assert [key for key in keys if "token" in key] == ["embed.token.weight"]


def test_transformer_xl_has_its_positions_in_each_attention():
    spec = recipe("transformer-xl", depth=2)
    assert spec.stack.block[0].branch.relative == (XL(),)
    assert spec.stack.recurrence == 512
    keys = census(spec).keys()
    assert math.prod(keys["stack.blocks.1.0.branch.relative.0.project.weight"]) == 512 * 512


def test_transformer_xl_has_one_pair_of_biases_or_learned_tables_where_asked():
    shared = census(recipe("transformer-xl", depth=2, shared=True)).keys()
    assert [key for key in shared if "bias" in key and "relative" in key] == [
        "stack.relative.0.content_bias",
        "stack.relative.0.position_bias",
    ]
    learned = census(recipe("transformer-xl", depth=2, table=9)).keys()
    assert learned["stack.blocks.1.0.branch.relative.0.table"] == (10, 8, 64)
    with pytest.raises(SpecError, match="XLBiases lends u and v"):
        recipe("transformer-xl", table=9, shared=True)
