"""The head that a task needs, put on any spec for training from fresh weights."""

from __future__ import annotations

from typing import Any, Literal

from anyformer import spec as S
from anyformer.errors import InputError, known_or_raise
from anyformer.objectives.common import causal, words_of

Answers = Literal["one", "many", "numbers"]
# Tasks by our names for objectives -> Hugging Face folders' tasks, as `anyformer.load` knows them;
# None: the folder's own head does.
TASKS: dict[str, str | None] = {
    "classification": "sequence-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "multiple-choice": "multiple-choice",
    "image-classification": "image-classification",
    "summarisation": None,
    "captioning": None,
}


def head_for(task: str, spec: S.Model, count: int = 2, answers: Answers = "one") -> S.Model:
    """The spec with the head of a task, with `count` labels; a head that fits already stays."""
    known_or_raise(task, TASKS, "task", InputError)
    head = _HEADS[task](spec, count, answers)
    same = type(spec.head) is type(head) and _size(spec.head) == _size(head)
    if same and isinstance(spec.head, S.Classes):
        return S.override(spec, "head.answers", answers)
    return spec if same else S.override(spec, "head", head)


def _size(head: S.Head | None) -> int | None:
    if isinstance(head, S.Classes):
        return head.count
    return head.size if isinstance(head, S.Project) else None


def _classes(spec: S.Model, count: int, answers: Answers) -> S.Head:
    """From the first position of an encoder or of an image, from the last of a decoder."""
    source, told = spec.embed.source, {"count": count, "answers": answers}
    rate = spec.embed.dropout
    if isinstance(source, S.Patches):
        return S.Classes(**told, pool="first" if source.cls else "mean", dropout=rate)
    if spec.encoder is None and causal(spec):
        return S.Classes(**told, pool="last", bias=False)
    pool: Any = "first" if spec.encoder is None else "last"
    return S.Classes(**told, pool=pool, hidden=spec.dim, act="tanh", dropout=rate)


def _choices(spec: S.Model, *_: Any) -> S.Head:
    pool: Any = "mean" if causal(spec) else "first"
    return S.Choices(pool=pool, hidden=spec.dim, act="tanh", dropout=spec.embed.dropout)


def _words(spec: S.Model, *_: Any) -> S.Head:
    kept = isinstance(spec.head, S.Vocabulary | S.Adaptive)
    return spec.head if kept and spec.head is not None else words_of(spec)


_HEADS: dict[str, Any] = {
    "classification": _classes,
    "image-classification": _classes,
    "token-classification": lambda s, n, _: S.Project(size=n, dropout=s.embed.dropout),
    "question-answering": lambda *_: S.Span(),
    "multiple-choice": _choices,
    "summarisation": _words,
    "captioning": _words,
}
