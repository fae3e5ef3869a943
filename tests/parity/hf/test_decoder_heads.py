"""Heads of decoder families against transformers: numbers, gradients and files, both ways."""

from __future__ import annotations

import logging

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from tests.parity.hf.compare import SEEDS, close, same_files, same_gradients, shake
from tests.parity.hf.decoders import DRAW, VOCAB, config

HEADS = ("sequence-classification", "token-classification", "question-answering")
SOME = range((len(SEEDS) + 1) // 2)
CASES = [
    (family, task, seed)
    for family in DRAW
    for task in HEADS
    for seed in SOME
    if task in FAMILIES[family].tasks
]
cases = pytest.mark.parametrize(("family", "task", "seed"), CASES)
SIDES = ("right", "left")


def theirs(family, task, seed, **more):
    """A transformers model with weights that show every part."""
    torch.manual_seed(seed)
    labels = 2 if task == "question-answering" and seed % 2 else 2 + seed % 3
    labels = 2 if (family, task) == ("gptj", "question-answering") else labels
    fields = config(family, seed) | {"pad_token_id": (0, 7)[seed % 2], "num_labels": labels} | more
    made = transformers.AutoConfig.for_model(family, **fields)
    return shake(getattr(transformers, FAMILIES[family].tasks[task].architecture)(made), seed)


def batch(family, seed, side, pad, rows=3):
    """Ids and a mask with padding on one side."""
    drawn, length = torch.Generator().manual_seed(seed), 5 + seed % 7
    ids = torch.randint(8, VOCAB, (rows, length), generator=drawn)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        short = slice(length - row, None) if side == "right" else slice(0, row)
        mask[row, short] = 0
    given = {"input_ids": ids if pad is None else ids.masked_fill(mask == 0, pad)}
    if side == "left" and family != "opt":  # which counts real tokens by itself
        given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return given | {"attention_mask": mask}


def asked(task, given, labels, seed):
    """The labels of a task; the loss of answers counts padding there, so there is none."""
    drawn, mask = torch.Generator().manual_seed(seed), given["attention_mask"]
    draw = lambda high, *shape: torch.randint(0, high, shape, generator=drawn)
    if task == "sequence-classification":
        return given | {"labels": draw(labels, len(mask))}
    if task == "token-classification":
        found = draw(labels, *mask.shape)
        return given | {"labels": found.masked_fill(mask == 0, -100)}
    ends = {f"{end}_positions": draw(mask.shape[1] + 2, len(mask)) for end in ("start", "end")}
    for places in ends.values():
        places[0] = 1  # at least one counts
    ids = given["input_ids"].masked_fill(mask == 0, 9)  # no id that pads, which learns nothing
    return {"input_ids": ids, "attention_mask": torch.ones_like(mask)} | ends


def run(model, given):
    """Logits at real positions, and the loss."""
    out, real = model(**given), given["attention_mask"].bool()
    found = {n: out[n] for n in ("loss", "logits", "start_logits", "end_logits") if n in out}
    return {n: v[real] if v.shape[:2] == real.shape else v for n, v in found.items()}


@cases
def test_same_numbers_gradients_and_files(family, task, seed, tmp_path):
    hf = theirs(family, task, seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "theirs")
    given = batch(family, seed, SIDES[seed % 2], hf.config.pad_token_id, rows=1 + seed % 4)
    given = asked(task, given, hf.config.num_labels, seed)
    for p in again.parameters():
        p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
    a, b, c = run(hf, given), run(ours, given), run(again, given)
    assert a.keys() == b.keys()
    for name in a:
        close(b[name], a[name], name)
        assert torch.equal(a[name], c[name]), name
    a["loss"].backward()
    b["loss"].backward()
    same_gradients(hf, ours, family, task)


@pytest.mark.parametrize("family", DRAW)
def test_the_last_token_is_found(family, tmp_path):
    hf = theirs(family, HEADS[0], 1)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    for side in SIDES:
        given = batch(family, 3, side, 7, rows=4)
        close(ours(**given).logits, hf(**given).logits, "padding by mask and id")
        told = {n: v for n, v in given.items() if n != "attention_mask"}
        close(ours(**told).logits, hf(**told).logits, "padding by id alone")
    inside = batch(family, 3, "right", None, rows=2)
    inside["input_ids"][0, 2:4] = 7  # the id that pads, in the middle of a row
    inside["attention_mask"][:] = 1
    close(ours(**inside).logits, hf(**inside).logits, "an id that pads among others")


@pytest.mark.parametrize("family", DRAW)
def test_without_an_id_that_pads_the_mask_tells(family, tmp_path):
    hf = theirs(family, HEADS[0], 0, pad_token_id=None)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(family, 5, "right", None, rows=3)
    found = ours(**given).logits
    for row in range(3):  # transformers takes one row at a time
        alone = given["input_ids"][row : row + 1, : int(given["attention_mask"][row].sum())]
        close(found[row : row + 1], hf(input_ids=alone).logits, f"row {row}")
    vectors = hf.get_input_embeddings()(alone)
    if family not in ("ctrl", "gemma2", "gemma3_text"):  # which scale them or not
        close(ours(inputs_embeds=vectors).logits, hf(inputs_embeds=vectors).logits, "vectors")


@pytest.mark.parametrize("task", ["sequence-classification", "question-answering"])
def test_heads_are_as_narrow_as_the_ends_of_opt(task, tmp_path):
    hf = theirs("opt", task, 0, word_embed_proj_dim=5)
    hf.save_pretrained(tmp_path / "theirs")
    ours = anyformer.load(tmp_path / "theirs")
    given = batch("opt", 2, "right", 0)
    found, wanted = run(ours, given), run(hf, given)
    for name in wanted:
        close(found[name], wanted[name], name)
    theirs("opt", "base", 0, word_embed_proj_dim=5).save_pretrained(tmp_path / "base")
    fresh = anyformer.load(tmp_path / "base", task)
    assert fresh.head.out.weight.shape[1] == 5


PROBLEMS = {
    "regression": (1, lambda rows: torch.randn(rows)),
    "multi_label_classification": (3, lambda rows: torch.randint(0, 2, (rows, 3)).float()),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("family", ["gpt2", "llama", "ctrl"])
def test_problem_types_have_their_losses(family, problem, tmp_path):
    count, draw = PROBLEMS[problem]
    hf = theirs(family, HEADS[0], 0, num_labels=count, problem_type=problem)
    hf.save_pretrained(tmp_path)
    given = batch(family, 0, "right", 0) | {"labels": draw(3)}
    close(anyformer.load(tmp_path)(**given).loss, hf(**given).loss, "loss")


@pytest.mark.parametrize("family", DRAW)
def test_a_language_model_gets_a_new_head(family, tmp_path, caplog):
    hf = theirs(family, "causal-lm", 0)
    hf.save_pretrained(tmp_path / "theirs")
    with caplog.at_level(logging.WARNING, logger="anyformer"):
        ours = anyformer.load(tmp_path / "theirs", HEADS[0], labels=["good", "bad", "ugly"])
    assert "start fresh" in caplog.text
    ours.save_pretrained(tmp_path / "ours")
    auto = transformers.AutoModelForSequenceClassification
    again = auto.from_pretrained(tmp_path / "ours").eval()
    assert again.config.id2label == {0: "good", 1: "bad", 2: "ugly"}
    given = batch(family, 0, "right", 0)
    close(ours(**given).logits, again(**given).logits, "logits")
    back = anyformer.load(tmp_path / "ours", "base")
    close(
        back(**given).last_hidden_state[:1],
        hf(**given, output_hidden_states=True).hidden_states[-1][:1],
        "body",
    )


@pytest.mark.parametrize("task", ["causal-lm", "question-answering", "base"])
def test_bodies_have_another_lead_with_answers(task, tmp_path):
    hf = theirs("llama", task, 0)
    hf.save_pretrained(tmp_path)
    ids = batch("llama", 0, "right", 0)["input_ids"]
    for other in ("base", *HEADS):
        found = anyformer.load(tmp_path, other)(ids).last_hidden_state
        close(found, hf(ids, output_hidden_states=True).hidden_states[-1], other)
