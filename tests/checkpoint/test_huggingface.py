"""Hugging Face folders: heads that are missing or spare, old names, shards, and every error."""

import json
import logging

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from anyformer import load
from anyformer.errors import CheckpointError

SMALL = {
    "vocab_size": 31,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
IDS = torch.arange(10).view(2, 5)


def saved(folder, name="BertModel", **fields):
    """A folder that transformers wrote, and its model."""
    model = getattr(transformers, name)(transformers.BertConfig(**SMALL, **fields)).eval()
    model.save_pretrained(folder)
    return model


def rewritten(folder, change):
    """Change the weights of a folder."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file)


def configured(folder, **fields):
    """Change fields of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def assert_near(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


TASKS = {
    "masked-lm": (2, "head.bias"),
    "sequence-classification": (2, "head.out.weight"),
    "token-classification": (2, "head.out.weight"),
    "question-answering": (2, "head.out.weight"),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_base_folder_gets_a_fresh_head_and_that_is_said(task, tmp_path, caplog):
    hf = saved(tmp_path)
    with caplog.at_level(logging.WARNING, "anyformer"):
        model = load(tmp_path, task=task)
    assert TASKS[task][1] in caplog.text
    assert "start fresh" in caplog.text
    assert_near(model(IDS).last_hidden_state, hf(IDS).last_hidden_state)
    assert not any(p.is_meta for p in model.parameters())


def test_a_pooler_stays_where_the_task_has_one(tmp_path, caplog):
    hf = saved(tmp_path)
    model = load(tmp_path, task="sequence-classification")
    assert torch.equal(model.state_dict()["head.hidden.weight"], hf.pooler.dense.weight)
    assert "head.hidden" not in caplog.text


def test_other_heads_are_left_out_and_that_is_said(tmp_path, caplog):
    hf = saved(tmp_path, "BertForPreTraining")
    with caplog.at_level(logging.WARNING, "anyformer"):
        model = load(tmp_path, task="masked-lm")
    assert "cls.seq_relationship.weight" in caplog.text
    assert "bert.pooler.dense.weight" in caplog.text
    assert_near(model(IDS).logits, hf(IDS).prediction_logits)


def test_a_head_of_its_own_must_be_there(tmp_path):
    saved(tmp_path, "BertForTokenClassification")
    rewritten(tmp_path, lambda w: {k: t for k, t in w.items() if k != "classifier.bias"})
    with pytest.raises(CheckpointError, match=r"lacks what the model needs: 'classifier.bias'"):
        load(tmp_path)


def test_old_names_of_norms(tmp_path):
    hf = saved(tmp_path)
    old = lambda k: k.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    )
    rewritten(tmp_path, lambda w: {old(k): t for k, t in w.items()})
    assert_near(load(tmp_path)(IDS).last_hidden_state, hf(IDS).last_hidden_state)


def test_tied_copies_are_passed_over(tmp_path):
    hf = saved(tmp_path, "BertForMaskedLM")
    copies = {
        "cls.predictions.decoder.weight": hf.cls.predictions.decoder.weight.detach().clone(),
        "cls.predictions.decoder.bias": hf.cls.predictions.decoder.bias.detach().clone(),
        "bert.embeddings.position_ids": torch.arange(16)[None],
    }
    rewritten(tmp_path, lambda w: w | copies)
    assert_near(load(tmp_path)(IDS).logits, hf(IDS).logits)


def test_a_folder_in_shards(tmp_path):
    model = transformers.BertModel(transformers.BertConfig(**SMALL)).eval()
    model.save_pretrained(tmp_path, max_shard_size="3KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert_near(load(tmp_path)(IDS).last_hidden_state, model(IDS).last_hidden_state)


@pytest.fixture
def shards(tmp_path):
    model = transformers.BertModel(transformers.BertConfig(**SMALL))
    model.save_pretrained(tmp_path, max_shard_size="3KB")
    return tmp_path


def test_a_missing_shard_is_named(shards):
    lost = sorted(shards.glob("model-*.safetensors"))[0]
    lost.unlink()
    with pytest.raises(CheckpointError, match=f"lacks the shard {lost.name}"):
        load(shards)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors"])
def test_a_shard_outside_the_folder_is_refused(shards, name):
    file = shards / "model.safetensors.index.json"
    file.write_text(json.dumps({"weight_map": {"pooler.dense.bias": name}}))
    with pytest.raises(CheckpointError, match="outside the folder: refused"):
        load(shards)


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_file_cut_short_is_named(tmp_path, size):
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is (empty|cut short)"):
        load(tmp_path)


def test_no_weights(tmp_path):
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has neither model.safetensors nor"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_type": "brt"}, "did you mean 'bert'"),
        ({"hidden_act": "gelo"}, "activation in config.json 'gelo'; did you mean 'gelu'"),
        ({"hidden_size": 7}, "multiple of heads"),
        ({"hidden_size": 10}, "of shape"),
        ({"num_hidden_layers": 3}, "lacks what the model needs: 'encoder.layer.2"),
        ({"num_hidden_layers": 1}, r"no row for: 'encoder.layer.1"),
    ],
)
def test_a_config_that_does_not_fit_is_named(tmp_path, fields, says):
    saved(tmp_path)
    configured(tmp_path, **fields)
    with pytest.raises(ValueError, match=says):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not valid JSON"), ("[]", "holds list"), ("{}", "has no model_type")],
)
def test_a_broken_config_is_named(tmp_path, text, says):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=says):
        load(tmp_path)


def test_an_unknown_task_is_named(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match="task of bert 'masked'; did you mean 'masked-lm'"):
        load(tmp_path, task="masked")


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("BertForSequenceClassification", {"problem_type": "regresion"}, "'regression'"),
        ("BertForQuestionAnswering", {"id2label": {"0": "a"}}, "an answer has two ends"),
    ],
)
def test_a_head_that_config_json_says_wrongly(tmp_path, name, fields, says):
    saved(tmp_path, name)
    configured(tmp_path, **fields)
    with pytest.raises(CheckpointError, match=says):
        load(tmp_path)


def test_groups_that_fall_otherwise_are_refused(tmp_path):
    transformers.AlbertConfig(num_hidden_layers=18, num_hidden_groups=14).save_pretrained(tmp_path)
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="choose groups that divide the layers"):
        load(tmp_path)


def test_inner_groups_are_refused(tmp_path):
    transformers.AlbertConfig(inner_group_num=2).save_pretrained(tmp_path)
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="inner_group_num=2 has no part here"):
        load(tmp_path)


def test_a_spec_that_config_json_cannot_say_is_not_written(tmp_path):
    from anyformer.checkpoint import save
    from anyformer.checkpoint.huggingface import Origin
    from anyformer.model.model import build
    from anyformer.recipes import recipe

    sizes = {"dim": 8, "depth": 1, "heads": 2, "vocab": 11, "length": 9}
    model = build(recipe("bert", **sizes, **{"stack.block.0.place": "pre"}))
    model.origin = Origin("bert", "base", {})
    with pytest.raises(
        CheckpointError, match=r"can't say .*stack.block.0.place.*format='anyformer'"
    ):
        save(model, tmp_path)
