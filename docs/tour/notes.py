"""Notes that live beside the source: docs/tour/notes/PATH.md, sections keyed by name.

A file begins with front matter (`title`, `paper`), then what follows the module's docstring. Each
heading `## Name` begins the section of a class, function, method or constant of that file, which
follows its docstring; `## (end)` stands below everything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

NOTES = Path(__file__).parent / "notes"
FIELDS = ("title", "paper")
END = "(end)"  # no name of Python


class NoteError(ValueError):
    """A file of notes that can't be read, or that explains what is not there."""


@dataclass
class Notes:
    """The notes of one page."""

    title: str = ""
    papers: tuple[str, ...] = ()
    sections: dict[str, str] = field(default_factory=dict)  # by key; "" for the introduction


def notes(page: str, home: Path = NOTES) -> Notes:
    """The notes of a page, as `ops/relative`; empty where there is no file."""
    file = home / f"{page}.md"
    return parsed(file.read_text(encoding="utf-8"), file.name) if file.exists() else Notes()


def parsed(text: str, name: str = "") -> Notes:
    """Front matter and sections."""
    found = re.match(r"---\n(.*?)\n---\n", text, re.S)
    front = {}
    for line in found[1].splitlines() if found else []:
        key, colon, value = line.partition(":")
        if not colon or key.strip() not in FIELDS:
            raise NoteError(f"{name}: {line!r} should be one of {', '.join(FIELDS)} with a value")
        front[key.strip()] = value.strip()
    sections = {}
    for key, body in sections_of(text[found.end() :] if found else text):
        if key in sections:
            raise NoteError(f"{name}: two sections are called {key!r}; make them one")
        sections[key] = body
    papers = tuple(re.split(r"[,\s]+", front["paper"])) if front.get("paper") else ()
    return Notes(front.get("title", ""), papers, sections)


def sections_of(text: str) -> list[tuple[str, str]]:
    """The text before the first heading under "", and each heading with what is below it."""
    found: list[tuple[str, list[str]]] = [("", [])]
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"(`{3,}|~{3,})", line)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        if line.startswith("## ") and not fence:
            found.append((line[3:].strip().strip("`"), []))
        else:
            found[-1][1].append(line)
    joined = [(key, "\n".join(lines).strip()) for key, lines in found]
    return [(key, body) for key, body in joined if key or body]


def unknown(given: Notes, keys: set[str]) -> list[str]:
    """Sections that explain nothing that is there."""
    return sorted({*given.sections} - keys - {"", END})
