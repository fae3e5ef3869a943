"""BERT and its kin with a prediction table of the head's own against transformers.

There the head's bias beside that table is another than the one in the file of a tied head, which
stays in the file though nothing reads it.
"""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import swap
from anyformer.checkpoint.family import FAMILIES
from tests.parity.hf import birds
from tests.parity.hf.compare import SEEDS, WEIGHTS, close, same_files, shake
from tests.parity.hf.encoders import NAMES, config, inputs

KINDS = (*NAMES, "big_bird", "deberta", "deberta-v2")
HEADS = ("masked-lm", "causal-lm", "pretraining")
CASES = [(kind, task) for kind in KINDS for task in FAMILIES[kind].tasks if task in HEADS]
UNREAD = ("cls.predictions.bias", "lm_head.bias", "predictions.bias")


def theirs(kind, task, seed):
    """A transformers model whose table is not tied, and a padded batch."""
    torch.manual_seed(seed)
    fields = birds.encoder(seed) if kind == "big_bird" else config(kind, seed)
    fields |= {"tie_word_embeddings": False, "is_decoder": task == "causal-lm"}
    fields |= {"attention_type": "original_full"} if kind == "big_bird" else {}
    settings = transformers.AutoConfig.for_model(kind, **fields)
    hf = getattr(transformers, FAMILIES[kind].tasks[task].architecture)(settings)
    given = inputs("masked-lm", fields, seed)
    if not hf.config.to_dict().get("type_vocab_size"):
        given.pop("token_type_ids", None)
    if task == "pretraining":
        label = "sentence_order_label" if kind == "albert" else "next_sentence_label"
        given[label] = torch.tensor([0, 1, 1])
    return shake(shake(hf, seed), seed + 1), given


def run(model, given):
    """Logits at real positions and the loss."""
    out, real = model(**given), given["attention_mask"].bool()
    logits = out["logits"] if "logits" in out else out["prediction_logits"]
    return {"logits": logits[real], "loss": out["loss"]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "task"), CASES)
def test_same_numbers_gradients_and_files(kind, task, seed, tmp_path):
    hf, given = theirs(kind, task, seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    for p in again.parameters():
        p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
    a, b, c = (run(model, given) for model in (hf, ours, again))
    for name in a:
        close(b[name], a[name], name)
        assert torch.equal(a[name], c[name]), name
    a["loss"].backward()
    b["loss"].backward()
    wanted = {n: p.grad for n, p in hf.named_parameters() if p.grad is not None}
    found = {n: p.grad for n, p in ours.named_parameters()}
    rows = {r.theirs[0]: r.ours[0] for r in FAMILIES[kind].rows(ours.spec, task) if not r.steps}
    compared = [key for key in wanted if key in rows]
    for key in compared:
        close(found[rows[key]], wanted[key], key, 1e-4)
    assert any(rows[key].endswith(("head.weight", "tokens.weight")) for key in compared)
    assert not set(UNREAD) & wanted.keys()


OLD = [case for case in CASES if case[0] not in ("electra", "distilbert")]


@pytest.mark.parametrize(("kind", "task"), OLD)
def test_a_file_of_version_4_has_one_bias(kind, task, tmp_path):
    hf, given = theirs(kind, task, 0)
    hf.save_pretrained(tmp_path)
    state = load_file(tmp_path / WEIGHTS)
    bias = next(name for name in UNREAD if name in state)
    state[bias] = state.pop(bias.replace("bias", "decoder.bias"))
    save_file(state, tmp_path / WEIGHTS, {"format": "pt"})
    with torch.no_grad():
        a, b = run(hf, given), run(anyformer.load(tmp_path), given)
    close(b["logits"], a["logits"], "logits")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_says_whether_its_head_is_tied(kind, tmp_path):
    hf, _ = theirs(kind, "masked-lm", 0)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    assert not ours.spec.head.tied
    assert ours.head.weight.data_ptr() != ours.embed.token.weight.data_ptr()
    bare = anyformer.load(tmp_path, task="base")
    assert torch.equal(bare.embed.token.weight, ours.embed.token.weight)
    tied = swap(ours, S.override(ours.spec, "head.tied", True))
    tied.save_pretrained(tmp_path / "tied")
    said = json.loads((tmp_path / "tied" / "config.json").read_text())
    assert said["tie_word_embeddings"] is True
    again = anyformer.load(tmp_path / "tied")
    assert again.spec.head.tied
    assert torch.equal(again.head.bias, ours.head.bias)  # not the one that nothing read


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_the_decoder_of_a_pair(kind, tmp_path):
    torch.manual_seed(0)
    parts = [
        transformers.AutoConfig.for_model(kind, **config(kind, 0), **more)
        for more in ({}, {"tie_word_embeddings": False})
    ]
    made = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*parts)
    made.decoder_start_token_id, made.pad_token_id = 2, 0
    hf = shake(transformers.EncoderDecoderModel(made), 0)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    ids = torch.randint(6, 50, (2, 7))
    with torch.no_grad():
        a, b, c = (
            model(input_ids=ids, decoder_input_ids=ids).logits for model in (hf, ours, again)
        )
    close(b, a, "logits")
    assert torch.equal(a, c)
