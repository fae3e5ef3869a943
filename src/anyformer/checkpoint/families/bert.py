"""BERT (arXiv:1810.04805) as Hugging Face stores it, as an encoder and as a decoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, INIT, TIES, act, sizes
from anyformer.checkpoint.family import Config, Family, Joint, Task, at, changed, register
from anyformer.checkpoint.keymap import FLIP_ROWS, Row, Step, row, sublayers
from anyformer.errors import CheckpointError, known_or_raise

KIND, LENGTH = "position_embedding_type", "max_position_embeddings"
SIZES = f"hidden_size num_hidden_layers num_attention_heads vocab_size - {LENGTH}"
FIELDS = (
    *sizes(SIZES, 768, 12, 12, 30522, None, 512),
    at("intermediate_size", 3072, f"{FEED}.hidden"),
    act("hidden_act", "gelu"),
    at("type_vocab_size", 2, "embed.types"),
    at("layer_norm_eps", 1e-12, "embed.norm.eps", "stack.block.*.norm.eps"),
    at("hidden_dropout_prob", 0.1, "embed.dropout", "stack.block.*.dropout"),
    at("attention_probs_dropout_prob", 0.1, f"{ATTENTION}.dropout"),
    INIT,
)
TERMS = {"absolute": None, "relative_key": False, "relative_key_query": True}  # -> Shaw.key_side


def with_distances(spec: S.Model, config: Config) -> S.Model:
    """Vectors by distance in every attention in place of those by position, where asked."""
    side = TERMS[known_or_raise(config.get(KIND) or "absolute", TERMS, KIND, CheckpointError)]
    if side is None:
        return spec
    position: Any = spec.embed.position
    terms = (S.Shaw(clip=position.length + position.offset - 1, key_side=side),)
    return changed(spec, {"embed.position": None, f"{ATTENTION}.relative": terms})


def distances(spec: S.Model) -> Config:
    """The fields that say which positions there are."""
    term = next(iter(S.get(spec, f"{ATTENTION}.relative")), None)
    if not isinstance(term, S.Shaw):
        return {KIND: "absolute"}
    return {KIND: f"relative_key{'_query' * term.key_side}", LENGTH: term.clip + 1}


def without_distances(spec: S.Model) -> S.Model:
    """The spec with vectors by position in place of those by distance."""
    rows = distances(spec).get(LENGTH)
    if rows is None:
        return spec
    return changed(spec, {"embed.position": S.Learned(length=rows), f"{ATTENTION}.relative": ()})


def with_decoder(spec: S.Model, config: Config) -> S.Model:
    """Layers that look back alone, where asked with a cross-attention that may go unused."""
    crossed = bool(config.get("add_cross_attention"))
    if not config.get("is_decoder"):
        if crossed:
            raise CheckpointError("config.json: add_cross_attention needs is_decoder to be true")
        return spec
    own, feed = spec.stack.block
    cross = changed(own, {"branch.cross": True, "branch.optional": True, "branch.relative": ()})
    block = (S.override(own, "branch.causal", True), *(cross,) * crossed, feed)
    return S.override(spec, "stack.block", block)


def decoder(spec: S.Model) -> Config:
    """The fields that say whether it is one, and whether it reads another sequence."""
    causal, several = S.get(spec, f"{ATTENTION}.causal"), len(spec.stack.block) > 2
    return {"is_decoder": causal, "add_cross_attention": several}


def without_decoder(spec: S.Model) -> S.Model:
    """The spec with layers that see both sides, and them alone."""
    own = S.override(spec.stack.block[0], "branch.causal", False)
    return S.override(spec, "stack.block", (own, spec.stack.block[-1]))


def embeddings(spec: S.Model) -> Iterator[Row]:
    """Word, position and type tables and the norm behind them.

    Beside vectors by distance the file still has a table by position, which nothing reads: it is
    written as zeros.
    """
    table, norm = "embeddings.position_embeddings.weight", "embeddings.LayerNorm"
    yield row("embeddings.word_embeddings.weight", "embed.token.weight")
    yield row("embeddings.token_type_embeddings.weight", "embed.segment.weight")
    yield row(f"{norm}.bias", "embed.norm.bias")
    rows = distances(spec).get(LENGTH)
    if rows is None:
        yield row(table, "embed.position.weight")
        yield row(f"{norm}.weight", "embed.norm.weight")
    else:
        blank = lambda ts: [ts[0].new_zeros(rows, ts[0].shape[0]), *ts]
        yield row((table, f"{norm}.weight"), "embed.norm.weight", Step(lambda ts: ts[1:], blank))


def layers(
    spec: S.Model, inner: str = "output.LayerNorm", outer: str = "output.LayerNorm"
) -> Iterator[Row]:
    """The layers that the lineage shares, with the names of norms in an attention and a layer.

    Their table of distances goes by query less key.
    """
    maps = ("self.query", "self.key", "self.value", "output.dense", inner)
    names = {"feedforward": f"intermediate.dense output.dense {outer}"}
    for kind, name in (("attention", "attention"), ("cross", "crossattention")):
        names[kind] = " ".join(f"{name}.{part}" for part in maps)
    yield from sublayers(spec.stack, "encoder.layer.{i}", names)
    for i in range(spec.stack.depth):
        theirs = f"encoder.layer.{i}.attention.self.distance_embedding.weight"
        yield row(theirs, f"stack.blocks.{i}.0.branch.relative.0.table", FLIP_ROWS)


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings and layers."""
    yield from (*embeddings(spec), *layers(spec))


HEAD, INSIDE = "cls.predictions", "cls.predictions.transform"
MASKED = heads.masked("BertForMaskedLM", HEAD, f"{INSIDE}.dense", f"{INSIDE}.LayerNorm")
NEXT = lambda spec, _: S.Classes(count=2, hidden=spec.dim, act="tanh")
SENTENCES = ("bert.pooler.dense", "cls.seq_relationship")
TASKS = {
    "base": heads.pooler("BertModel"),
    **heads.written(MASKED, "BertLMHeadModel"),
    "pretraining": heads.pretraining("BertForPreTraining", MASKED, SENTENCES, "next"),
    "next-sentence": Task("BertForNextSentencePrediction", NEXT, heads.two(SENTENCES)),
    **heads.readers("Bert", ("bert.pooler.dense", "classifier")),
}
IGNORE = ("embeddings.position_ids",)
JOINTS = (
    Joint(with_distances, distances, without_distances),
    Joint(with_decoder, decoder, without_decoder),
    TIES,
)
register(Family("bert", "bert", "bert", FIELDS, body, TASKS, ignore=IGNORE, joint=JOINTS))
