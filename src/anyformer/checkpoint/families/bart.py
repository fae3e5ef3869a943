"""BART (arXiv:1910.13461), mBART and M2M-100 as Hugging Face stores them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.family import Family, Field, Task, at, register, size
from anyformer.checkpoint.keymap import Row, linear, reshape, row

OWN, CROSS, FEED = "stack.block.0.branch", "stack.block.1.branch", "stack.block.2.branch"
FEEDS, ENCODER = (FEED, f"encoder.{CROSS}"), f"encoder.{OWN}"
PAD = "pad_token_id"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")


def all_of(paths: tuple[str, ...], ending: str) -> tuple[str, ...]:
    """Paths with one ending."""
    return tuple(f"{path}.{ending}" for path in paths)


FIELDS = (
    size("d_model", 1024, "dim"),
    size("vocab_size", 50265, "vocab", "embed.source.vocab"),
    size("max_position_embeddings", 1024, "length", "embed.position.length"),
    size("encoder_attention_heads", 16, "heads", f"{ENCODER}.heads"),
    Field("scale_embedding", False, ("embed.scale",), "scaled", bool, lambda scale: scale != 1.0),
    at("decoder_attention_heads", 16, *all_of((OWN, CROSS), "heads")),
    at("encoder_layers", 12, "encoder.stack.depth"),
    at("decoder_layers", 12, "stack.depth"),
    at("encoder_ffn_dim", 4096, f"{FEEDS[1]}.hidden"),
    at("decoder_ffn_dim", 4096, f"{FEED}.hidden"),
    Field(
        "activation_function", "gelu", all_of(FEEDS, "act"), None,
        activations.ours, activations.theirs,
    ),
    at("dropout", 0.1, "embed.dropout", "encoder.embed.dropout", "stack.block.*.dropout",
       "encoder.stack.block.*.dropout"),
    at("attention_dropout", 0.0, *all_of((OWN, CROSS, ENCODER), "dropout")),
    at("activation_dropout", 0.0, *all_of(FEEDS, "dropout")),
    at("encoder_layerdrop", 0.0, "encoder.stack.layer_dropout"),
    at("decoder_layerdrop", 0.0, "stack.layer_dropout"),
    at("init_std", 0.02, "init.std", "encoder.init.std"),
    at("decoder_start_token_id", 2, "start"),
    at(PAD, 1, "pad"),
)  # fmt: skip


def side(theirs: str, ours: str, spec: S.Model) -> Iterator[Row]:
    """Positions, norms and layers of the encoder or the decoder."""
    if isinstance(spec.embed.position, S.Learned):
        yield row(f"{theirs}.embed_positions.weight", f"{ours}embed.position.weight")
    if spec.embed.norm is not None:
        yield from linear(f"{theirs}.layernorm_embedding", f"{ours}embed.norm")
    for i in range(spec.stack.depth):
        for j, sub in enumerate(spec.stack.block):
            yield from sublayer(f"{theirs}.layers.{i}", f"{ours}stack.blocks.{i}.{j}", sub.kind)
    if spec.stack.final_norm is not None:
        yield from linear(f"{theirs}.layer_norm", f"{ours}stack.norm")


def sublayer(theirs: str, ours: str, kind: str) -> Iterator[Row]:
    """One branch and its norm."""
    if kind == "feedforward":
        yield from linear(f"{theirs}.fc1", f"{ours}.branch.up")
        yield from linear(f"{theirs}.fc2", f"{ours}.branch.down")
        yield from linear(f"{theirs}.final_layer_norm", f"{ours}.norm")
        return
    name = "encoder_attn" if kind == "cross" else "self_attn"
    for part in ("q", "k", "v", "out"):
        yield from linear(f"{theirs}.{name}.{part}_proj", f"{ours}.branch.{part}")
    yield from linear(f"{theirs}.{name}_layer_norm", f"{ours}.norm")


def body(spec: S.Model) -> Iterator[Row]:
    """One token table and both sides."""
    yield row("shared.weight", "embed.token.weight")
    assert spec.encoder is not None
    yield from side("encoder", "encoder.", spec.encoder)
    yield from side("decoder", "", spec)


def head_rows(spec: S.Model) -> Iterator[Row]:
    """The bias of the logits, which transformers keeps fixed and the file has as one row."""
    assert isinstance(spec.embed.source, S.Tokens)
    vocab = spec.embed.source.vocab
    if spec.head is None or (isinstance(spec.head, S.Vocabulary) and spec.head.bias):
        yield row("final_logits_bias", "head.bias", reshape((vocab,), (1, vocab)))


def tasks(name: str, bias: bool) -> dict[str, Task]:
    """Both heads."""
    copies = (*COPIES, *(f"model.{key}" for key in COPIES))
    head = lambda *_: S.Vocabulary(tied=True, bias=bias)
    return {
        "base": Task(f"{name}Model", lambda *_: None, tied=copies),
        "seq2seq-lm": Task(f"{name}ForConditionalGeneration", head, head_rows, copies),
    }


def family(
    model_type: str, name: str, bias: bool = True, leave: tuple[str, ...] = (), **defaults: Any
) -> Family:
    """A family of the lineage, with the defaults in which it differs from BART."""
    change = lambda f: dataclasses.replace(f, default=defaults.get(f.key, f.default))
    fields = tuple(change(f) for f in FIELDS if f.key not in leave)
    if not bias:  # positions leave out the id that pads
        fields = (*(f for f in fields if f.key != PAD), size(PAD, 1, "pad"))
    return Family(
        model_type=model_type,
        recipe=model_type.replace("_", "-"),
        prefix="model",
        fields=fields,
        body=body,
        tasks=tasks(name, bias),
        ignore=("encoder.version", "decoder.version"),
        only={"tie_word_embeddings": True, "is_decoder": False, "is_encoder_decoder": True},
    )


LENGTH = "max_position_embeddings"  # says nothing where positions are computed
BART = register(family("bart", "Bart"))
MBART = register(family("mbart", "MBart", leave=("decoder_start_token_id",)))
M2M_100 = register(
    family(
        "m2m_100", "M2M100", bias=False, leave=(LENGTH,), vocab_size=128112,
        encoder_layerdrop=0.05, decoder_layerdrop=0.05, attention_dropout=0.1,
        activation_function="relu", scale_embedding=True,
    )
)  # fmt: skip
