"""BERT (arXiv:1810.04805) as Hugging Face stores it, as an encoder and as a decoder."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import activations, heads
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register, size
from anyformer.checkpoint.keymap import FLIP_ROWS, Row, Step, linear, row
from anyformer.errors import CheckpointError, known_or_raise

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
TERMS = {"absolute": None, "relative_key": False, "relative_key_query": True}  # -> Shaw.key_side


def with_distances(spec: S.Model, config: Config) -> S.Model:
    """Vectors by distance in every attention in place of those by position, where asked."""
    kind = config.get("position_embedding_type") or "absolute"
    side = TERMS[known_or_raise(kind, TERMS, "position_embedding_type", CheckpointError)]
    if side is None:
        return spec
    assert isinstance(spec.embed.position, S.Learned)
    reach = spec.embed.position.length + spec.embed.position.offset - 1
    terms = (S.Shaw(clip=reach, key_side=side),)
    return S.override(S.override(spec, "embed.position", None), f"{ATTENTION}.relative", terms)


def distances(spec: S.Model) -> Config:
    """The fields that say which positions there are."""
    term = next(iter(S.get(spec, f"{ATTENTION}.relative")), None)
    if not isinstance(term, S.Shaw):
        return {"position_embedding_type": "absolute"}
    kind = "relative_key_query" if term.key_side else "relative_key"
    return {"position_embedding_type": kind, "max_position_embeddings": term.clip + 1}


def without_distances(spec: S.Model) -> S.Model:
    """The spec with vectors by position in place of those by distance."""
    rows = distances(spec).get("max_position_embeddings")
    if rows is None:
        return spec
    spec = S.override(spec, "embed.position", S.Learned(length=rows))
    return S.override(spec, f"{ATTENTION}.relative", ())


def with_decoder(spec: S.Model, config: Config) -> S.Model:
    """Layers that look back alone, where asked with a cross-attention that may go unused."""
    if not config.get("is_decoder"):
        if config.get("add_cross_attention"):
            raise CheckpointError("config.json: add_cross_attention needs is_decoder to be true")
        return spec
    own, feed = spec.stack.block
    cross = own
    for name, value in (("cross", True), ("optional", True), ("relative", ())):
        cross = S.override(cross, f"branch.{name}", value)
    between = (cross,) if config.get("add_cross_attention") else ()
    block = (S.override(own, "branch.causal", True), *between, feed)
    return S.override(spec, "stack.block", block)


def decoder(spec: S.Model) -> Config:
    """The fields that say whether it is one, and whether it reads another sequence."""
    causal, several = S.get(spec, f"{ATTENTION}.causal"), len(spec.stack.block) > 2
    return {"is_decoder": causal, "add_cross_attention": several}


def without_decoder(spec: S.Model) -> S.Model:
    """The spec with layers that see both sides, and them alone."""
    own = S.override(spec.stack.block[0], "branch.causal", False)
    return S.override(spec, "stack.block", (own, spec.stack.block[-1]))


JOINTS = (
    Joint(with_distances, distances, without_distances),
    Joint(with_decoder, decoder, without_decoder),
)


def embeddings(spec: S.Model) -> Iterator[Row]:
    """Word, position and type tables and the norm behind them.

    Beside vectors by distance the file still has a table by position, which nothing reads: it is
    written as zeros.
    """
    yield row("embeddings.word_embeddings.weight", "embed.token.weight")
    yield row("embeddings.token_type_embeddings.weight", "embed.segment.weight")
    table, norm = "embeddings.position_embeddings.weight", "embeddings.LayerNorm"
    rows = distances(spec).get("max_position_embeddings")
    if rows is None:
        yield row(table, "embed.position.weight")
        yield from linear(norm, "embed.norm")
        return
    blank = lambda ts: [ts[0].new_zeros(rows, ts[0].shape[0]), *ts]
    yield row((table, f"{norm}.weight"), "embed.norm.weight", Step(lambda ts: ts[1:], blank))
    yield row(f"{norm}.bias", "embed.norm.bias")


NORMS = ("output.LayerNorm", "output.LayerNorm")


def layers(spec: S.Model, norms: tuple[str, str] = NORMS) -> Iterator[Row]:
    """The layers that the lineage shares; `norms`: their names in an attention and in a layer."""
    for i in range(spec.stack.depth):
        for j, sub in enumerate(spec.stack.block):
            theirs, ours = f"encoder.layer.{i}", f"stack.blocks.{i}.{j}"
            if sub.kind == "feedforward":
                yield from linear(f"{theirs}.intermediate.dense", f"{ours}.branch.up")
                yield from linear(f"{theirs}.output.dense", f"{ours}.branch.down")
                yield from linear(f"{theirs}.{norms[1]}", f"{ours}.norm")
                continue
            theirs += ".crossattention" if sub.kind == "cross" else ".attention"
            for name, short in (("query", "q"), ("key", "k"), ("value", "v")):
                yield from linear(f"{theirs}.self.{name}", f"{ours}.branch.{short}")
            yield from linear(f"{theirs}.output.dense", f"{ours}.branch.out")
            yield from linear(f"{theirs}.{norms[0]}", f"{ours}.norm")
            if S.get(sub, "branch.relative"):  # theirs goes by query less key
                table = f"{ours}.branch.relative.0.table"
                yield row(f"{theirs}.self.distance_embedding.weight", table, FLIP_ROWS)


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings and layers."""
    yield from embeddings(spec)
    yield from layers(spec)


def masked_head(spec: S.Model, _: Config) -> S.Vocabulary:
    """Dense, activation, norm, then the tied table with a bias."""
    act, norm = S.get(spec.stack.block[-1], "branch.act"), spec.embed.norm
    return S.Vocabulary(tied=True, bias=True, dense=True, act=act, norm=norm)


def masked_rows(_: S.Model) -> Iterator[Row]:
    """The prediction head."""
    yield row("cls.predictions.bias", "head.bias")
    yield from linear("cls.predictions.transform.dense", "head.dense")
    yield from linear("cls.predictions.transform.LayerNorm", "head.norm")


def next_sentence() -> Task:
    """Two classes behind the pooler."""
    head = lambda spec, _: S.Classes(count=2, hidden=spec.dim, act="tanh")
    rows = heads.two(SENTENCES, ("head.hidden", "head.out"))
    return Task("BertForNextSentencePrediction", head, rows)


SENTENCES = ("bert.pooler.dense", "cls.seq_relationship")
POOLED = ("bert.pooler.dense", "classifier")
ONLY = {"tie_word_embeddings": True}
TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
MASKED = Task("BertForMaskedLM", masked_head, masked_rows, TIED)
BERT = register(
    Family(
        model_type="bert",
        recipe="bert",
        prefix="bert",
        fields=FIELDS,
        body=body,
        tasks={
            "base": heads.pooler("BertModel"),
            **heads.written(MASKED, "BertLMHeadModel"),
            "pretraining": heads.pretraining("BertForPreTraining", MASKED, SENTENCES, "next"),
            "next-sentence": next_sentence(),
            "sequence-classification": heads.classes("BertForSequenceClassification", POOLED),
            "token-classification": heads.per_token("BertForTokenClassification"),
            "question-answering": heads.span("BertForQuestionAnswering"),
            "multiple-choice": heads.choices("BertForMultipleChoice", POOLED),
        },
        ignore=("embeddings.position_ids",),
        only=ONLY,
        joint=JOINTS,
    )
)
