"""Encoder and decoder of two families (arXiv:1907.12461) as Hugging Face stores them.

config.json holds the two of the parts. A task is named after them, such as bert-gpt2. An encoder
keeps its pooler for the file's sake; nothing reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families.gpt import conv
from anyformer.checkpoint.family import FAMILIES, Config, Family, Task, no_rows, register
from anyformer.checkpoint.keymap import TRANSPOSE, Row, linear, row, split
from anyformer.errors import CheckpointError
from anyformer.recipes.pair import joined

WRITES = {"is_decoder": True, "add_cross_attention": True}
READS = {"is_decoder": False, "add_cross_attention": False}


def bert_cross(dim: int, layer: int) -> Iterator[Row]:
    """The cross-attention of a BERT layer."""
    theirs, ours = f"bert.encoder.layer.{layer}.crossattention", f"stack.blocks.{layer}.1"
    for name, short in (("query", "q"), ("key", "k"), ("value", "v")):
        yield from linear(f"{theirs}.self.{name}", f"{ours}.branch.{short}")
    yield from linear(f"{theirs}.output.dense", f"{ours}.branch.out")
    yield from linear(f"{theirs}.output.LayerNorm", f"{ours}.norm")


def gpt2_cross(dim: int, layer: int) -> Iterator[Row]:
    """The cross-attention of a GPT-2 layer, with k and v in one matrix."""
    theirs, ours = f"transformer.h.{layer}", f"stack.blocks.{layer}.1"
    yield from linear(f"{theirs}.ln_cross_attn", f"{ours}.norm")
    yield from conv(f"{theirs}.crossattention.q_attn", f"{ours}.branch.q")
    both, names = f"{theirs}.crossattention.c_attn", (f"{ours}.branch.k", f"{ours}.branch.v")
    weights, biases = [f"{n}.weight" for n in names], [f"{n}.bias" for n in names]
    yield row(f"{both}.weight", weights, TRANSPOSE, split(dim, dim))
    yield row(f"{both}.bias", biases, split(dim, dim))
    yield from conv(f"{theirs}.crossattention.c_proj", f"{ours}.branch.out")


Cross = Callable[[int, int], Iterator[Row]]
DECODERS: dict[str, tuple[str, Cross]] = {  # model_type -> task, rows of a cross-attention
    "bert": ("masked-lm", bert_cross),
    "gpt2": ("causal-lm", gpt2_cross),
}


def led(rows: list[Row], theirs: str, ours: str = "") -> Iterator[Row]:
    """Rows with something in front of all keys."""
    for item in rows:
        before = lambda keys, lead: tuple(lead + key for key in keys)
        yield Row(before(item.theirs, theirs), before(item.ours, ours), item.steps)


def later(item: Row) -> Row:
    """A row of a layer of two sublayers, where a third stands between them."""
    move = lambda key: re.sub(r"^(stack\.blocks\.\d+)\.1\.", r"\1.2.", key)
    return Row(item.theirs, tuple(map(move, item.ours)), item.steps)


@dataclass(frozen=True)
class Pair(Family):
    """A model_type whose config.json holds two others."""

    def task(self, name: str | None, config: Config) -> str:
        """The two parts' names."""
        parts = [config.get(part, {}).get("model_type", "bert") for part in ("encoder", "decoder")]
        return super().task(name or "-".join(map(str, parts)), config)

    def spec_of(self, config: Config, task: str) -> S.Model:
        """The two specs, joined."""
        encoder, decoder = (FAMILIES[part] for part in task.split("-"))
        reads = encoder.spec_of(config.get("encoder", {}), encoder.base)
        writes = decoder.spec_of(config.get("decoder", {}) | READS, DECODERS[task.split("-")[1]][0])
        if reads.dim != writes.dim:
            raise CheckpointError(
                f"config.json: an encoder of width {reads.dim} for a decoder of width "
                f"{writes.dim} needs a projection, which has no part here yet"
            )
        spec = joined(reads, writes)
        for path, key in (("start", "decoder_start_token_id"), ("pad", "pad_token_id")):
            spec = S.override(spec, path, config.get(key))
        return S.check(spec)

    def config_of(self, spec: S.Model, task: str, kept: Config) -> Config:
        """Both parts' fields inside what was kept."""
        encoder, decoder = (FAMILIES[part] for part in task.split("-"))
        assert spec.encoder is not None
        old, bare = kept.get("encoder", {}), alone(spec, task)
        reads = encoder.config_of(spec.encoder, encoder.base, old)
        old_writes: dict[str, Any] = kept.get("decoder", {}) | READS
        writes = decoder.config_of(bare, DECODERS[task.split("-")[1]][0], old_writes) | WRITES
        ids = {"decoder_start_token_id": spec.start, "pad_token_id": spec.pad}
        parts = {"encoder": reads, "decoder": writes, "model_type": self.model_type}
        named = {"architectures": [self.tasks[task].architecture], "is_encoder_decoder": True}
        return kept | ids | parts | named

    def rows(self, spec: S.Model, task: str) -> list[Row]:
        """The rows of both parts and of the cross-attentions."""
        first, second = task.split("-")
        name, cross = DECODERS[second]
        assert spec.encoder is not None
        reads = FAMILIES[first].rows(spec.encoder, FAMILIES[first].base)
        writes = [later(item) for item in FAMILIES[second].rows(alone(spec, task), name)]
        for i in range(spec.stack.depth):
            writes += cross(spec.dim, i)
        return [*led(reads, "encoder.", "encoder."), *led(writes, "decoder.")]


def alone(spec: S.Model, task: str) -> S.Model:
    """The decoder without cross-attention, as its own family knows it."""
    second = task.split("-")[1]
    own, _, *rest = spec.stack.block
    causal = FAMILIES[second].spec_of({}, DECODERS[second][0]).stack.block[0].branch.causal  # type: ignore[union-attr]
    block = (S.override(own, "branch.causal", causal), *rest)
    bare = S.override(S.override(spec, "stack.block", block), "encoder", None)
    return S.override(S.override(bare, "start", None), "pad", None)


def pair(model_type: str, architecture: str, encoders: tuple[str, ...]) -> Pair:
    """A pair of any of the encoders with any decoder."""
    tasks: dict[str, Task] = {}
    for first in encoders:
        for second, (name, _) in DECODERS.items():
            tied = tuple(f"decoder.{key}" for key in FAMILIES[second].tasks[name].tied)
            tasks[f"{first}-{second}"] = Task(architecture, lambda *_: None, tied=tied)
    ignore = ("embeddings.position_ids", ".attn.bias", ".attn.masked_bias")
    base = next(iter(tasks))
    return Pair(model_type, "bert2bert", "", (), no_rows, tasks, base, ignore)


TEXT = register(pair("encoder-decoder", "EncoderDecoderModel", ("bert", "roberta")))
VISION = register(pair("vision-encoder-decoder", "VisionEncoderDecoderModel", ("vit",)))
