"""The likeliest tokens in place of masks.

Letters: B rows, N positions, M masks, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import Example, inputs
from anyformer.objectives.task import on_device
from anyformer.tasks.base import Answer, Options, Reading, Record, body_of, positive
from anyformer.tasks.text import Found, TextJob


@dataclass(frozen=True, kw_only=True)
class FillOptions(Options):
    """How many tokens are told for a mask."""

    top: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "top")


class FillMask(TextJob):
    """The likeliest tokens in place of each mask."""

    Options = FillOptions

    def prepare(self) -> None:
        """Part the head from the body where masks alone can be asked."""
        super().prepare()
        (self.mask,) = self.opened.tokenizer.need("mask")
        self.whole, head = self.model, self.model.spec.head
        self.parted = isinstance(head, S.Vocabulary) and head.enhanced is None
        if self.parted:
            self.model = body_of(self.model)

    def reading(self, record: Record, found: Found) -> Reading:
        """One row, and where its masks are."""
        row = self.row(self.fitting(record, found))
        masks = np.flatnonzero(row["input_ids"] == self.mask)
        if not len(masks):
            mark = self.opened.tokenizer.roles["mask"]
            raise InputError(f"it has no {mark} to be filled: put one where a token is wanted")
        return Reading([row], masks)

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """Chances and ids of the likeliest tokens at each mask (M, top)."""
        batch = on_device(self.collate(rows), self.model)
        out, places = self.model(**inputs(batch)), batch["input_ids"] == self.mask  # (B, N)
        head = self.whole.head
        if self.parted:
            assert head is not None
            logits = head(out.last_hidden_state[places], self.whole.token_table())  # (M, V)
        else:
            logits = (out.logits if out.prediction_logits is None else out.prediction_logits)[
                places
            ]
        chances, ids = logits.float().softmax(-1).topk(min(self.options.top, logits.shape[-1]), -1)
        each = places.sum(1).tolist()
        split = zip(chances.cpu().split(each), ids.cpu().split(each), strict=True)
        return [{"chances": c.numpy(), "ids": i.numpy()} for c, i in split]

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """[{"token", "id", "score", "text"}], likeliest first; of several masks a list of those."""
        ids, masks = reading.rows[0]["input_ids"].tolist(), reading.about
        found = [
            [
                self._filled(ids, int(at), int(id), float(c))
                for c, id in zip(cs, tokens, strict=True)
            ]
            for at, cs, tokens in zip(masks, answers[0]["chances"], answers[0]["ids"], strict=True)
        ]
        return found[0] if len(found) == 1 else found

    def _filled(self, ids: list[int], at: int, id: int, chance: float) -> dict[str, Any]:
        words = self.opened.tokenizer
        text = words.decode([*ids[:at], id, *ids[at + 1 :]])
        return {"token": words.decode([id]), "id": id, "score": chance, "text": text}
