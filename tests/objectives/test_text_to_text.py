"""Text to text: prefixes, cutting, and how often each task is read."""

import pytest

from anyformer.errors import InputError
from anyformer.objectives.text_to_text import TextToText, by_task, mixing_rates
from anyformer.recipes import recipe
from tests.objectives.samples import Records, rng, tokenizer

RECORDS = Records(
    [
        {"task": "summarize", "input": "the name of a class", "target": "a class"},
        {"input": "the value", "target": "value"},
    ]
)


def bound(**options):
    return TextToText(**options).bind(
        tokenizer("t5"), recipe("t5", dim=16, depth=1, heads=2, vocab=520)
    )


def test_the_task_stands_in_front():
    tok, objective = tokenizer("t5"), bound()
    found = objective.example(RECORDS, 0, rng())
    assert found["input_ids"].tolist() == [*tok.encode("summarize: the name of a class"), 1]
    assert found["labels"].tolist() == [*tok.encode("a class"), 1]
    assert found["decoder_input_ids"].tolist() == [0, *found["labels"][:-1]]
    assert objective.example(RECORDS, 1, rng())["input_ids"].tolist() == [
        *tok.encode("the value"),
        1,
    ]
    batch = objective.collate([objective.example(RECORDS, i, rng()) for i in range(2)])
    assert batch["attention_mask"].sum(1).tolist() == [
        len(objective.example(RECORDS, i, rng())["input_ids"]) for i in range(2)
    ]


def test_a_decoder_reads_once_what_it_begins_with():
    tok = tokenizer("bert")
    cls, sep = tok.need("cls", "sep")
    spec = recipe("bert2bert", dim=16, depth=1, heads=2, vocab=len(tok), start=cls)
    found = TextToText(context=32, answer=16).bind(tok, spec).example(RECORDS, 0, rng())
    assert found["labels"][-1] == sep and cls not in found["labels"]
    assert found["decoder_input_ids"].tolist() == [cls, *found["labels"][:-1].tolist()]


def test_long_texts_are_cut_and_fields_can_be_named():
    objective = bound(context=5, answer=2, input="text", target="label")
    found = objective.example(Records([{"text": "the name " * 9, "label": "good " * 9}]), 0, rng())
    assert len(found["input_ids"]) == 5 and len(found["labels"]) == 2 and found["labels"][-1] == 1
    with pytest.raises(InputError, match="needs a text 'text'; this one has input, target"):
        objective.example(Records([RECORDS[1]]), 0, rng())


def test_tasks_are_mixed_by_size_up_to_a_limit():
    sizes = {"small": 100, "large": 10_000, "huge": 1_000_000}
    assert mixing_rates(sizes, 1000) == pytest.approx(
        {"small": 100 / 2100, "large": 1000 / 2100, "huge": 1000 / 2100}
    )
    warm = mixing_rates(sizes, 10**9, temperature=2)
    assert warm["huge"] / warm["large"] == pytest.approx(10)
    with pytest.raises(InputError, match="one record"):
        mixing_rates({"none": 0}, 10)
    assert {k: len(v) for k, v in by_task(RECORDS).items()} == {"summarize": 1, "": 1}
