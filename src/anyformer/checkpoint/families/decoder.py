"""What the decoder families share: fields, rows, tasks, tied heads, windows of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import activations, heads
from anyformer.checkpoint.family import Config, Field, Joint, Rows, Task, at, size
from anyformer.checkpoint.keymap import SLOTS, Row, layers, linear, row
from anyformer.recipes.windows import windows_of

ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"
EPS = ("stack.final_norm.eps", "stack.block.*.norm.eps")
INIT = at("initializer_range", 0.02, "init.std")
NAMES = "hidden_size num_hidden_layers num_attention_heads vocab_size intermediate_size"
FULL, SLIDING = "full_attention", "sliding_attention"
DROPOUT = heads.rate("classifier_dropout", "hidden_dropout")


def sizes(
    names: str, *defaults: int | None, attention: str = ATTENTION, feed: str = FEED
) -> tuple[Field, ...]:
    """Fields of sizes by their names: dim, depth, heads, vocab, hidden, length (`-`: none)."""
    paths = {"dim": "dim", "depth": "stack.depth", "heads": f"{attention}.heads"}
    paths |= {"vocab": "embed.source.vocab", "hidden": f"{feed}.hidden"}
    paths |= {"length": "embed.position.length"}
    named = zip(names.split(), defaults, paths.items(), strict=False)
    return tuple(size(key, default, *path) for key, default, path in named if key != "-")


def act(key: str, default: str, path: str = f"{FEED}.act") -> Field:
    """The field of an activation."""
    return Field(key, default, (path,), None, activations.ours, activations.theirs)


def norm_first(key: str, default: bool) -> Field:
    """The field that says whether norms stand before their sublayers."""
    places = ("stack.block.0.place", "stack.block.1.place")
    read = lambda before: "pre" if before else "post"
    return Field(key, default, places, None, read, lambda place: place == "pre")


def plain(layer: str, names: str, slots: tuple[str, ...] = SLOTS) -> Rows:
    """The rows of linear maps and norms in layers, as `keymap.layers` has them."""
    return lambda spec: layers(spec.stack.depth, layer, names, slots)


def body(ends: dict[str, str], *inner: Rows) -> Rows:
    """The rows of tables, maps and norms outside layers, and then those inside."""

    def rows(spec: S.Model) -> Iterator[Row]:
        for theirs, ours in ends.items():
            yield from linear(theirs, ours)
        for part in inner:
            yield from part(spec)

    return rows


def tasks(
    name: str, head: S.Vocabulary, causal: str | None = None, table: str = "lm_head"
) -> dict[str, Task]:
    """The bare model and the language model, whose head is tied as config.json says."""

    def made(_: S.Model, config: Config) -> S.Head:
        return S.override(head, "tied", config.get("tie_word_embeddings", head.tied))

    kinds = ("weight", "bias") if head.bias else ("weight",)
    rows = lambda _: (row(f"{table}.{kind}", f"head.{kind}") for kind in kinds)
    tied = tuple(f"{table}.{kind}" for kind in kinds)
    language = Task(causal or f"{name}ForCausalLM", made, rows, tied)
    return {"base": Task(f"{name}Model", lambda *_: None), "causal-lm": language}


def readers(
    name: str,
    tokens: str | None = "score",
    ends: str | None = "",
    *,
    pad: int | None = None,
    score: str = "score",
    dropout: Callable[[Config], float] = DROPOUT,
) -> dict[str, Task]:
    """Heads on the last token, on every token and for both ends of an answer.

    `tokens` is their name of the second's map, `ends` what stands before the body's keys with the
    third where that differs, None where there is no such class; `pad` the id that pads by default.
    """
    last = heads.classes_of_last(f"{name}ForSequenceClassification", score, pad)
    found = {"sequence-classification": last}
    if tokens is not None:
        every = heads.per_token(f"{name}ForTokenClassification", tokens, dropout)
        found["token-classification"] = every
    if ends is not None:
        answer = heads.span(f"{name}ForQuestionAnswering", fixed=True)
        found["question-answering"] = replace(answer, prefix=ends or None)
    return found


def _tie(spec: S.Model) -> Config:
    """tie_word_embeddings, where there is a head to speak of."""
    head = spec.head.tokens if isinstance(spec.head, S.Double | S.Pretraining) else spec.head
    return {"tie_word_embeddings": head.tied} if isinstance(head, S.Vocabulary) else {}


TIES = Joint(lambda spec, _: spec, _tie)


def windows(
    spec: S.Model, config: Config, window: int | None, slides: Callable[[int], object]
) -> list[int | None]:
    """The window of each layer by layer_types, or where its number is one that slides."""
    turns = [SLIDING if slides(i) else FULL for i in range(spec.stack.depth)]
    return [window if kind == SLIDING else None for kind in config.get("layer_types") or turns]


def layer_types(spec: S.Model) -> list[str]:
    """What kind of layer each is."""
    return [FULL if window is None else SLIDING for window in windows_of(spec)]


def widest(spec: S.Model) -> int | None:
    """The window of the layers that have one."""
    return max((window for window in windows_of(spec) if window is not None), default=None)
