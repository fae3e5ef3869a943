"""T5 (arXiv:1910.10683), its version 1.1 and mT5 (arXiv:2010.11934) as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.families.decoder import TIES
from anyformer.checkpoint.families.heads import classes_at_end, per_token, rate, span
from anyformer.checkpoint.family import (
    Config,
    Family,
    Field,
    Part,
    Task,
    Weights,
    at,
    register,
    size,
)
from anyformer.checkpoint.keymap import Row, row

TABLE, HEAD = "shared.weight", "lm_head.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
FEEDS = ("stack.block.2.branch", "encoder.stack.block.1.branch")
HEADS = "stack.block.0.branch.heads"


def feed(name: str) -> S.FeedForward:
    """The feed-forward of `relu`, `gated-gelu` and others; in the second gelu means its tanh."""
    gated, _, act = name.rpartition("-")
    known = "gelu_tanh" if name == "gated-gelu" else activations.ours(act)
    return S.FeedForward(act=known, gated=gated == "gated", bias=False)  # type: ignore[arg-type]


def feed_name(branch: S.FeedForward) -> str:
    """The name of a feed-forward, for which `feed` is the inverse."""
    if not branch.gated:
        return activations.theirs(branch.act)
    odd = {"gelu_tanh": "gelu", "gelu": "gelu_python"}
    return f"gated-{odd.get(branch.act) or activations.theirs(branch.act)}"


def both(path: str) -> tuple[str, str]:
    """A path in the decoder and in the encoder."""
    return path, f"encoder.{path}"


FIELDS = (
    size("d_model", 512, "dim"),
    size("num_layers", 6, "depth", "encoder.stack.depth"),
    at("num_decoder_layers", None, "stack.depth"),
    size("num_heads", 8, "heads", HEADS),
    size("d_kv", 64, "head_dim", "stack.block.0.branch.head_dim"),
    size("vocab_size", 32128, "vocab", "embed.source.vocab"),
    Field("feed_forward_proj", "relu", FEEDS, None, feed, feed_name),
    at("d_ff", 2048, *(f"{path}.hidden" for path in FEEDS)),
    at("relative_attention_num_buckets", 32, *both("stack.relative.0.count")),
    at("relative_attention_max_distance", 128, *both("stack.relative.0.max_distance")),
    at("layer_norm_epsilon", 1e-6, *both("stack.final_norm.eps"), *both("stack.block.*.norm.eps")),
    at("dropout_rate", 0.1, "embed.dropout", "encoder.embed.dropout",
       *both("stack.block.*.dropout"), *both("stack.block.*.branch.dropout")),
    at("decoder_start_token_id", None, "start"),
    at("pad_token_id", 0, "pad"),
)  # fmt: skip


def stack(side: str, ours: str, spec: S.Model) -> Iterator[Row]:
    """The layers of one side, its final norm and the bias of its first layer, which serves all."""
    names = {"attention": "SelfAttention", "cross": "EncDecAttention"}
    for i in range(spec.stack.depth):
        for j, sub in enumerate(spec.stack.block):
            theirs, here = f"{side}.block.{i}.layer.{j}", f"{ours}stack.blocks.{i}.{j}"
            yield row(f"{theirs}.layer_norm.weight", f"{here}.norm.weight")
            if isinstance(sub.branch, S.FeedForward):
                yield from feed_rows(f"{theirs}.DenseReluDense", f"{here}.branch", sub.branch)
                continue
            for short, name in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out")):
                key = f"{theirs}.{names[sub.kind]}.{short}.weight"
                yield row(key, f"{here}.branch.{name}.weight")
    yield row(f"{side}.final_layer_norm.weight", f"{ours}stack.norm.weight")
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    yield row(bias, f"{ours}stack.relative.0.table")


def feed_rows(theirs: str, ours: str, branch: S.FeedForward) -> Iterator[Row]:
    """`wi`, or where gated `wi_0`, which the activation follows, and `wi_1`; then `wo`."""
    pairs = {"wi": "up", "wo": "down"}
    if branch.gated:
        pairs = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    for name, own in pairs.items():
        yield row(f"{theirs}.{name}.weight", f"{ours}.{own}.weight")


def body(spec: S.Model) -> Iterator[Row]:
    """One token table and both stacks."""
    yield row(TABLE, "embed.token.weight")
    assert spec.encoder is not None
    yield from stack("encoder", "encoder.", spec.encoder)
    yield from stack("decoder", "", spec)


def head(spec: S.Model, config: Config) -> S.Head:
    """The token table again or a table of its own, on scaled states or not: see `settled`."""
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    tied = config.get("tie_word_embeddings") is not False
    return S.Vocabulary(tied=tied, scale=spec.dim**-0.5 if scaled else 1.0)


def head_rows(spec: S.Model) -> Iterator[Row]:
    """A table of the head's own."""
    if isinstance(spec.head, S.Vocabulary) and not spec.head.tied:
        yield row(HEAD, "head.weight")


