"""ViT against transformers: the same numbers, gradients and files."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
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

TASKS = ("base", "image-classification")
cases = pytest.mark.parametrize(("task", "seed"), [(t, s) for t in TASKS for s in SEEDS])


def theirs(task, seed):
    """A transformers model."""
    torch.manual_seed(seed)
    made = transformers.ViTConfig(**config("vit", seed))
    return shake(getattr(transformers, FAMILIES["vit"].tasks[task].architecture)(made), seed)


def batch(hf, task, seed):
    """Images, and labels where the task has them."""
    drawn, c = torch.Generator().manual_seed(seed), hf.config
    shape = (3, c.num_channels, c.image_size, c.image_size)
    given = {"pixel_values": torch.randn(shape, generator=drawn)}
    if task == "base":
        return given
    return given | {"labels": torch.randint(0, c.num_labels, (3,), generator=drawn)}


def run(model, given):
    """Hidden states, and what the head gives."""
    out = model(**given, output_hidden_states=True)
    found = {f"hidden {i}": h for i, h in enumerate(out.hidden_states[:-1])}
    if "labels" in given:
        return found | {"logits": out.logits, "loss": out.loss}
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
    a, b = run(hf, given), run(same_files(hf, tmp_path), given)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_images_are_square():
    with pytest.raises(CheckpointError, match="square"):
        FAMILIES["vit"].spec_of({"image_size": [32, 48]}, "base")
    assert FAMILIES["vit"].spec_of({"image_size": [32, 32]}, "base").embed.source.image == 32
