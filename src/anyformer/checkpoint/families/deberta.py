"""DeBERTa (arXiv:2006.03654), its v2 and v3 (arXiv:2111.09543) as Hugging Face stores them.

`second` stands for v2, which v3 is too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint import family as F
from anyformer.checkpoint import keymap
from anyformer.checkpoint.families import activations, bert, heads
from anyformer.checkpoint.families.bert import ATTENTION, LENGTH
from anyformer.checkpoint.family import Config, Family, Joint, Task, changed, register
from anyformer.checkpoint.keymap import TRANSPOSE, Row, by_head, linear, row
from anyformer.errors import CheckpointError

TERMS, HEADS = ("c2p", "p2c"), f"{ATTENTION}.heads"
PLACES = "embeddings.position_embeddings.weight"
MODERN, LEGACY = "lm_predictions.lm_head", "cls.predictions"
# what fields say that are not there or null; those of one version mean nothing to the other
BOTH: Config = {LENGTH: 512, "position_biased_input": True, "relative_attention": False,
                "pos_att_type": (), "max_relative_positions": -1, "embedding_size": None,
                "legacy": True}  # fmt: skip
FIRST: Config = {"talking_head": False}
SECOND: Config = {"position_buckets": -1, "share_att_key": False, "norm_rel_ebd": "none",
                  "conv_kernel_size": 0, "conv_act": "tanh", "conv_groups": 1}  # fmt: skip
V2 = {"hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
      "intermediate_size": 6144, "vocab_size": 128100}  # fmt: skip
OTHER = ("dense", "LayerNorm", "classifier")  # of v3's head for replaced tokens
LAYER = "attention.output.dense attention.output.LayerNorm intermediate.dense output.dense"
LAYER += " output.LayerNorm"
ENDS = {"embeddings.embed_proj": "embed.project", "encoder.conv.conv": "stack.convolution",
        "encoder.conv.LayerNorm": "stack.convolution.norm",
        "encoder.LayerNorm": "stack.distances.norm",
        "encoder.rel_embeddings": "stack.distances.table"}  # fmt: skip
UNREAD = tuple(f"mask_predictions.{name}.{kind}" for name in OTHER for kind in ("weight", "bias"))


def said(config: Config, second: bool = True) -> Config:
    """The fields that a version has; what stands between bars as a list."""
    known = BOTH | (SECOND if second else FIRST)
    found = FIRST | SECOND | known | {k: config[k] for k in known if config.get(k) is not None}
    parts = lambda x: [p.strip() for p in x.lower().split("|")] if isinstance(x, str) else [*x]
    return found | {key: parts(found[key]) for key in ("pos_att_type", "norm_rel_ebd")}


def refuse(c: Config) -> None:
    """Raise where fields say what has no part here, or nothing together."""
    named, relative = c["pos_att_type"], c["relative_attention"]
    for why, wrong in {
        f"pos_att_type={named} is not of {TERMS}": sorted(named) != sorted({*named} & {*TERMS}),
        "relative_attention needs a pos_att_type": relative and not named,
        "talking_head of relative scores has no part here": relative and c["talking_head"],
        "norm_rel_ebd needs relative_attention": "layer_norm" in c["norm_rel_ebd"] and not relative,
    }.items():
        if wrong:
            raise CheckpointError(f"config.json: {why}")


def with_parts(spec: S.Model, config: Config, second: bool) -> S.Model:
    """Positions, widths and what is in the stack, by all the fields that say so."""
    c, norm, drop = said(config, second), spec.embed.norm, spec.embed.dropout
    named, width, size = c["pos_att_type"], c["embedding_size"], spec.dim // S.get(spec, HEADS)
    refuse(c)
    table = apart = scale = conv = None
    if c["conv_kernel_size"] > 0:
        shape = {"kernel": c["conv_kernel_size"], "groups": c["conv_groups"], "dropout": drop}
        act: Any = activations.ours(c["conv_act"])
        conv = S.Convolution(**shape, act=act, norm=norm)
    if c["relative_attention"]:
        reach, buckets = max(c["max_relative_positions"], 0), max(c["position_buckets"], 0)
        normed = norm if "layer_norm" in c["norm_rel_ebd"] else None
        table = S.Distances(reach=reach or c[LENGTH], buckets=buckets or None, norm=normed)
        uses = {"shared": c["share_att_key"], "bias": second, "dropout": drop}
        apart = S.Disentangled(**{term: term in named for term in TERMS}, **uses)
    elif named:
        scale = (size * (1 + len(named))) ** -0.5  # it counts terms that are not there
    place = S.Learned(length=c[LENGTH]) if c["position_biased_input"] else None
    width, talk = None if width == spec.dim else width, "both" if c["talking_head"] else "no"
    own = {"disentangled": apart, "scale": scale, "talking": talk}
    new = {f"{ATTENTION}.{key}": value for key, value in own.items()}
    new |= {"stack.distances": table, "stack.convolution": conv, "embed.position": place}
    new |= {"embed.dim": width, "embed.bias": width is None, "embed.wide_norm": width is not None}
    return changed(spec, new)


def parts(spec: S.Model, second: bool) -> Config:
    """The fields that say all that."""
    a, table, conv = S.get(spec, ATTENTION), spec.stack.distances, spec.stack.convolution
    apart, place, head = a.disentangled, spec.embed.position, spec.head
    count = 0 if a.scale is None else round(a.scale**-2 * a.heads / spec.dim) - 1
    named = [*TERMS[:count]] if apart is None else [t for t in TERMS if S.get(apart, t)]
    found: Config = {"relative_attention": table is not None, "pos_att_type": named}
    found |= {"position_biased_input": place is not None, "talking_head": a.talking == "both"}
    found |= {"embedding_size": spec.embed.dim or spec.dim}
    found |= {"norm_rel_ebd": "layer_norm" if table and table.norm else "none"}
    found |= {LENGTH: place.length} if isinstance(place, S.Learned) else {}
    if isinstance(head, S.Vocabulary):
        found |= {"legacy": not head.wide} | ({LENGTH: head.enhanced} if head.enhanced else {})
    if table is not None:
        found |= {"max_relative_positions": table.reach, "position_buckets": table.buckets or -1}
    found |= {"share_att_key": apart is not None and apart.shared}
    found |= {"conv_kernel_size": 0 if conv is None else conv.kernel}
    if conv is not None:
        found |= {"conv_act": activations.theirs(conv.act), "conv_groups": conv.groups}
    return {key: found[key] for key in BOTH | (SECOND if second else FIRST) if key in found}


def layers(spec: S.Model, second: bool) -> Iterator[Row]:
    """BERT's but for the maps: v1 has one for words, head by head, without a bias of keys."""
    words = [f"attention.self.{x}_proj" if second else "-" for x in ("query", "key", "value")]
    yield from keymap.layers(spec.stack.depth, "encoder.layer.{}", " ".join((*words, LAYER)))
    for i in range(spec.stack.depth):
        theirs, ours = f"encoder.layer.{i}.attention.self.", f"stack.blocks.{i}.0.branch."
        query, key = ("query_proj", "key_proj") if second else ("q_proj", "proj")
        yield from linear(f"{theirs}pos_{query}", f"{ours}disentangled.q")
        yield from linear(f"{theirs}pos_{key}", f"{ours}disentangled.k")
        if not second:
            fused = [f"{ours}{short}.weight" for short in "qkv"]
            yield row(f"{theirs}in_proj.weight", fused, by_head(S.get(spec, HEADS)))
            yield from (row(f"{theirs}{short}_bias", f"{ours}{short}.bias") for short in "qv")
            yield row(f"{theirs}head_logits_proj.weight", f"{ours}talk_pre", TRANSPOSE)
            yield row(f"{theirs}head_weights_proj.weight", f"{ours}talk_post", TRANSPOSE)


