"""BART (arXiv:1910.13461), mBART and M2M-100 as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.families.heads import classes_at_end, span
from anyformer.checkpoint.family import (
    Config,
    Family,
    Field,
    Part,
    Task,
    Weights,
    at,
    no_rows,
    register,
    size,
)
from anyformer.checkpoint.keymap import Row, linear, reshape, row

OWN, CROSS, FEED = "stack.block.0.branch", "stack.block.1.branch", "stack.block.2.branch"
FEEDS, ENCODER = (FEED, f"encoder.{CROSS}"), f"encoder.{OWN}"
PAD = "pad_token_id"
OWN_TABLE, LAST = "decoder.embed_tokens.weight", "classification_head.out_proj.weight"
COPIES = ("encoder.embed_tokens.weight", OWN_TABLE, "lm_head.weight")


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
    yield row("final_logits_bias", "head.bias", reshape((vocab,), (1, vocab)))


def alone(spec: S.Model) -> S.Model:
    """The decoder as a model by itself; its cross-attentions are left out without a context."""
    crosses = [j for j, sub in enumerate(spec.stack.block) if sub.kind == "cross"]
    for j in crosses:
        spec = S.override(spec, f"stack.block.{j}.branch.optional", True)
    return replace(spec, encoder=None, share_tokens=False, start=None, pad=None)


def decoder_rows(spec: S.Model) -> Iterator[Row]:
    """The token table under the decoder's name, and the decoder."""
    yield row(OWN_TABLE, "embed.token.weight")
    yield from side("decoder", "", spec)


SAYS = {"is_decoder": True, "is_encoder_decoder": False}
DECODER = Part(alone, decoder_rows, "encoder.", SAYS, {"shared.weight": OWN_TABLE})


def tasks(name: str, few: int | None) -> dict[str, Task]:
    """Every head, or without a number of labels its own alone, which has no bias then.

    Labels of the decoder by itself stand at their own places.
    """
    biased = S.Vocabulary(tied=True, bias=few is not None)
    rows = no_rows if few is None else head_rows
    found = {
        "base": Task(f"{name}Model", lambda *_: None),
        "seq2seq-lm": Task(f"{name}ForConditionalGeneration", lambda *_: biased, rows),
    }
    if few is not None:
        end = classes_at_end(f"{name}ForSequenceClassification", 2, few)
        found["sequence-classification"] = end
        found["question-answering"] = span(f"{name}ForQuestionAnswering", fixed=True)
        own = lambda *_: S.Vocabulary(tied=True, shift=False)
        found["causal-lm"] = Task(f"{name}ForCausalLM", own, part=DECODER)
    tied = (*COPIES, *(f"model.{key}" for key in COPIES))
    return {key: replace(task, tied=tied) for key, task in found.items()}


def settled(config: Config, weights: Weights) -> Config:
    """Where config.json is silent of labels, the head in the file says how many there are.

    Version 5 of transformers leaves two labels out, though BART has three by default.
    """
    if config.get("id2label") or config.get("num_labels") or LAST not in weights:
        return config
    return config | {"num_labels": weights[LAST].shape[0]}


def family(
    model_type: str, name: str, few: int | None = 2, leave: tuple[str, ...] = (), **defaults: Any
) -> Family:
    """A family of the lineage, with the defaults in which it differs from BART.

    `few` is its number of labels by default; one without has no bias of the logits either.
    """
    change = lambda f: replace(f, default=defaults.get(f.key, f.default))
    fields = tuple(change(f) for f in FIELDS if f.key not in leave)
    if few is None:  # positions leave out the id that pads
        fields = (*(f for f in fields if f.key != PAD), size(PAD, 1, "pad"))
    return Family(
        model_type=model_type,
        recipe=model_type.replace("_", "-"),
        prefix="model",
        fields=fields,
        body=body,
        tasks=tasks(name, few),
        ignore=("encoder.version", "decoder.version"),
        only={"tie_word_embeddings": True, "is_decoder": False, "is_encoder_decoder": True},
        settle=settled,
    )


LENGTH = "max_position_embeddings"  # says nothing where positions are computed
BART = register(family("bart", "Bart", 3))
MBART = register(family("mbart", "MBart", 2, leave=("decoder_start_token_id",)))
M2M_100 = register(
    family(
        "m2m_100", "M2M100", None, leave=(LENGTH,), vocab_size=128112,
        encoder_layerdrop=0.05, decoder_layerdrop=0.05, attention_dropout=0.1,
        activation_function="relu", scale_embedding=True,
    )
)  # fmt: skip
