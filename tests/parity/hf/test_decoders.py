"""Decoder families against transformers: the same numbers, gradients and files, both ways."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint import keymap
from anyformer.checkpoint.family import FAMILIES
from tests.parity.hf.compare import SEEDS
from tests.parity.hf.decoders import DRAW, VOCAB, config

TASKS = ("base", "causal-lm")
CASES = [(family, task, seed) for family in DRAW for task in TASKS for seed in SEEDS]
DISK = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}  # names on disk, where not in memory


def theirs(family, task, seed):
    """A transformers model with weights that show every part."""
    torch.manual_seed(seed)
    made = transformers.AutoConfig.for_model(family, **config(family, seed))
    architecture = FAMILIES[family].tasks[task].architecture
    model = getattr(transformers, architecture)(made).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def batch(seed, task):
    """Ids and a mask with padding on the right; labels where the task has them."""
    drawn = torch.Generator().manual_seed(seed)
    length = 5 + 3 * (seed % 11)  # within the 40 positions of the configurations
    ids = torch.randint(3, VOCAB, (3, length), generator=drawn)
    mask = torch.ones_like(ids)
    mask[1, length - 2 :] = 0
    mask[2, length // 2 :] = 0
    given = {"input_ids": ids, "attention_mask": mask, "output_hidden_states": True}
    if task == "causal-lm":
        given["labels"] = ids.masked_fill(mask == 0, -100)
    return given


def run(model, given):
    """Hidden states and logits at real positions, and the loss."""
    real = given["attention_mask"].bool()
    out = model(**given)
    found = {f"hidden {i}": h[real] for i, h in enumerate(out.hidden_states)}
    if "labels" in given:
        found |= {"logits": out.logits[real], "loss": out.loss}
    else:
        found["last"] = out.last_hidden_state[real]
    return found


def backward(found):
    """Gradients of the loss, or of a sum that weighs every channel differently."""
    if "loss" in found:
        return found["loss"].backward()
    last = found["last"]
    (last * torch.linspace(-1, 1, last.numel()).view_as(last)).mean().backward()


def grads(model, names):
    """Gradients by the names on disk."""
    pairs = model.named_parameters()
    return {names.get(n, n): torch.zeros_like(p) if p.grad is None else p.grad for n, p in pairs}


@pytest.mark.parametrize(("family", "task", "seed"), CASES)
def test_same_numbers_and_gradients(family, task, seed, tmp_path):
    hf = theirs(family, task, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(seed, task)
    a, b = run(hf, given), run(ours, given)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(b[name], a[name], atol=1e-5, rtol=1e-5)
    backward(a)
    backward(b)
    wanted, found = grads(hf, DISK.get(family, {})), grads(ours, {})
    rows = FAMILIES[family].rows(ours.spec, task)
    for row in [r for r in rows if wanted.keys() >= {*r.theirs}]:  # else of a part not there
        for name, grad in keymap.forwards(row, wanted).items():
            torch.testing.assert_close(found.pop(name), grad, atol=1e-4, rtol=1e-4)
    assert not found


@pytest.mark.parametrize(("family", "task", "seed"), CASES)
def test_files_go_both_ways(family, task, seed, tmp_path):
    hf = theirs(family, task, seed)
    hf.save_pretrained(tmp_path / "theirs")
    anyformer.load(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    files = [load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours")]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(tensor, files[1][key]) for key, tensor in files[0].items())
    again = type(hf).from_pretrained(tmp_path / "ours").eval()
    given = batch(seed, task)
    a, b = run(hf, given), run(again, given)
    assert all(torch.equal(a[name], b[name]) for name in a)
