"""BigBird and BigBird-Pegasus against transformers, on rows that are sparse and rows that aren't.

A transformers model that has seen a short row stays with full attention, so each sees one length.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError, InputError
from anyformer.ops.blocks import Pattern, first_plan, later_plan
from tests.parity.hf.birds import (
    ANSWERS,
    VOCAB,
    assert_alike,
    batch,
    encoder,
    length_of,
    made,
    same_files,
    writer,
)
from tests.parity.hf.compare import SEEDS, backward, close, same_gradients

APART = ("causal-lm", "question-answering")  # with inputs of their own
TASKS = [task for task in FAMILIES["big_bird"].tasks if task not in APART]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", TASKS)
def test_encoder(task, seed, tmp_path):
    fields = encoder(seed)
    hf = made("big_bird", task, fields, seed)
    given = batch(task, fields, length_of(fields, seed), seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    assert_alike(ours, hf, given, task)
    with torch.no_grad():
        before, after = hf(**given), again(**given)
    assert all(torch.equal(before[k], after[k]) for k in ANSWERS if before.get(k) is not None)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_are_drawn_in_training_as_there(seed, tmp_path):
    calm = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    fields = encoder(seed, **calm, attention_type="block_sparse")
    hf = made("big_bird", "base", fields, seed)
    hf.save_pretrained(tmp_path)
    given = batch("base", fields, length_of(fields, seed), seed)
    assert_alike(anyformer.load(tmp_path).train(), hf.train(), given, "base")


def test_the_first_plan_counts_blocks_that_are_drawn_twice(tmp_path):
    small = {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1}
    calm = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    more = {"attention_type": "block_sparse", "block_size": 64, "max_position_embeddings": 1100}
    fields = encoder(0, **small, **calm, **more, num_random_blocks=3)
    hf = made("big_bird", "base", fields, 0)
    hf.save_pretrained(tmp_path)
    given = batch("base", fields, 1000, 0)  # 1024 with its padding
    assert_alike(anyformer.load(tmp_path).train(), hf.train(), given, "base")


@pytest.mark.parametrize(("size", "random"), [(64, 3), (64, 1), (32, 2), (128, 1)])
def test_first_plan(size, random):
    theirs = BigBirdBlockSparseAttention(
        transformers.BigBirdConfig(hidden_size=6, num_attention_heads=2)
    ).train()
    np.random.seed(5)
    rows = [
        theirs._bigbird_block_rand_mask(4096, 4096, size, size, random, last_idx=1024)
        for _ in range(2)
    ]
    found = first_plan(Pattern(size, random, 4096), heads=2, seed=5)
    assert np.array_equal(found[:, 1:-1], np.stack(rows))
    assert (found[:, [0, -1]] == -1).all()


@pytest.mark.parametrize(("count", "random"), [(12, 3), (40, 3), (8, 1), (30, 5)])
def test_later_plan(count, random):
    theirs = BigBirdBlockSparseAttention(
        transformers.BigBirdConfig(hidden_size=6, num_attention_heads=2)
    ).train()
    lengths, counts = theirs._get_rand_attn_plan(count * 2, 2, random)
    np.random.seed(7)
    rows = theirs._bigbird_block_rand_mask_with_head(count * 2, count * 2, 2, 2, 3, lengths, counts)
    found = later_plan(Pattern(2, random, 4096), count, heads=3, seed=7)
    assert np.array_equal(found[:, 1:-1], np.stack(rows))


def test_a_short_row_changes_nothing_for_a_long_one(tmp_path):
    fields = encoder(0, attention_type="block_sparse")
    made("big_bird", "base", fields, 0).save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    long, short = (batch("base", fields, length_of(fields, 0, s), 0) for s in (True, False))
    with torch.no_grad():
        before, _, after = ours(**long)[0], ours(**short)[0], ours(**long)[0]
    assert torch.equal(before, after)


def test_what_has_no_part_here_is_refused(tmp_path):
    hf = made("big_bird", "base", encoder(1), 1)
    hf.save_pretrained(tmp_path)
    whole = json.loads((tmp_path / "config.json").read_text())
    for field, value in (("attention_type", "blocks"), ("add_cross_attention", True)):
        (tmp_path / "config.json").write_text(json.dumps(whole | {field: value}))
        with pytest.raises(CheckpointError, match=field):
            anyformer.load(tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_decoder_sees_all_that_is_before(seed, tmp_path):
    fields = encoder(seed, attention_type="original_full") | {"is_decoder": True}
    hf = made("big_bird", "causal-lm", fields, seed)
    ids = torch.randint(6, VOCAB, (2, 13))
    given = {"input_ids": ids, "labels": ids}
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    a, b, c = (model(**given) for model in (hf, ours, again))
    for name in ("loss", "logits"):
        close(b[name], a[name], name)
        assert torch.equal(a[name], c[name])
    (tmp_path / "ours" / "config.json").write_text(
        json.dumps(fields | {"attention_type": "block_sparse", "model_type": "big_bird"})
    )
    with pytest.raises(CheckpointError, match="blocks"):
        anyformer.load(tmp_path / "ours", task="causal-lm")


def test_documents_and_sparse_rows_are_refused_together(tmp_path):
    fields = encoder(0, attention_type="block_sparse")
    made("big_bird", "base", fields, 0).save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    for sparse in (False, True):
        ids = batch("base", fields, length_of(fields, 0, sparse), 0)["input_ids"]
        if not sparse:
            assert torch.isfinite(ours(ids, document_ids=torch.zeros_like(ids))[0]).all()
            continue
        with pytest.raises(InputError, match="document_ids"):
            ours(ids, document_ids=torch.zeros_like(ids))


def read_and_write(model, given):
    """Hidden states, and logits and the loss where there are labels."""
    out = model(**given)
    found = {"encoder": out.encoder_last_hidden_state[given["attention_mask"].bool()]}
    if "labels" in given:
        return found | {"logits": out.logits, "loss": out.loss}
    return found | {"last": out.last_hidden_state}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", ["base", "seq2seq-lm"])
def test_writer(task, seed, tmp_path):
    fields = writer(seed)
    hf = made("bigbird_pegasus", task, fields, seed)
    given = batch("base", fields, length_of(fields, seed), seed)
    del given["token_type_ids"]
    written = torch.randint(6, VOCAB, (3, 5))
    given["decoder_input_ids" if task == "base" else "labels"] = written
    if task != "base":
        written[1, 3:] = -100
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    a, b, c = (read_and_write(model, given) for model in (hf, ours, again))
    assert all(torch.equal(a[name], c[name]) for name in a)
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    same_gradients(hf, ours, "bigbird_pegasus", task)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", ["sequence-classification", "question-answering"])
def test_heads_of_the_writer(task, seed, tmp_path):
    fields = writer(seed) | {"eos_token_id": 5}
    hf = made("bigbird_pegasus", task, fields, seed)
    ids = torch.randint(6, VOCAB, (3, length_of(fields, seed)))
    ids[:, -1] = fields["eos_token_id"]
    at = torch.tensor([1, 0, 2])
    asked = {"labels": at} if "class" in task else {"start_positions": at, "end_positions": at + 2}
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    a, b, c = (model(ids, **asked) for model in (hf, ours, again))
    for name in ("loss", "logits") if "class" in task else ("loss", "start_logits", "end_logits"):
        close(b[name], a[name], name)
        assert torch.equal(a[name], c[name])
    a.loss.backward()
    b.loss.backward()
    same_gradients(hf, ours, "bigbird_pegasus", task)


@pytest.mark.parametrize("seed", range(2))
def test_the_writer_draws_in_training_as_there(seed, tmp_path):
    rates = ("dropout", "attention_dropout", "activation_dropout")
    calm = dict.fromkeys((*rates, "encoder_layerdrop", "decoder_layerdrop"), 0.0)
    fields = writer(seed, **calm, attention_type="block_sparse")
    hf = made("bigbird_pegasus", "base", fields, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path).train()
    given = batch("base", fields, length_of(fields, seed, True), seed)
    del given["token_type_ids"]
    given["decoder_input_ids"] = torch.randint(6, VOCAB, (3, 5))
    a, b = read_and_write(hf.train(), given), read_and_write(ours, given)
    for name in a:
        close(b[name], a[name], name)


@pytest.mark.parametrize("seed", range(2))
def test_a_cache_changes_nothing(seed, tmp_path):
    fields = writer(seed, attention_type="block_sparse")
    made("bigbird_pegasus", "seq2seq-lm", fields, seed).save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch("base", fields, length_of(fields, seed, True), seed)
    del given["token_type_ids"]
    ids = torch.randint(6, VOCAB, (3, 4))
    with torch.no_grad():
        whole = ours(**given, decoder_input_ids=ids).logits
        first = ours(**given, decoder_input_ids=ids[:, :2], use_cache=True)
        rest = ours(decoder_input_ids=ids[:, 2:], past_key_values=first.past_key_values)
    close(torch.cat([first.logits, rest.logits], 1), whole, "logits")
