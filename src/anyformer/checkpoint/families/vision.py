"""ViT (arXiv:2010.11929) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families import activations
from anyformer.checkpoint.families.heads import answers, labels, pooler_rows
from anyformer.checkpoint.family import Config, Family, Field, Task, at, register, size
from anyformer.checkpoint.keymap import Row, Step, each, linear, reshape, row
from anyformer.errors import CheckpointError

ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"


def side(value: Any) -> int:
    """The side of a square that is given by one number or by two."""
    sides = set(value) if isinstance(value, (list, tuple)) else {value}
    if len(sides) != 1:
        raise CheckpointError(f"config.json: images and patches must be square here, not {value}")
    return sides.pop()


FIELDS = (
    size("hidden_size", 768, "dim"),
    size("num_hidden_layers", 12, "depth", "stack.depth"),
    size("num_attention_heads", 12, "heads", f"{ATTENTION}.heads"),
    Field("image_size", 224, ("embed.source.image",), "image", side),
    Field("patch_size", 16, ("embed.source.patch",), "patch", side),
    at("num_channels", 3, "embed.source.channels"),
    at("qkv_bias", True, f"{ATTENTION}.bias"),
    at("intermediate_size", 3072, f"{FEED}.hidden"),
    Field("hidden_act", "gelu", (f"{FEED}.act",), None, activations.ours, activations.theirs),
    at("layer_norm_eps", 1e-12, "stack.final_norm.eps", "stack.block.*.norm.eps"),
    at("hidden_dropout_prob", 0.0, "embed.dropout", "stack.block.*.dropout"),
    at("attention_probs_dropout_prob", 0.0, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)


def tiles(channels: int, patch: int) -> Step:
    """A convolution (d, C, p, p) as a linear map of a patch's rows of pixels (d, p·p·C)."""
    return each(
        lambda t: t.permute(0, 2, 3, 1).flatten(1),
        lambda t: t.unflatten(1, (patch, patch, channels)).permute(0, 3, 1, 2),
    )


def embeddings(spec: S.Model) -> Iterator[Row]:
    """Patches, class token and positions."""
    source, place, dim = spec.embed.source, spec.embed.position, spec.dim
    assert isinstance(source, S.Patches) and isinstance(place, S.Learned)
    theirs, rows = "embeddings.patch_embeddings.projection", place.length
    yield row(f"{theirs}.weight", "embed.patch.weight", tiles(source.channels, source.patch))
    yield row(f"{theirs}.bias", "embed.patch.bias")
    yield row("embeddings.cls_token", "embed.cls", reshape((dim,), (1, 1, dim)))
    flat = reshape((rows, dim), (1, rows, dim))
    yield row("embeddings.position_embeddings", "embed.position.weight", flat)


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, pre-norm layers and the final norm."""
    yield from embeddings(spec)
    biased = S.get(spec, f"{ATTENTION}.bias")
    for i in range(spec.stack.depth):
        theirs, ours = f"encoder.layer.{i}", f"stack.blocks.{i}"
        yield from linear(f"{theirs}.layernorm_before", f"{ours}.0.norm")
        for name, short in (("query", "q"), ("key", "k"), ("value", "v")):
            key = f"{theirs}.attention.attention.{name}"
            yield from linear(key, f"{ours}.0.branch.{short}", biased)
        yield from linear(f"{theirs}.attention.output.dense", f"{ours}.0.branch.out")
        yield from linear(f"{theirs}.layernorm_after", f"{ours}.1.norm")
        yield from linear(f"{theirs}.intermediate.dense", f"{ours}.1.branch.up")
        yield from linear(f"{theirs}.output.dense", f"{ours}.1.branch.down")
    yield from linear("layernorm", "stack.norm")


def pooler(_: S.Model, config: Config) -> S.Head:
    """The dense layer on the class token."""
    return S.Pooler(act=activations.ours(config.get("pooler_act") or "tanh"))  # type: ignore[arg-type]


def classes(_: S.Model, config: Config) -> S.Head:
    """Classes of the class token, without the pooler."""
    return S.Classes(count=labels(config), answers=answers(config))  # type: ignore[arg-type]


VIT = register(
    Family(
        model_type="vit",
        recipe="vit",
        prefix="vit",
        fields=FIELDS,
        body=body,
        tasks={
            "base": Task("ViTModel", pooler, pooler_rows),
            "image-classification": Task(
                "ViTForImageClassification",
                classes,
                lambda _: linear("classifier", "head.out"),
            ),
        },
        ignore=("embeddings.mask_token",),
    )
)
