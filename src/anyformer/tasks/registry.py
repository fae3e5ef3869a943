"""The tasks by name: what each needs of a model, and how a model is opened for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import torch

from anyformer import spec as S
from anyformer.checkpoint import hub, load
from anyformer.checkpoint.huggingface import Origin
from anyformer.checkpoint.labels import counted
from anyformer.checkpoint.tokenizer import tokenizer as tokenizer_of
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError, known_or_raise
from anyformer.model.model import Model
from anyformer.objectives.about import names_in, pixels_in, plan_in
from anyformer.objectives.common import causal
from anyformer.tasks.base import Job, Opened
from anyformer.tasks.tool import Tool

WORDS = (S.Vocabulary, S.Adaptive)


@dataclass(frozen=True)
class Entry:
    """A task: where its job is, what it needs of a model, and whether a model has it."""

    place: str  # module.class
    needs: str
    fits: Callable[[S.Model], bool]


def _texts(spec: S.Model) -> bool:
    return isinstance((spec.encoder or spec).embed.source, S.Tokens)


def _images(spec: S.Model) -> bool:
    return isinstance((spec.encoder or spec).embed.source, S.Patches)


def _writes(spec: S.Model) -> bool:
    return isinstance(spec.head, WORDS) and causal(spec) and isinstance(spec.embed.source, S.Tokens)


def _has(*heads: type) -> Callable[[S.Model], bool]:
    return lambda spec: isinstance(spec.head, heads) and _texts(spec)


def _fills(spec: S.Model) -> bool:
    return _has(*WORDS, S.Pretraining)(spec) and spec.encoder is None and not causal(spec)


_WRITING = "a decoder or an encoder-decoder with a Vocabulary head, which reads text"
TASKS = {
    "fill-mask": Entry("fill.FillMask", "an encoder with a Vocabulary head", _fills),
    "classify": Entry("text.Classify", "a Classes head, and to read text", _has(S.Classes)),
    "classify-tokens": Entry("tokens.Tags", "a Project head, and to read text", _has(S.Project)),
    "answer": Entry("answer.AnswerSpan", "a Span head, and to read text", _has(S.Span)),
    "choose": Entry("answer.Choose", "a Choices or Double head", _has(S.Choices, S.Double)),
    "embed": Entry("text.Embed", "to read text", _texts),
    "generate": Entry("write.Generate", _WRITING, lambda s: _writes(s) and _texts(s)),
    "summarise": Entry("rewrite.Summarise", _WRITING, lambda s: _writes(s) and _texts(s)),
    "translate": Entry("rewrite.Translate", _WRITING, lambda s: _writes(s) and _texts(s)),
    "caption": Entry(
        "rewrite.Caption",
        "an encoder of images, and a decoder with a Vocabulary head",
        lambda s: _writes(s) and _images(s) and s.encoder is not None,
    ),
    "classify-image": Entry(
        "image.ClassifyImage",
        "a Classes head, and to read images",
        lambda s: isinstance(s.head, S.Classes) and _images(s),
    ),
    "detect-replaced": Entry("tokens.Replaced", "a Detect head", _has(S.Detect)),
}
OTHERS = {  # what tasks are called elsewhere
    "masked-lm": "fill-mask",
    "text-classification": "classify",
    "sentiment-analysis": "classify",
    "sequence-classification": "classify",
    "classification": "classify",
    "regression": "classify",
    "token-classification": "classify-tokens",
    "ner": "classify-tokens",
    "question-answering": "answer",
    "multiple-choice": "choose",
    "feature-extraction": "embed",
    "text-generation": "generate",
    "causal-lm": "generate",
    "summarization": "summarise",
    "summarisation": "summarise",
    "summarize": "summarise",
    "translation": "translate",
    "image-to-text": "caption",
    "captioning": "caption",
    "image-classification": "classify-image",
    "replaced-tokens": "detect-replaced",
}


def task(
    name: str,
    model: Model | str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    labels: tuple[str, ...] | list[str] | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    **options: Any,
) -> Tool:
    """A task ready to be called: raw texts or images in, plain Python results out.

    `model` is a folder or a name of the hub, as `anyformer.load` takes them, or a loaded model,
    whose tokenizer is given beside it. Options are those of the task: see anyformer.tasks.
    """
    entry = entry_of(name)
    job: type[Job] = job_of(entry)
    chosen = options_of(name, job, options)
    opened = opened_of(model, tokenizer, labels, device, dtype)
    check_fits(name, entry, opened.model.spec)
    return Tool(name, job(opened, chosen))


def entry_of(name: str) -> Entry:
    """The task of a name; an unknown one raises and says which is near."""
    if name in OTHERS:
        raise InputError(f"unknown task {name!r}; did you mean {OTHERS[name]!r}?")
    return TASKS[known_or_raise(name, TASKS, "task", InputError)]


def job_of(entry: Entry) -> type[Job]:
    """The class of a task's job."""
    module, _, kind = entry.place.partition(".")
    return getattr(import_module(f"anyformer.tasks.{module}"), kind)


