"""Heads that many families share: the task, its spec from config.json, its key rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.family import Config, Rows, Task
from anyformer.checkpoint.keymap import Row, linear, row
from anyformer.checkpoint.labels import answers, labels
from anyformer.errors import CheckpointError

Rate = Callable[[Config], float]
Names = tuple[str, str]
INNER = ("head.hidden", "head.out")
OWN = ("classifier.dense", "classifier.out_proj")


def rate(*names: str, default: float = 0.1) -> Rate:
    """A dropout rate: the first of the fields that config.json states."""
    stated = lambda config: (config[name] for name in names if config.get(name) is not None)
    return lambda config: next(stated(config), default)


NONE = rate(default=0.0)
HIDDEN = rate("hidden_dropout_prob")
CLASSIFIER = rate("classifier_dropout", "hidden_dropout_prob")


def maps(names: Mapping[str, str]) -> Rows:
    """The rows of linear maps and norms, by their names there and here."""
    return lambda _: (item for pair in names.items() for item in linear(*pair))


def two(theirs: Names, ours: Names = INNER) -> Rows:
    """The rows of two linear maps."""
    return maps(dict(zip(theirs, ours, strict=True)))


def told(config: Config, few: int = 2) -> dict[str, Any]:
    """How many labels there are, and what they are."""
    return {"count": labels(config, few), "answers": answers(config, few)}


def act_of(spec: S.Model) -> S.Activation:
    """The activation of the layers."""
    return S.get(spec.stack.block[-1], "branch.act")


def classes(
    name: str,
    names: Names,
    act: S.Activation | None = "tanh",
    dropout: Rate = CLASSIFIER,
    early: Rate = NONE,
) -> Task:
    """Classes of the first token behind an inner layer with an activation, or with the layers'."""

    def head(spec: S.Model, config: Config) -> S.Head:
        rates: Any = {"pool_dropout": early(config), "dropout": dropout(config)}
        return S.Classes(**told(config), hidden=spec.dim, act=act or act_of(spec), **rates)

    return Task(f"{name}ForSequenceClassification", head, two(names))


def classes_at_end(architecture: str, eos: int, few: int = 2) -> Task:
    """Classes of the decoder's state where the encoder's input has its last end of text."""

    def head(spec: S.Model, config: Config) -> S.Head:
        loss = rate("classifier_dropout", default=0.0)(config)
        mark: Any = {"pool": "marked", "token": config.get("eos_token_id", eos)}
        inner: Any = {"hidden": spec.dim, "act": "tanh", "pool_dropout": loss, "dropout": loss}
        return S.Classes(**told(config, few), **mark, **inner)

    names = ("classification_head.dense", "classification_head.out_proj")
    return Task(architecture, head, two(names))


def classes_of_last(architecture: str, name: str = "score", pad: int | None = None) -> Task:
    """Classes of the last token that isn't padding, without a bias."""

    def head(spec: S.Model, config: Config) -> S.Head:
        token = config.get("pad_token_id", pad)  # one that is no id pads nothing
        known = token is not None and 0 <= token < S.get(spec, "embed.source.vocab")
        return S.Classes(**told(config), pool="last", token=token if known else None, bias=False)

    return Task(architecture, head, maps({name: "head.out"}))


def choices(
    name: str, names: Names, act: S.Activation = "tanh", dropout: Rate = CLASSIFIER
) -> Task:
    """One of several sequences, from the first token behind an inner layer."""
    head = lambda spec, config: S.Choices(hidden=spec.dim, act=act, dropout=dropout(config))
    return Task(f"{name}ForMultipleChoice", head, two(names))


def per_token(architecture: str, name: str = "classifier", dropout: Rate = CLASSIFIER) -> Task:
    """Labels for every position."""
    head = lambda _, config: S.Project(size=labels(config), dropout=dropout(config))
    return Task(architecture, head, maps({name: "head.out"}))


def span(architecture: str, dropout: Rate = NONE, fixed: bool = False) -> Task:
    """The start and the end of an answer; `fixed`: whatever number of labels config.json says."""

    def head(_: S.Model, config: Config) -> S.Head:
        if labels(config) != 2 and not fixed:
            had = f"config.json: {architecture} has {labels(config)} labels, but an answer has two"
            raise CheckpointError(f"{had} ends: drop id2label and num_labels")
        return S.Span(dropout=dropout(config))

    return Task(architecture, head, maps({"qa_outputs": "head.out"}))


