"""Encoder and decoder of two families (arXiv:1907.12461) as Hugging Face stores them.

config.json holds the two of the parts. A task is named after them, such as bert-gpt2. An encoder
keeps its pooler for the file's sake; nothing reads it. Where the two have unlike widths, a map
stands between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from anyformer import spec as S
from anyformer.checkpoint.families import electra, gpt, roberta  # they register
from anyformer.checkpoint.family import FAMILIES, Config, Family, Task, changed, no_rows, register
from anyformer.checkpoint.keymap import TRANSPOSE, Row, fused, linear, split
from anyformer.errors import CheckpointError
from anyformer.recipes.pair import joined

assert electra and gpt and roberta
WRITES = {"is_decoder": True, "add_cross_attention": True}
READS = {"is_decoder": False, "add_cross_attention": False}
ENCODERS = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "albert")
DECODERS = ("bert", "roberta", "xlm-roberta", "electra", "gpt2")
ALONE = ("gpt2",)  # families whose cross-attention is known here alone
PARTS = {f"{a}-{b}": (a, b) for a in (*ENCODERS, "vit") for b in DECODERS}  # by task


def gpt2_cross(dim: int, layer: int) -> Iterator[Row]:
    """The cross-attention of a GPT-2 layer, with k and v in one matrix."""
    theirs, ours = f"transformer.h.{layer}", f"stack.blocks.{layer}.1"
    inner, both = f"{theirs}.crossattention", (f"{ours}.branch.k", f"{ours}.branch.v")
    yield from linear(f"{theirs}.ln_cross_attn", f"{ours}.norm")
    yield from fused(f"{inner}.q_attn", (f"{ours}.branch.q",), TRANSPOSE)
    yield from fused(f"{inner}.c_attn", both, TRANSPOSE, split(dim, dim))
    yield from fused(f"{inner}.c_proj", (f"{ours}.branch.out",), TRANSPOSE)


def led(rows: list[Row], theirs: str, ours: str = "") -> Iterator[Row]:
    """Rows with something in front of all keys."""
    before = lambda keys, lead: tuple(lead + key for key in keys)
    return (Row(before(r.theirs, theirs), before(r.ours, ours), r.steps) for r in rows)


def later(item: Row) -> Row:
    """A row of a layer of two sublayers, where a third stands between them."""
    move = lambda key: re.sub(r"^(stack\.blocks\.\d+)\.1\.", r"\1.2.", key)
    return replace(item, ours=tuple(map(move, item.ours)))


@dataclass(frozen=True)
class Pair(Family):
    """A model_type whose config.json holds two others."""

    def task(self, name: str | None, config: Config) -> str:
        """The two parts' names."""
        parts = [config.get(part, {}).get("model_type", "bert") for part in ("encoder", "decoder")]
        return super().task(name or "-".join(map(str, parts)), config)

    def spec_of(self, config: Config, task: str) -> S.Model:
        """The two specs, joined."""
        encoder, decoder = (FAMILIES[part] for part in PARTS[task])
        inner: Config = config.get("decoder", {})
        if inner.get("cross_attention_hidden_size") is not None:
            raise CheckpointError("config.json: decoder.cross_attention_hidden_size has no part")
        reads = encoder.spec_of(config.get("encoder", {}), encoder.base)
        if decoder.model_type in ALONE:
            spec = joined(reads, decoder.spec_of(inner | READS, "causal-lm"))
        else:
            writes = decoder.spec_of(inner | WRITES, "causal-lm")
            spec = changed(writes, {"stack.block.1.branch.optional": False, "encoder": reads})
        ids = {"start": config.get("decoder_start_token_id"), "pad": config.get("pad_token_id")}
        return S.check(changed(spec, {"bridge": reads.dim != spec.dim, **ids}))

    def config_of(self, spec: S.Model, task: str, kept: Config) -> Config:
        """Both parts' fields inside what was kept."""
        encoder, decoder = (FAMILIES[part] for part in PARTS[task])
        assert spec.encoder is not None
        reads = encoder.config_of(spec.encoder, encoder.base, kept.get("encoder", {}))
        old = kept.get("decoder", {}) | (READS if decoder.model_type in ALONE else {})
        writes = decoder.config_of(alone(spec, task), "causal-lm", old) | WRITES
        ids = {"decoder_start_token_id": spec.start, "pad_token_id": spec.pad}
        parts = {"encoder": reads, "decoder": writes, "model_type": self.model_type}
        named = {"architectures": [self.tasks[task].architecture], "is_encoder_decoder": True}
        return kept | ids | parts | named

    def rows(self, spec: S.Model, task: str) -> list[Row]:
        """The rows of both parts, of the cross-attentions and of the map between them."""
        encoder, decoder = (FAMILIES[part] for part in PARTS[task])
        assert spec.encoder is not None
        reads = encoder.rows(spec.encoder, encoder.base)
        writes = decoder.rows(alone(spec, task), "causal-lm")
        if decoder.model_type in ALONE:
            writes = [later(item) for item in writes]
            for i in range(spec.stack.depth):
                writes += gpt2_cross(spec.dim, i)
        parts = (*led(reads, "encoder.", "encoder."), *led(writes, "decoder."))
        return [*parts, *linear("enc_to_dec_proj", "bridge")]


def alone(spec: S.Model, task: str) -> S.Model:
    """The decoder as its own family knows it, with a cross-attention or without."""
    own, cross, *rest = spec.stack.block
    between = () if PARTS[task][1] in ALONE else (S.override(cross, "branch.optional", True),)
    bare = S.override(spec, "stack.block", (own, *between, *rest))
    return replace(bare, encoder=None, bridge=False, start=None, pad=None)


def pair(model_type: str, architecture: str, encoders: tuple[str, ...]) -> Pair:
    """A pair of any of the encoders with any decoder."""
    tasks: dict[str, Task] = {}
    for task, (first, second) in PARTS.items():
        if first in encoders:
            own = FAMILIES[second].tasks["causal-lm"]
            rows = lambda spec, own=own: led([*own.rows(spec)], "decoder.")  # of unread keys
            tied = tuple(f"decoder.{key}" for key in own.tied)
            older = {f"decoder.{key}": f"decoder.{old}" for key, old in own.older.items()}
            tasks[task] = Task(architecture, lambda *_: None, rows, tied, older=older)
    ignore = ("embeddings.position_ids", ".attn.bias", ".attn.masked_bias")
    return Pair(model_type, "bert2bert", "", (), no_rows, tasks, next(iter(tasks)), ignore)


register(pair("encoder-decoder", "EncoderDecoderModel", ENCODERS))
register(pair("vision-encoder-decoder", "VisionEncoderDecoderModel", ("vit",)))
