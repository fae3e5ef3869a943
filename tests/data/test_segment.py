"""Lines, sentences and paragraphs: nothing is lost, and the rules hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyformer.data import segment
from anyformer.errors import DataError

TEXT = (
    'Mr. J. Smith met Dr. Who. "Why?" he asked. It cost 3.50 in the U.S. in all... Really! (Yes.)'
)


def test_sentences():
    assert [part.strip() for part in segment.split(TEXT, "sentence")] == [
        "Mr. J. Smith met Dr. Who.",
        '"Why?" he asked.',
        "It cost 3.50 in the U.S. in all...",
        "Really!",
        "(Yes.)",
    ]


def test_a_space_belongs_to_the_sentence_behind_it():
    assert segment.split("One. Two.  Three.\n\nFour", "sentence") == [
        "One.",
        " Two.",
        "  Three.\n\n",
        "Four",
    ]


def test_sentences_of_other_scripts():
    assert segment.split("これは本です。それも？はい", "sentence") == [
        "これは本です。",
        "それも？",
        "はい",
    ]
    assert len(segment.split("Это дом. Он большой.", "sentence")) == 2


def test_lines_and_paragraphs():
    text = "a\nb\n\n\nc\n  \nd"
    assert segment.split(text, "line") == ["a\n", "b\n\n\n", "c\n  \n", "d"]
    assert segment.split(text, "paragraph") == ["a\nb\n\n\n", "c\n  \n", "d"]


@given(st.text(alphabet="aB .!?\n\"'。IU", max_size=60), st.sampled_from(sorted(segment.KINDS)))
def test_the_parts_are_the_text(text, kind):
    parts = segment.split(text, kind)
    assert "".join(parts) == text and all(parts)
    if text.strip():
        assert not any(part.isspace() for part in parts)


def test_time_is_linear_in_what_never_ends():
    for text in (". " * 50_000, "." * 100_000, "\n" * 100_000, " " * 100_000, "a. b" * 25_000):
        for kind in segment.KINDS:
            assert "".join(segment.split(text, kind)) == text


def test_an_unknown_kind():
    with pytest.raises(DataError, match="did you mean 'sentence'"):
        segment.split("a", "sentences")
