"""The special tokens around one text or two, from the template of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyformer.data.kinds import Kind
from anyformer.data.library import processors, tokenizers
from anyformer.errors import CheckpointError, InputError


def required(kind: Kind, options: Mapping[str, Any]) -> set[str]:
    """The roles that a kind can't do without: those of its template, and the unknown token."""
    roles = {
        role for role, _ in _parts(kind.around[1], options) if role not in ("$A", "$B", "lang")
    }
    return roles | ({"unk"} if kind.build != "bytes" else set())


def template(
    kind: Kind,
    roles: Mapping[str, str],
    options: Mapping[str, Any],
    pipeline: tokenizers.Tokenizer,
    folder: Path | None = None,
) -> processors.PostProcessor:
    """The post-processor that puts the special tokens of a kind around texts."""
    tokens = {"$A": "$A", "$B": "$B", **roles}
    if "lang:" in kind.around[0]:
        tokens["lang"] = language_token(kind, str(options["src_lang"]), pipeline)
    single, pair = (
        [f"{tokens[role]}:{type}" for role, type in _parts(text, options)] for text in kind.around
    )
    used = {tokens[role] for role, _ in _parts(kind.around[1], options) if role not in ("$A", "$B")}
    ids = [(token, pipeline.token_to_id(token)) for token in sorted(used)]
    if any(id is None for _, id in ids):
        raise CheckpointError(f"{folder}: {ids} lack an id")
    around = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    if not options.get("trim_offsets"):
        return around
    trim = processors.ByteLevel(bool(options.get("add_prefix_space")), trim_offsets=True)
    return processors.Sequence([trim, around])


def language_token(kind: Kind, code: str, pipeline: tokenizers.Tokenizer) -> str:
    """The token of a language code, which the vocabulary must have."""
    token = kind.language.format(code)
    if not kind.language or pipeline.token_to_id(token) is None:
        raise InputError(
            f"the tokenizer has no token {token!r} for the language {code!r}; "
            "languages are written as the model's authors do: en_XX for mBART, en for M2M-100"
        )
    return token


def _parts(text: str, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(role, type) of each place of a template whose option is not off."""
    found = [(part.partition(":")[0], part.partition(":")[2]) for part in text.split()]
    return [(role, type) for role, type in found if options.get(f"add_{role}_token", True)]
