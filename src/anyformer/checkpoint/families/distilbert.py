"""DistilBERT (arXiv:1910.01108) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, INIT, TIES, act, sizes
from anyformer.checkpoint.family import Family, Task, at, register
from anyformer.checkpoint.keymap import Row, layers

SIZES = "dim n_layers n_heads vocab_size - max_position_embeddings"
FIELDS = (
    *sizes(SIZES, 768, 6, 12, 30522, None, 512),
    at("hidden_dim", 3072, f"{FEED}.hidden"),
    act("activation", "gelu"),
    at("dropout", 0.1, "embed.dropout", "stack.block.*.dropout"),
    at("attention_dropout", 0.1, f"{ATTENTION}.dropout"),
    INIT,
)
TABLES = {"embeddings.word_embeddings": "embed.token", "embeddings.LayerNorm": "embed.norm"}
TABLES |= {"embeddings.position_embeddings": "embed.position"}
LAYER = "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm"


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings and layers."""
    names = f"{LAYER} ffn.lin1 ffn.lin2 output_layer_norm"
    yield from heads.maps(TABLES)(spec)
    yield from layers(spec.stack.depth, "transformer.layer.{}", names)


HEAD = ("vocab_projector", "vocab_transform", "vocab_layer_norm")
INNER, LATE = (("pre_classifier", "classifier"), heads.rate("seq_classif_dropout", default=0.2))
EVERY, ANSWER = "DistilBertForTokenClassification", "DistilBertForQuestionAnswering"
TASKS = {
    "base": Task("DistilBertModel", lambda *_: None),
    "masked-lm": heads.masked("DistilBertForMaskedLM", *HEAD, own=""),
    **heads.readers("DistilBert", INNER, "relu", LATE),
    "token-classification": heads.per_token(EVERY, dropout=heads.rate("dropout")),
    "question-answering": heads.span(ANSWER, heads.rate("qa_dropout")),
}
register(Family(
    "distilbert", "distilbert", "distilbert", FIELDS, body, TASKS,
    ignore=("embeddings.position_ids",), joint=(TIES,),
))  # fmt: skip
