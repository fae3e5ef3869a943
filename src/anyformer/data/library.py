"""The one place where the optional `tokenizers` library is imported and its failures are caught.

The library is written in Rust; a file that it did not expect can make it panic, and a panic is no
`Exception`. Here it becomes one of our errors, which names the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anyformer.errors import AnyformerError

try:
    import tokenizers
    from tokenizers import (
        AddedToken,
        Regex,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
except ImportError as missing:
    raise ImportError(
        "tokenizers need the `tokenizers` library: pip install tokenizers"
    ) from missing

__all__ = [
    "AddedToken",
    "Regex",
    "decoders",
    "guarded",
    "models",
    "normalizers",
    "pre_tokenizers",
    "processors",
    "tokenizers",
]


@contextmanager
def guarded(what: str, error: type[AnyformerError], remedy: str = "") -> Iterator[None]:
    """Turn whatever the library raises, panics included, into an error that says what failed."""
    try:
        yield
    except (AnyformerError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as problem:
        raise error(f"{what}: {problem}{remedy and '; '}{remedy}") from problem
