"""ModernBERT against transformers: answers, losses, gradients, and files in both directions."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
from anyformer.recipes.windows import windows_of
from tests.parity.hf.compare import SEEDS, backward, close, same_files, same_gradients, shake
from tests.parity.hf.encoders import LABELS, VOCAB, inputs

MODERNBERT = FAMILIES["modernbert"]


def config(seed):
    """The fields of a seed."""
    rng = random.Random(seed)
    pick = lambda *options: rng.choice(options)
    heads, depth = pick(1, 2, 3), pick(1, 2, 4, 5)
    kinds = [pick("sliding_attention", "full_attention") for _ in range(depth)]
    slow = pick({"rope_type": "default"}, {"rope_type": "linear", "factor": 4.0})
    ropes = {
        "sliding_attention": {"rope_type": "default", "rope_theta": pick(10000.0, 20.0)},
        "full_attention": slow | {"rope_theta": pick(160000.0, 30.0)},
    }
    return {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(4, 6),
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": pick(13, 24),
        "hidden_activation": pick("gelu", "relu"),
        "layer_types": pick(None, kinds),
        "rope_parameters": pick(None, ropes),
        "local_attention": pick(2, 5, 6),
        "norm_eps": pick(1e-5, 1e-2),
        "norm_bias": pick(False, True),
        "attention_bias": pick(False, True),
        "mlp_bias": pick(False, True),
        "attention_dropout": pick(0.0, 0.2),
        "mlp_dropout": pick(0.0, 0.2),
        "embedding_dropout": pick(0.0, 0.2),
        "decoder_bias": pick(True, True, False),
        "classifier_bias": pick(False, True),
        "classifier_dropout": pick(0.0, 0.2),
        "classifier_activation": pick("gelu", "silu"),
        "classifier_pooling": pick("cls", "mean"),
        "tie_word_embeddings": pick(True, True, False),
        "pad_token_id": 0,
    }


def theirs(task, seed, **more):
    """A transformers model with weights that show every part, and its config."""
    torch.manual_seed(seed)
    labels = LABELS if task != "question-answering" else 2
    fields = config(seed) | {"num_labels": labels} | more
    made = transformers.ModernBertConfig(**fields)
    kind = getattr(transformers, MODERNBERT.tasks[task].architecture)
    return shake(kind(made), seed), fields


def run(model, given):
    """What a model says at real positions, and of whole rows."""
    real = given["attention_mask"].bool()
    out = model(**given, output_hidden_states=True)
    names = ("logits", "start_logits", "end_logits", "loss")
    found = {name: out[name] for name in names if name in out}
    found |= {f"hidden {i}": h for i, h in enumerate(out.hidden_states)}
    if "loss" not in found:
        found["last"] = out.hidden_states[-1]
    rows = real.flatten(0, -2)  # choices are rows of their own inside
    kept = lambda x: x[rows] if x.shape[:2] == rows.shape else x
    return {name: kept(value) for name, value in found.items()}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", MODERNBERT.tasks)
def test_answers_losses_gradients_and_files(task, seed, tmp_path):
    hf, fields = theirs(task, seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "theirs")
    assert ours.spec == anyformer.load(tmp_path / "ours").spec
    given = inputs(task, fields, seed)
    a, b = run(hf, given), run(ours, given)
    assert a.keys() == b.keys()
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    same_gradients(hf, ours, "modernbert", task)
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.data = parameter.data.clone()  # aligned in memory as hf's are
        saved = run(again, given)
    assert all(torch.equal(saved[name], a[name]) for name in a)


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_problem_types_have_their_losses(problem, tmp_path):
    hf, fields = theirs("sequence-classification", 0, problem_type=problem)
    hf.save_pretrained(tmp_path)
    given = inputs("base", fields, 0) | {"labels": torch.rand(3, LABELS)}
    close(anyformer.load(tmp_path)(**given).loss, hf(**given).loss, problem)


@pytest.mark.parametrize("task", ["base", "sequence-classification"])
def test_a_file_with_another_head_is_read(task, tmp_path):
    hf, fields = theirs("masked-lm", 1, num_hidden_layers=3, layer_types=None)
    hf.save_pretrained(tmp_path)
    given = inputs("base", fields, 1)
    real = given["attention_mask"].bool()
    found = anyformer.load(tmp_path, task=task)(**given).last_hidden_state
    close(found[real], hf.model(**given).last_hidden_state[real], task)


def test_older_words_say_the_same():
    read = lambda **fields: MODERNBERT.spec_of({"num_hidden_layers": 5, **fields}, "base")
    kinds = {"full_attention": {"rope_theta": 3e5}, "sliding_attention": {"rope_theta": 9.0}}
    old = {"global_rope_theta": 3e5, "local_rope_theta": 9.0}
    assert read(**old) == read(rope_parameters=kinds)
    written = MODERNBERT.config_of(read(**old), "base", {})
    assert {key: written[key] for key in old} == old
    assert windows_of(read(global_attn_every_n_layers=2)) == [None, 65, None, 65, None]
    assert windows_of(read()) == [None, 65, 65, None, 65]


def test_what_has_no_part_is_refused():
    with pytest.raises(CheckpointError, match="sparse_prediction"):
        MODERNBERT.spec_of({"sparse_prediction": True}, "base")
    with pytest.raises(CheckpointError, match="3 labels"):
        MODERNBERT.spec_of({"num_labels": 3}, "question-answering")
