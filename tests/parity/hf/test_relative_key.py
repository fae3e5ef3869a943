"""Vectors by distance in BERT and its kin (relative_key), against transformers 4.35.2."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint import keymap
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
from tests.parity.hf import old
from tests.parity.hf.compare import SEEDS, WEIGHTS, backward, close
from tests.parity.hf.encoders import LENGTH, NAMES, VOCAB, config

FAMILY = ("bert", "roberta", "xlm-roberta", "roberta-prelayernorm", "electra")
CASES = [f"{f}.{seed}" for f in FAMILY for seed in SEEDS if f in FAMILY[:2] or seed % 3 == 1]
CLASSES = {"masked-lm": "ForMaskedLM", "causal-lm": "ForCausalLM", "base": "Model"}
SPARE = "embeddings.position_embeddings.weight"  # there and never read


def job(case):
    """What the old version does for a case, and the batch; its head and task by the seed."""
    family, _, seed = case.partition(".")
    pick = random.Random(case).choice
    task = pick(("masked-lm", "causal-lm", "base"))
    causal = task == "causal-lm" or pick((False, True))
    crossed = causal and task != "masked-lm" and pick((False, True))
    fields = config(family, int(seed)) | {
        "position_embedding_type": ("relative_key", "relative_key_query")[int(seed) % 2],
        "is_decoder": causal,
        "add_cross_attention": crossed,
        "use_cache": False,
    }
    rng = torch.Generator().manual_seed(int(seed))
    ids = torch.randint(5, VOCAB, (3, LENGTH), generator=rng)
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    given = {"input_ids": ids.masked_fill(mask == 0, fields["pad_token_id"])}
    given["attention_mask"] = mask
    if crossed:
        given["encoder_hidden_states"] = torch.randn(3, 6, fields["hidden_size"], generator=rng)
    if task != "base":
        given["labels"] = torch.randint(0, VOCAB, (3, LENGTH), generator=rng)
        given["labels"] = given["labels"].masked_fill(mask == 0, -100)
    named = "BertLMHeadModel" if (family, task) == ("bert", "causal-lm") else None
    made = {"class": named or NAMES[family] + CLASSES[task], "config": fields, "seed": int(seed)}
    made["answers"] = ["last_hidden_state"] if task == "base" else ["loss", "logits"]
    return made, [given]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the old version and ours keep what they do."""
    return tmp_path_factory.mktemp("relative")


@pytest.fixture(scope="module")
def before(folder):
    """The old version's answers."""
    return old.run({case: job(case) for case in CASES}, folder)


@pytest.fixture(scope="module")
def after(folder, before):
    """The old version's answers with the files that we wrote."""
    again = {}
    for case in CASES:
        made, calls = job(case)
        anyformer.load(folder / case / "theirs").save_pretrained(folder / case / "ours")
        load = {"class": made["class"], "load": str(folder / case / "ours")}
        again[f"again.{case}"] = (load | {"answers": made["answers"]}, calls)
    return old.run(again, folder)


@pytest.mark.parametrize("case", CASES)
def test_same_numbers_and_gradients(case, folder, before):
    ours, wanted = anyformer.load(folder / case / "theirs"), before[case]
    made, (given,) = job(case)
    out, real = ours(**given), given["attention_mask"].bool()
    for name in made["answers"]:
        a, b = out[name], wanted[f"0.{name}"]
        close(*(x[real] if x.dim() else x for x in (a, b)), name)
    first = made["answers"][0]
    backward({"loss": out.loss} if first == "loss" else {"last": out[first][real]})
    grads = {k.removeprefix("grad."): v for k, v in wanted.items() if k.startswith("grad.")}
    found = {name: p.grad for name, p in ours.named_parameters()}
    seen = 0
    for item in FAMILIES[ours.origin.family].rows(ours.spec, ours.origin.task):
        theirs = {k: grads.get(k, torch.zeros(1)) for k in item.theirs}
        if any(key in grads for key in item.theirs):
            for key, gradient in keymap.forwards(item, theirs).items():
                close(found[key], gradient, key, 1e-4)
                seen += 1
    assert seen == len(grads)


@pytest.mark.parametrize("case", CASES)
def test_same_files(case, folder, before, after):
    a, b = (load_file(folder / case / side / WEIGHTS) for side in ("theirs", "ours"))
    assert a.keys() == b.keys()
    read = [key for key in a if not key.endswith(SPARE)]
    assert all(torch.equal(a[key], b[key]) for key in read)
    again = {k: v for k, v in after[f"again.{case}"].items() if not k.startswith("grad")}
    assert all(torch.equal(value, before[case][name]) for name, value in again.items())


def test_unknown_kinds_are_refused():
    with pytest.raises(CheckpointError, match="relative_key"):
        FAMILIES["bert"].spec_of({"position_embedding_type": "relative_kye"}, "base")
