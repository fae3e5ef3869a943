"""Terms that translations keep or write in one way, and what must stand in none of them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs.tour.language import WORDS
from docs.tour.protect import prose


@dataclass(frozen=True)
class Glossary:
    """Names that are never translated, terms by language, and patterns with their reasons."""

    kept: tuple[str, ...]
    terms: dict[str, dict[str, str]]
    never: tuple[tuple[str, str], ...]


@cache
def glossary(file: Path = WORDS / "glossary.toml") -> Glossary:
    """What glossary.toml says."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    never = tuple((each["pattern"], each["reason"]) for each in found["never"])
    return Glossary(tuple(found["kept"]), found["terms"], never)


def breaches(source: str, translation: str, code: str) -> list[str]:
    """What a translation doesn't keep of the glossary, in words."""
    known, english, theirs = glossary(), prose(source), prose(translation)
    lost = [f"lacks the term {t!r}" for t in known.kept if _has(english, t) and t not in theirs]
    for word, forms in known.terms.items():
        form = forms.get(code, "")  # a language may leave a word free
        if _has(english, word, "") and form.lower() not in theirs.lower():
            lost.append(f"lacks {form!r} for {word!r}")
    bad = [(m[0], why) for pattern, why in known.never for m in re.finditer(pattern, theirs)]
    return lost + [f"says {found!r}: {why}" for found, why in bad]


def _has(text: str, term: str, end: str = r"(?![\w-])") -> bool:
    """Whether a text has a term as a word, in just this spelling."""
    return bool(re.search(rf"(?<!\w){re.escape(term)}{end}", text))
