"""Small random configurations, models and inputs of BigBird and BigBird-Pegasus."""

from __future__ import annotations

import random

import torch
import transformers
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.keymap import forwards
from tests.parity.hf.compare import WEIGHTS, close, shake

VOCAB, LABELS = 61, 3
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


def assert_alike(ours, hf, given, task):
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
