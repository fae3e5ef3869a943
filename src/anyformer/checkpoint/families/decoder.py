"""What the decoder families share: the two tasks, tied heads, named activations."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.family import Config, Field, Joint, Task
from anyformer.checkpoint.keymap import Row, row

ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"
HEAD = "lm_head"


def act(key: str, default: str, path: str = f"{FEED}.act") -> Field:
    """The field of an activation."""
    return Field(key, default, (path,), None, activations.ours, activations.theirs)


def head_rows(spec: S.Model, name: str = HEAD) -> Iterator[Row]:
    """The table of an untied head, and the bias of one that has it."""
    if isinstance(spec.head, S.Vocabulary):
        if not spec.head.tied:
            yield row(f"{name}.weight", "head.weight")
        if spec.head.bias:
            yield row(f"{name}.bias", "head.bias")


def tasks(base: str, causal: str, head: S.Vocabulary, name: str = HEAD) -> dict[str, Task]:
    """The bare model and the language model, whose head is tied as config.json says."""

    def made(_: S.Model, config: Config) -> S.Head:
        return S.override(head, "tied", config.get("tie_word_embeddings", head.tied))

    rows = lambda spec: head_rows(spec, name)
    language = Task(causal, made, rows, (f"{name}.weight",))
    return {"base": Task(base, lambda *_: None), "causal-lm": language}


def _tie(spec: S.Model) -> Config:
    """tie_word_embeddings, where there is a head to speak of."""
    head = spec.head
    return {"tie_word_embeddings": head.tied} if isinstance(head, S.Vocabulary) else {}


TIES = Joint(lambda spec, _: spec, _tie)


def attention_of(spec: S.Model) -> S.Attention:
    """The first attention of a layer."""
    branch = spec.stack.block[0].branch
    assert isinstance(branch, S.Attention)
    return branch
