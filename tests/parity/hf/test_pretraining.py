"""BERT's and ALBERT's two heads at once against transformers."""

from __future__ import annotations

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError, InputError
from tests.parity.hf.compare import SEEDS, close, same_files, same_gradients, shake
from tests.parity.hf.encoders import LENGTH, VOCAB, config, inputs

KINDS = {  # family -> its class, the second logits and their labels
    "bert": (transformers.BertForPreTraining, "seq_relationship_logits", "next_sentence_label"),
    "albert": (transformers.AlbertForPreTraining, "sop_logits", "sentence_order_label"),
}
cases = pytest.mark.parametrize(("family", "seed"), [(f, s) for f in KINDS for s in SEEDS])


def theirs(family, seed):
    """A transformers model and a padded batch with both labels."""
    torch.manual_seed(seed)
    kind, _, label = KINDS[family]
    fields = config(family, seed)
    hf = shake(kind(kind.config_class(**fields)), seed)
    return hf, inputs("masked-lm", fields, seed) | {label: torch.randint(0, 2, (3,))}


def answers(out, given, second):
    """The answers at real positions."""
    return {
        "tokens": out["prediction_logits"][given["attention_mask"].bool()],
        "pair": out[second],
        "loss": out["loss"],
    }


@cases
def test_same_numbers_and_gradients(family, seed, tmp_path):
    hf, given = theirs(family, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    second = KINDS[family][1]
    a, b = (answers(model(**given), given, second) for model in (hf, ours))
    for name in a:
        close(b[name], a[name], name)
        assert a[name].shape == b[name].shape
    a["loss"].backward()
    b["loss"].backward()
    same_gradients(hf, ours, family, "pretraining")


@cases
def test_same_files(family, seed, tmp_path):
    hf, given = theirs(family, seed)
    second = KINDS[family][1]
    again = same_files(hf, tmp_path)
    a, b = (answers(model(**given), given, second) for model in (hf, again))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("family", KINDS)
def test_each_label_has_its_loss(family, tmp_path):
    hf, given = theirs(family, 0)
    hf.save_pretrained(tmp_path)
    ours, label = anyformer.load(tmp_path), KINDS[family][2]
    parts = [ours(**{k: v for k, v in given.items() if k != n}).loss for n in (label, "labels")]
    close(sum(parts), ours(**given).loss, "sum")
    assert ours(given["input_ids"]).loss is None


@pytest.mark.parametrize("family", KINDS)
def test_a_pretrained_file_gives_its_body_to_other_tasks(family, tmp_path):
    hf, given = theirs(family, 0)
    hf.save_pretrained(tmp_path)
    masked, bare = (anyformer.load(tmp_path, task=t) for t in ("masked-lm", "base"))
    seen = {k: given[k] for k in ("input_ids", "attention_mask", "token_type_ids")}
    whole = anyformer.load(tmp_path)(**seen)
    assert torch.equal(masked(**seen).logits, whole.prediction_logits)
    assert bare(**seen).pooler_output.shape == (3, hf.config.hidden_size)


def test_labels_of_another_question_are_refused(tmp_path):
    hf, given = theirs("bert", 0)
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    ids = given["input_ids"]
    with pytest.raises(InputError, match="asks='order'"):
        model(ids, sentence_order_label=torch.zeros(3, dtype=torch.long))
    with pytest.raises(InputError, match="0 and 1"):
        model(ids, next_sentence_label=torch.tensor([0, 2, 1]))
    with pytest.raises(InputError, match="shape"):
        model(ids, next_sentence_label=torch.zeros(2, dtype=torch.long))
    assert model(ids).prediction_logits.shape == (3, LENGTH, VOCAB)


def test_two_labels_are_needed():
    with pytest.raises(CheckpointError, match="two labels"):
        FAMILIES["albert"].spec_of({"num_labels": 3}, "pretraining")
