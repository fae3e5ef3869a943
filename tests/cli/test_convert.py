"""anyformer convert: pickles to safetensors, formats, dtypes, and everything that it refuses."""

import json
import os

import pytest
import torch
import transformers
from safetensors.torch import load_file

import anyformer
from anyformer.cli.main import main

SMALL = {
    "vocab_size": 31,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
IDS = torch.arange(10).view(2, 5)
TOKENIZER = ("tokenizer.json", "vocab.txt", "merges.txt", "spiece.model", "special_tokens_map.json")
OTHER = ("generation_config.json",)


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(0)
    config = transformers.BertConfig(**SMALL, architectures=["BertForPreTraining"])
    return transformers.BertForPreTraining(config).eval()


@pytest.fixture
def old(theirs, tmp_path):
    """A folder with pytorch_model.bin, a tokenizer and a script."""
    folder = tmp_path / "old"
    theirs.config.save_pretrained(folder)
    torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    for name in (*TOKENIZER, *OTHER, "modeling_x.py"):
        (folder / name).write_text("{}")
    return folder


def sharded(theirs, folder):
    (folder / "pytorch_model.bin").unlink()
    placed, state = {}, theirs.state_dict()
    for i, keys in enumerate((list(state)[:9], list(state)[9:])):
        name = f"pytorch_model-{i + 1:05}-of-00002.bin"
        torch.save({key: state[key] for key in keys}, folder / name)
        placed |= dict.fromkeys(keys, name)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": placed}))


def ran(*words):
    return main(["convert", *map(str, words)])


@pytest.mark.parametrize("form", ["zip", "legacy", "shards"])
def test_old_weights_become_safetensors_key_for_key(form, theirs, old, tmp_path, capsys):
    if form == "legacy":
        file = old / "pytorch_model.bin"
        torch.save(theirs.state_dict(), file, _use_new_zipfile_serialization=False)
    if form == "shards":
        sharded(theirs, old)
    with pytest.raises(anyformer.errors.CheckpointError, match="anyformer convert"):
        anyformer.load(old)
    assert ran(old, tmp_path / "new") == 0
    assert "model.safetensors" in capsys.readouterr().out
    again = transformers.BertForPreTraining.from_pretrained(tmp_path / "new").eval()
    assert torch.equal(again(IDS).prediction_logits, theirs(IDS).prediction_logits)
    assert torch.equal(again(IDS).seq_relationship_logits, theirs(IDS).seq_relationship_logits)
    model = anyformer.load(tmp_path / "new", "masked-lm")
    torch.testing.assert_close(
        model(IDS).logits, theirs(IDS).prediction_logits, rtol=1e-5, atol=1e-5
    )
    files = {p.name for p in (tmp_path / "new").iterdir()}
    assert files == {"config.json", "model.safetensors", *TOKENIZER, *OTHER}


def test_copies_of_tied_tensors_are_written_once(theirs, old, tmp_path):
    assert "cls.predictions.decoder.weight" in theirs.state_dict()
    assert ran(old, tmp_path / "new") == 0
    assert "cls.predictions.decoder.weight" not in load_file(tmp_path / "new" / "model.safetensors")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_another_dtype(old, tmp_path, dtype):
    assert ran(old, tmp_path / "new", "--dtype", dtype) == 0
    found = load_file(tmp_path / "new" / "model.safetensors")
    assert {str(t.dtype) for t in found.values()} == {f"torch.{dtype}"}
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["dtype"] == dtype
    assert "torch_dtype" not in config


def test_there_and_back(old, tmp_path):
    assert ran(old, tmp_path / "safe") == 0
    for name in ("masked", "mine", "back"):
        assert not (tmp_path / name).exists()
    anyformer.load(tmp_path / "safe", "masked-lm").save_pretrained(tmp_path / "masked")
    assert ran(tmp_path / "masked", tmp_path / "mine", "--to", "anyformer") == 0
    assert (tmp_path / "mine" / "anyformer.json").is_file()
    assert ran(tmp_path / "mine", tmp_path / "back", "--to", "huggingface") == 0
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "masked" / name).read_bytes()
    assert ran(tmp_path / "mine", tmp_path / "half", "--dtype", "bfloat16") == 0
    assert anyformer.load(tmp_path / "half").embed.token.weight.dtype == torch.bfloat16


def test_unknown_families_keep_their_keys(old, tmp_path):
    config = json.loads((old / "config.json").read_text()) | {"model_type": "never-heard-of"}
    (old / "config.json").write_text(json.dumps(config))
    assert ran(old, tmp_path / "new") == 0
    assert json.loads((tmp_path / "new" / "config.json").read_text()) == config
    assert ran(old, tmp_path / "mine", "--to", "anyformer") == 2


def test_a_folder_with_files_is_not_overwritten(old, tmp_path, capsys):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.txt").write_text("precious")
    assert ran(old, tmp_path / "new") == 2
    assert "is not empty" in capsys.readouterr().err
    assert ran(old, tmp_path / "new", "--force") == 0
    assert (tmp_path / "new" / "mine.txt").read_text() == "precious"
    assert ran(old, old, "--force") == 2
    assert "the folder that is read" in capsys.readouterr().err
    assert ran(old, old / "config.json") == 2


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_pickle_that_runs_code_is_refused(theirs, old, tmp_path, capsys):
    torch.save(theirs.state_dict() | {"x": Evil(tmp_path / "marker")}, old / "pytorch_model.bin")
    assert ran(old, tmp_path / "new") == 3
    assert "could run code: refused" in capsys.readouterr().err
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"PK\x03\x04 no zip", "is damaged"),
        ([1, 2], "holds list"),
        ({"a": {"b": torch.ones(1)}}, "'a' is no tensor"),
    ],
)
def test_a_broken_pickle_is_named(old, tmp_path, content, message, capsys):
    file = old / "pytorch_model.bin"
    file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
    assert ran(old, tmp_path / "new") == 2
    err = capsys.readouterr().err
    assert message in err
    assert "pytorch_model.bin" in err


def test_a_lost_shard_of_old_weights(theirs, old, tmp_path, capsys):
    sharded(theirs, old)
    (old / "pytorch_model-00002-of-00002.bin").unlink()
    assert ran(old, tmp_path / "new") == 2
    assert "lacks the shard pytorch_model-00002-of-00002.bin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["IN", "OUT", "--dtype", "floaty"], "unknown dtype 'floaty'"),
        (["./nowhere", "OUT"], "there is no folder 'nowhere'"),
        (["OUT/..", "new"], "has neither config.json nor anyformer.json"),
    ],
)
def test_what_can_not_be(words, message, old, tmp_path, capsys):
    places = {"IN": str(old), "OUT": str(tmp_path / "new"), "OUT/..": str(tmp_path)}
    assert ran(*(places.get(word, word) for word in words)) == 2
    assert message in capsys.readouterr().err


def test_our_own_model_has_no_class_there(tmp_path, capsys):
    spec = anyformer.recipe("decoder", dim=8, depth=1, heads=2, vocab=11, length=9)
    anyformer.build(spec).save_pretrained(tmp_path / "mine")
    assert ran(tmp_path / "mine", tmp_path / "new", "--to", "huggingface") == 2
    assert "use --to anyformer" in capsys.readouterr().err
