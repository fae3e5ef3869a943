"""Heads that many encoders share: the task, its spec from config.json, its key rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyformer import spec as S
from anyformer.checkpoint.family import Config, Rows, Task
from anyformer.checkpoint.keymap import Row, linear
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.spec.feedforward import Activation

ANSWERS = {
    "single_label_classification": "one",
    "multi_label_classification": "many",
    "regression": "numbers",
}


def rate(*names: str, default: float = 0.1) -> Callable[[Config], float]:
    """A dropout rate: the first of the fields that config.json states."""

    def read(config: Config) -> float:
        stated = [config[name] for name in names if config.get(name) is not None]
        return stated[0] if stated else default

    return read


NONE = rate(default=0.0)
HIDDEN = rate("hidden_dropout_prob")
CLASSIFIER = rate("classifier_dropout", "hidden_dropout_prob")


def labels(config: Config) -> int:
    """The number of labels that config.json speaks of."""
    return len(config["id2label"]) if "id2label" in config else config.get("num_labels", 2)


def answers(config: Config) -> str:
    """What the labels of a classifier are: one class, many, or numbers."""
    problem = config.get("problem_type")
    if problem is None:
        return "numbers" if labels(config) == 1 else "one"
    return ANSWERS[known_or_raise(problem, ANSWERS, "problem_type", CheckpointError)]


def classes(
    architecture: str,
    names: tuple[str, str],
    act: Activation = "tanh",
    dropout: Callable[[Config], float] = CLASSIFIER,
    early: Callable[[Config], float] = NONE,
) -> Task:
    """Classes of the first token behind an inner layer; their names of both maps."""

    def head(spec: S.Model, config: Config) -> S.Head:
        return S.Classes(
            count=labels(config),
            hidden=spec.dim,
            act=act,
            pool_dropout=early(config),
            dropout=dropout(config),
            answers=answers(config),  # type: ignore[arg-type]
        )

    return Task(architecture, head, two(names, ("head.hidden", "head.out")))


def choices(
    architecture: str,
    names: tuple[str, str],
    act: Activation = "tanh",
    dropout: Callable[[Config], float] = CLASSIFIER,
) -> Task:
    """One of several sequences, from the first token behind an inner layer."""

    def head(spec: S.Model, config: Config) -> S.Head:
        return S.Choices(hidden=spec.dim, act=act, dropout=dropout(config))

    return Task(architecture, head, two(names, ("head.hidden", "head.out")))


def per_token(
    architecture: str,
    name: str = "classifier",
    dropout: Callable[[Config], float] = CLASSIFIER,
) -> Task:
    """Labels for every position."""
    head = lambda _, config: S.Project(size=labels(config), dropout=dropout(config))
    return Task(architecture, head, lambda _: linear(name, "head.out"))


def span(architecture: str, dropout: Callable[[Config], float] = NONE) -> Task:
    """The start and the end of an answer."""

    def head(_: S.Model, config: Config) -> S.Head:
        if labels(config) != 2:
            raise CheckpointError(
                f"config.json: {architecture} has {labels(config)} labels, but an answer has two "
                "ends: drop id2label and num_labels"
            )
        return S.Span(dropout=dropout(config))

    return Task(architecture, head, lambda _: linear("qa_outputs", "head.out"))


def two(theirs: tuple[str, str], ours: tuple[str, str]) -> Callable[[S.Model], Iterator[Row]]:
    """The rows of two linear maps."""

    def rows(_: S.Model) -> Iterator[Row]:
        for their, our in zip(theirs, ours, strict=True):
            yield from linear(their, our)

    return rows


def pooler_rows(_: S.Model) -> Iterator[Row]:
    """The pooler of the bare model."""
    yield from linear("pooler.dense", "head.dense")


def pooler(architecture: str, rows: Rows = pooler_rows) -> Task:
    """The bare model with its pooler."""
    return Task(architecture, lambda *_: S.Pooler(), rows)
