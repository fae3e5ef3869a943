"""The class of an image."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import Example
from anyformer.objectives.image import ImageClassification, pictures_of
from anyformer.tasks.answer import each
from anyformer.tasks.base import Answer, Job, Reading, Record
from anyformer.tasks.text import ClassifyOptions, classes

WEIGHT = 1 << 15  # of an image in a window, which holds few of them


class ImageJob(Job):
    """A task whose rows are images."""

    fields = ("image",)
    images = True
    kind: type = ImageClassification  # the objective that says how pixels are scaled

    def prepare(self) -> None:
        """Find out how images become pixels."""
        spec = self.model.spec.encoder or self.model.spec
        plan = self.opened.plan_of(self.kind)
        if plan is not self.opened.plan:
            for name, value in self.opened.pixels.items():
                plan = S.override(plan, name, value)
        self.same = {"image": plan.image}
        self.plan, self.pictures = plan, pictures_of(spec, plan)

    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """The pixels of each image."""
        return each(records, self._read)

    def _read(self, record: Record) -> Reading:
        return Reading(
            [{"pixel_values": self.pictures({"image": plain(record["image"])}, "image")}]
        )

    def size(self, row: Example) -> int:
        """The patches of an image."""
        source = self.pictures.source
        return (source.image // source.patch) ** 2

    def weight(self, record: Record) -> int:
        """Much more than a text."""
        return WEIGHT


def plain(image: Any) -> Any:
    """An image as a file's name, bytes or an array, whatever library it comes from."""
    pillow = sys.modules.get("PIL.Image")  # there where an image of it is
    if pillow is not None and isinstance(image, pillow.Image):
        return np.array(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return image.cpu().numpy() if isinstance(image, torch.Tensor) else image


class ClassifyImage(ImageJob):
    """The class of an image (arXiv:2010.11929)."""

    Options = ClassifyOptions

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """The logits of each image (C,)."""
        logits = self.ask(rows).logits.float().cpu().numpy()
        return [{"logits": one} for one in logits]

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """{"label", "score"}, or several of them."""
        head = self.model.spec.head
        assert isinstance(head, S.Classes)
        return classes(answers[0]["logits"], self.opened.labels, head, self.options)