def body(spec: S.Model, second: bool) -> Iterator[Row]:
    """Embeddings, layers, the table by distance, the convolution."""
    yield from (*bert.embeddings(spec), *layers(spec, second), *heads.maps(ENDS)(spec))


def masked_head(spec: S.Model, config: Config, enhanced: bool = False) -> S.Head:
    """BERT's, or that of the published files, whose dense layer keeps the width.

    With `enhanced` it is the latter, and the last layer is asked by positions.
    """
    if enhanced and spec.embed.dim is not None:
        raise CheckpointError("config.json: the mask decoder needs embedding_size = hidden_size")
    rows = said(config)[LENGTH] if enhanced and spec.embed.position is None else None
    wide = enhanced or not said(config)["legacy"]
    ties = {"tie_word_embeddings": True} if wide else {}  # whatever config.json says, as there
    return changed(bert.MASKED.head(spec, config | ties), {"wide": wide, "enhanced": rows})


def masked_rows(spec: S.Model, enhanced: bool = False) -> Iterator[Row]:
    """The prediction head, by both of its names where a spec has none, and its positions."""
    wide = spec.head.wide if isinstance(spec.head, S.Vocabulary) else None
    for item in bert.MASKED.rows(spec):
        modern = item.theirs[0].replace("transform.", "").replace(LEGACY, MODERN)
        yield from [item] * (wide is not True) + [row(modern, item.ours)] * (wide is not False)
    if enhanced:
        yield row(f"deberta.{PLACES}", "head.place.weight")


