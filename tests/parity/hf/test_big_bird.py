"""BigBird and BigBird-Pegasus against transformers, on rows that are sparse and rows that aren't.

A transformers model that has seen a short row stays with full attention, so each sees one length.
"""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.keymap import forwards
from anyformer.errors import CheckpointError, InputError
from anyformer.ops.blocks import Pattern, first_plan, later_plan
from tests.parity.hf.compare import SEEDS, WEIGHTS, backward, close, same_gradients, shake

VOCAB, LABELS = 61, 3
ENCODER, WRITER = FAMILIES["big_bird"], FAMILIES["bigbird_pegasus"]
ANSWERS = ("last_hidden_state", "pooler_output", "logits", "prediction_logits")
ANSWERS = (*ANSWERS, "seq_relationship_logits")


def blocks(pick):
    """Fields of the pattern."""
    return {
        "attention_type": pick("block_sparse", "block_sparse", "block_sparse", "original_full"),
        "block_size": pick(2, 3, 4),
        "num_random_blocks": pick(1, 2, 3),
        "max_position_embeddings": 72,
        "use_bias": pick(False, True),
        "pad_token_id": pick(0, 4),
    }


def length_of(fields, seed, sparse=None):
    """Positions of a row beyond full attention, or just within it; every third seed's is short."""
    sparse = seed % 3 != 1 if sparse is None else sparse
    most = (5 + 2 * fields["num_random_blocks"]) * fields["block_size"]
    return most + 1 + seed % 7 if sparse else most - seed % 2


def encoder(seed, **more):
    """The fields of a BigBird."""
    rng = random.Random(f"big_bird{seed}")
    pick = lambda *options: rng.choice(options)
    heads = pick(1, 2, 3)
    fields = {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(3, 6),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "intermediate_size": pick(13, 24),
        "hidden_act": pick("gelu", "relu", "gelu_new"),
        "type_vocab_size": pick(2, 3),
        "layer_norm_eps": pick(1e-12, 1e-3),
        "hidden_dropout_prob": pick(0.0, 0.2),
        "attention_probs_dropout_prob": pick(0.0, 0.2),
        "rescale_embeddings": pick(False, True),
        "classifier_dropout": pick(None, 0.3),
    }
    return fields | blocks(pick) | more


def made(family, task, fields, seed):
    """A transformers model with weights that are all away from zero and one."""
    torch.manual_seed(seed)
    counts = {"num_labels": LABELS} if "classification" in task else {}
    settings = transformers.AutoConfig.for_model(family, **fields, **counts)
    model = getattr(transformers, FAMILIES[family].tasks[task].architecture)(settings)
    if task == "seq2seq-lm":
        model.final_logits_bias.normal_()
    return shake(shake(model, seed), seed + 1)


