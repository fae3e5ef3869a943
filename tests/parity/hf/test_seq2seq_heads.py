"""Heads of encoder-decoders and their sides alone against transformers, both ways."""

from __future__ import annotations

import logging

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.huggingface import Origin
from anyformer.errors import CheckpointError, InputError
from tests.parity.hf.compare import SEEDS, backward, close, same_files, same_gradients, shake
from tests.parity.hf.seq2seq import VOCAB, config

NAMES, OLD = ("t5", "mt5", "bart", "mbart"), ("base", "seq2seq-lm")
SOME = range((len(SEEDS) + 1) // 2)
CASES = [
    (family, task, seed)
    for family in NAMES
    for task in FAMILIES[family].tasks
    for seed in SOME
    if task not in OLD
]
cases = pytest.mark.parametrize(("family", "task", "seed"), CASES)
ANSWERS = ("loss", "logits", "start_logits", "end_logits")


def theirs(family, task, seed, **more):
    """A transformers model with weights that show every part."""
    torch.manual_seed(seed)
    labels = 2 if task == "question-answering" else (3, 2, 4)[seed % 3]
    if family == "bart" and task == "sequence-classification":
        labels = labels + 1  # their own files of two labels are read as three
    fields = config(family, seed) | {"num_labels": labels, "classifier_dropout": 0.2} | more
    made = transformers.AutoConfig.for_model(family, **fields)
    return shake(getattr(transformers, FAMILIES[family].tasks[task].architecture)(made), seed)


def batch(family, task, seed, fields):
    """Rows that end in the id that ends texts, then padding, on the left of some T5's."""
    drawn, length, rows = torch.Generator().manual_seed(seed), 6 + seed % 5, 1 + seed % 4
    ids = torch.randint(6, VOCAB, (rows, length), generator=drawn)
    mask = torch.ones_like(ids)
    for row in range(1, rows if task != "question-answering" else 0):
        mask[row, length - row :] = 0
    ids[:, 1] = fields.eos_token_id  # the last one counts
    ids.scatter_(1, mask.sum(1, keepdim=True) - 1, fields.eos_token_id)
    ids = ids.masked_fill(mask == 0, fields.pad_token_id)
    if "t5" in family and seed % 2:
        turns = [(ids[row].roll(k), mask[row].roll(k)) for row, k in enumerate((mask == 0).sum(1))]
        ids, mask = (torch.stack(parts) for parts in zip(*turns, strict=True))
    return {"input_ids": ids, "attention_mask": mask} | asked(task, drawn, mask, fields)


def asked(task, drawn, mask, fields):
    """The labels of a task."""
    draw = lambda high, *shape: torch.randint(0, high, shape, generator=drawn)
    if task == "sequence-classification":
        return {"labels": draw(fields.num_labels, len(mask))}
    if task in ("token-classification", "causal-lm"):
        count = VOCAB if task == "causal-lm" else fields.num_labels
        more = {"use_cache": False} if task == "causal-lm" else {}  # theirs counts the wrong side
        return {"labels": draw(count, *mask.shape).masked_fill(mask == 0, -100)} | more
    if task == "question-answering":
        return {f"{end}_positions": draw(4, len(mask)) for end in ("start", "end")}
    return {}


def run(model, given):
    """Answers at real positions, and the loss."""
    out, real = model(**given), given["attention_mask"].bool()
    found = {name: out[name] for name in ANSWERS if name in out}
    found = found or {"last": out.last_hidden_state}
    return {n: v[real] if v.shape[:2] == real.shape else v for n, v in found.items()}


@cases
def test_same_numbers_gradients_and_files(family, task, seed, tmp_path):
    hf = theirs(family, task, seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "theirs")
    given = batch(family, task, seed, hf.config)
    for p in again.parameters():
        p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
    a, b, c = run(hf, given), run(ours, given), run(again, given)
    assert a.keys() == b.keys()
    for name in a:
        close(b[name], a[name], name)
        assert torch.equal(a[name], c[name]), name
    backward(a)
    backward(b)
    same_gradients(hf, ours, family, task)


@pytest.mark.parametrize("family", ["bart", "mbart"])
def test_a_decoder_alone_may_read_another_sequence(family, tmp_path):
    hf = theirs(family, "causal-lm", 2)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(family, "causal-lm", 2, hf.config)
    seen = torch.ones(len(given["labels"]), 5).long()
    seen[0, 3:] = 0
    context = torch.randn(*seen.shape, hf.config.d_model)
    more = {"encoder_hidden_states": context, "encoder_attention_mask": seen}
    a, b = run(hf, given | more), run(ours, given | more)
    for name in a:
        close(b[name], a[name], name)
    assert (b["logits"] - run(ours, given)["logits"]).abs().max() > 1e-3
    steps, past = [], None
    for i in range(given["input_ids"].shape[1]):
        out = ours(given["input_ids"][:, i : i + 1], past_key_values=past, use_cache=True)
        steps, past = [*steps, out.logits], out.past_key_values
    close(torch.cat(steps, 1), ours(given["input_ids"]).logits, "a cache changes nothing")


WHOLE = [("t5", "encoder"), ("mt5", "token-classification"), ("bart", "causal-lm")]
WHOLE += [(family, "sequence-classification") for family in NAMES]


@pytest.mark.parametrize(("family", "task"), WHOLE)
@pytest.mark.parametrize("start", OLD)
def test_a_whole_model_gives_its_sides(family, task, start, tmp_path, caplog):
    hf = theirs(family, start, 0)
    hf.save_pretrained(tmp_path / "theirs")
    with caplog.at_level(logging.WARNING, logger="anyformer"):
        ours = anyformer.load(tmp_path / "theirs", task)
    side = task in ("encoder", "token-classification", "causal-lm")
    assert ("other side" in caplog.text) == side
    ours.save_pretrained(tmp_path / "ours")
    made = getattr(transformers, FAMILIES[family].tasks[task].architecture)
    again = made.from_pretrained(tmp_path / "ours").eval()
    given = batch(family, task, 0, hf.config)
    a, b = run(again, given), run(anyformer.load(tmp_path / "ours"), given)
    for name in a:
        close(b[name], a[name], name)
    if task == "encoder":
        close(a["last"], hf.encoder(input_ids=given["input_ids"])[0][0], "encoder")


def test_two_labels_of_bart_are_read_from_the_head(tmp_path):
    hf = theirs("bart", "sequence-classification", 0, num_labels=2)
    hf.save_pretrained(tmp_path / "theirs")  # says nothing of labels, which means three
    ours = anyformer.load(tmp_path / "theirs")
    assert ours.spec.head.count == 2
    ours.save_pretrained(tmp_path / "ours")
    again = type(hf).from_pretrained(tmp_path / "ours").eval()
    given = batch("bart", "sequence-classification", 0, hf.config) | {"labels": torch.tensor([1])}
    close(again(**given).loss, hf(**given).loss, "loss")


def test_where_texts_end_is_found_or_asked_for(tmp_path):
    hf = theirs("t5", "sequence-classification", 3)
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    ids = torch.tensor([[6, 1, 7, 1, 8], [6, 7, 1, 8, 9]])
    logits = model(ids).logits  # transformers wants as many in every row
    for row in range(2):
        close(logits[row : row + 1], hf(input_ids=ids[row : row + 1]).logits, f"row {row}")
    with pytest.raises(InputError, match="every row needs one"):
        model(ids.masked_fill(ids == 1, 5))
    with pytest.raises(InputError, match="of the same length or none"):
        model(ids, decoder_input_ids=ids[:, :3])
    with pytest.raises(InputError, match="input_ids must be integers"):
        model(ids[0])


def test_a_side_that_was_changed_is_refused(tmp_path):
    model = anyformer.build(anyformer.recipe("t5", dim=12, depth=1, heads=2, vocab=9).encoder)
    model.origin = Origin("t5", "encoder", {})
    with pytest.raises(CheckpointError, match="can't say"):
        model.save_pretrained(tmp_path)
