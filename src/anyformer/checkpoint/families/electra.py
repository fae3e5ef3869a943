"""ELECTRA (arXiv:2003.10555) as Hugging Face stores it: generator and discriminator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import activations, heads
from anyformer.checkpoint.families.bert import FIELDS as BERT
from anyformer.checkpoint.families.bert import JOINTS, ONLY, body
from anyformer.checkpoint.family import Config, Family, Joint, Task, register
from anyformer.checkpoint.keymap import Row, linear, row

DEFAULTS = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
WIDTH = 128


def with_width(spec: S.Model, config: Config) -> S.Model:
    """Tables of their own width, then a projection, where it is not the layers'."""
    width = config.get("embedding_size") or WIDTH
    return S.override(spec, "embed.dim", None if width == spec.dim else width)


def width(spec: S.Model) -> Config:
    """The field that says the tables' width."""
    return {"embedding_size": spec.embed.dim or spec.dim}


def electra_body(spec: S.Model) -> Iterator[Row]:
    """BERT's rows, and the projection where there is one."""
    yield from body(spec)
    if spec.embed.dim is not None:
        yield from linear("embeddings_project", "embed.project")


def masked_head(spec: S.Model, _: Config) -> S.Head:
    """The generator's: dense to the tables' width, gelu, norm, the tied table with a bias."""
    return S.Vocabulary(tied=True, bias=True, dense=True, act="gelu", norm=spec.embed.norm)


def masked_rows(_: S.Model) -> Iterator[Row]:
    """The generator's head."""
    yield row("generator_lm_head.bias", "head.bias")
    yield from linear("generator_predictions.dense", "head.dense")
    yield from linear("generator_predictions.LayerNorm", "head.norm")


def detector() -> Task:
    """The discriminator's head."""
    head = lambda spec, _: S.Detect(act=S.get(spec.stack.block[-1], "branch.act"))
    names = ("discriminator_predictions.dense", "discriminator_predictions.dense_prediction")
    return Task("ElectraForPreTraining", head, heads.two(names, ("head.dense", "head.out")))


def summary() -> Task:
    """Multiple choice by a summary of the first token."""
    task = heads.choices(
        "ElectraForMultipleChoice",
        ("sequence_summary.summary", "classifier"),
        dropout=heads.rate("summary_last_dropout"),
    )

    def head(spec: S.Model, config: Config) -> S.Head:
        act = activations.ours(config.get("summary_activation") or "gelu")
        return S.override(task.head(spec, config), "act", act)

    return replace(task, head=head)


MASKED = Task("ElectraForMaskedLM", masked_head, masked_rows, ("generator_lm_head.weight",))
ELECTRA = register(
    Family(
        model_type="electra",
        recipe="electra",
        prefix="electra",
        fields=tuple(replace(f, default=DEFAULTS.get(f.key, f.default)) for f in BERT),
        body=electra_body,
        tasks={
            "base": Task("ElectraModel", lambda *_: None),
            **heads.written(MASKED, "ElectraForCausalLM"),
            "replaced-tokens": detector(),
            "sequence-classification": heads.classes(
                "ElectraForSequenceClassification",
                ("classifier.dense", "classifier.out_proj"),
                act="gelu",
                early=heads.CLASSIFIER,
            ),
            "token-classification": heads.per_token("ElectraForTokenClassification"),
            "question-answering": heads.span("ElectraForQuestionAnswering"),
            "multiple-choice": summary(),
        },
        ignore=("embeddings.position_ids",),
        only={**ONLY, "summary_type": "first", "summary_use_proj": True},
        joint=(Joint(with_width, width), *JOINTS),
    )
)
