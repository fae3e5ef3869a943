"""Texts of any kind as token shards: made once, kept in the cache, made anew when they change."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anyformer.data import registry, sources
from anyformer.data.prepare import Progress, prepare
from anyformer.data.shards import FORMAT, MANIFEST, VERSION, Shards, tokenizer_digest
from anyformer.data.sources import Source
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import DataError

OWN = ("segments", "end", "shard", "workers", "progress")  # options of prepare, not of sources


def corpus(
    what: Any,
    tokenizer: Tokenizer,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Shards:
    """The shards of a path, several, a folder of shards, a data set's name, or texts in memory.

    They are kept under `cache` (default: anyformer/shards in XDG_CACHE_HOME) by what they were made
    from: files by path, size and time of change, the tokenizer by its ids, and the options, which
    are those of prepare(). A name of the registry may end in :validation or :test.
    """
    if ready := _ready(what, tokenizer, options):
        return ready
    settings = {name: options.pop(name) for name in OWN if name in options}
    found = texts_of(what, **options)
    home = Path(cache) if cache else cache_folder()
    target = home / f"{_stem(what)}-{_key(found, tokenizer, settings)}"
    if (target / MANIFEST).is_file():
        return Shards.open(target, tokenizer)
    try:
        return prepare(found, tokenizer, target, progress=progress, **settings)
    except DataError:
        if (target / MANIFEST).is_file():  # another process was faster
            return Shards.open(target, tokenizer)
        raise


def texts_of(what: Any, **options: Any) -> Source:
    """A source of what a user names: a path, several paths, a data set's name, or texts."""
    name, _, split = what.partition(":") if isinstance(what, str) else ("", "", "")
    if name in registry.names() and not Path(str(what)).exists():
        return _registered(name, split or "train", options)
    if isinstance(what, str) and not Path(what).exists():
        known = ", ".join(registry.names("text"))
        raise DataError(f"{what} is not there, and no data set has this name; known: {known}")
    if isinstance(what, list | tuple) and any(map(_like_path, what)):
        what = [Path(one) for one in what]
    return sources.source(what, **options)


def _like_path(one: Any) -> bool:
    return isinstance(one, os.PathLike) or (isinstance(one, str) and os.path.exists(one[:1024]))


class _Registered:
    """The documents of a data set of the registry, read anew each time."""

    def __init__(self, name: str, split: str) -> None:
        self.name, self.split = name, split

    def __iter__(self) -> Iterator[dict[str, str]]:
        for name, text in registry.texts(self.name, self.split):
            yield {"text": text, "name": name}

    def __repr__(self) -> str:
        return repr((registry.get(self.name), self.split))


def _registered(name: str, split: str, options: dict[str, Any]) -> Source:
    if "text" not in registry.get(name).tasks:
        known = ", ".join(registry.names("text"))
        raise DataError(f"{name} has no plain texts; these have: {known}")
    return Source(_Registered(name, split), sources.Options(**options))


def _ready(what: Any, tokenizer: Tokenizer, options: dict[str, Any]) -> Shards | None:
    """Shards that are there: the object itself, or a folder of them."""
    if isinstance(what, Shards):
        what.require(tokenizer)
        found = what
    elif isinstance(what, str | os.PathLike) and (Path(what) / MANIFEST).is_file():
        found = Shards.open(what, tokenizer)
    else:
        return None
    for option, there in (("segments", found.segmented), ("end", found.end)):
        if options.get(option) not in (None, there):
            raise DataError(
                f"{found.folder} was prepared with {option}={there!r}, not {options[option]!r}: "
                "prepare the texts again"
            )
    return found


def cache_folder() -> Path:
    """Where shards are kept: anyformer/shards under XDG_CACHE_HOME."""
    return registry.folder().parent / "shards"


def _stem(what: Any) -> str:
    first = what[0] if isinstance(what, list | tuple) and what else what
    name = Path(first).name if isinstance(first, str | os.PathLike) else "texts"
    return re.sub(r"[^\w.-]", "_", name)[:40].strip(".") or "texts"


def _key(found: Source, tokenizer: Tokenizer, settings: dict[str, Any]) -> str:
    decisive = {k: v for k, v in settings.items() if k not in ("workers", "progress")}
    read = [repr(found.what)] if isinstance(found.what, _Registered) else found.signature()
    parts = [FORMAT, VERSION, read, asdict(found.options), tokenizer_digest(tokenizer), decisive]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
