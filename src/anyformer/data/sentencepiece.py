"""Models of sentencepiece (Kudo and Richardson, 2018) read without its package.

The file is one protocol-buffer message. Only the fields that decide how a text is cut are read:
the pieces with score and type, the algorithm, and the normaliser with its table of characters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anyformer.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
Value = int | bytes


@dataclass(frozen=True)
class Piece:
    """One piece of the vocabulary; its place in the list is its id."""

    text: str
    score: float = 0.0
    type: int = NORMAL


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """What a sentencepiece file says: the vocabulary and how a text is made ready for it."""

    pieces: tuple[Piece, ...]
    algorithm: str
    byte_fallback: bool
    charsmap: bytes
    prefix: bool  # a space is put before the text
    squeeze: bool  # spaces at the ends go, runs of them become one


def read(file: Path) -> Pieces:
    """The content of a sentencepiece model file."""
    data = file.read_bytes()
    try:
        found = _model(data)
    except (IndexError, ValueError, struct.error) as problem:
        head = "; it is a Git LFS pointer: fetch the file itself" if data[:8] == b"version " else ""
        raise CheckpointError(f"{file} is no sentencepiece model ({problem}){head}") from problem
    if found.algorithm not in ("unigram", "bpe"):
        raise CheckpointError(
            f"{file} holds a sentencepiece model of kind {found.algorithm!r}; "
            "only unigram and bpe are read here"
        )
    return found


def _model(data: bytes) -> Pieces:
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
        elif number == 2:
            trainer = dict(_fields(_bytes(value)))
        elif number == 3:
            normalizer = dict(_fields(_bytes(value)))
    if not any(piece.type == UNKNOWN for piece in pieces):
        raise ValueError(f"{len(pieces)} pieces, none of them the unknown one")
    kind = trainer.get(3, 1)
    return Pieces(
        pieces=tuple(pieces),
        algorithm=ALGORITHMS.get(kind if isinstance(kind, int) else 0, str(kind)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=_bytes(normalizer.get(2, b"")),
        prefix=bool(normalizer.get(3, 1)),
        squeeze=bool(normalizer.get(4, 1)),
    )


def _piece(data: bytes) -> Piece:
    found = dict(_fields(data))
    (score,) = struct.unpack("<f", _bytes(found.get(2, bytes(4))))
    kind = found.get(3, NORMAL)
    return Piece(_bytes(found.get(1, b"")).decode(), score, kind if isinstance(kind, int) else 0)


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes are expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of one message as (number, value): ints for varints, bytes for the rest."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + length > len(data):
            raise ValueError(f"cut off at byte {len(data)}")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"a number without end at byte {at}")