def settled(config: Config, weights: F.Weights) -> Config:
    """The published files have the head that `legacy` hides from transformers."""
    modern, legacy = f"{MODERN}.dense.weight", f"{LEGACY}.transform.dense.weight"
    return config | {"legacy": False} if modern in weights and legacy not in weights else config


def pooled(spec: S.Model, config: Config, **more: Any) -> dict[str, Any]:
    """The pooler of the first token, and more."""
    early, late = (
        heads.rate("pooler_dropout", default=0.0),
        heads.rate("cls_dropout", "hidden_dropout_prob"),
    )
    more |= {"act": activations.ours(config.get("pooler_hidden_act") or "gelu")}
    return {"hidden": spec.dim, "pool_dropout": early(config), "dropout": late(config), **more}


def tasks(name: str, second: bool) -> dict[str, Task]:
    """All heads; the table by position of a published file is for a mask decoder alone."""
    maps = heads.two(("pooler.dense", "classifier"))
    classes = lambda s, c: S.Classes(**pooled(s, c, **heads.told(c)))
    choices = lambda s, c: S.Choices(**pooled(s, c))
    asked = partial(masked_head, enhanced=True), partial(masked_rows, enhanced=True)
    found = {
        "base": Task(f"{name}Model", lambda *_: None, tied=(PLACES,)),
        "masked-lm": replace(
            bert.MASKED, architecture=f"{name}ForMaskedLM", head=masked_head, rows=masked_rows
        ),
        "enhanced-masked-lm": Task(f"{name}ForEnhancedMaskedLM", *asked),
        "sequence-classification": Task(f"{name}ForSequenceClassification", classes, maps),
        "token-classification": heads.per_token(
            f"{name}ForTokenClassification", dropout=heads.HIDDEN
        ),
        "question-answering": heads.span(f"{name}ForQuestionAnswering"),
    }
    more = {"multiple-choice": Task(f"{name}ForMultipleChoice", choices, maps)}
    return found | (more if second else {})


def family(kind: str, name: str, second: bool, **defaults: Any) -> Family:
    """BERT's fields but for the length, which a joint writes, with defaults of their own."""
    defaults |= {"type_vocab_size": 0, "layer_norm_eps": 1e-7}
    fields = (
        *F.with_defaults(bert.FIELDS, (LENGTH,), **defaults),
        F.Field(LENGTH, 512, (), "length"),
    )
    joint = Joint(partial(with_parts, second=second), partial(parts, second=second))
    return Family(
        kind, kind, "deberta", fields, partial(body, second=second), tasks(name, second),
        ignore=(*bert.IGNORE, *UNREAD), joint=(joint, bert.JOINTS[-1]), settle=settled,
    )  # fmt: skip


register(family("deberta", "Deberta", second=False, vocab_size=50265))
register(family("deberta-v2", "DebertaV2", second=True, **V2))
