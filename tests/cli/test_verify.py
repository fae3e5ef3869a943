"""anyformer verify: passes where outputs agree, fails where not, says what is missing."""

import dataclasses
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.huggingface import Origin
from anyformer.cli import verify
from anyformer.cli.main import main

SIZES = {"dim": 8, "depth": 1, "heads": 2, "vocab": 31}


def theirs(name, folder):
    """A tiny model that transformers wrote."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 31}
    wide = {"intermediate_size": 12, "max_position_embeddings": 20}
    made = {
        "bert": lambda t: t.BertForQuestionAnswering(t.BertConfig(**sizes, **wide)),
        "choices": lambda t: t.BertForMultipleChoice(t.BertConfig(**sizes, **wide)),
        "roberta": lambda t: t.RobertaForMaskedLM(t.RobertaConfig(**sizes, **wide)),
        "gpt2": lambda t: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=31, n_positions=20)
        ),
        "t5": lambda t: t.T5ForConditionalGeneration(
            t.T5Config(d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, vocab_size=31,
                       decoder_start_token_id=0)
        ),
        "vit": lambda t: t.ViTForImageClassification(
            t.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8,
                        intermediate_size=12, patch_size=4)
        ),
    }  # fmt: skip
    made[name](transformers).save_pretrained(folder)


@pytest.mark.parametrize("name", ["bert", "choices", "roberta", "gpt2", "t5", "vit"])
def test_outputs_that_agree_pass(name, tmp_path, capsys):
    theirs(name, tmp_path)
    capsys.readouterr()
    assert main(["verify", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "logits" in out
    assert out.splitlines()[-1].startswith("pass")


def test_a_fresh_head_is_shared(tmp_path, capsys):
    theirs("bert", tmp_path)
    assert (
        main(["verify", str(tmp_path), "--task", "sequence-classification", "--length", "9"]) == 0
    )
    assert "written from here: bert.pooler" in capsys.readouterr().out


def test_our_own_folder_of_a_family(tmp_path, capsys):
    theirs("gpt2", tmp_path / "theirs")
    anyformer.load(tmp_path / "theirs").save_pretrained(tmp_path / "ours", "anyformer")
    assert main(["verify", str(tmp_path / "ours")]) == 0


def test_outputs_that_differ_fail(tmp_path, capsys, monkeypatch):
    theirs("bert", tmp_path)
    loaded = verify.peer_loaded

    def other(kind, folder):
        model, missing = loaded(kind, folder)
        torch.nn.init.ones_(model.qa_outputs.weight)
        return model, missing

    monkeypatch.setattr(verify, "peer_loaded", other)
    assert main(["verify", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert out.splitlines()[-1].startswith("FAIL")


def test_without_transformers(tmp_path, capsys, monkeypatch):
    theirs("bert", tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["verify", str(tmp_path)]) == 2
    assert "pip install transformers" in capsys.readouterr().err


def test_an_unknown_architecture(tmp_path, capsys, monkeypatch):
    theirs("bert", tmp_path)
    tasks, name = FAMILIES["bert"].tasks, "question-answering"
    monkeypatch.setitem(tasks, name, dataclasses.replace(tasks[name], architecture="BertForNobody"))
    assert main(["verify", str(tmp_path), "--task", name]) == 2
    assert "has no BertForNobody" in capsys.readouterr().err


def test_a_model_of_no_family(tmp_path, capsys):
    anyformer.build(anyformer.recipe("decoder", **SIZES)).save_pretrained(tmp_path)
    assert main(["verify", str(tmp_path)]) == 2
    assert "there is nothing to compare" in capsys.readouterr().err


def test_broken_weights_are_an_error(tmp_path, capsys):
    theirs("bert", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors.pop("qa_outputs.bias")
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert main(["verify", str(tmp_path)]) == 2
    assert "qa_outputs.bias" in capsys.readouterr().err


def test_origin_is_what_is_compared():
    assert verify.peer_class(Origin("bert", "masked-lm", {})) is transformers.BertForMaskedLM
