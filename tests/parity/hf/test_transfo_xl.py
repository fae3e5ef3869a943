"""Transformer-XL over several segments against transformers 4.35.2, the last that runs it."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors.torch import load_file

import anyformer
from anyformer.checkpoint import keymap
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError, InputError
from tests.parity.hf import old
from tests.parity.hf.compare import SEEDS, WEIGHTS, close

VOCAB, SEGMENTS = 37, 3
TASKS = ("base", "causal-lm", "loss", "classes")
CASES = [f"{task}.{seed}" for task in TASKS for seed in SEEDS]
KINDS = {"base": "TransfoXLModel", "classes": "TransfoXLForSequenceClassification"}
PAD, LABELS = 0, 3


def config(pick):
    """The fields of a small model, flags on both sides."""
    heads, shrink = pick((1, 2, 3)), pick((1, 2, 4))
    memory = pick((0, 3, 9))
    cutoffs = pick(([5, 9], [12], []))
    return {
        "vocab_size": VOCAB,
        "cutoffs": cutoffs,
        "d_model": pick((16, 20)),
        "d_embed": pick((16, 20)),
        "n_head": heads,
        "d_head": pick((3, 4)),
        "d_inner": pick((13, 24)),
        "div_val": shrink,
        "pre_lnorm": pick((False, True)),
        "n_layer": pick((1, 2)),
        "mem_len": memory,
        "clamp_len": pick((-1, 2, 6)),
        "same_length": memory > 0 and pick((False, True)),
        "dropout": pick((0.0, 0.2)),
        "dropatt": pick((0.0, 0.2)),
        "layer_norm_epsilon": pick((1e-5, 1e-2)),
    }


def job(case):
    """What the old version does for a case, and its segments."""
    task, _, seed = case.partition(".")
    rng = torch.Generator().manual_seed(int(seed))
    sizes = random.Random(case).choices((2, 4, 7), k=SEGMENTS)
    calls = [{"input_ids": torch.randint(0, VOCAB, (3, n), generator=rng)} for n in sizes]
    if task == "loss":
        for call in calls:
            call["labels"] = torch.randint(1, VOCAB, call["input_ids"].shape, generator=rng)
    fields = config(random.Random(case).choice)
    if task == "classes":
        calls = [padded(call["input_ids"], rng) for call in calls]
        fields |= {"d_embed": fields["d_model"], "pad_token_id": PAD, "num_labels": LABELS}
    made = {"class": KINDS.get(task, "TransfoXLLMHeadModel"), "config": fields, "seed": int(seed)}
    names = {"base": ["last_hidden_state"], "causal-lm": ["prediction_scores"], "loss": ["loss"]}
    return made | {"answers": names.get(task, ["loss", "logits"])}, calls


def padded(ids, rng):
    """Rows with more and more padding on the right, and a label for each."""
    ids, length = ids.clamp(min=1), ids.shape[1]
    for row in range(1, len(ids)):
        ids[row, max(1, length - row) :] = PAD
    return {"input_ids": ids, "labels": torch.randint(0, LABELS, (len(ids),), generator=rng)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the old version and ours keep what they do."""
    return tmp_path_factory.mktemp("transfo_xl")


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
    ours, (made, calls) = anyformer.load(folder / case / "theirs"), job(case)
    name, mems, total = made["answers"][0], None, 0.0
    for i, given in enumerate(calls):
        remembers = {"mems": mems, "return_mems": True} if made["config"]["mem_len"] else {}
        out = ours(**given, **remembers)
        mems = out.mems
        for told in made["answers"]:
            answer = out[{"prediction_scores": "logits"}.get(told, told)]
            close(answer, before[case][f"{i}.{told}"], f"{i}.{told}")
        found = out[{"prediction_scores": "logits"}.get(name, name)]
        weights = torch.linspace(-1, 1, found.numel()).view_as(found) if found.dim() else 1.0
        total = total + (found * weights).mean()
    total.backward()
    gradients(ours, before[case])


def gradients(ours, wanted):
    """Compare all gradients, theirs brought to our names by the family's rows."""
    grads = {k.removeprefix("grad."): v for k, v in wanted.items() if k.startswith("grad.")}
    found, seen = {name: p.grad for name, p in ours.named_parameters()}, 0
    for item in FAMILIES["transfo-xl"].rows(ours.spec, ours.origin.task):
        theirs = {k: grads.get(k, torch.zeros(1)) for k in item.theirs}
        present = [key for key in item.theirs if key in grads]
        if present and not item.theirs[0].startswith("crit.out_layers"):
            for key, gradient in keymap.forwards(item, theirs).items():
                close(found[key], gradient, key, 1e-4)
            seen += len(present)
        elif present:  # tables without a word in the batch have no gradient there
            seen += len(present)
    assert seen == len(grads)


@pytest.mark.parametrize("case", CASES)
def test_same_files(case, folder, before, after):
    a, b = (load_file(folder / case / side / WEIGHTS) for side in ("theirs", "ours"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    again = {k: v for k, v in after[f"again.{case}"].items() if not k.startswith("grad")}
    assert all(torch.equal(value, before[case][name]) for name, value in again.items())


def test_a_cache_remembers_the_zeros_too(folder, before):
    case = next(c for c in CASES if c.startswith("causal") and job(c)[0]["config"]["mem_len"])
    ours, ids = anyformer.load(folder / case / "theirs"), torch.arange(14).view(2, 7) % VOCAB
    if ours.spec.stack.block[0].branch.window is None:
        whole = ours(ids).logits
        first = ours(ids[:, :4], use_cache=True)
        rest = ours(ids[:, 4:], past_key_values=first.past_key_values)
        close(torch.cat([first.logits, rest.logits], 1), whole, "logits")
    with pytest.raises(InputError, match="padding on the right"):
        ours(ids, attention_mask=torch.tensor([[0] + [1] * 6, [1] * 7]))


def test_published_sizes():
    """The defaults are transfo-xl-wt103's; the count is that of 4.35.2, tied weights once."""
    spec = FAMILIES["transfo-xl"].spec_of({}, "causal-lm")
    assert anyformer.count(spec, 8).parameters == 285_205_322


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"untie_r": False}, "untie_r"),
        ({"attn_type": 1}, "attn_type"),
        ({"mem_len": 0}, "same_length"),
        ({"proj_share_all_but_first": False}, "proj_share"),
    ],
)
def test_what_has_no_part_is_refused(fields, said):
    with pytest.raises(CheckpointError, match=said):
        FAMILIES["transfo-xl"].spec_of(fields, "base")


def test_classes_need_tables_as_wide_as_the_stream():
    with pytest.raises(CheckpointError, match="d_embed to be d_model"):
        FAMILIES["transfo-xl"].spec_of({"d_embed": 16, "d_model": 32}, "sequence-classification")
