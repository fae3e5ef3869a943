"""Catalogues of translations: docs/tour/words/LANGUAGE/PAGE.md, sections keyed by name and hash.

Each heading `## KEY HASH` begins the translation of the note with that key, made from the English
text with that hash; `(title)` is the page's title, `(module)` its introduction, `(end)` what stands
below everything else. `protect.py` says how blocks of code and formulas are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs.tour.language import ENGLISH, WORDS, Words, languages, translated
from docs.tour.notes import NoteError, sections_of
from docs.tour.page import Page, pages
from docs.tour.path import main_path
from docs.tour.protect import filled
from docs.tour.source import MODULE, hashed

TITLE = "(title)"
INTRODUCTION = "(module)"  # how a catalogue writes the key of a page's introduction

Units = dict[str, tuple[str, str]]  # the hash and the English text, by key


@dataclass(frozen=True)
class Entry:
    """A section of a catalogue: the hash of what it was made from, and the translation."""

    digest: str
    text: str


def units(page: Page) -> Units:
    """What there is to translate: the hash and the English text of each note, by its key."""
    title = {TITLE: (hashed(page.notes.title), page.notes.title)} if page.notes.title else {}
    return title | {row.key or MODULE: (row.digest, row.note) for row in page.rows if row.note}


@cache
def units_of(name: str) -> Units:
    """What there is to translate of a page, by its name; the main path is one too."""
    main = main_path()
    if name == main.name:
        return {TITLE: (hashed(main.title), main.title), MODULE: (hashed(main.text), main.text)}
    return units(pages()[name])


def catalogue(code: str, name: str, home: Path = WORDS) -> dict[str, Entry]:
    """The translations of a page, by key; empty where there is no file."""
    file = home / code / f"{name}.md"
    return parsed(file.read_text(encoding="utf-8"), str(file)) if file.exists() else {}


def parsed(text: str, name: str = "") -> dict[str, Entry]:
    """The sections of a catalogue."""
    found: dict[str, Entry] = {}
    for head, body in sections_of(text):
        key, _, digest = head.rpartition(" ")
        if not key or not re.fullmatch("[0-9a-f]{12}", digest):
            raise NoteError(
                f"{name}: {head!r} should be a key and a hash, as '(title) 0123456789ab'"
            )
        if key in found:
            raise NoteError(f"{name}: two sections are called {key!r}; make them one")
        found[MODULE if key == INTRODUCTION else key] = Entry(digest, body)
    return found


def current(code: str, name: str, home: Path = WORDS) -> dict[str, str]:
    """The translations of a page that are of its present text, with their blocks filled in."""
    there, found = units_of(name), {}
    for key, entry in catalogue(code, name, home).items():
        if key in there and entry.digest == there[key][0]:
            try:
                found[key] = filled(entry.text, there[key][1])
            except NoteError as error:
                raise NoteError(f"{code}/{name}, {key or INTRODUCTION}: {error}") from error
    return found


def words(code: str, name: str, home: Path = WORDS) -> Words:
    """What a page says in a language."""
    if code == ENGLISH:
        return Words(languages()[code])
    return Words(languages()[code], current(code, name, home), titles(code, home))


@cache
def titles(code: str, home: Path = WORDS) -> dict[str, str]:
    """The translated titles of a language's pages."""
    found = {name: current(code, name, home).get(TITLE, "") for name in translated(code, home)}
    return {name: title for name, title in found.items() if title}
