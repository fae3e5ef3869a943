"""The Moses steps before XLM's tokenizer (Conneau and Lample, 2019): punctuation and words.

They need the `sacremoses` package. Thai, Chinese and Japanese had word cutters of their own there
and are refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from anyformer.errors import InputError

_WIDE = "，、”“∶：？《》）！（；」「～’━〈〉【】％０１２３４５６７８９"
_PLAIN = ',,""::?"")!(;""~\'-<>[]%0123456789'
PUNCTUATION = {**dict(zip(map(ord, _WIDE), _PLAIN, strict=True)), ord("…"): "..."}
ROMANIAN = str.maketrans("ŞşŢţȘșȚțĂăÂâÎî", "SsTtSsTtAaAaIi")
OTHER_CUTTERS = ("zh", "th", "ja")


def prepare(text: str, options: Mapping[str, Any], specials: Iterable[str]) -> str:
    """The text as words with single spaces between; special tokens in it are left alone."""
    if options["src_lang"] in OTHER_CUTTERS:
        raise InputError(
            f"XLM cuts words of {options['src_lang']!r} with a program that is not here; cut the "
            "text yourself and use a tokenizer of another language, or another model"
        )
    kept = [re.escape(token) for token in sorted(specials, key=len, reverse=True)]
    chunks = re.split(f"({'|'.join(kept)})", text)
    done = [c if i % 2 else " ".join(_words(c, options)) for i, c in enumerate(chunks)]
    return " ".join(chunk for chunk in done if chunk)


@cache
def _programs(language: str) -> tuple[Any, Any]:
    try:
        from sacremoses import (  # pyright: ignore[reportMissingImports]
            MosesPunctNormalizer,
            MosesTokenizer,
        )
    except ImportError as missing:
        raise ImportError("XLM's tokenizer needs: pip install sacremoses") from missing
    return MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)


def _words(text: str, options: Mapping[str, Any]) -> list[str]:
    language = str(options["src_lang"])
    punctuation, cutter = _programs(language)
    text = re.sub(r"[。．]\s*", ". ", text.translate(PUNCTUATION))
    text = punctuation.normalize(text)
    text = "".join(c for c in text if not unicodedata.category(c).startswith("C"))
    if language == "ro":
        text = text.translate(ROMANIAN)
    words = cutter.tokenize(text, return_str=False, escape=False)
    if not options["do_lowercase_and_remove_accent"]:
        return words
    parted = unicodedata.normalize("NFD", " ".join(words).lower())
    return "".join(c for c in parted if unicodedata.category(c) != "Mn").lower().split(" ")
