"""BART (arXiv:1910.13461), mBART and M2M-100 as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint import family as F
from anyformer.checkpoint.families import decoder, heads
from anyformer.checkpoint.family import Config, Family, Task, at, register
from anyformer.checkpoint.keymap import Row, linear, reshape, row, sublayers

OWN, CROSS, FEED = "stack.block.0.branch", "stack.block.1.branch", "stack.block.2.branch"
FEEDS, ENCODER = (FEED, f"encoder.{CROSS}"), f"encoder.{OWN}"
LENGTH, PAD = "max_position_embeddings", "pad_token_id"
OWN_TABLE, LAST = "decoder.embed_tokens.weight", "classification_head.out_proj.weight"
COPIES = ("encoder.embed_tokens.weight", OWN_TABLE, "lm_head.weight")


def all_of(paths: tuple[str, ...], ending: str) -> tuple[str, ...]:
    """Paths with one ending."""
    return tuple(f"{path}.{ending}" for path in paths)


def scaled(key: str) -> F.Field:
    """The field that says whether the token table is scaled."""
    return F.Field(key, False, ("embed.scale",), "scaled", bool, lambda scale: scale != 1.0)


FIELDS = (
    *decoder.sizes(f"d_model - - vocab_size - {LENGTH}", 1024, None, None, 50265, None, 1024),
    F.size("encoder_attention_heads", 16, "heads", f"{ENCODER}.heads"),
    scaled("scale_embedding"),
    at("decoder_attention_heads", 16, *all_of((OWN, CROSS), "heads")),
    at("encoder_layers", 12, "encoder.stack.depth"),
    at("decoder_layers", 12, "stack.depth"),
    at("encoder_ffn_dim", 4096, f"{FEEDS[1]}.hidden"),
    at("decoder_ffn_dim", 4096, f"{FEED}.hidden"),
    replace(decoder.act("activation_function", "gelu"), paths=all_of(FEEDS, "act")),
    at("dropout", 0.1, *all_of(("embed", "encoder.embed"), "dropout"),
       *all_of(("stack.block.*", "encoder.stack.block.*"), "dropout")),
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
    maps = ".q_proj .k_proj .v_proj .out_proj _layer_norm".split()
    names = {"feedforward": "fc1 fc2 final_layer_norm"}
    for kind, name in (("attention", "self_attn"), ("cross", "encoder_attn")):
        names[kind] = " ".join(f"{name}{ending}" for ending in maps)
    yield row(f"{theirs}.embed_positions.weight", f"{ours}embed.position.weight")
    if spec.embed.norm is not None:
        yield from linear(f"{theirs}.layernorm_embedding", f"{ours}embed.norm")
    yield from sublayers(spec.stack, f"{theirs}.layers.{{i}}", names, ours)
    yield from linear(f"{theirs}.layer_norm", f"{ours}stack.norm")


def body(spec: S.Model) -> Iterator[Row]:
    """One token table and both sides; under the decoder's name where that stands alone."""
    yield row(OWN_TABLE if spec.encoder is None else "shared.weight", "embed.token.weight")
    if spec.encoder is not None:
        yield from side("encoder", "encoder.", spec.encoder)
    yield from side("decoder", "", spec)


def head_rows(spec: S.Model) -> Iterator[Row]:
    """The bias of the logits, which transformers keeps fixed and the file has as one row."""
    vocab = S.get(spec, "embed.source.vocab")
    yield row("final_logits_bias", "head.bias", reshape((vocab,), (1, vocab)))


def alone(spec: S.Model) -> S.Model:
    """The decoder as a model by itself; its cross-attentions are left out without a context."""
    spec = S.override(spec, f"{CROSS}.optional", True)
    return replace(spec, encoder=None, share_tokens=False, start=None, pad=None)


SAYS = {"is_decoder": True, "is_encoder_decoder": False}
DECODER = F.Part(alone, body, "encoder.", SAYS, {"shared.weight": OWN_TABLE})


def tasks(name: str, few: int | None) -> dict[str, Task]:
    """Every head, or without a number of labels its own alone, which has no bias then.

    Labels of the decoder by itself stand at their own places.
    """
    biased = S.Vocabulary(tied=True, bias=few is not None)
    found = {
        "base": Task(f"{name}Model", lambda *_: None),
        "seq2seq-lm": Task(f"{name}ForConditionalGeneration", lambda *_: biased, head_rows),
    }
    if few is not None:
        end = heads.classes_at_end(f"{name}ForSequenceClassification", 2, few)
        answer = heads.span(f"{name}ForQuestionAnswering", fixed=True)
        found |= {"sequence-classification": end, "question-answering": answer}
        own = lambda *_: S.Vocabulary(tied=True, shift=False)
        found["causal-lm"] = Task(f"{name}ForCausalLM", own, part=DECODER)
    tied = (*COPIES, *(f"model.{key}" for key in COPIES))
    return {key: replace(task, tied=tied) for key, task in found.items()}


def settled(config: Config, weights: F.Weights) -> Config:
    """Where config.json is silent of labels, the head in the file says how many there are.

    Version 5 of transformers leaves two labels out, though BART has three by default.
    """
    if config.get("id2label") or config.get("num_labels") or LAST not in weights:
        return config
    return config | {"num_labels": weights[LAST].shape[0]}


def family(
    kind: str, name: str, few: int | None = 2, leave: tuple[str, ...] = (), **defaults: Any
) -> Family:
    """A family of the lineage, with the defaults in which it differs from BART.

    `few` is its number of labels by default; one without has no bias of the logits either.
    """
    fields = F.with_defaults(FIELDS, leave, **defaults)
    if few is None:  # positions leave out the id that pads
        fields = (*F.with_defaults(fields, (PAD,)), F.size(PAD, 1, "pad"))
    return Family(
        kind, kind.replace("_", "-"), "model", fields, body, tasks(name, few),
        ignore=("encoder.version", "decoder.version"), settle=settled,
        only={"tie_word_embeddings": True, "is_decoder": False, "is_encoder_decoder": True},
    )  # fmt: skip


register(family("bart", "Bart", 3))
register(family("mbart", "MBart", 2, leave=("decoder_start_token_id",)))
register(family(  # its length says nothing: positions are computed
    "m2m_100", "M2M100", None, leave=(LENGTH,), vocab_size=128112, encoder_layerdrop=0.05,
    decoder_layerdrop=0.05, attention_dropout=0.1, activation_function="relu", scale_embedding=True,
))  # fmt: skip
