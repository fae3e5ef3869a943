"""ALBERT (arXiv:1909.11942) as Hugging Face stores it: one set of keys for each group of layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import heads
from anyformer.checkpoint.families.bert import FIELDS as BERT
from anyformer.checkpoint.families.bert import embeddings, masked_head
from anyformer.checkpoint.family import Config, Family, Joint, Task, register, size
from anyformer.checkpoint.keymap import Row, linear, row
from anyformer.errors import CheckpointError

DEFAULTS = {
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "vocab_size": 30000,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
FIELDS = (
    *(replace(f, default=DEFAULTS.get(f.key, f.default)) for f in BERT),
    size("embedding_size", 128, "width", "embed.dim"),
    size("num_hidden_groups", 1, "groups", "stack.schedule.unique"),
)
PARTS = (
    ("attention.query", "0.branch.q"),
    ("attention.key", "0.branch.k"),
    ("attention.value", "0.branch.v"),
    ("attention.dense", "0.branch.out"),
    ("attention.LayerNorm", "0.norm"),
    ("ffn", "1.branch.up"),
    ("ffn_output", "1.branch.down"),
    ("full_layer_layer_norm", "1.norm"),
)
CLASSIFIER = heads.rate("classifier_dropout_prob")
POOLED = ("albert.pooler", "classifier")


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, their projection and the groups."""
    yield from embeddings(spec)
    yield from linear("encoder.embedding_hidden_mapping_in", "embed.project")
    for i in range(len(S.layout(spec.stack).blocks)):
        group = f"encoder.albert_layer_groups.{i}.albert_layers.0"
        for theirs, ours in PARTS:
            yield from linear(f"{group}.{theirs}", f"stack.blocks.{i}.{ours}")


def with_groups(spec: S.Model, _: Config) -> S.Model:
    """The spec, if its layers fall to their groups as theirs do, which divide by a float."""
    depth, groups = spec.stack.depth, S.get(spec, "stack.schedule.unique")
    theirs = tuple(int(i / (depth / groups)) for i in range(depth))
    if theirs != S.layout(spec.stack).schedule:
        raise CheckpointError(
            f"config.json: {depth} layers in {groups} groups: choose groups that divide the layers"
        )
    return spec


def masked_rows(_: S.Model) -> Iterator[Row]:
    """The prediction head."""
    yield row("predictions.bias", "head.bias")
    yield from linear("predictions.dense", "head.dense")
    yield from linear("predictions.LayerNorm", "head.norm")


TIED = ("predictions.decoder.weight", "predictions.decoder.bias")
MASKED = Task("AlbertForMaskedLM", masked_head, masked_rows, TIED)
ORDER = ("albert.pooler", "sop_classifier.classifier")
ALBERT = register(
    Family(
        model_type="albert",
        recipe="albert",
        prefix="albert",
        fields=FIELDS,
        body=body,
        tasks={
            "base": heads.pooler("AlbertModel", lambda _: linear("pooler", "head.dense")),
            "masked-lm": MASKED,
            "pretraining": heads.pretraining(
                "AlbertForPreTraining", MASKED, ORDER, "order", CLASSIFIER
            ),
            "sequence-classification": heads.classes(
                "AlbertForSequenceClassification", POOLED, dropout=CLASSIFIER
            ),
            "token-classification": heads.per_token(
                "AlbertForTokenClassification", dropout=CLASSIFIER
            ),
            "question-answering": heads.span("AlbertForQuestionAnswering"),
            "multiple-choice": heads.choices("AlbertForMultipleChoice", POOLED, dropout=CLASSIFIER),
        },
        ignore=("embeddings.position_ids",),
        only={
            "inner_group_num": 1,
            "position_embedding_type": "absolute",
            "tie_word_embeddings": True,
        },
        joint=(Joint(with_groups, lambda _: {}),),
    )
)
