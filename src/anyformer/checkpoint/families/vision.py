"""ViT (arXiv:2010.11929) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import activations, heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, INIT, act, sizes
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register
from anyformer.checkpoint.keymap import Row, Step, each, layers, linear, reshape, row
from anyformer.errors import CheckpointError


def side(value: Any) -> int:
    """The side of a square that is given by one number or by two."""
    sides = set(value) if isinstance(value, (list, tuple)) else {value}
    if len(sides) != 1:
        raise CheckpointError(f"config.json: images and patches must be square here, not {value}")
    return sides.pop()


FIELDS = (
    *sizes("hidden_size num_hidden_layers num_attention_heads", 768, 12, 12),
    Field("image_size", 224, ("embed.source.image",), "image", side),
    Field("patch_size", 16, ("embed.source.patch",), "patch", side),
    at("num_channels", 3, "embed.source.channels"),
    at("qkv_bias", True, f"{ATTENTION}.bias"),
    at("intermediate_size", 3072, f"{FEED}.hidden"),
    act("hidden_act", "gelu"),
    at("layer_norm_eps", 1e-12, "stack.final_norm.eps", "stack.block.*.norm.eps"),
    at("hidden_dropout_prob", 0.0, "embed.dropout", "stack.block.*.dropout"),
    at("attention_probs_dropout_prob", 0.0, f"{ATTENTION}.dropout"),
    INIT,
)
LAYER = " ".join(f"attention.attention.{name}" for name in ("query", "key", "value"))
LAYER += " attention.output.dense layernorm_before intermediate.dense output.dense layernorm_after"


def tiles(channels: int, patch: int) -> Step:
    """A convolution (d, C, p, p) as a linear map of a patch's rows of pixels (d, p·p·C)."""
    back = lambda t: t.unflatten(1, (patch, patch, channels)).permute(0, 3, 1, 2)
    return each(lambda t: t.permute(0, 2, 3, 1).flatten(1), back)


def body(spec: S.Model) -> Iterator[Row]:
    """Patches, class token and positions, pre-norm layers and the final norm."""
    source, place, dim = spec.embed.source, spec.embed.position, spec.dim
    assert isinstance(source, S.Patches) and isinstance(place, S.Learned)
    theirs, table = "embeddings.patch_embeddings.projection", (place.length, dim)
    yield row(f"{theirs}.weight", "embed.patch.weight", tiles(source.channels, source.patch))
    yield row(f"{theirs}.bias", "embed.patch.bias")
    yield row("embeddings.cls_token", "embed.cls", reshape((dim,), (1, 1, dim)))
    yield row(
        "embeddings.position_embeddings", "embed.position.weight", reshape(table, (1, *table))
    )
    yield from layers(spec.stack.depth, "encoder.layer.{}", LAYER)
    yield from linear("layernorm", "stack.norm")


def pooler(_: S.Model, config: Config) -> S.Head:
    """The dense layer on the class token."""
    return S.Pooler(act=activations.ours(config.get("pooler_act") or "tanh"))  # type: ignore[arg-type]


def classes(_: S.Model, config: Config) -> S.Head:
    """Classes of the class token, without the pooler."""
    return S.Classes(**heads.told(config))


def pixels(spec: S.Model, config: Config) -> S.Head:
    """The image again, in squares of another size than the patches if it says so."""
    stride = config.get("encoder_stride", 16)
    return S.Pixels(stride=None if stride == S.get(spec, "embed.source.patch") else stride)


def restoring(spec: S.Model) -> Iterator[Row]:
    """The last map, a convolution there, and the vector of hidden patches."""
    flat = each(lambda t: t.flatten(1), lambda t: t[..., None, None])
    yield row("decoder.0.weight", "head.out.weight", flat)
    yield row("decoder.0.bias", "head.out.bias")
    hidden = reshape((spec.dim,), (1, 1, spec.dim))
    yield row("vit.embeddings.mask_token", "head.mask", hidden)


def stride(spec: S.Model) -> Config:
    """encoder_stride, where there is a head to speak of."""
    head, patch = spec.head, S.get(spec, "embed.source.patch")
    return {"encoder_stride": head.stride or patch} if isinstance(head, S.Pixels) else {}


LAST = heads.maps({"classifier": "head.out"})
TASKS = {
    "base": replace(heads.pooler("ViTModel"), head=pooler),
    "image-classification": Task("ViTForImageClassification", classes, LAST),
    "masked-image": Task("ViTForMaskedImageModeling", pixels, restoring),
}
register(Family(
    "vit", "vit", "vit", FIELDS, body, TASKS, ignore=("embeddings.mask_token",),
    joint=(Joint(lambda spec, _: spec, stride),),
))  # fmt: skip
