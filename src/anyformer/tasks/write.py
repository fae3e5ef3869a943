"""Tasks whose answer is written: what they share, and texts continued.

Letters: B rows, N ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from anyformer.errors import InputError
from anyformer.generate import Sampling, generate
from anyformer.model.inputs import position_limit
from anyformer.objectives.base import Batch, Example
from anyformer.objectives.common import Ends, check_tokens, whole
from anyformer.objectives.task import on_device
from anyformer.objectives.to_text import Writer, writer_of
from anyformer.tasks.answer import each, filled
from anyformer.tasks.base import Answer, Job, Options, Reading, Record

NEW, CONTINUED = 128, 50  # tokens written where nothing says how many


@dataclass(frozen=True, kw_only=True)
class WriteOptions(Options):
    """How a text is written; options of `anyformer.generate` go here too, by their names."""

    max_new_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])  # others of generate


def sampling_names() -> list[str]:
    """The options of generate that tasks pass on."""
    return ["decoder", "prefill", *(f.name for f in fields(Sampling) if f.name != "max_new_tokens")]


def write(model: Any, given: Batch, new: int, options: Mapping[str, Any]) -> np.ndarray:
    """What a model writes: the new ids (B, N), or several rows for each; the only call of it."""
    found = generate(model, max_new_tokens=new, **given, **options)
    begun = given["decoder_input_ids" if "decoder_input_ids" in given else "input_ids"].shape[1]
    return found[:, begun:].cpu().numpy()


class WriteJob(Job):
    """A task whose answers are ids up to an end."""

    Options = WriteOptions
    writer: Writer

    def answer(self, rows: Sequence[Example]) -> list[Answer]:
        """The ids written for each row (K, N), K texts."""
        batch = on_device(self.collate(rows), self.model)
        options = dict(self.options.sampling)
        if len(self.writer.ends.back):
            options.setdefault("eos_token_id", self.writer.eos)
        found = write(self.model, batch, self.new, options)
        count = len(found) // len(rows)
        return [{"ids": found[i * count : (i + 1) * count]} for i in range(len(rows))]

    @property
    def new(self) -> int:
        """Tokens to be written."""
        return self.options.max_new_tokens or NEW

    def collate(self, rows: Sequence[Example]) -> Batch:
        """Rows as tensors: prompts of a decoder padded on the left, else with what it begins on."""
        if self.model.spec.encoder is None:
            return padded([row["input_ids"] for row in rows], self.pad)
        begun = torch.tensor([self.writer.begun]).expand(len(rows), -1)
        return {**super().collate(rows), "decoder_input_ids": begun}

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """{"text"}, or a list of those where several are asked for."""
        ids = answers[0]["ids"]
        texts = [{"text": self.text(row)} for row in ids]
        return texts[0] if len(texts) == 1 else texts

    def text(self, ids: np.ndarray) -> str:
        """The text of ids."""
        if not len(self.writer.ends.back):
            return self.opened.tokenizer.decode(ids.tolist())
        return self.writer.text(ids)


def padded(rows: Sequence[np.ndarray], pad: int) -> Batch:
    """Prompts of a decoder as ids (B, N) and their mask, filled up on the left."""
    size = max(map(len, rows))
    ids = np.full((len(rows), size), pad, np.int64)
    mask = np.zeros_like(ids)
    for into, real, row in zip(ids, mask, rows, strict=True):
        into[size - len(row) :], real[size - len(row) :] = row, 1
    found = {"input_ids": torch.from_numpy(ids)}
    return found if mask.all() else {**found, "attention_mask": torch.from_numpy(mask)}


# ---------------------------------------------------------------------- continued


class Generate(WriteJob):
    """A text continued; an encoder-decoder reads it and writes another."""

    def prepare(self) -> None:
        """Find out what stands around a text, and how long it may be."""
        spec, words = self.model.spec, self.opened.tokenizer
        check_tokens(spec, words)
        self.limit = position_limit(spec.encoder or spec)
        if spec.encoder is not None:
            self.writer = writer_of(words, spec, None, None)
            return
        eos = [words.role_ids[role] for role in ("eos",) if role in words.role_ids]
        ends = Ends(whole([]), whole(eos))
        self.writer = Writer(words, ends, self.new, None, self.pad, self.limit)

    @property
    def new(self) -> int:
        """Tokens to be written."""
        asked = self.options.max_new_tokens
        if self.model.spec.encoder is not None:
            return min(asked or CONTINUED, self.writer.new)
        return asked or CONTINUED

    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """The ids of each prompt."""
        return each(records, self._read)

    def _read(self, record: Record) -> Reading:
        filled(record, "text")
        ids, front = self._ids(record["text"])
        if not len(ids):
            raise InputError("it has no tokens: leave it out")
        left = 0 if self.model.spec.encoder is not None else self.new - 1
        room = None if self.limit is None else self.limit - left
        if room is not None and len(ids) > room:
            if not self.options.truncate or room <= front:
                raise InputError(
                    f"it has {len(ids)} tokens, and with {self.new} new ones the model reads "
                    f"{max(room, 0)}: ask for fewer (max_new_tokens), or truncate=True "
                    "(--truncate) keeps the last ones"
                )
            ids = np.concatenate([ids[:front], ids[len(ids) - room + front :]])
        return Reading([{"input_ids": ids}])

    def _ids(self, text: str) -> tuple[np.ndarray, int]:
        """The ids of a text as the tokenizer frames it, a decoder's without what would end it.

        And how many of them stand in front of the text.
        """
        words = self.opened.tokenizer
        full, bare = words.encode(text, special=True), words.encode(text)
        spare = range(len(full) - len(bare) + 1)
        front = next((at for at in spare if full[at : at + len(bare)] == bare), 0)
        if self.model.spec.encoder is None:
            full = full[: front + len(bare)]
        return whole(full), front
