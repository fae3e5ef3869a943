"""What every comparison with transformers does: build, save, load, look at gradients."""

from __future__ import annotations

import os

import torch
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint import keymap
from anyformer.checkpoint.family import FAMILIES

WEIGHTS = "model.safetensors"
SEEDS = range(int(os.environ.get("ANYFORMER_CONFIGS", "2")))  # random configurations of each case


def close(found, wanted, name, tolerance=1e-5):
    """Equal to a tolerance of the largest number, or of 1 where that is larger."""
    found, wanted = found.detach(), wanted.detach()
    scale = max(1.0, float(wanted.abs().max()))
    assert found.shape == wanted.shape, name
    assert (found - wanted).abs().max() <= tolerance * scale, name


def shake(model, seed):
    """Weights of a transformers model that show every part."""
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn) * 0.1)
    return model.eval()


def backward(found):
    """Gradients of the loss, or of a sum that weighs every channel differently."""
    if "loss" in found:
        return found["loss"].backward()
    last = found["last"]
    (last * torch.linspace(-1, 1, last.numel()).view_as(last)).mean().backward()


def same_gradients(hf, ours, family, task, disk=lambda name: name):
    """Gradients of all rows; `disk` gives the name on disk of one in memory."""
    grads = lambda model: {n: g(p) for n, p in model.named_parameters()}
    g = lambda p: torch.zeros_like(p) if p.grad is None else p.grad
    wanted, found = {disk(k): v for k, v in grads(hf).items()}, grads(ours)
    rows = FAMILIES[family].rows(ours.spec, task)
    for item in rows:
        if all(key in wanted for key in item.theirs):  # a buffer there has no gradient
            for key, gradient in keymap.forwards(item, wanted).items():
                close(found[key], gradient, key, 1e-4)
    assert sum(key in wanted for item in rows for key in item.theirs) == len(wanted)


def same_files(hf, folder):
    """Their files are ours again after a load and a save, and load there as they were."""
    hf.save_pretrained(folder / "theirs")
    anyformer.load(folder / "theirs").save_pretrained(folder / "ours")
    a, b = load_file(folder / "theirs" / WEIGHTS), load_file(folder / "ours" / WEIGHTS)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    return type(hf).from_pretrained(folder / "ours").eval()
