"""Transformer-XL (arXiv:1901.02860) as Hugging Face stored it, up to version 4.

Its memory starts full of zeros that are seen. Where div_val is above 1, rarer words have narrower
vectors; with cutoffs the head gives log-probabilities by bands of words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from anyformer import spec as S
from anyformer.checkpoint.families import decoder, heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register, size
from anyformer.checkpoint.keymap import SLOTS, TRANSPOSE, Row, Step, layers, row, split
from anyformer.errors import CheckpointError

SHRINK = 4
CLAMPED = (f"{ATTENTION}.relative.0.clamp",)
NEAR = (lambda far: far if far > 0 else None, lambda far: far or -1)
FIELDS = (
    *decoder.sizes("d_model n_layer n_head vocab_size d_inner", 1024, 18, 16, 267735, 4096),
    size("mem_len", 1600, "memory", "stack.recurrence"),
    size("d_head", 64, "head_dim", f"{ATTENTION}.head_dim"),
    at("dropout", 0.1, "embed.dropout", "stack.block.*.dropout", f"{FEED}.dropout"),
    at("dropatt", 0.0, f"{ATTENTION}.dropout"),
    at("layer_norm_epsilon", 1e-5, "stack.block.0.norm.eps", "stack.block.1.norm.eps"),
    at("init_std", 0.02, "init.std"),
    decoder.norm_first("pre_lnorm", False),
    Field("clamp_len", 1000, CLAMPED, None, *NEAR),
)
cutoffs = lambda config: tuple(config.get("cutoffs", (20000, 40000, 200000)))  # of rarer words


def with_rest(spec: S.Model, config: Config) -> S.Model:
    """Tables by cutoffs, their scale, the memory of zeros and what is seen of it."""
    width, shrink = config.get("d_embed", 1024), config.get("div_val", SHRINK)
    several, memory = cutoffs(config) if shrink > 1 else (), spec.stack.recurrence
    same = config.get("same_length", True)
    if same and not memory:
        raise CheckpointError("config.json: same_length sees as much as mem_len, which is 0")
    vocab, factor = S.get(spec, "embed.source.vocab"), shrink if several else 1
    source = S.Tokens(vocab=vocab, cutoffs=several, shrink=factor)
    mapped = width != spec.dim or (shrink > 1 and not several)
    changes = {"source": source, "dim": width if mapped else None, "bias": False}
    for name, value in (changes | {"scale": spec.dim**0.5}).items():
        spec = S.override(spec, f"embed.{name}", value)
    spec = S.override(spec, "stack.primed", memory > 0)
    return S.override(spec, f"{ATTENTION}.window", memory if same else None)


def rest(spec: S.Model) -> Config:
    """The fields that say so."""
    head, source, width = spec.head, S.get(spec, "embed.source"), spec.embed.dim
    same = S.get(spec, f"{ATTENTION}.window") is not None
    shrink = SHRINK if width == spec.dim else source.shrink  # a map, though widths are equal
    fields = {"d_embed": width or spec.dim, "div_val": shrink, "same_length": same}
    known = head.cutoffs if isinstance(head, S.Adaptive) else source.cutoffs
    words = known or isinstance(head, S.Adaptive) or shrink > 1
    return fields | ({"cutoffs": list(known)} if words else {})


RELATIVE = "0.branch.relative.0.project"
NAMES = "dec_attn.r_net dec_attn.o_net dec_attn.layer_norm pos_ff.CoreNet.0 pos_ff.CoreNet.3"
NAMES += " pos_ff.layer_norm"


def body(spec: S.Model) -> Iterator[Row]:
    """Tables with their maps, beside the first the frequencies of distances, and the layers."""
    source, steps = S.get(spec, "embed.source"), torch.arange(0.0, spec.dim, 2.0) / spec.dim
    waves = Step(lambda ts: ts[1:], lambda ts: [(1 / 10000**steps).to(ts[0].device), *ts])
    for i in range(len(source.bands)):
        several = (f"embed.bands.{i}.0", f"embed.bands.{i}.1")
        table, project = several if source.cutoffs else ("embed.token", "embed.project")
        key, first = f"word_emb.emb_layers.{i}.weight", ("pos_emb.inv_freq",)
        yield row(key, f"{table}.weight") if i else row((*first, key), f"{table}.weight", waves)
        yield row(f"word_emb.emb_projs.{i}", f"{project}.weight")
    inner = S.get(spec, f"{ATTENTION}.heads") * S.get(spec, f"{ATTENTION}.head_dim")
    for i in range(spec.stack.depth):
        theirs, ours = f"layers.{i}", f"stack.blocks.{i}"
        names = [f"{ours}.0.branch.{name}.weight" for name in "qkv"]
        yield row(f"{theirs}.dec_attn.qkv_net.weight", names, split(inner, inner, inner))
        for short, name in (("w", "content"), ("r", "position")):
            bias = f"{ours}.0.branch.relative.0.{name}_bias"
            yield row(f"{theirs}.dec_attn.r_{short}_bias", bias)
    yield from layers(spec.stack.depth, "layers.{}", NAMES, (RELATIVE, *SLOTS[3:]))


def head_rows(spec: S.Model) -> Iterator[Row]:
    """The first map, the slots of rarer words, and a bias for each table of words."""
    yield row("crit.out_projs.0", "head.project.weight", TRANSPOSE)
    yield from (row(f"crit.cluster_{x}", f"head.slots.{x}") for x in ("weight", "bias"))
    bands = S.get(spec, "embed.source").bands
    parted = split(*(end - low for low, end in bands))
    keys = [f"crit.out_layers.{i}.bias" for i in range(len(bands))]
    yield row(keys, "head.bias", Step(parted.back, parted.there))


LAST = heads.classes_of_last("TransfoXLForSequenceClassification")


def classes(spec: S.Model, config: Config) -> S.Head | None:
    """Classes of the last token; their map is as wide as the tables, so the stream has to be."""
    if config.get("d_embed", 1024) != spec.dim:
        raise CheckpointError(f"config.json: {LAST.architecture} needs d_embed to be d_model")
    return LAST.head(spec, config)


TIED = tuple(f"crit.out_layers.{i}.weight" for i in range(9))
TIED += tuple(f"crit.out_projs.{i}" for i in range(1, 9))
adaptive = lambda _, config: S.Adaptive(cutoffs=cutoffs(config))
TASKS = {"base": Task("TransfoXLModel", lambda *_: None)}
TASKS |= {"causal-lm": Task("TransfoXLLMHeadModel", adaptive, head_rows, TIED)}
TASKS |= {"sequence-classification": replace(LAST, head=classes)}
ONLY = dict.fromkeys(("untie_r", "adaptive", "proj_share_all_but_first"), True)
register(Family(
    "transfo-xl", "transformer-xl", "transformer", FIELDS, body, TASKS,
    only=ONLY | {"attn_type": 0, "tie_word_embeddings": True}, joint=(Joint(with_rest, rest),),
))  # fmt: skip
