"""BERT and its kin as decoders, alone and with cross-attention, against transformers."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
from tests.parity.hf.compare import SEEDS, backward, close, same_files, same_gradients, shake
from tests.parity.hf.encoders import LENGTH, NAMES, VOCAB, config

FAMILY = ("bert", "roberta", "xlm-roberta", "roberta-prelayernorm", "electra")
cases = pytest.mark.parametrize(("family", "seed"), [(f, s) for f in FAMILY for s in SEEDS])
SOURCE = 6


def theirs(family, seed, task="causal-lm"):
    """A transformers model that looks back, every other one with cross-attention, and a batch."""
    torch.manual_seed(seed)
    fields = config(family, seed) | {"is_decoder": True, "add_cross_attention": seed % 2 == 0}
    ends = {"causal-lm": "ForCausalLM", "masked-lm": "ForMaskedLM", "base": "Model"}
    name = "BertLMHeadModel" if (family, task) == ("bert", "causal-lm") else None
    kind = getattr(transformers, name or NAMES[family] + ends[task])
    hf = shake(kind(kind.config_class(**fields)), seed)
    return hf, batch(hf.config, seed, task)


def batch(settings, seed, task):
    """Rows padded on the right, labels, and a padded sequence to read where there is attention."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCAB, (3, LENGTH), generator=rng)
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    given = {"input_ids": ids.masked_fill(mask == 0, settings.pad_token_id), "attention_mask": mask}
    if task != "base":
        given["labels"] = torch.randint(0, VOCAB, (3, LENGTH), generator=rng)
        given["labels"] = given["labels"].masked_fill(mask == 0, -100)
    if settings.add_cross_attention and random.Random(seed).random() < 0.8:
        shape = (3, SOURCE, settings.hidden_size)
        keep = torch.ones(3, SOURCE, dtype=torch.long)
        keep[2, 4:] = 0
        context = torch.randn(shape, generator=rng)
        given |= {"encoder_hidden_states": context, "encoder_attention_mask": keep}
    return given


def run(model, given):
    """What counts at real positions."""
    out, real = model(**given), given["attention_mask"].bool()
    if "labels" not in given:
        return {"last": out["last_hidden_state"][real]}
    return {"logits": out["logits"][real], "loss": out["loss"]}


@cases
@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "base"])
def test_same_numbers_and_gradients(family, task, seed, tmp_path):
    hf, given = theirs(family, seed, task)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    a, b = run(hf, given), run(ours, given)
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    table = "roberta.embeddings.word_embeddings.weight"  # the head comes first in memory
    same_gradients(hf, ours, family, task, lambda n: table if "lm_head.decoder.w" in n else n)


@cases
def test_same_files(family, seed, tmp_path):
    hf, given = theirs(family, seed)
    a, b = run(hf, given), run(same_files(hf, tmp_path), given)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("family", FAMILY)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_cache_changes_nothing(family, seed, tmp_path):
    hf, given = theirs(family, seed)
    hf.save_pretrained(tmp_path)
    ours, ids = anyformer.load(tmp_path), given["input_ids"][:1]
    read = {k: v[:1] for k, v in given.items() if k.startswith("encoder")}
    whole = hf(ids, **read).logits
    first = ours(ids[:, :4], use_cache=True, **read)
    rest = ours(ids[:, 4:], past_key_values=first.past_key_values)
    close(torch.cat([first.logits, rest.logits], 1), whole, "logits")


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_a_bare_file_gives_a_writer_its_body(family, tmp_path):
    hf, given = theirs(family, 0, "base")
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path, task="causal-lm")
    a, b = run(hf, given)["last"], ours(**given).last_hidden_state[given["attention_mask"].bool()]
    close(b, a, "states")


def test_what_goes_together():
    family = FAMILIES["bert"]
    with pytest.raises(CheckpointError, match="needs is_decoder"):
        family.spec_of({}, "causal-lm")
    with pytest.raises(CheckpointError, match="needs is_decoder"):
        family.spec_of({"add_cross_attention": True}, "base")
