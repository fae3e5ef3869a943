"""XLM against transformers: answers, losses, gradients, and files in both directions."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError, InputError
from tests.parity.hf.compare import SEEDS, backward, close, same_files, same_gradients, shake
from tests.parity.hf.encoders import LABELS, VOCAB, inputs

XLM = FAMILIES["xlm"]
LANGS = 3
BEAMS = "beam-question-answering"
TOPS = [f"{end}_top_{kind}" for end in ("start", "end") for kind in ("log_probs", "index")]


def config(seed):
    """The fields of a seed."""
    rng = random.Random(seed)
    pick = lambda *options: rng.choice(options)
    heads = pick(1, 2, 3)
    return {
        "vocab_size": VOCAB,
        "emb_dim": heads * pick(3, 6),
        "n_layers": pick(1, 2, 3),
        "n_heads": heads,
        "max_position_embeddings": pick(17, 30),
        "n_langs": pick(1, LANGS, LANGS),
        "use_lang_emb": pick(True, True, False),
        "gelu_activation": pick(True, False),
        "sinusoidal_embeddings": pick(False, True),
        "causal": pick(False, True),
        "layer_norm_eps": pick(1e-12, 1e-3),
        "dropout": pick(0.0, 0.2),
        "attention_dropout": pick(0.0, 0.2),
        "summary_first_dropout": pick(0.0, 0.3),
        "tie_word_embeddings": pick(True, True, False),
        "pad_token_id": pick(2, 0),
        "start_n_top": pick(1, 3),
        "end_n_top": pick(2, 4),
    }


def theirs(task, seed, **more):
    """A transformers model with weights that show every part, and its config."""
    torch.manual_seed(seed)
    labels = LABELS if task != "question-answering" else 2
    fields = config(seed) | {"num_labels": labels} | more
    made = transformers.XLMConfig(**fields)
    return shake(getattr(transformers, XLM.tasks[task].architecture)(made), seed), fields


def batch(task, fields, seed, langs=True):
    """Ids with padding on the right, languages where they have vectors, labels of the task."""
    given = inputs(task, fields, seed)
    if langs and fields["use_lang_emb"] and fields["n_langs"] > 1:
        drawn = torch.Generator().manual_seed(seed)
        given["langs"] = torch.randint(0, LANGS, given["input_ids"].shape, generator=drawn)
    return given | (beams(given, seed) if task == BEAMS else {})


def beams(given, seed):
    """Answers at places that are open: not the first nor padding; whether there are any."""
    drawn, mask = torch.Generator().manual_seed(seed), given["attention_mask"]
    draw = lambda low, high: torch.randint(low, high, (len(mask),), generator=drawn)
    ends = {"start_positions": draw(1, 7), "end_positions": draw(1, 7)}
    told = {"cls_index": draw(0, 7), "is_impossible": draw(0, 2).float()} if seed % 3 else {}
    closed = (mask == 0).float()
    closed[:, 0] = 1.0
    return ends | told | {"p_mask": closed}


def run(model, given):
    """Everything that a model says, padding too."""
    out = model(**given, output_hidden_states=True)
    names = ("logits", "start_logits", "end_logits", "loss")
    found = {name: out[name] for name in names if name in out}
    found |= {f"hidden {i}": h for i, h in enumerate(out.hidden_states)}
    return found | ({"last": out.hidden_states[-1]} if "loss" not in found else {})


transformers.utils.logging.set_verbosity_error()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", XLM.tasks)
def test_answers_losses_gradients_and_files(task, seed, tmp_path):
    hf, fields = theirs(task, seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "theirs")
    given = batch(task, fields, seed, langs=seed % 4 > 0)
    a, b = run(hf, given), run(ours, given)
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    same_gradients(hf, ours, "xlm", task)
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.data = parameter.data.clone()  # aligned in memory as hf's are
        saved = run(again, given)
    assert all(torch.equal(saved[name], a[name]) for name in a)


def test_padding_is_zero(tmp_path):
    hf, fields = theirs("base", 1)
    hf.save_pretrained(tmp_path)
    given = batch("base", fields, 1)
    out = anyformer.load(tmp_path)(**given, output_hidden_states=True)
    pads = given["attention_mask"] == 0
    assert pads.any()
    assert all((h[pads] == 0).all() and (h[~pads] != 0).all() for h in out.hidden_states)


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_problem_types_have_their_losses(problem, tmp_path):
    hf, fields = theirs("sequence-classification", 0, problem_type=problem)
    hf.save_pretrained(tmp_path)
    given = batch("base", fields, 0) | {"labels": torch.rand(3, LABELS)}
    close(anyformer.load(tmp_path)(**given).loss, hf(**given).loss, problem)


def test_the_summary_of_choices_may_have_an_activation(tmp_path):
    hf, fields = theirs("multiple-choice", 0, summary_activation="tanh")
    hf.save_pretrained(tmp_path)
    given = batch("multiple-choice", fields, 0)
    close(anyformer.load(tmp_path)(**given).logits, hf(**given).logits, "logits")


def test_the_older_word_for_the_vocabulary():
    spec = XLM.spec_of({"n_words": 77, "emb_dim": 32, "n_heads": 2}, "base")
    assert spec.embed.source.vocab == 77


REFUSED = [
    ("masked-lm", {"asm": True}, "asm=True"),
    ("base", {"is_encoder": False}, "is_encoder=False"),
    ("sequence-classification", {"summary_type": "last"}, "summary_type='last'"),
    ("sequence-classification", {"summary_activation": "tanh"}, "summary_activation"),
    ("multiple-choice", {"summary_proj_to_labels": False}, "summary_proj_to_labels"),
    ("question-answering", {"num_labels": 3}, "3 labels"),
]


@pytest.mark.parametrize(("task", "fields", "says"), REFUSED)
def test_what_has_no_part_is_refused(task, fields, says):
    with pytest.raises(CheckpointError, match=says):
        XLM.spec_of(fields, task)


@pytest.mark.parametrize("seed", SEEDS)
def test_beams_are_found(seed, tmp_path):
    hf, fields = theirs(BEAMS, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(BEAMS, fields, seed)
    del given["start_positions"], given["end_positions"]
    given = {k: v for k, v in given.items() if k != "is_impossible"}
    given["cls_index"] = torch.tensor([0, 1, 2])
    a, b = hf(**given), ours(**given)
    for name in (*TOPS, "cls_logits"):
        close(b[name].float(), a[name].float(), name)
    for out in (a, b):
        likely = out["start_top_log_probs"].sum() + (out["end_top_log_probs"] ** 2).sum()
        (likely + out["cls_logits"].sum()).backward()
    same_gradients(hf, ours, "xlm", BEAMS)


def test_beams_leave_padding_out(tmp_path):
    hf, fields = theirs(BEAMS, 1)
    hf.save_pretrained(tmp_path)
    ours, given = anyformer.load(tmp_path), batch("base", fields, 1, langs=False)
    found = ours(**given)
    for row in range(3):  # transformers counts padding, so it gets one row at a time
        size = int(given["attention_mask"][row].sum())
        alone = hf(input_ids=given["input_ids"][row : row + 1, :size])
        for name in (*TOPS, "cls_logits"):
            close(found[name][row : row + 1].float(), alone[name].float(), name)


def test_other_numbers_of_beams_are_written(tmp_path):
    hf, _ = theirs(BEAMS, 0)
    hf.save_pretrained(tmp_path / "theirs")
    ours = anyformer.load(tmp_path / "theirs", override={"head.starts": 2, "head.ends": 1})
    ours.save_pretrained(tmp_path / "ours")
    said = transformers.XLMConfig.from_pretrained(tmp_path / "ours")
    assert (said.start_n_top, said.end_n_top) == (2, 1)


def test_languages_without_vectors_are_refused(tmp_path):
    hf, fields = theirs("base", 0, use_lang_emb=False)
    hf.save_pretrained(tmp_path)
    given = batch("base", fields, 0)
    with pytest.raises(InputError, match="leave langs out"):
        anyformer.load(tmp_path)(**given, langs=torch.zeros_like(given["input_ids"]))
