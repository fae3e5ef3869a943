"""Variants by name: `gpt2+rotary+stack.depth=4` is a recipe with words put on it.

A word is a short name of the table below, a keyword of x-transformers (docs/x_transformers.md),
with a value where it takes one, an option of the recipe, or a dotted path into the spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from anyformer import spec as S
from anyformer.compat.words import NAMES, apply
from anyformer.errors import SpecError, StudyError, known_or_raise
from anyformer.recipes.registry import options, recipe
from anyformer.spec.edit import has
from anyformer.study.nodes import Variant

SHORT: dict[str, tuple[str, ...]] = {
    "rotary": ("rotary_pos_emb",),
    "alibi": ("alibi_pos_bias",),
    "t5-bias": ("rel_pos_bias",),
    "no-positions": ("use_abs_pos_emb=false",),
    "glu": ("ff_glu",),
    "swiglu": ("ff_glu", "ff_swish"),
    "relu2": ("ff_relu_squared",),
    "rmsnorm": ("use_rmsnorm",),
    "scalenorm": ("use_scalenorm",),
    "post-norm": ("pre_norm=false",),
    "sandwich-norm": ("sandwich_norm",),
    "rezero": ("use_rezero",),
    "qk-norm": ("attn_qk_norm",),
    "one-kv-head": ("attn_one_kv_head",),
    "memory-kv": ("attn_num_mem_kv=16",),
    "memory-tokens": ("num_memory_tokens=16",),
    "entmax": ("attn_use_entmax15",),
    "recursion": ("stack.schedule=Shared(unique=1)",),
}


def variant(text: str) -> Variant:
    """A variant as it is written on a command line."""
    base, *words = split(text)
    if not base:
        raise StudyError(f"{text!r} names no recipe: write as gpt2+rotary")
    return Variant(name=text, base=base, words=tuple(words))


def split(text: str) -> list[str]:
    """What stands between plus signs, but not inside brackets or a number as 1e+5."""
    parts, depth = [""], 0
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        exponent = re.search(r"[\d.][eE]$", text[:i]) and text[i + 1 : i + 2].isdigit()
        if letter == "+" and depth == 0 and not exponent:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def long(words: Iterable[str]) -> list[str]:
    """Words with short names written out."""
    return [spelled for word in words for spelled in SHORT.get(word, (word,))]


def chosen(name: str, words: Iterable[str]) -> dict[str, Any]:
    """Those of the words that are options of a recipe."""
    known = options(name)
    parts = (word.partition("=") for word in long(words))
    return {key: S.parse(value) for key, equals, value in parts if equals and key in known}


def put(spec: S.Model, name: str, words: Iterable[str]) -> S.Model:
    """A recipe's spec with all other words put on it: keywords first, then paths in their order."""
    keywords: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for word in long(words):
        key, equals, value = word.partition("=")
        if key in options(name):
            continue
        if "." in key or (equals and has(spec, [key])):
            paths[key] = S.parse(value)
        else:
            keywords[_keyword(key)] = S.parse(value) if equals else True
    spec = apply(spec, keywords) if keywords else spec
    for path, value in paths.items():
        spec = S.override(spec, path, value)
    return S.check(spec)


def spec_of(text: str) -> S.Model:
    """The spec of a variant as it is written on a command line, in the recipe's own sizes."""
    named = variant(text)
    base = str(named.base)
    return put(recipe(base, **chosen(base, named.words)), base, named.words)


def _keyword(key: str) -> str:
    bare = key.removeprefix("enc_").removeprefix("dec_")
    try:
        known_or_raise(bare, [*NAMES, *SHORT], "switch")
    except SpecError as error:
        raise StudyError(f"{error}; or write a path into the spec, as stack.depth=4") from error
    return key
