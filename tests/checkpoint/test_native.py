"""Folders of the library's own: round trips, and one clear error for everything that is broken."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import anyformer.checkpoint.native as native
from anyformer import spec as S
from anyformer.checkpoint import load, save
from anyformer.errors import CheckpointError
from anyformer.model.model import build
from anyformer.recipes import recipe

IDS = torch.arange(12).view(2, 6)


def tiny(**attention) -> S.Model:
    block = (
        S.Sublayer(branch=S.Attention(heads=2, causal=True, **attention)),
        S.Sublayer(branch=S.FeedForward(hidden=16)),
    )
    return S.Model(
        dim=8,
        embed=S.Embed(source=S.Tokens(vocab=13)),
        stack=S.Stack(block=block, depth=2),
        head=S.Vocabulary(),
    )


@pytest.fixture
def folder(tmp_path):
    save(build(tiny()), tmp_path / "model")
    return tmp_path / "model"


SPECS = {
    "plain": tiny(),
    "alibi": tiny(relative=(S.ALiBi(),)),
    "everything else": tiny(
        memory=2, talking="both", qk_norm=S.ScaleNorm(), mods=(S.Temperature(),), relative=(S.XL(),)
    ),
    "t5": recipe("t5", dim=8, depth=2, heads=2, vocab=13),
}


def answers(model):
    named = {"decoder_input_ids": IDS} if model.encoder is not None else {}
    return model(IDS, **named).logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SPECS)
def test_a_loaded_model_is_the_saved_one_bit_for_bit(name, dtype, tmp_path):
    model = build(SPECS[name]).to(dtype).eval()
    save(model, tmp_path / "new" / "folder")
    again = load(tmp_path / "new" / "folder")
    assert again.spec == model.spec
    assert {k: t.dtype for k, t in again.state_dict().items()} == {
        k: t.dtype for k, t in model.state_dict().items()
    }
    assert not again.training
    assert all(p.requires_grad and not p.is_meta for p in again.parameters())
    assert torch.equal(answers(again), answers(model))


def test_public_names_reach_it(tmp_path):
    import anyformer

    model = build(tiny())
    model.save_pretrained(str(tmp_path))
    again = anyformer.load(str(tmp_path))
    assert torch.equal(answers(again), answers(model.eval()))


def test_loading_leaves_the_random_state_alone(folder):
    before = torch.get_rng_state()
    load(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_a_loaded_model_learns(folder):
    model = load(folder).train()
    model(IDS, labels=IDS).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_files(folder):
    assert sorted(f.name for f in folder.iterdir()) == ["anyformer.json", "model.safetensors"]
    about = json.loads((folder / "anyformer.json").read_text())
    assert about["format"] == native.FORMAT
    assert S.from_dict(about["spec"]) == tiny()


def test_a_failed_save_leaves_the_old_files(folder, monkeypatch):
    before = {f.name: f.read_bytes() for f in folder.iterdir()}

    def broken(weights, path, metadata):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(native, "save_file", broken)
    with pytest.raises(CheckpointError, match="can't be written: disk full"):
        save(build(tiny(memory=1)), folder)
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before


def test_saving_again_replaces(folder):
    model = build(tiny(memory=1))
    save(model, folder)
    assert load(folder).spec == model.spec


def test_saving_to_a_file_is_refused(folder):
    with pytest.raises(CheckpointError, match="is a file"):
        save(build(tiny()), folder / "anyformer.json")


def rewritten(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def test_a_missing_key_is_named(folder):
    rewritten(folder, lambda w: w.pop("stack.norm.bias"))
    with pytest.raises(CheckpointError, match=r"model.safetensors lacks 'stack.norm.bias'"):
        load(folder)


def test_an_unknown_key_is_named_with_the_nearest(folder):
    rewritten(folder, lambda w: w.update({"stack.norm.biass": torch.zeros(8)}))
    with pytest.raises(CheckpointError, match=r"'stack.norm.biass', unknown.*'stack.norm.bias'"):
        load(folder)


def test_a_renamed_key_is_found(folder):
    rewritten(folder, lambda w: w.update({"stack.norm.beta": w.pop("stack.norm.bias")}))
    with pytest.raises(CheckpointError, match=r"lacks 'stack.norm.bias' \(nearest: .*beta'"):
        load(folder)


def test_a_wrong_shape_is_named(folder):
    rewritten(folder, lambda w: w.update({"stack.norm.bias": torch.zeros(9)}))
    with pytest.raises(CheckpointError, match=r"'stack.norm.bias' of shape \(9,\), not \(8,\)"):
        load(folder)


def test_many_problems_are_one_short_error(folder):
    rewritten(folder, lambda w: w.clear())
    with pytest.raises(CheckpointError, match="and 27 more") as error:
        load(folder)
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize("size", [0, 4, 300, -1])
def test_cut_weights_are_named(folder, size):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is (empty|cut short)"):
        load(folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ('{"format": 1', "not valid JSON"),
        ("[]", "holds list, not an object"),
        ("{}", "has format None"),
        ('{"format": 99, "spec": {}}', "has format 99"),
        ('{"format": 1}', "not a Model"),
        ('{"format": 1, "spec": {"is": "Modle"}}', "did you mean 'Model'"),
        ('{"format": 1, "spec": {"is": "RMSNorm"}}', "not a Model"),
    ],
)
def test_a_broken_spec_is_named(folder, text, says):
    (folder / "anyformer.json").write_text(text)
    with pytest.raises(CheckpointError, match=says) as error:
        load(folder)
    assert "anyformer.json" in str(error.value)


def test_a_spec_that_breaks_a_rule_is_named(folder):
    about = json.loads((folder / "anyformer.json").read_text())
    about["spec"]["dim"] = 9
    (folder / "anyformer.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"anyformer\.json: .*multiple of heads"):
        load(folder)


@pytest.mark.parametrize("lost", ["anyformer.json", "model.safetensors"])
def test_a_lost_file_is_named(folder, lost):
    (folder / lost).unlink()
    with pytest.raises(CheckpointError, match=f"has no {lost}"):
        load(folder)


def test_pickles_are_refused(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(b"")
    says = rf"anyformer convert {tmp_path} {tmp_path}-safetensors"
    with pytest.raises(CheckpointError, match=f"is a pickle.*{says}"):
        load(file)
    with pytest.raises(CheckpointError, match=rf"the pickle pytorch_model\.bin.*{says}"):
        load(tmp_path)


def test_an_empty_folder_and_a_bare_file_are_named(tmp_path, folder):
    with pytest.raises(CheckpointError, match=r"no anyformer\.json and no model\.safetensors"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="give the folder"):
        load(folder / "model.safetensors")


def test_tasks_are_for_other_folders(folder):
    with pytest.raises(CheckpointError, match=r"task='classify'.*leave task out"):
        load(folder, task="classify")
