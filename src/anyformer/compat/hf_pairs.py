"""Two pretrained models joined: one reads, the other writes and looks at what was read."""

from __future__ import annotations

import os

from anyformer import spec as S
from anyformer.checkpoint import load, swap
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.native import Origin
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.model.model import Model, build

WRITES = {"is_decoder": True, "add_cross_attention": True}
WORDS = ("causal-lm", "masked-lm")  # the heads that a decoder can begin with


def joined(kind: str, encoder: str | os.PathLike[str], decoder: str | os.PathLike[str]) -> Model:
    """The pair of a family `kind` made of two folders or hub names; cross-attention is fresh."""
    reads, writes = load(encoder, "base"), _writer(decoder)
    first, second = reads.origin, writes.origin
    assert isinstance(first, Origin)
    assert isinstance(second, Origin)
    family = FAMILIES[kind]
    pair = f"{first.family}-{second.family}"
    task = known_or_raise(pair, family.tasks, f"pair of {kind}", CheckpointError)
    config = {"encoder": first.config, "decoder": second.config | WRITES, "model_type": kind}
    spec = family.spec_of(config, task)
    alone = {"encoder": None, "share_tokens": False, "bridge": False, "start": None, "pad": None}
    bare = spec
    for path, value in alone.items():
        bare = S.override(bare, path, value)
    model = build(spec)
    found = {f"encoder.{key}": value for key, value in reads.state_dict().items()}
    found |= swap(writes, bare).state_dict()
    missing, unexpected = model.load_state_dict(found, strict=False)
    left = [key for key in missing if not key.startswith("bridge.")]
    if left or unexpected:
        raise CheckpointError(f"{encoder} and {decoder} don't make a pair: {left or unexpected}")
    model.origin = Origin(kind, task, config)
    return model.eval()


def _writer(name: str | os.PathLike[str]) -> Model:
    """The model of a folder with a head of words."""
    bare = load(name, "base")
    assert isinstance(bare.origin, Origin)
    tasks = FAMILIES[bare.origin.family].tasks
    both = [task for task in WORDS if task in tasks]
    if not both:
        raise CheckpointError(f"{name} holds a {bare.origin.family} model, which writes no words")
    causal = bool(bare.origin.config.get("is_decoder"))
    return load(name, both[0] if causal or len(both) == 1 else "masked-lm")
