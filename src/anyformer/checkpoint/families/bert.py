"""BERT (arXiv:1810.04805) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.families.heads import choices, classes, per_token, pooler, span, two
from anyformer.checkpoint.family import Config, Family, Field, Task, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row

ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"
FIELDS = (
    size("hidden_size", 768, "dim"),
    size("num_hidden_layers", 12, "depth", "stack.depth"),
    size("num_attention_heads", 12, "heads", f"{ATTENTION}.heads"),
    size("vocab_size", 30522, "vocab", "embed.source.vocab"),
    size("max_position_embeddings", 512, "length", "embed.position.length"),
    at("intermediate_size", 3072, f"{FEED}.hidden"),
    Field("hidden_act", "gelu", (f"{FEED}.act",), None, activations.ours, activations.theirs),
    at("type_vocab_size", 2, "embed.types"),
    at("layer_norm_eps", 1e-12, "embed.norm.eps", "stack.block.*.norm.eps"),
    at("hidden_dropout_prob", 0.1, "embed.dropout", "stack.block.*.dropout"),
    at("attention_probs_dropout_prob", 0.1, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)


def embeddings() -> Iterator[Row]:
    """Word, position and type tables and the norm behind them."""
    for theirs, ours in (("word", "token"), ("position", "position"), ("token_type", "segment")):
        yield row(f"embeddings.{theirs}_embeddings.weight", f"embed.{ours}.weight")
    yield from linear("embeddings.LayerNorm", "embed.norm")


def layers(spec: S.Model) -> Iterator[Row]:
    """The post-norm layers that the lineage shares."""
    for i in range(spec.stack.depth):
        theirs, ours = f"encoder.layer.{i}", f"stack.blocks.{i}"
        for name, short in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from linear(f"{theirs}.attention.self.{name}", f"{ours}.0.branch.{short}")
        yield from linear(f"{theirs}.attention.output.dense", f"{ours}.0.branch.out")
        yield from linear(f"{theirs}.attention.output.LayerNorm", f"{ours}.0.norm")
        yield from linear(f"{theirs}.intermediate.dense", f"{ours}.1.branch.up")
        yield from linear(f"{theirs}.output.dense", f"{ours}.1.branch.down")
        yield from linear(f"{theirs}.output.LayerNorm", f"{ours}.1.norm")


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings and layers."""
    yield from embeddings()
    yield from layers(spec)


def masked_head(spec: S.Model, _: Config) -> S.Head:
    """Dense, activation, norm, then the tied table with a bias."""
    act, norm = S.get(spec, f"{FEED}.act"), spec.embed.norm
    return S.Vocabulary(tied=True, bias=True, dense=True, act=act, norm=norm)


def masked_rows(_: S.Model) -> Iterator[Row]:
    """The prediction head."""
    yield row("cls.predictions.bias", "head.bias")
    yield from linear("cls.predictions.transform.dense", "head.dense")
    yield from linear("cls.predictions.transform.LayerNorm", "head.norm")


def next_sentence() -> Task:
    """Two classes behind the pooler."""
    names = ("bert.pooler.dense", "cls.seq_relationship")
    head = lambda spec, _: S.Classes(count=2, hidden=spec.dim, act="tanh")
    return Task("BertForNextSentencePrediction", head, two(names, ("head.hidden", "head.out")))


POOLED = ("bert.pooler.dense", "classifier")
ONLY = {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True}
BERT = register(
    Family(
        model_type="bert",
        recipe="bert",
        prefix="bert",
        fields=FIELDS,
        body=body,
        tasks={
            "base": pooler("BertModel"),
            "masked-lm": Task(
                "BertForMaskedLM",
                masked_head,
                masked_rows,
                ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
            ),
            "next-sentence": next_sentence(),
            "sequence-classification": classes("BertForSequenceClassification", POOLED),
            "token-classification": per_token("BertForTokenClassification"),
            "question-answering": span("BertForQuestionAnswering"),
            "multiple-choice": choices("BertForMultipleChoice", POOLED),
        },
        ignore=("embeddings.position_ids",),
        only={**ONLY, "position_embedding_type": "absolute"},
    )
)
