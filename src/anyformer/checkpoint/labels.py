"""The labels that config.json speaks of: how many there are, their names, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anyformer import spec as S
from anyformer.errors import CheckpointError, known_or_raise

Config = dict[str, Any]
Labels = int | Sequence[str] | None  # how many, or their names; None: as config.json says
ANSWERS = {
    "single_label_classification": "one",
    "multi_label_classification": "many",
    "regression": "numbers",
}
PROBLEMS = {ours: theirs for theirs, ours in ANSWERS.items()}
TOKENS = {"last": "pad_token_id", "marked": "eos_token_id"}  # pool -> the field of its token


def labels(config: Config, few: int = 2) -> int:
    """The number of labels that config.json speaks of, `few` where it is silent."""
    return len(config.get("id2label") or ()) or config.get("num_labels") or few


def answers(config: Config, few: int = 2) -> str:
    """What the labels of a classifier are: one class, many, or numbers."""
    problem = config.get("problem_type")
    if problem is None:
        return "numbers" if labels(config, few) == 1 else "one"
    return ANSWERS[known_or_raise(problem, ANSWERS, "problem_type", CheckpointError)]


def counted(head: S.Head | None) -> int | None:
    """The number of labels of a head that has some."""
    if isinstance(head, S.Classes):
        return head.count
    return head.size if isinstance(head, S.Project) else None


def with_labels(config: Config, given: Any) -> Config:
    """config.json with so many labels, or with labels of these names."""
    names = _names(given)
    if isinstance(given, int) and len(config.get("id2label") or ()) == given:
        return config  # with the names that it has
    number = (labels(config) == 1) != (len(names) == 1)  # what was one class is a number, or back
    gone = ("num_labels", "problem_type") if number else ("num_labels",)
    said = {key: value for key, value in config.items() if key not in gone}
    by_name = {name: i for i, name in enumerate(names)}
    return said | {"id2label": {str(i): n for n, i in by_name.items()}, "label2id": by_name}


def _names(given: Any) -> list[str]:
    """Names of labels, from a list of them or from their number."""
    names = list(given) if isinstance(given, list | tuple) else []
    if isinstance(given, int) and not isinstance(given, bool):
        names = [f"LABEL_{i}" for i in range(given)]
    if not names or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise CheckpointError(
            f"labels={given!r}: give their number, from 1 on, or a list of names, none twice"
        )
    return names


def with_head(config: Config, head: S.Head | None) -> Config:
    """config.json where it says of labels and tokens what a head has."""
    count = counted(head)
    if count is None:
        return config
    config = with_labels(config, count)
    if isinstance(head, S.Classes):
        if answers(config) != head.answers:
            config = config | {"problem_type": PROBLEMS[head.answers]}
        if head.pool in TOKENS:
            config = config | {TOKENS[head.pool]: head.token}
    return config
