"""The files of a tokenizer's folder: read whole, checked, and named in every error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyformer.data.kinds import ROLES
from anyformer.errors import CheckpointError
from anyformer.spec import strict

JSON, CONFIG, MODEL = "tokenizer.json", "tokenizer_config.json", "config.json"
OWN = "anyformer.json"  # of a model in our own format
MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
SPM = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")
MOST_IDS = 1 << 28
# What each builder reads; the first set that is there counts.
FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "wordpiece": (("vocab.txt",),),
    "bytes": (("vocab.json", "merges.txt"),),
    "words": (("vocab.json", "merges.txt"),),
    "dictionary": (("sentencepiece.bpe.model", "vocab.json"),),
    "pieces": tuple((name,) for name in SPM),
}


@dataclass(frozen=True)
class Special:
    """A token that is found in a text before anything else."""

    text: str
    strip_left: bool = False
    strip_right: bool = False
    word: bool = False
    special: bool = True
    normal: bool = False  # looked for in the text as the normaliser leaves it
    id: int | None = None


@dataclass(frozen=True)
class Named:
    """What the JSON files of a folder say about special tokens."""

    roles: Mapping[str, Special] = field(default_factory=dict[str, Special])
    others: tuple[Special, ...] = ()


def read_json(file: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    found = strict.read(file, CheckpointError)
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{file} holds a {type(found).__name__}, not an object: download or save it again"
        )
    return found


def read_if_there(file: Path) -> dict[str, Any]:
    """As read_json; an empty dict where there is no file."""
    return read_json(file) if file.is_file() else {}


def read_lines(file: Path) -> list[str]:
    """The lines of a text file, cut at newlines only: vocabularies hold other separators."""
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as problem:
        raise CheckpointError(f"{file} is not UTF-8: {problem}") from problem
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_vocabulary(file: Path) -> dict[str, int]:
    """vocab.txt, one token a line, the last of equal ones counting; or vocab.json, token to id."""
    if file.suffix == ".txt":
        found: dict[str, Any] = {token: i for i, token in enumerate(read_lines(file))}
    else:
        found = read_json(file)
    ids = {i for i in found.values() if type(i) is int and 0 <= i < MOST_IDS}
    if not found or len(ids) < len(found):
        raise CheckpointError(
            f"{file} is no vocabulary: {len(found)} tokens, {len(ids)} different ids from 0 on; "
            "download it again"
        )
    return found


def read_merges(file: Path) -> list[tuple[str, str]]:
    """merges.txt: two pieces a line, the first line of a file being its version at times."""
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(read_lines(file), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) < 2 or not parts[0] or not parts[1]:
            raise CheckpointError(f"{file}, line {number}: {line[:60]!r} is no pair of pieces")
        merges.append((parts[0], parts[1]))
    return merges


def named_tokens(folder: Path, config: Mapping[str, Any]) -> Named:
    """Special and added tokens of tokenizer_config.json and its older companions."""
    source = {**read_if_there(folder / MAP), **config}
    roles: dict[str, Special] = {}
    for role in ROLES:
        value = source.get(f"{role}_token")
        if value is not None:
            roles[role] = _special(value, folder)
    return Named(roles, tuple(_others(folder, source)))


def _others(folder: Path, source: Mapping[str, Any]) -> Iterator[Special]:
    """Tokens without a role, those with an id first, in its order."""
    more = source.get("extra_special_tokens") or source.get("additional_special_tokens") or ()
    extra = [_special(v, folder) for v in (more.values() if isinstance(more, dict) else more)]
    numbered = {int(i): value for i, value in (source.get("added_tokens_decoder") or {}).items()}
    marked = {token.text for token in extra}
    for token, i in read_if_there(folder / ADDED).items():
        plain = {"content": token, "special": token in marked}
        numbered.setdefault(i, plain)
    for i, value in sorted(numbered.items()):
        yield _special(value, folder, i)
    yield from extra


def _special(value: Any, folder: Path, id: int | None = None) -> Special:
    if isinstance(value, str):
        return Special(value, id=id)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise CheckpointError(f"{folder}: {value!r} is no token: a text or an object with content")
    special = bool(value.get("special", True))
    return Special(
        value["content"],
        strip_left=bool(value.get("lstrip")),
        strip_right=bool(value.get("rstrip")),
        word=bool(value.get("single_word")),
        special=special,
        normal=bool(value.get("normalized", not special)),
        id=id,
    )
