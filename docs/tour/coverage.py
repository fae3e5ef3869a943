"""What is wrong with translations: missing, stale and unknown entries, and what they don't keep."""

from __future__ import annotations

from pathlib import Path

from docs.tour.glossary import breaches
from docs.tour.language import WORDS, others
from docs.tour.notes import NoteError
from docs.tour.page import pages
from docs.tour.path import main_path
from docs.tour.protect import differences, emptied, filled
from docs.tour.words import INTRODUCTION, Entry, Units, catalogue, units_of


def faults(home: Path = WORDS) -> list[str]:
    """Everything that is wrong, a line each."""
    return [*_strays(home), *(line for code in others() for line in _language(code, home))]


def _strays(home: Path) -> list[str]:
    """Folders of no language and catalogues of no page."""
    found = sorted(file.relative_to(home) for file in home.rglob("*.md"))
    known = {main_path().name, *pages()}
    languages = [f"{f}: no language of languages.toml" for f in found if f.parts[0] not in others()]
    named = ((f, Path(*f.parts[1:]).with_suffix("").as_posix()) for f in found)
    return languages + [f"{f}: there is no such page" for f, name in named if name not in known]


def _language(code: str, home: Path) -> list[str]:
    must = (main_path().name, *main_path().pages)
    there = (f.relative_to(home / code).with_suffix("") for f in (home / code).rglob("*.md"))
    also = sorted({name.as_posix() for name in there} & set(pages()) - set(must))
    return [
        f"{code}/{name}: {line}"
        for name in (*must, *also)
        for line in page_faults(code, units_of(name), catalogue(code, name, home), name in must)
    ]


def page_faults(code: str, there: Units, entries: dict[str, Entry], whole: bool) -> list[str]:
    """What is wrong with one catalogue; a section may be missing unless it must be whole."""
    missing = [f"{_shown(key)} is missing" for key in there if whole and key not in entries]
    unknown = [
        f"{_shown(key)} is unknown: the page has no such note"
        for key in entries
        if key not in there
    ]
    said = [
        f"{_shown(key)} {line}"
        for key, entry in entries.items()
        if key in there
        for line in _entry(code, *there[key], entry)
    ]
    return missing + unknown + said


def _entry(code: str, digest: str, source: str, entry: Entry) -> list[str]:
    if entry.digest != digest:
        return [f"is stale: made from {entry.digest}, the English is {digest} now"]
    try:
        text = filled(entry.text, source)
    except NoteError as error:
        return [f"can't be filled: {error}"]
    return [*differences(source, text), *breaches(source, text, code)]


def counts(code: str, home: Path = WORDS) -> tuple[int, int]:
    """How many sections of the main path are translated, and how many there are."""
    done = total = 0
    for name in (main_path().name, *main_path().pages):
        there, entries = units_of(name), catalogue(code, name, home)
        total += len(there)
        done += sum(
            k in entries and entries[k].digest == digest for k, (digest, _) in there.items()
        )
    return done, total


def template(code: str, name: str, home: Path = WORDS) -> str:
    """What a page's catalogue still lacks: headings with hashes, and the English to translate."""
    entries = catalogue(code, name, home)
    lacking = {
        key: unit
        for key, unit in units_of(name).items()
        if key not in entries or entries[key].digest != unit[0]
    }
    return "\n".join(
        f"## {_shown(key)} {digest}\n\n{emptied(text)}\n" for key, (digest, text) in lacking.items()
    )


def _shown(key: str) -> str:
    return key or INTRODUCTION
