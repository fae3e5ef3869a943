"""Control codes in front of windows of documents."""

import numpy as np
import pytest

from anyformer.errors import InputError
from anyformer.objectives.base import IGNORED
from anyformer.objectives.control import ControlCodes
from anyformer.recipes import recipe
from tests.objectives.samples import Documents, rng, tokenizer

LONG = [np.arange(100, 200)]


def bound(**options):
    tok = tokenizer("ctrl")
    return ControlCodes(**options).bind(
        tok, recipe("ctrl", dim=16, depth=1, heads=2, vocab=len(tok))
    )


def test_the_code_is_read_and_the_text_is_asked_for():
    objective = bound(context=16)
    code = objective.ids_of("Books")
    starts = set()
    for i in range(300):
        found = objective.example(Documents([LONG], ["Books"]), 0, rng(0, i))
        ids, labels = found["input_ids"], found["labels"]
        asked = labels[labels != IGNORED]
        assert len(ids) == len(labels) == 16 and (ids[: len(code)] == code).all()
        assert len(asked) == 17 - len(code) and (np.diff(asked) == 1).all()
        assert (ids[1:][labels[:-1] != IGNORED] == labels[:-1][labels[:-1] != IGNORED]).all()
        starts.add(int(asked[0]))
    assert min(starts) == 100 and max(starts) == 200 - (17 - len(code))


def test_short_and_empty_documents():
    objective = bound(context=16, code="Links")
    documents = Documents([[], [np.array([9])]])
    found = objective.example(documents, 0, rng())  # the next that isn't empty
    assert found["labels"][-1] == 9 and len(found["input_ids"]) == len(objective.ids_of("Links"))
    with pytest.raises(InputError, match="documents are empty"):
        objective.example(Documents([[], []]), 0, rng())


def test_what_does_not_fit_says_what_to_do():
    with pytest.raises(InputError, match="give code="):
        bound(context=16).example(Documents([LONG]), 0, rng())
    with pytest.raises(InputError, match="has no tokens"):
        bound(context=16, code="  ").example(Documents([LONG]), 0, rng())
    with pytest.raises(InputError, match="leaves no room"):
        bound(context=4, code="name " * 9).example(Documents([LONG]), 0, rng())
    with pytest.raises(InputError, match="for decoders"):
        ControlCodes().bind(tokenizer("bert"), recipe("bert"))
