"""Languages: what each calls itself, which pages it has, and where they stand in the site."""

from __future__ import annotations

import posixpath
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from docs.tour.path import main_path

WORDS = Path(__file__).parent / "words"
ENGLISH = "en"  # what everything is written in


@dataclass(frozen=True)
class Language:
    """A language of the site and what a page says beside its notes."""

    code: str  # its folder
    tag: str  # for `lang`
    name: str  # in the language itself
    before: str
    next: str
    path: str
    languages: str
    minutes: str  # with {} for the number

    @property
    def is_english(self) -> bool:
        """Whether it is the one that needs no translation."""
        return self.code == ENGLISH


@dataclass(frozen=True)
class Words:
    """What a page says in a language: the notes by key, and titles of pages by name."""

    language: Language
    texts: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)


@cache
def languages(file: Path = WORDS / "languages.toml") -> dict[str, Language]:
    """Every language by its code, English first."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    return {code: Language(code=code, **words) for code, words in found.items()}


def others() -> list[str]:
    """The languages that English is translated to."""
    return [code for code in languages() if code != ENGLISH]


@cache
def translated(code: str, home: Path = WORDS) -> tuple[str, ...]:
    """The pages that a language has: the main path, then others that have a catalogue."""
    found = (f.relative_to(home / code) for f in sorted((home / code).rglob("*.md")))
    names = (file.with_suffix("").as_posix() for file in found)
    path = main_path().pages
    return (*path, *(name for name in names if name not in (*path, main_path().name)))


def site(name: str, code: str = ENGLISH) -> str:
    """Where a page of the tour stands in the site: as `zh/tour/recipes/xl`, English otherwise."""
    own = code != ENGLISH and name in (main_path().name, *translated(code))
    return f"{code}/tour/{name}" if own else f"tour/{name}"


def between(here: str, there: str, code: str = ENGLISH, to: str | None = None) -> str:
    """The address of a page from another one, in the same language or in `to`."""
    start = posixpath.dirname(site(here, code))
    return posixpath.relpath(site(there, to or code), start) + ".html"


def switcher(name: str, language: Language) -> str:
    """Links to the same page in the other languages; nothing where it has none."""
    there = [x for x in languages().values() if x.is_english or name in _shown(x.code)]
    if len(there) < 2:
        return ""
    items = "".join(_choice(name, language, other) for other in there)
    return f'<nav class="languages" aria-label="{language.languages}">{items}</nav>'


def _shown(code: str) -> tuple[str, ...]:
    return (main_path().name, *translated(code))


def _choice(name: str, here: Language, there: Language) -> str:
    if there == here:
        return f'<span lang="{there.tag}" aria-current="true">{there.name}</span>'
    address = between(name, name, here.code, there.code)
    mark = f'lang="{there.tag}" hreflang="{there.tag}"'
    return f'<a href="{address}" {mark}>{there.name}</a>'
