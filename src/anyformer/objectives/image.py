"""Images: arrays or files as a model's pixels, their classes, and texts that tell of them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.model import Model
from anyformer.objectives.base import Example
from anyformer.objectives.classify import Classes, OfClasses
from anyformer.objectives.common import Plan, check_head, check_pair, shifted
from anyformer.objectives.heads import head_for
from anyformer.objectives.task import (
    Answer,
    Record,
    check_count,
    field_of,
    on_device,
    text_of,
    told,
)
from anyformer.objectives.to_text import Written, writer_of
from anyformer.spec.node import Above, Positive, Rate, node


@dataclass(frozen=True)
class Pictures:
    """Images of records as pixels (C, H, W) of the size and scale that a model reads."""

    source: S.Patches
    white: float  # what integers are divided by
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, record: Record, name: str) -> np.ndarray:
        """The pixels of a record's image: an array, nested lists, a file's path or its bytes."""
        array = _array(field_of(record, name), record)
        scaled = array.astype(np.float32) / (1.0 if array.dtype.kind == "f" else self.white)
        pixels = torch.from_numpy(_channels_first(scaled, self.source.channels, record))[None]
        size = (self.source.image, self.source.image)
        if tuple(pixels.shape[2:]) != size:
            pixels = F.interpolate(pixels, size, mode="bilinear", antialias=True)
        mean, std = (np.array(v, np.float32).reshape(-1, 1, 1) for v in (self.mean, self.std))
        return (pixels[0].numpy() - mean) / std


def pictures_of(spec: S.Model, plan: Any) -> Pictures:
    """How images are read for a model of patches."""
    source = spec.embed.source
    if not isinstance(source, S.Patches):
        raise InputError("this objective is about images, and the model doesn't read patches")
    for name, value in (("mean", plan.mean), ("std", plan.std)):
        if len(value) not in (1, source.channels):
            raise InputError(f"{name}={value}: give one number, or one for each channel")
    if not all(plan.std):
        raise InputError(f"std={plan.std}: pixels can't be divided by 0")
    return Pictures(source, plan.white, plan.mean, plan.std)


@node
class ImageClassification(Plan):
    """A label for each image (ViT, arXiv:2010.11929)."""

    labels: tuple[str, ...] = ()  # their names, in the order of the logits
    image: str = "image"  # the fields of a record
    label: str = "label"
    white: Above = 255.0  # the value of white in images of integers; floats are taken as they are
    mean: tuple[float, ...] = (0.5,)  # of all channels, or of each: pixels are (x - mean) / std
    std: tuple[float, ...] = (0.5,)
    flip: Rate = 0.0  # share of the images of training that are mirrored
    smoothing: Rate = 0.0  # share of the target that all labels get alike

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head of as many classes."""
        return head_for("image-classification", spec, max(1, len(self.labels)))

    def bind(self, tokenizer: Tokenizer | None, spec: S.Model) -> ImageClasses:
        """The objective at work; it needs no tokenizer."""
        check_head(spec, self, S.Classes)
        check_count(spec.head, self.labels)
        classes = Classes(self.labels, "one", self.label, self.smoothing)
        return ImageClasses(classes, self, pictures_of(spec, self))


@dataclass
class ImageClasses(OfClasses):
    """Images with their labels."""

    classes: Classes
    plan: ImageClassification
    pictures: Pictures

    def features(self, record: Record) -> list[Example]:
        """The pixels of a record's image."""
        return [{"pixel_values": self.pictures(record, self.plan.image)}]

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """An image, mirrored where the draw says so, and its label."""
        found = super().example(samples, index, rng)
        if rng.random() < self.plan.flip:
            found["pixel_values"] = np.ascontiguousarray(found["pixel_values"][..., ::-1])
        return found


