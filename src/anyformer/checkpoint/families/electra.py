"""ELECTRA (arXiv:2003.10555) as Hugging Face stores it: generator and discriminator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import activations, bert, heads
from anyformer.checkpoint.family import Config, Family, Joint, Task, register, with_defaults
from anyformer.checkpoint.keymap import Row, linear


def with_width(spec: S.Model, config: Config) -> S.Model:
    """Tables of their own width, then a projection, where it is not the layers'."""
    width = config.get("embedding_size") or 128
    return S.override(spec, "embed.dim", None if width == spec.dim else width)


def width(spec: S.Model) -> Config:
    """The field that says the tables' width."""
    return {"embedding_size": spec.embed.dim or spec.dim}


def body(spec: S.Model) -> Iterator[Row]:
    """BERT's rows, and the projection where there is one."""
    yield from (*bert.body(spec), *linear("embeddings_project", "embed.project"))


def summary() -> Task:
    """Multiple choice by a summary of the first token."""
    names, dropout = ("sequence_summary.summary", "classifier"), heads.rate("summary_last_dropout")
    task = heads.choices("Electra", names, dropout=dropout)
    act = lambda config: activations.ours(config.get("summary_activation") or "gelu")
    return replace(
        task, head=lambda s, config: S.override(task.head(s, config), "act", act(config))
    )


GENERATOR = ("generator_lm_head", "generator_predictions.dense", "generator_predictions.LayerNorm")
DETECTOR = {"discriminator_predictions.dense": "head.dense"}
DETECTOR |= {"discriminator_predictions.dense_prediction": "head.out"}
DETECT = lambda spec, _: S.Detect(act=heads.act_of(spec))
MASKED = heads.masked("ElectraForMaskedLM", *GENERATOR, act="gelu", own="")
TASKS = {
    "base": Task("ElectraModel", lambda *_: None),
    **heads.written(MASKED, "ElectraForCausalLM"),
    "replaced-tokens": Task("ElectraForPreTraining", DETECT, heads.maps(DETECTOR)),
    **heads.readers("Electra", heads.OWN),
    "sequence-classification": heads.classes("Electra", heads.OWN, "gelu", early=heads.CLASSIFIER),
    "multiple-choice": summary(),
}
FIELDS = with_defaults(bert.FIELDS, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
register(Family(
    "electra", "electra", "electra", FIELDS, body, TASKS, ignore=bert.IGNORE,
    only={"summary_type": "first", "summary_use_proj": True},
    joint=(Joint(with_width, width), *bert.JOINTS),
))  # fmt: skip
