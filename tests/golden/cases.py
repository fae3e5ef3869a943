"""Every pretraining objective with a tiny model of its family, and how both are trained here.

The text is the beginning of Shakespeare's Coriolanus (public domain, `text.txt`): one that ships
with Python would change with its version, and the curves with it. Speeches are documents, speakers
their names. Two real languages need a download, so pairs are a line as printed and in capitals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anyformer import spec as S
from anyformer.data import train_tokenizer
from anyformer.data.loader import Loader
from anyformer.data.prepare import prepare
from anyformer.data.rows import Rows
from anyformer.data.samples import Documents, Records, Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.objectives.base import IGNORED, Objective
from anyformer.objectives.causal import Causal, PrefixLM
from anyformer.objectives.common import OfTokens
from anyformer.objectives.control import ControlCodes
from anyformer.objectives.denoise import Denoising
from anyformer.objectives.distill import Distillation
from anyformer.objectives.masked import Masked
from anyformer.objectives.multi_token import MultiToken
from anyformer.objectives.replaced import ReplacedToken
from anyformer.objectives.segments import Segments
from anyformer.objectives.sentences import NextSentence, SentenceOrder
from anyformer.objectives.spans import SpanCorruption
from anyformer.objectives.text_to_text import TextToText
from anyformer.objectives.translation import Translation, TranslationLM
from anyformer.recipes import recipe
from anyformer.train import Run, log, train
from anyformer.train.settings import AdamW, Cosine, Saving, Settings
from anyformer.train.step import Stepper

TEXT = (Path(__file__).parent / "text.txt").read_text("utf-8")
WINDOWS = 5  # numbers of a curve: means over so many equal parts of a run
CAPITALS = {"source_lang": "printed", "target_lang": "capitals"}


@dataclass(frozen=True)
class Case:
    """An objective, a tiny model, and how long it is trained."""

    plan: Any
    family: str
    style: str  # of a tokenizer of characters
    sizes: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the spec, by path
    steps: int = 150
    batch: int = 8
    lr: float = 4e-3
    context: int = 64
    texts: int | None = None  # speeches that are read; None: all
    # what each term ends below, as a share of the entropy of what it asks for
    below: Mapping[str, float] = field(default_factory=lambda: {"tokens": 0.85})


# 0.02 suits a width of 768; at 64 the scores of attention would begin as good as equal.
WIDE = {"init.std": 0.08}
BOTH = {**WIDE, "encoder.init.std": 0.08}
SHORT = {"length": 16}
CASES: dict[str, Case] = {
    "causal": Case(Causal(), "gpt2", "gpt", {"length": 64}, WIDE, below={"tokens": 0.8}),
    "causal, entmax": Case(
        Causal(alpha=1.5), "gpt2", "gpt", {"length": 64}, WIDE, lr=8e-3, below={"tokens": 0.87}
    ),
    "segments": Case(
        Segments(segments=3),
        "transformer-xl",
        "gpt",
        {"hidden": 192, "memory": 24},
        WIDE,
        context=24,
        below={"tokens": 0.82},
    ),
    "prefix": Case(PrefixLM(), "t5", "t5", {"depth": 1}, lr=8e-3, texts=20),
    "masked": Case(
        Masked(), "deberta", "bert", SHORT, WIDE, steps=100, batch=32, context=16, texts=6
    ),
    "span-corruption": Case(SpanCorruption(), "t5", "t5", {"depth": 1}, batch=12, lr=8e-3),
    "text-to-text": Case(
        TextToText(context=40, answer=40),
        "t5-1-1",
        "t5",
        {"depth": 1, "hidden": 128, "head_dim": 16},
        lr=8e-3,
    ),
    "denoising": Case(Denoising(), "bart", "bart", {"length": 40, "depth": 1}, BOTH, context=32),
    "replaced-token": Case(
        ReplacedToken(),
        "deberta-v3",
        "bert",
        SHORT,
        WIDE,
        steps=140,
        batch=32,
        lr=5e-3,
        context=16,
        texts=6,
        below={"detection": 0.75, "generator": 0.9},
    ),
    "next-sentence": Case(
        NextSentence(context=32),
        "bert",
        "bert",
        {"length": 32},
        WIDE,
        lr=3e-3,
        texts=3,
        below={"tokens": 0.85, "next": 0.6},
    ),
    "sentence-order": Case(
        SentenceOrder(masking=Masked(spans="ngram"), context=24),  # characters don't mark words
        "albert",
        "bert",
        {"length": 24, "width": 64},
        WIDE,
        steps=200,
        batch=16,
        texts=3,
        below={"tokens": 0.92, "order": 0.85},
    ),
    "translation-lm": Case(
        TranslationLM(context=48, languages=("printed", "capitals")),
        "xlm",
        "roberta",
        {"length": 48, "langs": 2},
        WIDE,
        batch=12,
    ),
    "translation": Case(
        Translation(context=40, answer=40, smoothing=0.0),  # smoothing would add to the loss
        "m2m-100",
        "roberta",
        {"depth": 1},
        BOTH,
        lr=6e-3,
        below={"tokens": 0.8},
    ),
    "control-codes": Case(ControlCodes(context=64), "ctrl", "gpt", {"hidden": 256}, WIDE),
    "multi-token": Case(
        MultiToken(ahead=2),
        "llama",
        "gpt",
        {"hidden": 192, "dropout": None},
        WIDE,
        steps=100,
        below={"ahead 1": 0.85, "ahead 2": 0.95},
    ),
    "distillation": Case(
        Distillation(begin=True),  # with the first layer of what "masked" trained
        "deberta",
        "bert",
        {**SHORT, "depth": 1},
        WIDE,
        steps=60,
        batch=32,
        context=16,
        texts=6,
        below={"hard": 0.85},
    ),
}
TEACHER = "masked"
# Families that need patience: a learned vector for each position finds neighbours late. At 5e-3,
# which suits DeBERTa-v3, this ELECTRA stays at the base rate.
LONG_CASES: dict[str, Case] = {
    "replaced-token, ELECTRA": replace(
        CASES["replaced-token"], family="electra", steps=400, lr=1e-3
    ),
    "masked, BERT": replace(CASES["masked"], family="bert", steps=400),
}


def speeches(count: int | None = None) -> list[dict[str, str]]:
    """Speeches with their speakers."""
    parts = (part.partition(":\n") for part in TEXT.split("\n\n"))
    return [{"name": name.strip(), "text": text} for name, _, text in parts if text][:count]


def pairs() -> list[dict[str, str]]:
    """Lines as printed and in capitals."""
    lines = [line for speech in speeches() for line in speech["text"].splitlines()]
    told = lambda line: {"source": line, "input": line, "target": line.upper(), "task": "capitals"}
    return [{**told(line), **CAPITALS} for line in lines if line]


@cache
def tokenizer(style: str) -> Tokenizer:
    """A tokenizer of the text's characters."""
    sizes = {"sentinels": 20} if style == "t5" else {}
    languages = ["__printed__", "__capitals__"] if style == "roberta" else []
    made = ("characters", [TEXT, TEXT.upper()], 200, style)
    return train_tokenizer.train(*made, extra=languages, fallback=False, **sizes)


