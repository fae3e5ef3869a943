"""Encoder-decoder families against transformers: the same numbers, gradients and files."""

from __future__ import annotations

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import InputError
from tests.parity.hf.compare import SEEDS, backward, close, same_files, same_gradients, shake
from tests.parity.hf.seq2seq import VOCAB, config

NAMES = ("t5", "mt5", "bart", "mbart", "m2m_100")
TASKS = ("base", "seq2seq-lm")
CASES = [(family, task, seed) for family in NAMES for task in TASKS for seed in SEEDS]
cases = pytest.mark.parametrize(("family", "task", "seed"), CASES)


def theirs(family, task, seed):
    """A transformers model; every second T5 has a head of its own, and some no scale."""
    torch.manual_seed(seed)
    given = config(family, seed) | ({"tie_word_embeddings": False} if seed == 1 else {})
    if family not in ("t5", "mt5"):
        given.pop("tie_word_embeddings", None)
    made = transformers.AutoConfig.for_model(family, **given)
    model = getattr(transformers, FAMILIES[family].tasks[task].architecture)(made)
    if task != "base" and family in ("t5", "mt5") and seed % 2:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    if task != "base" and "bart" in family:
        model.final_logits_bias.normal_()
    return shake(model, seed)


def batch(seed, task, pad):
    """Both sequences with padding on the right; labels where the task has them."""
    drawn = torch.Generator().manual_seed(seed)
    length, short = 5 + 3 * (seed % 5), 4 + seed % 5
    ids = torch.randint(6, VOCAB, (3, length), generator=drawn)
    mask = torch.ones_like(ids)
    mask[1, length - 2 :] = 0
    mask[2, length // 2 :] = 0
    given = {"input_ids": ids.masked_fill(mask == 0, pad), "attention_mask": mask}
    written = torch.randint(6, VOCAB, (3, short), generator=drawn)
    if task == "base":
        return given | {"decoder_input_ids": written}
    written[1, short - 2 :] = -100
    return given | {"labels": written}


def run(model, given):
    """Hidden states and logits, and the loss."""
    out = model(**given, output_hidden_states=True)
    deep = getattr(out, "decoder_hidden_states", None) or out.hidden_states
    found = {f"hidden {i}": h for i, h in enumerate(deep)}
    found["encoder"] = out.encoder_last_hidden_state[given["attention_mask"].bool()]
    if "labels" in given:
        return found | {"logits": out.logits, "loss": out.loss}
    return found | {"last": out.last_hidden_state}


@cases
def test_same_numbers_and_gradients(family, task, seed, tmp_path):
    hf = theirs(family, task, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(seed, task, hf.config.pad_token_id)
    a, b = run(hf, given), run(ours, given)
    assert a.keys() == b.keys()
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    same_gradients(hf, ours, family, task)


@cases
def test_same_files(family, task, seed, tmp_path):
    hf = theirs(family, task, seed)
    again = same_files(hf, tmp_path)
    given = batch(seed, task, hf.config.pad_token_id)
    a, b = run(hf, given), run(again, given)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_a_cache_changes_nothing(family, seed, tmp_path):
    hf = theirs(family, "seq2seq-lm", seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(seed, "base", hf.config.pad_token_id)
    ids = given.pop("decoder_input_ids")
    ids[1, 1] = hf.config.pad_token_id
    whole = ours(**given, decoder_input_ids=ids).logits
    out, found = ours(**given, decoder_input_ids=ids[:, :1], use_cache=True), []
    for step in range(1, ids.shape[1] + 1):
        found.append(out.logits)
        if step < ids.shape[1]:
            now = ids[:, step : step + 1]
            out = ours(decoder_input_ids=now, past_key_values=out.past_key_values)
    close(torch.cat(found, 1), whole, "logits")


def test_labels_alone_need_a_start_and_a_pad():
    small = {"dim": 12, "depth": 1, "heads": 2, "vocab": 9}
    ids, labels = torch.tensor([[1, 2]]), torch.tensor([[3, -100, 4]])
    with pytest.raises(InputError, match="decoder_input_ids"):
        anyformer.build(anyformer.recipe("t5", **small, start=None))(ids, labels=labels)
    with pytest.raises(InputError, match="set pad in the spec"):
        anyformer.build(anyformer.recipe("t5", **small, pad=None))(ids, labels=labels)
    model = anyformer.build(anyformer.recipe("t5", **small, start=0, pad=8)).eval()
    shifted = torch.tensor([[0, 3, 8]])
    a, b = model(ids, labels=labels), model(ids, labels=labels, decoder_input_ids=shifted)
    assert torch.equal(a.loss, b.loss)
    with pytest.raises(InputError, match="labels must be integers"):
        model(ids, labels=labels[0])
