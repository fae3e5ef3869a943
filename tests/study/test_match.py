"""Sizes that make variants equal."""

import pytest

import anyformer
from anyformer.errors import StudyError
from anyformer.study.match import amount, hidden_of, matched, with_hidden
from anyformer.study.nodes import Match
from anyformer.study.words import put

SIZE = {"dim": 64, "depth": 2, "heads": 2, "vocab": 50}
BASE = anyformer.recipe("gpt2", **SIZE)


def _build(words=(), **size):
    def build(width, hidden):
        given = {**SIZE, **size, **({"dim": width} if width else {})}
        spec = put(anyformer.recipe("gpt2", **given), "gpt2", words)
        return spec if hidden is None else with_hidden(spec, hidden)

    return build


@pytest.mark.parametrize("on", ["parameters", "non_embedding", "flops"])
@pytest.mark.parametrize("by", ["width", "feedforward"])
@pytest.mark.parametrize("words", [("glu",), ("stack.depth=3",), ("stack.depth=1",)])
def test_a_variant_has_as_much_as_the_baseline(on, by, words):
    match = Match(on=on, by=by, within=0.1)
    found = matched(match, _build(words), BASE, 32)
    assert amount(found, on, 32) == pytest.approx(amount(BASE, on, 32), rel=0.1)


def test_what_is_equal_already_stays():
    found = matched(Match(on="non_embedding"), _build(("rotary",)), BASE, 32)
    assert hidden_of(found) == hidden_of(BASE) and found.dim == BASE.dim


def test_a_match_that_cant_be_is_refused_with_the_nearest():
    match = Match(by="feedforward")
    with pytest.raises(StudyError, match=r"the nearest, 4, has .* match by width"):
        matched(match, _build(depth=40), BASE, 32)
    with pytest.raises(StudyError, match="match by feedforward"):
        matched(Match(by="width", within=0.001), _build(("glu",), depth=3), BASE, 32)
