"""ALBERT (arXiv:1909.11942) as Hugging Face stores it: one set of keys for each group of layers."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import bert, heads
from anyformer.checkpoint.families.decoder import TIES
from anyformer.checkpoint.family import Config, Family, Joint, register, size, with_defaults
from anyformer.checkpoint.keymap import Row, layers, linear
from anyformer.errors import CheckpointError

FIELDS = (
    *with_defaults(
        bert.FIELDS, hidden_size=4096, num_attention_heads=64, intermediate_size=16384,
        vocab_size=30000, hidden_act="gelu_new", hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    size("embedding_size", 128, "width", "embed.dim"),
    size("num_hidden_groups", 1, "groups", "stack.schedule.unique"),
)  # fmt: skip
LAYER = "attention.query attention.key attention.value attention.dense attention.LayerNorm"
LAYER += " ffn ffn_output full_layer_layer_norm"


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, their projection and the groups."""
    groups = len(S.layout(spec.stack).blocks)
    yield from bert.embeddings(spec)
    yield from linear("encoder.embedding_hidden_mapping_in", "embed.project")
    yield from layers(groups, "encoder.albert_layer_groups.{}.albert_layers.0", LAYER)


def with_groups(spec: S.Model, _: Config) -> S.Model:
    """The spec, if its layers fall to their groups as theirs do, which divide by a float."""
    depth, groups = spec.stack.depth, S.get(spec, "stack.schedule.unique")
    if tuple(int(i / (depth / groups)) for i in range(depth)) != S.layout(spec.stack).schedule:
        had = f"config.json: {depth} layers in {groups} groups"
        raise CheckpointError(f"{had}: choose groups that divide the layers")
    return spec


HEAD = ("predictions", "predictions.dense", "predictions.LayerNorm")
MASKED = heads.masked("AlbertForMaskedLM", *HEAD)
ORDER, DROPOUT = (
    ("albert.pooler", "sop_classifier.classifier"),
    heads.rate("classifier_dropout_prob"),
)
TASKS = {
    "base": heads.pooler("AlbertModel", "pooler"),
    "masked-lm": MASKED,
    "pretraining": heads.pretraining("AlbertForPreTraining", MASKED, ORDER, "order", DROPOUT),
    **heads.readers("Albert", ("albert.pooler", "classifier"), dropout=DROPOUT),
}
register(Family(
    "albert", "albert", "albert", FIELDS, body, TASKS, ignore=bert.IGNORE,
    only={"inner_group_num": 1, "position_embedding_type": "absolute"},
    joint=(Joint(with_groups, lambda _: {}), TIES),
))  # fmt: skip
