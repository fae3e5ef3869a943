"""Tasks that tell something of every token: tags of spans, replaced tokens.

Texts longer than the model are read in windows, in which a token is judged where it has most
neighbours on both sides. Letters: N positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from anyformer.errors import InputError
from anyformer.objectives.answer import trimmed
from anyformer.objectives.base import Example
from anyformer.objectives.common import word_marks
from anyformer.objectives.tag import TokenClassification
from anyformer.tasks.base import (
    Answer,
    Options,
    Reading,
    Record,
    one_of,
    sigmoid,
    softmax,
)
from anyformer.tasks.text import Found, TextJob

OFFSETS = ("offset_mapping", "special_tokens_mask")


@dataclass(frozen=True)
class Piece:
    """A window of a text: which of the row's positions are asked, for which tokens of the text."""

    first: int  # the first position of the row that is asked
    tokens: range


@dataclass(frozen=True)
class Spread:
    """A text's tokens: ids and places in the text (N, 2), without special ones, and windows."""

    ids: np.ndarray
    letters: np.ndarray
    pieces: list[Piece]


class TokenJob(TextJob):
    """A task about tokens, in windows where a text is long."""

    also = OFFSETS

    def reading(self, record: Record, found: Found) -> Reading:
        """The windows of a text."""
        if self.options.truncate:
            found = self.fitting(record, found)
        row = self.row(found)
        inner = np.flatnonzero(np.array(found["special_tokens_mask"]) == 0)
        if not len(inner):
            raise InputError("it has no tokens: leave it out")
        start, end = int(inner[0]), int(inner[-1]) + 1
        ids, text = row["input_ids"][start:end], record["text"]
        letters = trimmed(found["offset_mapping"][start:end], text)
        rows, pieces = list[Example](), list[Piece]()
        room = len(ids) if self.room is None else self.room - (len(row["input_ids"]) - len(ids))
        if room < 1:
            raise InputError(f"length={self.room} leaves no room for tokens: take a greater one")
        for at, asked in cuts(len(ids), room):
            part = np.arange(start + at, start + min(at + room, len(ids)))
            places = [np.arange(start), part, np.arange(end, len(row["input_ids"]))]
            rows.append({name: value[np.concatenate(places)] for name, value in row.items()})
            pieces.append(Piece(start + asked.start - at, asked))
        return Reading(rows, Spread(ids, letters, pieces))

    def whole(self, spread: Spread, answers: Sequence[Answer]) -> np.ndarray:
        """The logits of all tokens of a text (N, ...)."""
        parts = [
            answer["logits"][piece.first : piece.first + len(piece.tokens)]
            for piece, answer in zip(spread.pieces, answers, strict=True)
        ]
        return np.concatenate(parts)


def cuts(count: int, room: int) -> Iterator[tuple[int, range]]:
    """Where windows begin, and the tokens that each is asked about: all of them, each once."""
    if count <= room:
        yield 0, range(count)
        return
    step, at, done = max(1, room // 2), 0, 0
    while done < count:
        last = at + room >= count
        at = min(at, max(0, count - room))
        until = count if last else min(count, at + room - (room - step) // 2)
        yield at, range(done, until)
        done, at = until, at + step


# -------------------------------------------------------------------------- tags


@dataclass(frozen=True, kw_only=True)
class TagOptions(Options):
    """How tags of pieces become labels of spans."""

    # whose tag a word has: of its first piece, the mean, the surest one; simple: pieces are words
    aggregate: Literal["first", "average", "max", "simple", "none"] = "first"
    outside: tuple[str, ...] = ("O",)  # labels that are left out

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "aggregate", ("first", "average", "max", "simple", "none"))


@dataclass
class Tagged:
    """A stretch of text with its tag."""

    label: str
    score: float
    start: int
    end: int

    @property
    def kind(self) -> str:
        """The tag without B-, I-, E- or S-."""
        return self.label[2:] if self.label[:2] in ("B-", "I-", "E-", "S-") else self.label


class Tags(TokenJob):
    """Labels of spans: names of persons, parts of speech."""

    Options = TagOptions
    fields = ("text", "words")

    def prepare(self) -> None:
        """Find out how words are told apart."""
        super().prepare()
        try:
            self.marks = word_marks(self.opened.tokenizer)
        except InputError:
            self.marks = None
        plan = self.opened.plan
        self.same = {"words": plan.words} if isinstance(plan, TokenClassification) else {}

    def settled(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Words as a text with spaces between them."""
        words = fields.get("words")
        if "text" in fields or not isinstance(words, list | tuple):
            return fields
        return {"text": " ".join(map(str, words))}

    def starts(self, spread: Spread, text: str) -> np.ndarray:
        """Which tokens (N,) begin a word."""
        if self.marks is not None:
            return self.marks.starts(spread.ids)
        spaced = [start == 0 or text[start - 1].isspace() for start, _ in spread.letters]
        return np.array(spaced, bool)

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """[{"label", "score", "text", "start", "end"}] of spans, or of tokens where asked."""
        spread: Spread = reading.about
        chances, text = softmax(self.whole(spread, answers)), record["text"]
        how, real = self.options.aggregate, spread.letters[:, 0] < spread.letters[:, 1]
        starts = np.ones(len(chances), bool)
        if how not in ("none", "simple"):
            starts = self.starts(spread, text)
            starts[1:] |= ~real[:-1]  # a token of spaces alone belongs to no word
        found = self._words(chances[real], spread.letters[real], np.flatnonzero(starts[real]))
        if how != "none":
            found = [merged(group) for group in groups(found)]
        kept = [one for one in found if one.label not in self.options.outside]
        place = lambda one: {"text": text[one.start : one.end], "start": one.start, "end": one.end}
        return [{"label": one.label, "score": one.score, **place(one)} for one in kept]

    def _words(self, chances: np.ndarray, letters: np.ndarray, firsts: np.ndarray) -> list[Tagged]:
        """The tag of each word, whose first tokens are given."""
        found: list[Tagged] = []
        for at, end in zip(firsts, [*firsts[1:], len(chances)], strict=True):
            some = chances[at:end]
            row = some[0]
            if self.options.aggregate == "average":
                row = some.mean(0)
            elif self.options.aggregate == "max":
                row = some[int(some.max(-1).argmax())]
            best = int(row.argmax())
            span = int(letters[at, 0]), int(letters[end - 1, 1])
            found.append(Tagged(self.opened.labels[best], float(row[best]), *span))
        return found


def groups(words: Sequence[Tagged]) -> Iterator[list[Tagged]]:
    """Neighbours of one kind; B- and S- begin another span."""
    group = list[Tagged]()
    for word in words:
        if group and (word.kind != group[-1].kind or word.label[:2] in ("B-", "S-")):
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def merged(group: Sequence[Tagged]) -> Tagged:
    """Neighbours as one span, its score their mean."""
    score = float(np.mean([word.score for word in group]))
    return Tagged(group[0].kind, score, group[0].start, group[-1].end)


# ----------------------------------------------------------------- replaced tokens


class Replaced(TokenJob):
    """Which tokens of a text some other model put there (arXiv:2003.10555)."""

    def result(self, record: Record, reading: Reading, answers: Sequence[Answer]) -> Any:
        """[{"text", "start", "end", "score", "replaced"}], one for each token."""
        spread: Spread = reading.about
        chances, text = sigmoid(self.whole(spread, answers)), record["text"]
        return [
            {
                "text": text[start:end],
                "start": int(start),
                "end": int(end),
                "score": float(chance),
                "replaced": bool(chance > 0.5),
            }
            for (start, end), chance in zip(spread.letters, chances, strict=True)
        ]
