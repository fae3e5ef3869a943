"""RoBERTa, XLM-RoBERTa and RoBERTa-PreLayerNorm as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import bert, heads
from anyformer.checkpoint.families.decoder import EPS
from anyformer.checkpoint.family import Config, Family, Joint, Task, at, register, with_defaults
from anyformer.checkpoint.keymap import Row, linear


def with_places(spec: S.Model, config: Config) -> S.Model:
    """The position table's rows: the pad id's, those before it, and the real positions."""
    stated = lambda key, default: default if config.get(key) is None else config[key]
    pad, rows = stated("pad_token_id", 1), stated(bert.LENGTH, 512)
    position = S.Learned(length=rows - pad - 1, offset=pad + 1, skip=pad)
    return S.override(spec, "embed.position", position)


def places(spec: S.Model) -> Config:
    """The fields that say how many rows there are and which id has no place."""
    position = spec.embed.position
    if not isinstance(position, S.Learned) or position.skip is None:
        return {}
    return {bert.LENGTH: position.length + position.offset, "pad_token_id": position.skip}


def tasks(name: str, prefix: str) -> dict[str, Task]:
    """The tasks of one of the families; the head has gelu whatever the layers have."""
    names = ("lm_head", "lm_head.dense", "lm_head.layer_norm")
    pooled = (f"{prefix}.pooler.dense", "classifier")
    return {
        "base": heads.pooler(f"{name}Model"),
        **heads.written(
            heads.masked(f"{name}ForMaskedLM", *names, act="gelu"), f"{name}ForCausalLM"
        ),
        **heads.readers(name, pooled),
        "sequence-classification": heads.classes(name, heads.OWN, early=heads.CLASSIFIER),
        "multiple-choice": heads.choices(name, pooled, dropout=heads.HIDDEN),
    }


def pre_norm_body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, pre-norm layers and the final norm."""
    layers = bert.layers(spec, "LayerNorm", "intermediate.LayerNorm")
    yield from (*bert.embeddings(spec), *layers, *linear("LayerNorm", "stack.norm"))


def family(kind: str, name: str, vocab: int, prefix: str = "roberta") -> Family:
    """One of the families: BERT's fields but for positions."""
    fields = with_defaults(bert.FIELDS, (bert.LENGTH,), vocab_size=vocab)
    return Family(
        kind, kind, prefix, fields, bert.body, tasks(name, prefix),
        ignore=bert.IGNORE, joint=(Joint(with_places, places), *bert.JOINTS),
    )  # fmt: skip


register(family("roberta", "Roberta", 50265))
register(family("xlm-roberta", "XLMRoberta", 30522))
PRE_NORM = family("roberta-prelayernorm", "RobertaPreLayerNorm", 50265, "roberta_prelayernorm")
FIELDS = with_defaults(PRE_NORM.fields, ("layer_norm_eps",))
FIELDS = (*FIELDS, at("layer_norm_eps", 1e-12, "embed.norm.eps", *EPS))
register(replace(PRE_NORM, fields=FIELDS, body=pre_norm_body))