def readers(
    name: str, names: Names, act: S.Activation = "tanh", dropout: Rate = CLASSIFIER
) -> dict[str, Task]:
    """The usual heads of an encoder: `names` of both maps of those on the first token."""
    return {
        "sequence-classification": classes(name, names, act, dropout),
        "token-classification": per_token(f"{name}ForTokenClassification", dropout=dropout),
        "question-answering": span(f"{name}ForQuestionAnswering"),
        "multiple-choice": choices(name, names, act, dropout),
    }


def pooler(architecture: str, name: str = "pooler.dense") -> Task:
    """The bare model with its pooler."""
    return Task(architecture, lambda *_: S.Pooler(), maps({name: "head.dense"}))


def untied(spec: S.Model) -> bool:
    """Whether a model predicts tokens by a table of the head's own."""
    head = spec.head.tokens if isinstance(spec.head, S.Pretraining) else spec.head
    return isinstance(head, S.Vocabulary) and not head.tied


def masked(
    architecture: str, *names: str, act: S.Activation | None = None, own: str = ".decoder"
) -> Task:
    """Masked tokens by a table behind an inner layer, with an activation or the layers'.

    `names` are those of what holds the bias, of the dense layer and of the norm. Of a head that is
    not tied `own` holds both table and bias; nothing reads the other bias, which is kept aside.
    """

    def head(spec: S.Model, config: Config) -> S.Head:
        tied = config.get("tie_word_embeddings", True)
        made = S.Vocabulary(tied=tied, bias=True, dense=True, act=act or act_of(spec))
        return replace(made, norm=spec.embed.norm)

    def rows(spec: S.Model) -> Iterator[Row]:
        lead = f"{names[0]}{own if untied(spec) else ''}"
        inner = zip((lead, *names[1:]), ("head", "head.dense", "head.norm"), strict=True)
        yield from maps(dict(inner))(spec)
        if lead != names[0]:
            yield row(f"{names[0]}.bias", "head.unread")

    tied = tuple(f"{names[0]}.{key}" for key in ("weight", "decoder.weight", "decoder.bias"))
    older = {f"{names[0]}{own}.bias": f"{names[0]}.bias"} if own else {}  # of version 4: both
    return Task(architecture, head, rows, tied, older=older)


def written(masked: Task, architecture: str) -> dict[str, Task]:
    """The prediction head of an encoder, and that of the class whose layers look back alone."""
    causal = lambda spec: S.get(spec, "stack.block.0.branch.causal")
    in_place = lambda spec, config: S.override(masked.head(spec, config), "shift", not causal(spec))

    def head(spec: S.Model, config: Config) -> S.Head | None:
        if not causal(spec):
            raise CheckpointError(f"config.json: {architecture} needs is_decoder to be true")
        return masked.head(spec, config)

    writer = replace(masked, architecture=architecture, head=head)
    return {"masked-lm": replace(masked, head=in_place), "causal-lm": writer}


def inside(words: Task, spec: S.Model) -> Iterator[Row]:
    """The rows of a head of words that is one of two."""
    under = lambda key: key.replace("head.", "head.tokens.", 1)
    return (replace(r, ours=tuple(map(under, r.ours))) for r in words.rows(spec))


def summary(config: Config, **wanted: Any) -> S.Activation:
    """The activation of a summary of the sequence that is made as wanted and mapped to labels."""
    wanted |= {"summary_use_proj": True, "summary_proj_to_labels": True}
    for key, allowed in wanted.items():
        if config.get(key, allowed) != allowed:
            says = f"config.json: {key}={config[key]!r} has no part in this head; {allowed!r} has"
            raise CheckpointError(says)
    return activations.ours(config.get("summary_activation") or "linear")  # type: ignore[return-value]


def pretraining(
    architecture: str,
    masked: Task,
    names: Names,
    asks: Literal["next", "order"],
    dropout: Rate = NONE,
) -> Task:
    """Masked tokens and two classes behind the pooler; `names` of its map and the last one."""

    def head(spec: S.Model, config: Config) -> S.Head:
        if labels(config) != 2:
            raise CheckpointError(f"config.json: {architecture} has two labels: drop id2label")
        tokens: Any = masked.head(spec, config)
        return S.Pretraining(tokens=tokens, asks=asks, dropout=dropout(config))

    def rows(spec: S.Model) -> Iterator[Row]:
        yield from inside(masked, spec)
        yield from two(names, ("head.pair.hidden", "head.pair.out"))(spec)

    return Task(architecture, head, rows, masked.tied, older=masked.older)
