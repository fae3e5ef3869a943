"""T5 (arXiv:1910.10683), its version 1.1 and mT5 (arXiv:2010.11934) as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint import family as F
from anyformer.checkpoint.families import activations, heads
from anyformer.checkpoint.families.decoder import TIES, sizes
from anyformer.checkpoint.family import Config, Family, Task, at
from anyformer.checkpoint.keymap import Row, linear, row, sublayers

TABLE, HEAD, BIAS = "shared.weight", "lm_head.weight", "relative_attention_bias.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
FEEDS = ("stack.block.2.branch", "encoder.stack.block.1.branch")


def feed(name: str) -> S.FeedForward:
    """The feed-forward of `relu`, `gated-gelu` and others; in the second gelu means its tanh."""
    gated, _, act = name.rpartition("-")
    known = "gelu_tanh" if name == "gated-gelu" else activations.ours(act)
    return S.FeedForward(act=known, gated=gated == "gated", bias=False)  # type: ignore[arg-type]


def feed_name(branch: S.FeedForward) -> str:
    """The name of a feed-forward, for which `feed` is the inverse."""
    odd = {"gelu_tanh": "gelu", "gelu": "gelu_python"} if branch.gated else {}
    name = odd.get(branch.act) or activations.theirs(branch.act)
    return f"gated-{name}" if branch.gated else name


def both(*paths: str) -> tuple[str, ...]:
    """Paths in the decoder and in the encoder."""
    return (*paths, *(f"encoder.{path}" for path in paths))


FIELDS = (
    *sizes("d_model - num_heads vocab_size", 512, None, 8, 32128),
    F.size("num_layers", 6, "depth", "encoder.stack.depth"),
    at("num_decoder_layers", None, "stack.depth"),
    F.size("d_kv", 64, "head_dim", "stack.block.0.branch.head_dim"),
    F.Field("feed_forward_proj", "relu", FEEDS, None, feed, feed_name),
    at("d_ff", 2048, *(f"{path}.hidden" for path in FEEDS)),
    at("relative_attention_num_buckets", 32, *both("stack.relative.0.count")),
    at("relative_attention_max_distance", 128, *both("stack.relative.0.max_distance")),
    at("layer_norm_epsilon", 1e-6, *both("stack.final_norm.eps", "stack.block.*.norm.eps")),
    at("dropout_rate", 0.1,
       *both("embed.dropout", "stack.block.*.dropout", "stack.block.*.branch.dropout")),
    at("decoder_start_token_id", None, "start"), at("pad_token_id", 0, "pad"),
    at("initializer_factor", 1.0, *both("init.std")),
)  # fmt: skip


def stack(side: str, ours: str, spec: S.Model) -> Iterator[Row]:
    """The layers of one side, its final norm and the bias of its first layer, which serves all.

    A gated layer has `wi_0`, which the activation follows, and `wi_1`; another has `wi`.
    """
    maps = lambda name: " ".join(f"{name}.{short}" for short in "qkvo") + " layer_norm"
    names = {"attention": maps("SelfAttention"), "cross": maps("EncDecAttention")}
    up, gate = ("wi_1", "wi_0") if S.get(spec.stack.block[-1], "branch.gated") else ("wi", "none")
    feed = (f"DenseReluDense.{up}", "DenseReluDense.wo", "layer_norm", f"DenseReluDense.{gate}")
    names["feedforward"] = " ".join(feed)
    yield from sublayers(spec.stack, f"{side}.block.{{i}}.layer.{{j}}", names, ours)
    yield from linear(f"{side}.final_layer_norm", f"{ours}stack.norm")
    yield row(f"{side}.block.0.layer.0.SelfAttention.{BIAS}", f"{ours}stack.relative.0.table")


def body(spec: S.Model) -> Iterator[Row]:
    """One token table and both stacks, or the encoder's where it stands alone."""
    yield row(TABLE, "embed.token.weight")
    if spec.encoder is None:
        yield from stack("encoder", "", spec)
    else:
        yield from (*stack("encoder", "encoder.", spec.encoder), *stack("decoder", "", spec))


def scaled(config: Config) -> bool:
    """Whether the head's states are scaled; in older files that followed from a tied table."""
    return config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)


def head(spec: S.Model, config: Config) -> S.Head:
    """The token table again or a table of its own, on scaled states or not: see `settled`."""
    tied = config.get("tie_word_embeddings") is not False
    return S.Vocabulary(tied=tied, scale=spec.dim**-0.5 if scaled(config) else 1.0)


def settled(config: Config, weights: F.Weights) -> Config:
    """Whether the head is tied is said by the file, whether states are scaled by config.json.

    Version 5 of transformers writes `tie_word_embeddings: true` for untied models too; older
    ones wrote it as it is, and no `scale_decoder_outputs`, which followed from it.
    """
    tied = HEAD not in weights or (TABLE in weights and weights[HEAD].equal(weights[TABLE]))
    return config | {"tie_word_embeddings": tied, "scale_decoder_outputs": scaled(config)}


def tasks(name: str) -> dict[str, Task]:
    """The whole model and its encoder, with every head."""
    alone = F.Part(lambda s: s.encoder or s, body, "decoder.", {"is_encoder_decoder": False})
    end = heads.classes_at_end(f"{name}ForSequenceClassification", 1)
    dropout = heads.rate("classifier_dropout", default=0.0)
    every = heads.per_token(f"{name}ForTokenClassification", dropout=dropout)
    own = heads.maps({"lm_head": "head"})
    plain = {
        "base": Task(f"{name}Model", lambda *_: None),
        "seq2seq-lm": Task(f"{name}ForConditionalGeneration", head, own),
        "encoder": Task(f"{name}EncoderModel", lambda *_: None, part=alone),
        "sequence-classification": replace(end, prefix="transformer"),
        "token-classification": replace(every, prefix="transformer", part=alone),
        "question-answering": heads.span(f"{name}ForQuestionAnswering"),
    }
    copies = (HEAD, *COPIES, *(f"transformer.{key}" for key in COPIES))
    return {key: replace(task, tied=copies) for key, task in plain.items()}


T5 = Family(
    "t5", "t5", "", FIELDS, body, tasks("T5"),
    ignore=(f"layer.1.EncDecAttention.{BIAS}",), joint=(TIES,), settle=settled,
)  # fmt: skip
MT5 = replace(
    T5, model_type="mt5", tasks=tasks("MT5"),
    fields=F.with_defaults(
        FIELDS, vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0,
    ),
    settle=lambda config, weights: settled(config | {"scale_decoder_outputs": False}, weights),
)  # fmt: skip
F.register(T5)
F.register(MT5)
