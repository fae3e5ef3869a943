"""The tasks of fine-tuning: their objective, their records, and what a folder knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyformer.checkpoint import huggingface, native
from anyformer.data import registry
from anyformer.errors import InputError, known_or_raise
from anyformer.objectives.about import UNNAMED, names_in, plan_in
from anyformer.objectives.classify import Classification
from anyformer.objectives.image import ImageClassification
from anyformer.objectives.registry import name_of
from anyformer.objectives.tag import TokenClassification
from anyformer.objectives.task import Record, field_of, labels_of


@dataclass(frozen=True)
class Work:
    """A task: the objective that trains it, the head of a folder, and the records that it reads."""

    objective: str
    head: str | None  # as anyformer.load names it; None: the folder's own
    kinds: tuple[str, ...]  # of records of the registry
    fields: tuple[str, ...]  # of a record, by their names in the objective
    asks: dict[str, Any] = field(default_factory=dict[str, Any])  # settings of the objective
    lists: tuple[str, ...] = ()  # fields that hold words
    files: tuple[str, ...] = ()  # fields that hold names of files


_TEXT = ("text", "pair", "label")
_PAIR = ("source", "target")


def _classes(kind: str, **asks: str) -> Work:
    return Work("classification", "sequence-classification", (kind,), _TEXT, asks)


def _alike(name: str, fields: tuple[str, ...], lists: tuple[str, ...] = ()) -> Work:
    """A task that has one name everywhere."""
    return Work(name, name, (name,), fields, lists=lists)


TASKS = {
    "classification": _classes("classification"),
    "many-labels": _classes("classification", answers="many"),
    "regression": _classes("regression", answers="numbers"),
    "token-classification": _alike("token-classification", ("words", "tags"), ("words", "tags")),
    "question-answering": _alike("question-answering", ("question", "context", "answers")),
    "multiple-choice": _alike("multiple-choice", ("context", "question", "choices", "label")),
    "summarisation": Work("summarisation", None, ("summarisation", "pairs"), _PAIR),
    "translation": Work("summarisation", None, ("pairs",), _PAIR, {"metric": "bleu"}),
    "image-classification": Work(
        "image-classification",
        "image-classification",
        ("images",),
        ("image", "label"),
        files=("image",),
    ),
    "captioning": Work("captioning", None, (), ("image", "target"), files=("image",)),
}
FIELDS = tuple(dict.fromkeys(name for work in TASKS.values() for name in work.fields))
Labelled = Classification | ImageClassification | TokenClassification


def work_of(task: str) -> Work:
    """The task of a name."""
    return TASKS[known_or_raise(task, TASKS, "task", InputError)]


def kind_of(what: str, task: str) -> str | None:
    """Which records of a data set a task reads; None where it is a file."""
    if what not in registry.names():
        return None
    has, kinds = registry.get(what).tasks, work_of(task).kinds
    found = next((kind for kind in kinds if kind in has), None)
    if found is None:
        raise InputError(f"{what} has no records for {task}; it has: {', '.join(has)}")
    return found


# ------------------------------------------------------------------------ labels


def labels_in(plan: Labelled, records: Iterable[Record]) -> tuple[str, ...]:
    """The labels that occur in records."""
    name = plan.tags if isinstance(plan, TokenClassification) else plan.label
    if not isinstance(plan, Classification) or plan.answers != "many":
        return labels_of(records, name)
    listed = lambda v: (
        v if not isinstance(v, str) else [p.strip() for p in v.split(",") if p.strip()]
    )
    return labels_of([{name: listed(field_of(record, name))} for record in records], name)


def labels_for(
    plan: Labelled, found: Sequence[str], theirs: Sequence[str], told: str
) -> tuple[str, ...]:
    """The labels of a head: a folder's own where the data has no others, else the data's."""
    if theirs:
        numbered = not any(name.isdigit() for name in theirs)
        known = {*theirs, *(map(str, range(len(theirs))) if numbered else ())}
        others = [label for label in found if label not in known]
        if others:
            raise InputError(
                f"{told} tells {_listed(theirs)} apart, and the data has {_listed(others)} too: "
                "correct the labels, or ask for a new head (--new-head)"
            )
        return tuple(theirs)
    many = isinstance(plan, Classification) and plan.answers == "many"
    if len(found) < (1 if many else 2):
        has = f"{found[0]!r} alone" if found else "none"
        raise InputError(f"labels are to be told apart, and the data has {has}: give two or more")
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:12])) + (" …" if len(names) > 12 else "")


# ----------------------------------------------------------------------- folders


def is_native(folder: Path) -> bool:
    """Whether a folder is one of our own format."""
    return (folder / native.SPEC).is_file()


def has_head(folder: Path, work: Work) -> bool:
    """Whether a folder was saved with the head of a task."""
    about = plan_in(folder)
    if is_native(folder) or work.head is None:
        return work.head is None or (about is not None and name_of(about[1]) == work.objective)
    file = folder / huggingface.CONFIG
    config = huggingface.read_config(file)
    family = huggingface.family_of(config, file)
    named = family.tasks[family.task(work.head, config)].architecture
    return (config.get("architectures") or [None])[0] == named


def labels_there(folder: Path, work: Work) -> tuple[str, ...]:
    """The names of a folder's labels where its head is that of a task and they are named."""
    if not has_head(folder, work):
        return ()
    about = plan_in(folder)
    if about is not None and name_of(about[1]) == work.objective:
        return about[1].labels if isinstance(about[1], Labelled) else ()
    names = names_in(huggingface.read_config(folder / huggingface.CONFIG))
    return () if all(map(UNNAMED.fullmatch, names)) else names
