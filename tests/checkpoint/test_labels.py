"""Labels of a head: as config.json says, as asked for, and written back where they changed."""

import json
import logging

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.huggingface import Origin
from anyformer.checkpoint.labels import counted, labels, with_labels
from anyformer.errors import CheckpointError

TASKS = ("sequence-classification", "token-classification", "image-classification")
CASES = [
    (family, task)
    for family in FAMILIES
    for task in TASKS
    if task in FAMILIES[family].tasks and FAMILIES[family].tasks[task].part is None
]


KEPT = {5: {}, 2: {"id2label": {"0": "a", "1": "b", "2": "c"}}, 1: {"num_labels": 4}}


@pytest.mark.parametrize(("family", "task"), CASES)
def test_a_changed_number_of_labels_is_written(family, task):
    made = FAMILIES[family]
    for count, kept in KEPT.items():
        spec = made.spec_of(kept, task)
        path = "head.count" if isinstance(spec.head, S.Classes) else "head.size"
        spec = S.override(spec, path, count)
        if isinstance(spec.head, S.Classes):
            spec = S.override(spec, "head.answers", "numbers" if count == 1 else "one")
        config = made.config_of(spec, task, kept)
        assert len(config["id2label"]) == len(config["label2id"]) == count
        assert made.spec_of(config, task).head == spec.head
        assert "num_labels" not in config


def test_two_labels_of_bart_are_said():
    task = "sequence-classification"
    spec = S.override(FAMILIES["bart"].spec_of({}, task), "head.count", 2)
    assert FAMILIES["bart"].config_of(spec, task, {})["id2label"] == {
        "0": "LABEL_0",
        "1": "LABEL_1",
    }


@pytest.mark.parametrize("answers", ["one", "many", "numbers"])
def test_a_changed_problem_is_written(answers):
    made, task = FAMILIES["gpt2"], "sequence-classification"
    spec = S.override(made.spec_of({}, task), "head.answers", answers)
    config = made.config_of(S.override(spec, "head.token", 3), task, {})
    assert ("problem_type" in config) == (answers != "one")
    assert config["pad_token_id"] == 3


def test_the_names_that_are_there_stay():
    config = {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}
    assert with_labels(config, 2) is config
    assert with_labels({"num_labels": 3}, 2)["label2id"] == {"LABEL_0": 0, "LABEL_1": 1}
    number = with_labels(config | {"problem_type": "multi_label_classification"}, 1)
    assert "problem_type" not in number
    assert labels({"id2label": None}) == labels({"num_labels": None}) == 2


@pytest.mark.parametrize("given", [0, -1, True, 2.0, [], ["a", "a"], [1, 2], "ab", {"a": 1}])
def test_labels_are_a_number_or_names(given):
    with pytest.raises(CheckpointError, match="give their number"):
        with_labels({}, given)


@pytest.fixture
def folder(tmp_path):
    """A BERT with three classes."""
    torch.manual_seed(0)
    spec = FAMILIES["bert"].spec_of(
        {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30}
        | {"max_position_embeddings": 16, "intermediate_size": 12, "num_labels": 3},
        TASKS[0],
    )
    model = anyformer.build(spec)
    model.origin = Origin("bert", TASKS[0], {})
    model.save_pretrained(tmp_path)
    return tmp_path


def test_a_head_for_other_labels_starts_fresh(folder, tmp_path, caplog):
    ids = torch.tensor([[5, 6, 7]])
    with caplog.at_level(logging.WARNING, logger="anyformer"):
        other = anyformer.load(folder, labels=["a", "b", "c", "d"])
    assert "head.out.bias, head.out.weight start fresh" in caplog.text
    same = anyformer.load(folder)
    assert other(ids).logits.shape == (1, 4)
    assert torch.equal(other.head.hidden.weight, same.head.hidden.weight)
    assert torch.equal(anyformer.load(folder, labels=3)(ids).logits, same(ids).logits)
    other.save_pretrained(tmp_path / "other")
    said = json.loads((tmp_path / "other" / "config.json").read_text())
    assert said["id2label"] == {"0": "a", "1": "b", "2": "c", "3": "d"}
    assert counted(anyformer.load(tmp_path / "other").spec.head) == 4


def test_labels_are_for_heads_that_have_some(folder, tmp_path):
    with pytest.raises(CheckpointError, match="has no labels"):
        anyformer.load(folder, "masked-lm", labels=4)
    with pytest.raises(CheckpointError, match="has always 2"):
        anyformer.load(folder, "next-sentence", labels=4)
    anyformer.load(folder).save_pretrained(tmp_path / "own", format="anyformer")
    with pytest.raises(CheckpointError, match="labels=4 is for Hugging Face folders"):
        anyformer.load(tmp_path / "own", labels=4)
