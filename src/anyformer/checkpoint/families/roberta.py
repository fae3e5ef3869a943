"""RoBERTa, XLM-RoBERTa and RoBERTa-PreLayerNorm as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import heads
from anyformer.checkpoint.families.bert import FIELDS as BERT
from anyformer.checkpoint.families.bert import JOINTS, ONLY, body, embeddings, layers
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, register
from anyformer.checkpoint.keymap import Row, linear, row

LENGTH, PAD, VOCAB = 512, 1, 50265


def with_places(spec: S.Model, config: Config) -> S.Model:
    """The position table's rows: the pad id's, those before it, and the real positions."""
    stated = lambda key, default: default if config.get(key) is None else config[key]
    pad, rows = stated("pad_token_id", PAD), stated("max_position_embeddings", LENGTH)
    position = S.Learned(length=rows - pad - 1, offset=pad + 1, skip=pad)
    return S.override(spec, "embed.position", position)


def places(spec: S.Model) -> Config:
    """The fields that say how many rows there are and which id has no place."""
    position = spec.embed.position
    if not isinstance(position, S.Learned) or position.skip is None:
        return {}
    rows = position.length + position.offset
    return {"max_position_embeddings": rows, "pad_token_id": position.skip}


def fields(vocab: int, *final: str) -> Iterator[Field]:
    """BERT's fields but for positions; `final`: further paths of the norms' eps."""
    for f in BERT:
        if f.key == "vocab_size":
            yield replace(f, default=vocab)
        elif f.key == "layer_norm_eps":
            yield replace(f, paths=(*f.paths, *final))
        elif f.key != "max_position_embeddings":
            yield f


def masked_head(spec: S.Model, _: Config) -> S.Head:
    """Dense, gelu whatever the layers have, norm, then the tied table with a bias."""
    return S.Vocabulary(tied=True, bias=True, dense=True, act="gelu", norm=spec.embed.norm)


def masked_rows(_: S.Model) -> Iterator[Row]:
    """The prediction head."""
    yield row("lm_head.bias", "head.bias")
    yield from linear("lm_head.dense", "head.dense")
    yield from linear("lm_head.layer_norm", "head.norm")


def tasks(name: str, prefix: str) -> dict[str, Task]:
    """The tasks of one of the families."""
    tied = ("lm_head.decoder.weight", "lm_head.decoder.bias")
    masked = Task(f"{name}ForMaskedLM", masked_head, masked_rows, tied)
    own, pooled = ("classifier.dense", "classifier.out_proj"), f"{prefix}.pooler.dense"
    return {
        "base": heads.pooler(f"{name}Model"),
        **heads.written(masked, f"{name}ForCausalLM"),
        "sequence-classification": heads.classes(
            f"{name}ForSequenceClassification", own, early=heads.CLASSIFIER
        ),
        "token-classification": heads.per_token(f"{name}ForTokenClassification"),
        "question-answering": heads.span(f"{name}ForQuestionAnswering"),
        "multiple-choice": heads.choices(
            f"{name}ForMultipleChoice", (pooled, "classifier"), dropout=heads.HIDDEN
        ),
    }


def pre_norm_body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, pre-norm layers and the final norm."""
    yield from embeddings(spec)
    yield from layers(spec, ("LayerNorm", "intermediate.LayerNorm"))
    yield from linear("LayerNorm", "stack.norm")


ROBERTA = register(
    Family(
        model_type="roberta",
        recipe="roberta",
        prefix="roberta",
        fields=tuple(fields(VOCAB)),
        body=body,
        tasks=tasks("Roberta", "roberta"),
        ignore=("embeddings.position_ids",),
        only=ONLY,
        joint=(Joint(with_places, places), *JOINTS),
    )
)
XLM_ROBERTA = register(
    replace(
        ROBERTA,
        model_type="xlm-roberta",
        recipe="xlm-roberta",
        fields=tuple(fields(30522)),
        tasks=tasks("XLMRoberta", "roberta"),
    )
)
PRE_NORM = register(
    replace(
        ROBERTA,
        model_type="roberta-prelayernorm",
        recipe="roberta-prelayernorm",
        prefix="roberta_prelayernorm",
        fields=tuple(fields(VOCAB, "stack.final_norm.eps")),
        body=pre_norm_body,
        tasks=tasks("RobertaPreLayerNorm", "roberta_prelayernorm"),
    )
)