@node
class Captioning(Plan):
    """A text for each image, by an encoder of patches and a decoder of tokens (1411.4555)."""

    image: str = "image"  # the fields of a record
    target: str = "text"
    white: Above = 255.0  # the value of white in images of integers; floats are taken as they are
    mean: tuple[float, ...] = (0.5,)  # of all channels, or of each: pixels are (x - mean) / std
    std: tuple[float, ...] = (0.5,)
    answer: Positive | None = None  # tokens of a text at most; None: the model's positions
    smoothing: Rate = 0.0  # share of the target that all tokens get alike
    metric: Literal["bleu", "rouge"] = "bleu"

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head over its vocabulary."""
        return head_for("captioning", spec)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Captions:
        """The objective at work."""
        check_pair(spec, self)
        check_head(spec, self, S.Vocabulary, S.Adaptive)
        source = spec.embed.source
        if not isinstance(source, S.Tokens) or source.vocab < len(tokenizer):
            raise InputError(f"the decoder needs a vocabulary of {len(tokenizer)} tokens or more")
        assert spec.encoder is not None
        writer = writer_of(tokenizer, spec, self.answer, None)
        pictures = pictures_of(spec.encoder, self)
        return Captions(writer, self, pictures)


@dataclass
class Captions(Written):
    """Images for the encoder, texts for the decoder."""

    plan: Captioning
    pictures: Pictures

    def features(self, record: Record) -> list[Example]:
        """The pixels of a record's image."""
        return [{"pixel_values": self.pictures(record, self.plan.image)}]

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """An image and its text; of several texts a random one."""
        record = samples[index]
        texts = field_of(record, self.plan.target)
        if isinstance(texts, list | tuple) and texts:
            record = {**record, self.plan.target: texts[int(rng.integers(len(texts)))]}
        labels = self.writer.ids(text_of(record, self.plan.target))
        read = {"decoder_input_ids": shifted(labels, self.writer.start), "labels": labels}
        return {**self.features(record)[0], **read}

    def answer(self, model: Model, examples: Sequence[Example]) -> list[Answer]:
        """The ids that the model writes."""
        batch = on_device(self.collate(examples), model)
        return [{"ids": row} for row in self.writer.generate(model, batch, len(examples))]


def _array(value: Any, record: Record) -> np.ndarray:
    """An image as numbers, whatever it is given as."""
    if isinstance(value, Mapping):  # as Parquet files of images have it
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str | Path):
        file = Path(value)
        if not file.is_file():
            raise InputError(f"{told(record)}: there is no image {file}")
        if file.suffix == ".npy":
            return np.load(file, allow_pickle=False)
        value = file.read_bytes()
    if isinstance(value, bytes):
        return _opened(value, record)
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.array(None)
    if array.dtype.kind not in "uif" or not array.size:
        raise InputError(f"{told(record)}: an image must be numbers, a file or its bytes")
    return array


def _opened(content: bytes, record: Record) -> np.ndarray:
    try:
        from PIL import Image, UnidentifiedImageError  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError("image files need Pillow: pip install pillow") from error
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.array(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"{told(record)}: its image can't be read: {error}") from error


def _channels_first(array: np.ndarray, channels: int, record: Record) -> np.ndarray:
    """An image (H, W), (H, W, C), (C, H, W) or a flat square as (C, H, W), grey as all colours."""
    side = round(array.size**0.5)
    if array.ndim == 1 and side * side == array.size:
        array = array.reshape(side, side)
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and array.shape[0] not in (1, channels):
        array = array.transpose(2, 0, 1)
    if array.ndim == 3 and array.shape[0] == 1 and channels > 1:
        array = np.repeat(array, channels, 0)
    if array.ndim == 3 and array.shape[0] == channels + 1:
        array = array[:channels]  # without transparency
    if array.ndim != 3 or array.shape[0] != channels:
        raise InputError(
            f"{told(record)}: its image has the shape {array.shape}, and the model reads "
            f"{channels} channels: give (height, width) or (height, width, {channels})"
        )
    return np.ascontiguousarray(array)
