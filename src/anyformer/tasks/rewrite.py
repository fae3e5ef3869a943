"""Texts written anew, summarised or translated, and texts that tell of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.huggingface import Origin
from anyformer.errors import InputError
from anyformer.model.inputs import position_limit
from anyformer.objectives.image import Captioning
from anyformer.objectives.to_text import Rewritten, ToText, writer_of
from anyformer.tasks.answer import each, filled
from anyformer.tasks.base import Reading, Record
from anyformer.tasks.image import ImageJob
from anyformer.tasks.write import NEW, WriteJob, WriteOptions


@dataclass(frozen=True, kw_only=True)
class RewriteOptions(WriteOptions):
    """What stands around a source, and the languages of a translation."""

    prefix: str | None = None  # in front, as "summarize: "; None: as the model was trained with
    between: str | None = None  # behind it, for decoders, as "\nTL;DR:"
    source: str | None = None  # languages, where the tokenizer has tokens for them
    target: str | None = None


class Rewrite(WriteJob):
    """A text written anew: the base of summaries and translations."""

    Options = RewriteOptions
    asks: tuple[str, ...] = ()  # prefixes of names in config.json's task_specific_params

    def prepare(self) -> None:
        """Bind the objective of texts from texts."""
        plan: ToText = self.opened.plan_of(ToText)
        self.same = {"text": plan.source}
        options = self.options
        prefix = options.prefix
        if prefix is None and plan is not self.opened.plan:
            prefix = self._prefix()
        for name, value in (
            ("source", "text"),
            ("prefix", prefix),
            ("between", options.between),
            ("source_lang", options.source),
            ("target_lang", options.target),
            ("context", options.length),
            ("answer", options.max_new_tokens),
        ):
            plan = plan if value is None else S.override(plan, name, value)
        if plan.answer is None:
            limit = position_limit(self.model.spec)
            few = NEW if limit is None else min(NEW, max(1, limit // 4))
            plan = S.override(plan, "answer", few)
        self.bound: Any = plan.bind(self.opened.tokenizer, self.model.spec)
        self.plan, self.writer = plan, self.bound.writer

    def _prefix(self) -> str | None:
        """What a folder's config.json says to put in front of a text for this task."""
        origin = self.model.origin
        config = origin.config if isinstance(origin, Origin) else {}
        told = config.get("task_specific_params") or {}
        languages = f"translation_{self.options.source}_to_{self.options.target}"
        names = [name for name in (*self.asks, languages) if name in told]
        return str(told[names[0]].get("prefix", "")) if names else None

    @property
    def new(self) -> int:
        """Tokens to be written."""
        return self.writer.new if isinstance(self.bound, Rewritten) else self.writer.room

    def read(self, records: Sequence[Record]) -> list[Reading | InputError]:
        """The ids of each source."""
        return each(records, self._read)

    def _read(self, record: Record) -> Reading:
        filled(record, "text")
        size = len(self.opened.tokenizer.encode(self.plan.prefix + record["text"]))
        room = self.bound.room
        if isinstance(self.bound, Rewritten):
            room -= self.bound.around.size
            limit = position_limit(self.model.spec.encoder or self.model.spec)
            room = size if limit is None and self.plan.context is None else room
        if size > room and not self.options.truncate:
            raise InputError(
                f"it has {size} tokens, and the model reads {room}: truncate=True (--truncate) "
                "cuts it"
            )
        return Reading(self.bound.features(record))


class Summarise(Rewrite):
    """A shorter text."""

    asks = ("summarization",)


class Translate(Rewrite):
    """A text in another language."""


# ----------------------------------------------------------------------- captions


class Caption(WriteJob, ImageJob):
    """A text that tells of an image (arXiv:1411.4555)."""

    kind = Captioning

    def prepare(self) -> None:
        """Find out how pixels are read and how a text is written."""
        ImageJob.prepare(self)
        asked = self.options.max_new_tokens or self.plan.answer
        limit = position_limit(self.model.spec)
        few = asked or (NEW if limit is None else min(NEW, limit))
        self.writer = writer_of(self.opened.tokenizer, self.model.spec, few, None)

    @property
    def new(self) -> int:
        """Tokens to be written."""
        return self.writer.new