def settled(config: Config, weights: Weights) -> Config:
    """Whether the head is tied is said by the file, whether states are scaled by config.json.

    Version 5 of transformers writes `tie_word_embeddings: true` for untied models too; older
    ones wrote it as it is, and no `scale_decoder_outputs`, which followed from it.
    """
    scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    tied = HEAD not in weights or (TABLE in weights and weights[HEAD].equal(weights[TABLE]))
    return config | {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled}


def never_scaled(config: Config, weights: Weights) -> Config:
    """As settled, for a model_type that has no scale."""
    return settled(config | {"scale_decoder_outputs": False}, weights)


def encoder_rows(spec: S.Model) -> Iterator[Row]:
    """The token table and the encoder."""
    yield row(TABLE, "embed.token.weight")
    yield from stack("encoder", "", spec)


SAYS = {"is_encoder_decoder": False}
ENCODER = Part(lambda spec: spec.encoder or spec, encoder_rows, "decoder.", SAYS)


def tasks(name: str) -> dict[str, Task]:
    """The whole model and its encoder, with every head."""
    copies = (HEAD, *COPIES, *(f"transformer.{key}" for key in COPIES))
    end = classes_at_end(f"{name}ForSequenceClassification", 1)
    dropout = rate("classifier_dropout", default=0.0)
    every = per_token(f"{name}ForTokenClassification", dropout=dropout)
    plain = {
        "base": Task(f"{name}Model", lambda *_: None),
        "seq2seq-lm": Task(f"{name}ForConditionalGeneration", head, head_rows),
        "encoder": Task(f"{name}EncoderModel", lambda *_: None, part=ENCODER),
        "sequence-classification": replace(end, prefix="transformer"),
        "token-classification": replace(every, prefix="transformer", part=ENCODER),
        "question-answering": span(f"{name}ForQuestionAnswering"),
    }
    return {key: replace(task, tied=copies) for key, task in plain.items()}


def with_defaults(**defaults: Any) -> tuple[Field, ...]:
    """The fields with other defaults."""
    change = lambda f: replace(f, default=defaults.get(f.key, f.default))
    return tuple(change(f) for f in FIELDS)


UNUSED = ("layer.1.EncDecAttention.relative_attention_bias.weight",)
T5 = register(
    Family("t5", "t5", "", FIELDS, body, tasks("T5"), ignore=UNUSED, joint=(TIES,), settle=settled)
)  # fmt: skip
MT5 = register(
    Family(
        model_type="mt5",
        recipe="t5",
        prefix="",
        fields=with_defaults(
            vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6,
            feed_forward_proj="gated-gelu", decoder_start_token_id=0,
        ),
        body=body,
        tasks=tasks("MT5"),
        ignore=UNUSED,
        joint=(TIES,),
        settle=never_scaled,
    )
)  # fmt: skip