def batch(task, fields, length, seed):
    """Three rows, two of them padded on the right, one by some blocks; labels of the task."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda low, high, *shape: torch.randint(low, high, shape, generator=rng)
    shape = (2, 3, length) if task == "multiple-choice" else (3, length)
    ids, mask = draw(5, VOCAB, *shape), torch.ones(shape, dtype=torch.long)
    mask[..., 1, length - 1 - seed % 3 :] = 0
    mask[..., 2, length // 2 :] = 0
    given = {"input_ids": ids.masked_fill(mask == 0, fields["pad_token_id"])}
    given |= {"attention_mask": mask, "token_type_ids": draw(0, 2, *shape)}
    if task in ("masked-lm", "pretraining", "token-classification"):
        count = LABELS if task == "token-classification" else VOCAB
        given["labels"] = draw(0, count, *shape).masked_fill(mask == 0, -100)
    if task == "pretraining":
        given["next_sentence_label"] = draw(0, 2, 3)
    counts = {"sequence-classification": LABELS, "multiple-choice": 3}
    return given | ({"labels": draw(0, counts[task], shape[0])} if task in counts else {})


def real(name, value, mask):
    """The part of an answer that belongs to real positions."""
    per_position = value.dim() == 3 and value.shape[:2] == mask.shape
    return value[mask.bool()] if per_position else value


def compare(ours, hf, given, task):
    """Assert that answers, losses and gradients agree."""
    a, b = ours(**given), hf(**given)
    found = [name for name in ANSWERS if b.get(name) is not None]
    assert found
    for name in found:
        close(*(real(name, out[name], given["attention_mask"]) for out in (a, b)), name)
    if b.get("loss") is not None:
        close(a.loss, b.loss, "loss")
    for out in (a, b):
        answers = (real(name, out[name], given["attention_mask"]) for name in found)
        loss = sum((t**3).mean() for t in answers) if b.get("loss") is None else out["loss"]
        loss.backward()
    grads = {n: p.grad for n, p in hf.named_parameters() if p.grad is not None}
    mine = {n: p.grad for n, p in ours.named_parameters()}
    rows = FAMILIES[ours.origin.family].rows(ours.spec, task)
    assert {key for item in rows for key in item.theirs} >= grads.keys()
    for item in rows:
        if set(item.theirs) <= grads.keys():
            for key, gradient in forwards(item, grads).items():
                close(mine[key], gradient, key, 1e-4)


def same_files(hf, folder):
    """Their files are ours again, with poolers that nothing reads; the reloaded model of theirs."""
    hf.save_pretrained(folder / "theirs")
    anyformer.load(folder / "theirs").save_pretrained(folder / "ours")
    a, b = load_file(folder / "theirs" / WEIGHTS), load_file(folder / "ours" / WEIGHTS)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in b)
    again = type(hf).from_pretrained(folder / "ours").eval()
    with torch.no_grad():
        for p in again.parameters():
            p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
    return again


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", [t for t in ENCODER.tasks if t != "causal-lm"])
def test_encoder(task, seed, tmp_path):
    fields = encoder(seed)
    hf = made("big_bird", task, fields, seed)
    given = batch(task, fields, length_of(fields, seed), seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    compare(ours, hf, given, task)
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
    compare(anyformer.load(tmp_path).train(), hf.train(), given, "base")


def test_the_first_plan_counts_blocks_that_are_drawn_twice(tmp_path):
    small = {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 1}
    calm = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    more = {"attention_type": "block_sparse", "block_size": 64, "max_position_embeddings": 1100}
    fields = encoder(0, **small, **calm, **more, num_random_blocks=3)
    hf = made("big_bird", "base", fields, 0)
    hf.save_pretrained(tmp_path)
    given = batch("base", fields, 1000, 0)  # 1024 with its padding
    compare(anyformer.load(tmp_path).train(), hf.train(), given, "base")


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


def test_a_head_without_a_part_is_refused(tmp_path):
    settings = transformers.BigBirdConfig(**encoder(0))
    transformers.BigBirdForQuestionAnswering(settings).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="qa_classifier"):
        anyformer.load(tmp_path)


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


def writer(seed, **more):
    """The fields of a BigBird-Pegasus."""
    rng = random.Random(f"bigbird_pegasus{seed}")
    pick = lambda *options: rng.choice(options)
    fields = {
        "vocab_size": VOCAB,
        "d_model": pick(12, 24),
        "encoder_layers": pick(1, 2),
        "decoder_layers": pick(1, 3),
        "encoder_attention_heads": pick(1, 3),
        "decoder_attention_heads": pick(2, 4),
        "encoder_ffn_dim": pick(17, 40),
        "decoder_ffn_dim": pick(15, 33),
        "activation_function": pick("gelu_new", "relu", "silu"),
        "dropout": pick(0.0, 0.2),
        "attention_dropout": pick(0.0, 0.2),
        "activation_dropout": pick(0.0, 0.2),
        "encoder_layerdrop": pick(0.0, 0.1),
        "decoder_layerdrop": pick(0.0, 0.1),
        "scale_embedding": pick(False, True),
        "decoder_start_token_id": pick(2, 5),
    }
    return fields | blocks(pick) | more


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
