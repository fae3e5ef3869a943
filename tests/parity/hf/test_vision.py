"""ViT against transformers: the same numbers, gradients and files."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError, InputError
from tests.parity.hf.compare import (
    SEEDS,
    WEIGHTS,
    backward,
    close,
    same_files,
    same_gradients,
    shake,
)
from tests.parity.hf.seq2seq import config

TASKS = ("base", "image-classification", "masked-image")
cases = pytest.mark.parametrize(("task", "seed"), [(t, s) for t in TASKS for s in SEEDS])


def theirs(task, seed):
    """A transformers model."""
    torch.manual_seed(seed)
    fields = config("vit", seed)
    made = transformers.ViTConfig(**fields, encoder_stride=fields["patch_size"])
    return shake(getattr(transformers, FAMILIES["vit"].tasks[task].architecture)(made), seed)


def batch(hf, task, seed):
    """Images, and labels where the task has them."""
    drawn, c = torch.Generator().manual_seed(seed), hf.config
    shape = (3, c.num_channels, c.image_size, c.image_size)
    given = {"pixel_values": torch.randn(shape, generator=drawn)}
    if task == "base":
        return given
    if task == "masked-image":
        hidden = torch.rand((3, (c.image_size // c.patch_size) ** 2), generator=drawn) < 0.5
        hidden[0, 0] = True  # at least one
        return given | {"bool_masked_pos": hidden}
    return given | {"labels": torch.randint(0, c.num_labels, (3,), generator=drawn)}


def run(model, given):
    """Hidden states, and what the head gives."""
    out = model(**given, output_hidden_states=True)
    found = {f"hidden {i}": h for i, h in enumerate(out.hidden_states[:-1])}
    if "labels" in given:
        return found | {"logits": out.logits, "loss": out.loss}
    if "bool_masked_pos" in given:
        return found | {"reconstruction": out.reconstruction, "loss": out.loss}
    return found | {"stream": out.last_hidden_state, "last": out.pooler_output}


def disk(name):
    """The name on disk of a parameter in memory."""
    pairs = {
        "layers.": "encoder.layer.",
        "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value",
        "attention.o_proj": "attention.output.dense",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
    }
    for memory, stored in pairs.items():
        name = name.replace(memory, stored)
    return name


@cases
def test_same_numbers_and_gradients(task, seed, tmp_path):
    hf = theirs(task, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(hf, task, seed)
    a, b = run(hf, given), run(ours, given)
    assert a.keys() == b.keys()
    for name in a:
        close(b[name], a[name], name)
    assert {disk(name) for name, _ in hf.named_parameters()} == set(load_file(tmp_path / WEIGHTS))
    backward(a)
    backward(b)
    same_gradients(hf, ours, "vit", task, disk)


@cases
def test_same_files(task, seed, tmp_path):
    hf = theirs(task, seed)
    given = batch(hf, task, seed)
    again = same_files(hf, tmp_path)
    for p in again.parameters():
        p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
    a, b = run(hf, given), run(again, given)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("stride", [1, 4])
def test_an_image_may_come_back_in_another_size(stride, tmp_path):
    torch.manual_seed(stride)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "image_size": 6, "patch_size": 2, "encoder_stride": stride}
    hf = transformers.ViTForMaskedImageModeling(transformers.ViTConfig(**sizes))
    again = same_files(shake(hf, 0), tmp_path)
    given, ours = {"pixel_values": torch.randn(2, 3, 6, 6)}, anyformer.load(tmp_path / "ours")
    close(ours(**given).reconstruction, hf(**given).reconstruction, "image")
    assert torch.equal(again(**given).reconstruction, hf(**given).reconstruction)
    with pytest.raises(InputError, match="another size"):
        ours(**given, bool_masked_pos=torch.ones(2, 9).bool())


def test_a_classifier_learns_to_restore(tmp_path):
    hf = theirs("image-classification", 0)
    hf.save_pretrained(tmp_path / "theirs")
    ours = anyformer.load(tmp_path / "theirs", "masked-image")
    assert (ours.head.mask == 0).all()
    ours.save_pretrained(tmp_path / "ours")
    again = transformers.ViTForMaskedImageModeling.from_pretrained(tmp_path / "ours").eval()
    given = batch(hf, "masked-image", 0)
    close(ours(**given).loss, again(**given).loss, "loss")
    bare = anyformer.load(tmp_path / "ours", "image-classification")
    close(
        run(bare, batch(hf, "base", 0) | {"labels": None})["hidden 0"],
        run(hf, batch(hf, "base", 0) | {"labels": None})["hidden 0"],
        "body",
    )


def test_images_are_square():
    with pytest.raises(CheckpointError, match="square"):
        FAMILIES["vit"].spec_of({"image_size": [32, 48]}, "base")
    assert FAMILIES["vit"].spec_of({"image_size": [32, 32]}, "base").embed.source.image == 32
