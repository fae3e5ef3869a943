"""Spans out of tags, and windows that ask about each token once."""

import pytest

import anyformer
from anyformer import spec as S
from anyformer.tasks.tokens import Tagged, cuts, groups, merged
from tests.tasks.tiny import built, texts, words


@pytest.mark.parametrize("count", [1, 7, 8, 9, 15, 16, 17, 50])
@pytest.mark.parametrize("room", [1, 2, 3, 8])
def test_windows_ask_about_each_token_once(count, room):
    found = list(cuts(count, room))
    assert [at for _, asked in found for at in asked] == list(range(count))
    for start, asked in found:
        assert len(asked) and start <= asked[0] and asked[-1] < min(count, start + room)
    if room == 8 and count == 50:  # neighbours on both sides, but at the ends
        assert all(asked[0] - start >= 2 for start, asked in found[1:])


def test_neighbours_of_one_kind_are_one_span():
    tags = ["B-X", "I-X", "B-X", "O", "I-Y", "E-Y", "S-Y", "X"]
    found = [merged(g) for g in groups([Tagged(t, 0.5, i, i + 1) for i, t in enumerate(tags)])]
    told = [(one.label, one.start, one.end) for one in found]
    assert told == [("X", 0, 2), ("X", 2, 3), ("O", 3, 4), ("Y", 4, 6), ("Y", 6, 7), ("X", 7, 8)]


def test_words_are_a_text():
    model = built("bert", S.Project(size=3), "bert", length=64)
    done = anyformer.task(
        "classify-tokens", model, tokenizer=words("bert"), labels=["O", "B-X", "I-X"]
    )
    text = texts(1)[0]
    assert done({"words": text.split()}) == done(text)


def test_short_windows_of_tags_cover_the_text():
    model = built("bert", S.Project(size=2), "bert", length=64)
    text = texts(1, 25, 30)[0]
    asked = {"labels": ["a", "b"], "aggregate": "none", "tokenizer": words("bert")}
    found = anyformer.task("classify-tokens", model, length=12, **asked)(text)
    whole = anyformer.task("classify-tokens", model, length=64, truncate=True, **asked)(text)
    assert len(found) == len(words("bert").encode(text)) >= len(whole)