def spec_of(case: Case) -> S.Model:
    """The model of a case."""
    tok = tokenizer(case.style)
    given = {"dim": 64, "depth": 2, "heads": 4, "vocab": len(tok), "dropout": 0.0, **case.sizes}
    spec = recipe(case.family, **{k: v for k, v in given.items() if v is not None})
    for path, value in case.changes.items():
        spec = S.override(spec, path, value)
    return case.plan.fit(spec)


def samples_of(case: Case, objective: Objective, folder: Path) -> Samples:
    """The samples of a case, as its objective reads them."""
    if objective.reads == "records":
        return Records(pairs())
    shards = prepare(
        speeches(case.texts),
        tokenizer(case.style),
        folder,
        workers=1,
        segments="line" if objective.reads == "documents" else None,
        name="name",
    )
    if objective.reads == "documents":
        return Documents(shards)
    return Rows(shards, objective.length(case.context))


def settings_of(case: Case) -> Settings:
    """How a case is trained."""
    return Settings(
        steps=case.steps,
        batch=case.batch,
        lr=case.lr,
        optimiser=AdamW(),
        schedule=Cosine(warmup=10, final=0.1),
        saving=Saving(every=0, keep=1, background=False),
        log_every=1,
        device="cpu",
    )


class EndError(Exception):
    """A run was broken off, as asked."""


