"""The errors that anyformer raises: each names what is wrong and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnyformerError(Exception):
    """The base of every error that anyformer raises on purpose."""

    status = 2  # that the command ends with


class SpecError(AnyformerError, ValueError):
    """A model description that can't be: an unknown name, a bad value or a bad combination."""


class InputError(AnyformerError, ValueError):
    """An input that a model can't read: wrong shape, dtype, range or length."""


class BackendError(AnyformerError, ValueError):
    """An attention backend was asked by name for something that it can't do."""


class CheckpointError(AnyformerError, ValueError):
    """A file or folder that can't be read as a model."""


class UnsafeError(CheckpointError):
    """A file or folder that could run code or leads elsewhere: refused, whatever it holds."""

    status = 3


class TrainError(AnyformerError, RuntimeError):
    """A run that can't begin or go on; what was saved is intact."""


class DivergedError(TrainError):
    """A run whose loss or gradient is no number any more, however often it went back."""


class StudyError(AnyformerError, ValueError):
    """A study that can't be run as it is: variants, budget, matching or data don't go together."""


class DataError(AnyformerError, ValueError):
    """Texts, records or token shards that can't be read, or a place they can't be written to."""


def known_or_raise(
    name: str, known: Iterable[str], what: str, error: type[Exception] = SpecError
) -> str:
    """Return name if it is known, else raise an error that names the nearest known one."""
    names = list(known)
    if name in names:
        return name
    name = name[:200]
    near = difflib.get_close_matches(name, names, 1, 0.5)
    if near:
        raise error(f"unknown {what} {name!r}; did you mean {near[0]!r}?")
    listed = ", ".join(sorted(names)[:40])
    raise error(f"unknown {what} {name!r}; known: {listed}")
