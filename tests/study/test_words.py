"""Variants as they are written: recipes with words put on them."""

import pytest

import anyformer
from anyformer import spec as S
from anyformer.errors import SpecError, StudyError
from anyformer.study.words import SHORT, chosen, put, split, variant

SIZE = {"dim": 16, "depth": 2, "heads": 2, "vocab": 50}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gpt2", ["gpt2"]),
        ("gpt2+rotary+ff_glu", ["gpt2", "rotary", "ff_glu"]),
        (" gpt2 + stack.depth=4 ", ["gpt2", "stack.depth=4"]),
        ("gpt2+x=Shared(unique=1+2)+y", ["gpt2", "x=Shared(unique=1+2)", "y"]),
        ("gpt2+rotary_base=1e+5+glu", ["gpt2", "rotary_base=1e+5", "glu"]),
        ("gpt2+a=(1,+2)", ["gpt2", "a=(1,+2)"]),
    ],
)
def test_a_text_is_split_at_plus_signs(text, parts):
    assert split(text) == parts
    assert (variant(text).base, list(variant(text).words)) == (parts[0], parts[1:])


def test_a_variant_needs_a_recipe():
    with pytest.raises(StudyError, match="names no recipe"):
        variant("+rotary")


@pytest.mark.parametrize("name", SHORT)
def test_every_short_name_changes_a_model(name):
    recipe = "gpt2" if name != "no-positions" else "bert"
    plain = anyformer.recipe(recipe, **SIZE)
    assert put(plain, recipe, [name]) != plain


def test_words_are_switches_options_and_paths():
    plain = anyformer.recipe("gpt2", **SIZE)
    words = ["glu", "depth=3", "stack.depth=4", "attn_num_mem_kv=2"]
    assert chosen("gpt2", words) == {"depth": 3}
    found = put(plain, "gpt2", words)
    assert found.stack.depth == 4 and plain.stack.depth == 2
    assert put(plain, "gpt2", ["stack.schedule=Shared(unique=1)"]).stack.schedule == S.Shared(
        unique=1
    )


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("rotry", "did you mean 'rotary'"),
        ("stack.dept=3", "did you mean 'depth'"),
        ("stack.schedule=Shared(uniqe=1)", "did you mean 'unique'"),
    ],
)
def test_an_unknown_word_is_told_with_the_nearest(word, told):
    with pytest.raises((StudyError, SpecError), match=told):
        put(anyformer.recipe("gpt2", **SIZE), "gpt2", [word])
