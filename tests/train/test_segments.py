"""Runs over segments with memory: stopped and gone on with, and with an adaptive softmax."""

import shutil

import pytest
import torch

from anyformer import spec as S
from anyformer.objectives.segments import Segments
from anyformer.recipes import recipe
from anyformer.train import log, resume, train
from anyformer.train.settings import Evaluation, Saving, Settings
from tests.golden.cases import CASES, Case, curves, tokenizer, trained
from tests.objectives.samples import Rows, text_rows
from tests.objectives.samples import tokenizer as words
from tests.train.tiny import weights

TOK = words("gpt2")
GIVEN = {"batch": 4, "lr": 3e-3, "log_every": 1, "device": "cpu"}


def _parts(tmp_path, name, dropout=0.0, **options):
    sizes = {"dim": 16, "depth": 2, "heads": 2, "hidden": 24, "memory": 8, "vocab": len(TOK)}
    spec, plan = recipe("transformer-xl", **sizes, dropout=dropout), Segments(segments=3)
    rows = text_rows(TOK, plan.bind(TOK, spec).length(8), 40).rows
    data = (Rows(rows[:30], fingerprint="train"), Rows(rows[30:], fingerprint="rest"))
    saving = Saving(every=3, keep=9, background=False)
    settings = Settings(steps=6, saving=saving, evaluation=Evaluation(every=2), **GIVEN, **options)
    return spec, data, plan, tmp_path / name, settings, TOK


def test_a_run_over_segments_goes_on_bit_for_bit(tmp_path):
    parts = _parts(tmp_path, "whole", dropout=0.1)
    whole, cut = train(*parts), tmp_path / "cut"
    shutil.copytree(whole.folder, cut)
    shutil.rmtree(cut / "checkpoints" / "step-00000006")
    shutil.rmtree(cut / "model")
    again = resume(cut, parts[1])
    a, b = weights(whole.folder), weights(again.folder)
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    logged = [(folder / log.METRICS).read_bytes() for folder in (whole.folder, cut)]
    assert logged[0] == logged[1]


def test_micro_batches_change_nothing(tmp_path):
    one, two = train(*_parts(tmp_path, "one")), train(*_parts(tmp_path, "two", micro=2))
    losses = [[r["loss"] for r in run.history if "loss" in r] for run in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# ------------------------------------------------------------------ many words


def _adaptive(cutoffs: tuple[int, ...]) -> Case:
    """The golden case with rarer characters behind slots, and narrower vectors for them."""
    case, vocab = CASES["segments"], len(tokenizer("gpt"))
    source = S.Tokens(vocab=vocab, cutoffs=cutoffs, shrink=2 if cutoffs else 1)
    changes = {**case.changes, "embed.source": source, "head": S.Adaptive(cutoffs=cutoffs)}
    return Case(case.plan, case.family, case.style, case.sizes, changes, steps=60, context=24)


def test_adaptive_softmax_and_input_learn(tmp_path):
    run, entropies = trained(_adaptive((20, 40)), tmp_path)
    found = curves(run)["tokens"]
    assert found[-1] < found[0] - 0.5 and found[-1] < 0.95 * entropies["tokens"]


def test_without_cutoffs_it_is_the_softmax(tmp_path):
    adaptive = _adaptive(())
    plain = Case(
        adaptive.plan, adaptive.family, adaptive.style, adaptive.sizes, CASES["segments"].changes,
        steps=20, context=24,
    )  # fmt: skip
    short = Case(
        adaptive.plan, adaptive.family, adaptive.style, adaptive.sizes, adaptive.changes,
        steps=20, context=24,
    )  # fmt: skip
    runs = [trained(case, tmp_path / name)[0] for name, case in (("a", plain), ("b", short))]
    losses = [[r["loss"] for r in run.history if "loss" in r] for run in runs]
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)
