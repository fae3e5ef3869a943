"""Heads that many families share: the task, its spec from config.json, its key rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from anyformer import spec as S
from anyformer.checkpoint.family import Config, Rows, Task
from anyformer.checkpoint.keymap import Row, linear
from anyformer.checkpoint.labels import answers, labels
from anyformer.errors import CheckpointError
from anyformer.spec.feedforward import Activation


def rate(*names: str, default: float = 0.1) -> Callable[[Config], float]:
    """A dropout rate: the first of the fields that config.json states."""

    def read(config: Config) -> float:
        stated = [config[name] for name in names if config.get(name) is not None]
        return stated[0] if stated else default

    return read


NONE = rate(default=0.0)
HIDDEN = rate("hidden_dropout_prob")
CLASSIFIER = rate("classifier_dropout", "hidden_dropout_prob")


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


def classes_at_end(architecture: str, eos: int, few: int = 2) -> Task:
    """Classes of the decoder's state where the encoder's input has its last end of text."""
    early = rate("classifier_dropout", default=0.0)

    def head(spec: S.Model, config: Config) -> S.Head:
        token, loss = config.get("eos_token_id", eos), early(config)
        return S.Classes(
            count=labels(config, few), pool="marked", token=token, hidden=spec.dim, act="tanh",
            pool_dropout=loss, dropout=loss, answers=answers(config, few),  # type: ignore[arg-type]
        )  # fmt: skip

    names = ("classification_head.dense", "classification_head.out_proj")
    return Task(architecture, head, two(names, ("head.hidden", "head.out")))


def classes_of_last(architecture: str, name: str = "score", pad: int | None = None) -> Task:
    """Classes of the last token that isn't padding, without a bias."""

    def head(spec: S.Model, config: Config) -> S.Head:
        assert isinstance(spec.embed.source, S.Tokens)
        token = config.get("pad_token_id", pad)  # one that is no id pads nothing
        known = token is not None and 0 <= token < spec.embed.source.vocab
        return S.Classes(
            count=labels(config), pool="last", token=token if known else None, bias=False,
            answers=answers(config),  # type: ignore[arg-type]
        )  # fmt: skip

    return Task(architecture, head, lambda _: linear(name, "head.out", bias=False))


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


def span(architecture: str, dropout: Callable[[Config], float] = NONE, fixed: bool = False) -> Task:
    """The start and the end of an answer; `fixed`: whatever number of labels config.json says."""

    def head(_: S.Model, config: Config) -> S.Head:
        if labels(config) != 2 and not fixed:
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


def written(masked: Task, architecture: str) -> dict[str, Task]:
    """The prediction head of an encoder, and that of the class whose layers look back alone."""
    causal = lambda spec: S.get(spec, "stack.block.0.branch.causal")

    def head(spec: S.Model, config: Config) -> S.Head | None:
        if not causal(spec):
            raise CheckpointError(f"config.json: {architecture} needs is_decoder to be true")
        return masked.head(spec, config)

    def in_place(spec: S.Model, config: Config) -> S.Head | None:
        made = masked.head(spec, config)
        return S.override(made, "shift", False) if causal(spec) else made

    writer = Task(architecture, head, masked.rows, masked.tied)
    return {"masked-lm": replace(masked, head=in_place), "causal-lm": writer}


def pretraining(
    architecture: str,
    masked: Task,
    names: tuple[str, str],
    asks: Literal["next", "order"],
    dropout: Callable[[Config], float] = NONE,
) -> Task:
    """Masked tokens and two classes behind the pooler; `names` of its map and the last one."""

    def head(spec: S.Model, config: Config) -> S.Head:
        if labels(config) != 2:
            raise CheckpointError(f"config.json: {architecture} has two labels: drop id2label")
        tokens = masked.head(spec, config)
        assert isinstance(tokens, S.Vocabulary)
        return S.Pretraining(tokens=tokens, asks=asks, dropout=dropout(config))

    def rows(spec: S.Model) -> Iterator[Row]:
        for item in masked.rows(spec):
            ours = tuple(key.replace("head.", "head.tokens.", 1) for key in item.ours)
            yield Row(item.theirs, ours, item.steps)
        yield from two(names, ("head.pair.hidden", "head.pair.out"))(spec)

    return Task(architecture, head, rows, masked.tied)
