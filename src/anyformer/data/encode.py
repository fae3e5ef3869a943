"""Texts through a loaded pipeline, and what comes out as columns."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from anyformer.data import moses
from anyformer.data.library import guarded, tokenizers
from anyformer.data.load import Loaded
from anyformer.errors import InputError

Row = str | tuple[str, str]
HALF = re.compile("[\ud800-\udfff]")
_LOCK = threading.Lock()  # truncation is a setting of the pipeline: one call at a time


def rows_of(text: str | Sequence[str], pair: str | Sequence[str] | None) -> list[Row]:
    """One row for each text, with its second text where there is one."""
    texts = _texts(text, "text")
    if pair is None:
        return list(texts)
    if isinstance(pair, str) != isinstance(text, str):
        raise InputError("text and pair must both be one text or both be lists of texts")
    seconds = _texts(pair, "pair")
    if len(seconds) != len(texts):
        raise InputError(f"{len(texts)} texts but {len(seconds)} second texts")
    return list(zip(texts, seconds, strict=True))


def _texts(text: object, name: str) -> list[str]:
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
        raise InputError(f"{name} must be a text or a list of texts, not {type(text).__name__}")
    for number, one in enumerate(texts):
        if half := HALF.search(one):
            raise InputError(
                f"{name} {number} has half of a pair of surrogates at {half.start()}, which is no "
                'text: leave it out, as text.encode("utf-8", "ignore").decode() does'
            )
    return list(texts)


def encodings(
    loaded: Loaded, rows: list[Row], max_length: int | None, special: bool
) -> list[tokenizers.Encoding]:
    """The rows through the pipeline; those over max_length are cut, the longer text first."""
    pipeline = loaded.pipeline
    if rewrite := rewriter(loaded):
        rows = [
            rewrite(row) if isinstance(row, str) else (rewrite(row[0]), rewrite(row[1]))
            for row in rows
        ]
    if max_length is not None:
        around = pipeline.num_special_tokens_to_add(bool(rows) and isinstance(rows[0], tuple))
        if max_length < around + 1:
            raise InputError(
                f"max_length {max_length} leaves no room: {around} special tokens and a text"
            )
    with _LOCK, guarded("these texts can't be encoded", InputError):
        if max_length is None:
            pipeline.no_truncation()
        else:
            side = str(loaded.options.get("truncation_side", "right"))
            pipeline.enable_truncation(max_length, direction=side)
        return pipeline.encode_batch(rows, add_special_tokens=special)


def rewriter(loaded: Loaded) -> Callable[[str], str] | None:
    """What this family does to a text before the pipeline sees it; most do nothing."""
    if not (loaded.kind and loaded.kind.prepare):
        return None
    known = {token.content for token in loaded.pipeline.get_added_tokens_decoder().values()}
    return partial(moses.prepare, options=loaded.options, specials=known)


def ids_of(loaded: Loaded, found: tokenizers.Encoding) -> list[int]:
    """The ids of an encoding; pieces that are no tokens of the vocabulary are unknown."""
    unknown = loaded.pipeline.token_to_id(loaded.roles.get("unk", ""))
    if unknown is None or max(found.ids, default=0) < loaded.size:
        return found.ids
    return [id if id < loaded.size else unknown for id in found.ids]


def columns_of(
    loaded: Loaded, found: list[tokenizers.Encoding], also: Sequence[str]
) -> dict[str, list[list[Any]]]:
    """Input ids, attention mask, what the family reads besides, and what was asked for."""
    if "offset_mapping" in also and loaded.kind and loaded.kind.prepare:
        raise InputError("the words of this tokenizer are rewritten first: it has no offsets")
    columns: dict[str, list[list[Any]]] = {"input_ids": [ids_of(loaded, one) for one in found]}
    if "token_type_ids" in also or _reads_types(loaded):
        columns["token_type_ids"] = [one.type_ids for one in found]
    columns["attention_mask"] = [one.attention_mask for one in found]
    if "special_tokens_mask" in also:
        columns["special_tokens_mask"] = [one.special_tokens_mask for one in found]
    if "offset_mapping" in also:
        columns["offset_mapping"] = [one.offsets for one in found]
    languages = loaded.options.get("lang2id")
    if isinstance(languages, dict) and loaded.options.get("src_lang") in languages:
        id = languages[loaded.options["src_lang"]]
        columns["langs"] = [[id] * len(one) for one in found]
    return columns


def _reads_types(loaded: Loaded) -> bool:
    names = loaded.options.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" in names
    return loaded.kind is not None and loaded.kind.types
