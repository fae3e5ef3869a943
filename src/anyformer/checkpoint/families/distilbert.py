"""DistilBERT (arXiv:1910.01108) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.families.bert import ATTENTION, FEED, masked_head
from anyformer.checkpoint.families.heads import choices, classes, per_token, rate, span
from anyformer.checkpoint.family import Family, Field, Task, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row

FIELDS = (
    size("dim", 768, "dim"),
    size("n_layers", 6, "depth", "stack.depth"),
    size("n_heads", 12, "heads", f"{ATTENTION}.heads"),
    size("vocab_size", 30522, "vocab", "embed.source.vocab"),
    size("max_position_embeddings", 512, "length", "embed.position.length"),
    at("hidden_dim", 3072, f"{FEED}.hidden"),
    Field("activation", "gelu", (f"{FEED}.act",), None, activations.ours, activations.theirs),
    at("dropout", 0.1, "embed.dropout", "stack.block.*.dropout"),
    at("attention_dropout", 0.1, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)
PARTS = (
    ("attention.q_lin", "0.branch.q"),
    ("attention.k_lin", "0.branch.k"),
    ("attention.v_lin", "0.branch.v"),
    ("attention.out_lin", "0.branch.out"),
    ("sa_layer_norm", "0.norm"),
    ("ffn.lin1", "1.branch.up"),
    ("ffn.lin2", "1.branch.down"),
    ("output_layer_norm", "1.norm"),
)
CLASSIFIER = rate("seq_classif_dropout", default=0.2)
INNER = ("pre_classifier", "classifier")


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings and layers."""
    yield row("embeddings.word_embeddings.weight", "embed.token.weight")
    yield row("embeddings.position_embeddings.weight", "embed.position.weight")
    yield from linear("embeddings.LayerNorm", "embed.norm")
    for i in range(spec.stack.depth):
        for theirs, ours in PARTS:
            yield from linear(f"transformer.layer.{i}.{theirs}", f"stack.blocks.{i}.{ours}")


def masked_rows(_: S.Model) -> Iterator[Row]:
    """The prediction head."""
    yield row("vocab_projector.bias", "head.bias")
    yield from linear("vocab_transform", "head.dense")
    yield from linear("vocab_layer_norm", "head.norm")


DISTILBERT = register(
    Family(
        model_type="distilbert",
        recipe="distilbert",
        prefix="distilbert",
        fields=FIELDS,
        body=body,
        tasks={
            "base": Task("DistilBertModel", lambda *_: None),
            "masked-lm": Task(
                "DistilBertForMaskedLM", masked_head, masked_rows, ("vocab_projector.weight",)
            ),
            "sequence-classification": classes(
                "DistilBertForSequenceClassification", INNER, act="relu", dropout=CLASSIFIER
            ),
            "token-classification": per_token(
                "DistilBertForTokenClassification", dropout=rate("dropout")
            ),
            "question-answering": span("DistilBertForQuestionAnswering", rate("qa_dropout")),
            "multiple-choice": choices(
                "DistilBertForMultipleChoice", INNER, act="relu", dropout=CLASSIFIER
            ),
        },
        ignore=("embeddings.position_ids",),
        only={"tie_word_embeddings": True},
    )
)