def begun(case: Case, folder: Path, parts: int, patch: Any) -> dict[str, list[float]]:
    """The curves of the first parts of a run, which is broken off behind them."""
    run, last = Stepper.run, parts * case.steps // WINDOWS

    def stepped(self: Stepper, step: int, *given: Any, **named: Any) -> Any:
        if step > last + 1:  # numbers are read a step late
            raise EndError
        return run(self, step, *given, **named)

    patch.setattr(Stepper, "run", stepped)
    with contextlib.suppress(EndError):
        trained(case, folder)
    return curves(Run(folder / "run", log.read(folder / "run")[:last]), parts)


def trained(case: Case, folder: Path, teacher: Path | None = None) -> tuple[Run, dict[str, float]]:
    """The run of a case, and the entropy that each of its terms is compared with."""
    plan, tok, spec = case.plan, tokenizer(case.style), spec_of(case)
    if teacher is not None:
        plan = S.override(plan, "teacher", str(teacher / "model"))
    objective = plan.bind(tok, spec)
    samples = samples_of(case, objective, folder / "shards")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = train(spec, samples, plan, folder / "run", settings_of(case), tok)
    finally:
        torch.set_num_threads(threads)
    known = entropies(case, objective, samples)
    return run, {term: base_rate(run, known, term) for term in case.below}


def entropies(case: Case, objective: Objective, samples: Samples) -> dict[str, float]:
    """The entropies of all that is asked in the first batches, by the name of the array.

    With an alpha it is Tsallis', the least loss of an answer that doesn't look at the text.
    """
    loader, found = Loader(samples, objective, case.batch), {}
    for step in range(10):
        for batch in loader.step(step):
            for key, value in batch.items():
                if key.endswith(("labels", "label")):
                    found.setdefault(key, []).append(value[value != IGNORED].numpy())
    alpha = objective.alpha if isinstance(objective, OfTokens) else 1.0
    return {key: entropy(np.concatenate(arrays), alpha) for key, arrays in found.items()}


def entropy(ids: np.ndarray, alpha: float = 1.0) -> float:
    """The entropy of ids by how often each is there."""
    share = np.unique(ids, return_counts=True)[1] / len(ids)
    if alpha != 1.0:
        return float((1 - (share**alpha).sum()) / (alpha * (alpha - 1)))
    return float(-(share * np.log(share)).sum())


def base_rate(run: Run, known: Mapping[str, float], term: str) -> float:
    """The entropy of what a term is about."""
    if term == "detection":
        share = float(np.mean([record["replaced"] for record in tail(run)]))
        return float(-(share * np.log(share) + (1 - share) * np.log(1 - share)))
    named = {"next": "next_sentence_label", "order": "sentence_order_label"}
    return known[named.get(term, "labels")]


def tail(run: Run) -> list[dict[str, Any]]:
    """The numbers of the last part of a run."""
    steps = [record for record in run.history if "loss" in record]
    return steps[-len(steps) // WINDOWS :]


def curves(run: Run, parts: int = WINDOWS) -> dict[str, list[float]]:
    """The mean of each term over each part of a run."""
    steps = [record for record in run.history if "loss" in record]
    size = len(steps) // parts
    terms = [key for key in steps[0] if key.startswith("loss/")]
    part = lambda i: steps[i * size : (i + 1) * size]
    mean = lambda term, i: float(np.mean([record[term] for record in part(i)]))
    return {
        term.removeprefix("loss/"): [round(mean(term, i), 4) for i in range(parts)]
        for term in terms
    }