def options_of(name: str, job: type[Job], given: Mapping[str, Any]) -> Any:
    """The options of a task; those of generate are passed on to it."""
    known = [f.name for f in fields(job.Options)]
    more = list[str]()
    if "sampling" in known:
        known.remove("sampling")
        more = import_module("anyformer.tasks.write").sampling_names()
    for option in given:
        known_or_raise(option, [*known, *more], f"option of {name}", InputError)
    chosen: dict[str, Any] = {k: v for k, v in given.items() if k in known}
    if more:
        chosen["sampling"] = {k: v for k, v in given.items() if k not in known}
    return job.Options(**chosen)


def check_fits(name: str, entry: Entry, spec: S.Model) -> None:
    """Raise unless a model can do a task; say what it can do."""
    if entry.fits(spec):
        return
    head = "no head" if spec.head is None else f"the head {type(spec.head).__name__}"
    kind = "" if spec.encoder is None else " and an encoder"
    can = [other for other, one in TASKS.items() if one.fits(spec)]
    does = f"; it can do: {', '.join(can)}" if can else ""
    raise InputError(
        f"{name} needs {entry.needs}; this model has {head}{kind}{does}. Fine-tune it for {name}, "
        "or load a model that was"
    )


# ---------------------------------------------------------------------- the model


def opened_of(
    model: Model | str | os.PathLike[str],
    tokenizer: Tokenizer | str | os.PathLike[str] | None,
    labels: tuple[str, ...] | list[str] | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
) -> Opened:
    """A model with all that its folder tells of it."""
    words = tokenizer
    if words is not None and not isinstance(words, Tokenizer):
        words = tokenizer_of(words)
    if isinstance(model, Model):
        if device is not None or dtype is not None:
            raise InputError("device and dtype are for folders; move a loaded model with .to(…)")
        return Opened(model, words, None, _labels(model, None, labels))
    if not isinstance(model, str | os.PathLike):
        raise InputError(f"model must be a folder or a loaded model, not {type(model).__name__}")
    folder = hub.folder_of(model)
    about = plan_in(folder)
    plan = None if about is None else about[1]
    loaded = load(folder, device=device, dtype=dtype)
    if words is None:
        words = _words_in(folder)
    named = _labels(loaded, plan, labels)
    return Opened(loaded, words, plan, named, pixels_in(folder))


def _words_in(folder: Any) -> Tokenizer | None:
    """The tokenizer of a folder; None where it has none at all."""
    if not any((folder / name).is_file() for name in hub.TOKENIZER):
        return None
    return tokenizer_of(folder)


def _labels(model: Model, plan: Any, given: Any) -> tuple[str, ...]:
    """The names of a head's labels: those given, of tuning, of config.json, or numbers."""
    count = counted(model.spec.head)
    if count is None:
        return ()
    if given is not None:
        if len(given) != count:
            raise InputError(f"{len(given)} labels are given, and the model has {count}")
        return tuple(map(str, given))
    told = plan.labels if plan is not None and "labels" in vars(plan) else ()
    config = model.origin.config if isinstance(model.origin, Origin) else {}
    for names in (told, names_in(config)):
        if len(names) == count:
            return tuple(names)
    return tuple(f"LABEL_{i}" for i in range(count))
