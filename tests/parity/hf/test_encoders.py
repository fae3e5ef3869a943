"""Encoders against transformers: answers, losses, gradients, and files in both directions."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.keymap import forwards
from tests.parity.hf.compare import SEEDS
from tests.parity.hf.encoders import CLASSES, LABELS, NAMES, config, inputs

CASES = [(f, task) for f in NAMES for task in FAMILIES[f].tasks if task in CLASSES]
ANSWERS = ("last_hidden_state", "pooler_output", "logits", "start_logits", "end_logits")


def theirs(family, task, seed, **more):
    """A transformers model with weights that are all away from zero and one."""
    torch.manual_seed(seed)
    fields = config(family, seed) | more
    counts = LABELS if "classification" in task else 2
    settings = getattr(transformers, f"{NAMES[family]}Config")(**fields, num_labels=counts)
    model = getattr(transformers, NAMES[family] + CLASSES[task])(settings).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model, fields


def real(name, value, mask):
    """The part of an answer that belongs to real positions."""
    per_position = value.dim() >= 2 and value.shape[:2] == mask.shape and name != "pooler_output"
    return value[mask.bool()] if per_position else value


def agree(ours, hf, given):
    """Assert that two outputs say the same at real positions."""
    found = [name for name in ANSWERS if hf.get(name) is not None]
    assert found
    assert set(found) <= {*ours.keys()}
    for name in found:
        a, b = (real(name, out[name], given["attention_mask"]) for out in (ours, hf))
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("family", "task"), CASES)
def test_answers_losses_gradients_and_files(family, task, seed, tmp_path):
    hf, fields = theirs(family, task, seed)
    hf.save_pretrained(tmp_path / "theirs")
    model = anyformer.load(tmp_path / "theirs")
    given = inputs(task, fields, seed)
    a, b = model(**given), hf(**given)
    agree(a, b, given)
    if b.get("loss") is not None:
        torch.testing.assert_close(a.loss, b.loss, rtol=1e-5, atol=1e-5)
    gradients(model, hf, a, b, given)
    model.save_pretrained(tmp_path / "ours")
    same_files(tmp_path / "ours", tmp_path / "theirs")
    again = type(hf).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        for p in again.parameters():
            p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
        before, after = hf(**given), again(**given)
    assert all(torch.equal(before[k], after[k]) for k in ANSWERS if before.get(k) is not None)


def gradients(model, hf, a, b, given):
    """Compare all gradients, theirs brought to our names by the family's rows."""
    mask = given["attention_mask"]
    measure = lambda out: sum(
        (real(k, out[k], mask) ** 3).sum() for k in ANSWERS[:2] if k in out.keys()
    )
    for out in (a, b):
        (measure(out) if b.get("loss") is None else out["loss"]).backward()
    family = FAMILIES[model.origin.family]
    grads = {n: p.grad for n, p in hf.named_parameters()}
    ours = {n: p.grad for n, p in model.named_parameters()}
    for row in family.rows(model.spec, model.origin.task):
        if all(grads.get(key) is not None for key in row.theirs):
            for key, grad in forwards(row, grads).items():
                scale = max(1.0, grad.abs().max().item())
                torch.testing.assert_close(ours[key], grad, rtol=1e-4, atol=1e-4 * scale)


def same_files(ours, theirs):
    """Assert that two folders hold the same tensors, bit for bit."""
    a, b = (load_file(folder / "model.safetensors") for folder in (ours, theirs))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "roberta-prelayernorm"])
def test_positions_leave_padding_out(family, tmp_path):
    hf, _ = theirs(family, "base", 1, pad_token_id=4)
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    ids = torch.randint(0, 9, (4, 12))
    ids[:, ::3] = 4
    mask = (ids != 4).long()
    given = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        agree_rows = lambda **named: (model(**named)[0], hf(**named)[0])
        a, b = agree_rows(**given)
        torch.testing.assert_close(a[mask.bool()], b[mask.bool()], rtol=1e-5, atol=1e-5)
        a, b = agree_rows(input_ids=ids)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        vectors = hf.embeddings.word_embeddings(ids)
        a, b = agree_rows(inputs_embeds=vectors)
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


PROBLEMS = {
    "regression": (1, lambda rows: torch.randn(rows)),
    "multi_label_classification": (3, lambda rows: torch.randint(0, 2, (rows, 3)).float()),
    "single_label_classification": (3, lambda rows: torch.randint(0, 3, (rows,))),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("family", NAMES)
def test_problem_types_have_their_losses(family, problem, tmp_path):
    count, draw = PROBLEMS[problem]
    fields = config(family, 0) | {"num_labels": count, "problem_type": problem}
    settings = getattr(transformers, f"{NAMES[family]}Config")(**fields)
    hf = getattr(transformers, f"{NAMES[family]}ForSequenceClassification")(settings).eval()
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    given = inputs("base", fields, 0) | {"labels": draw(3)}
    torch.testing.assert_close(model(**given).loss, hf(**given).loss, rtol=1e-5, atol=1e-5)


def test_answers_outside_the_row_count_for_nothing(tmp_path):
    hf, fields = theirs("bert", "question-answering", 0)
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    given = inputs("question-answering", fields, 0)
    given["attention_mask"] = torch.ones_like(given["attention_mask"])
    given["start_positions"] = torch.tensor([1, 99, 11])
    torch.testing.assert_close(model(**given).loss, hf(**given).loss, rtol=1e-5, atol=1e-5)


def test_padding_takes_no_part_in_the_loss_of_answers(tmp_path):
    hf, fields = theirs("bert", "question-answering", 0)
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    given = inputs("question-answering", fields, 0)
    given["attention_mask"][1, 7:] = 0
    given = {name: value[1:2] for name, value in given.items()}
    short = {n: v[:, :7] if v.dim() == 2 else v for n, v in given.items()}
    assert given["attention_mask"].sum() == 7
    with torch.no_grad():
        torch.testing.assert_close(model(**given).loss, hf(**short).loss, rtol=1e-5, atol=1e-5)
