"""The order of reading: chapters and pages from path.toml, minutes from what is to be read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("path.toml")
WORDS = 180.0  # a minute, of notes with formulas
LINES = 20.0  # a minute, of code


@dataclass(frozen=True)
class Chapter:
    """A part of the path: pages to read in order, and pages beside it to look things up in."""

    name: str  # of its page
    title: str
    text: str
    pages: tuple[str, ...]
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Main:
    """The shortest way through, which every language has."""

    name: str  # of its page
    title: str
    text: str
    pages: tuple[str, ...]


@cache
def main_path(file: Path = PATH) -> Main:
    """The main path."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))["main"]
    return Main(found["name"], found["title"], found["text"], tuple(found["pages"]))


@cache
def chapters(file: Path = PATH) -> tuple[Chapter, ...]:
    """The chapters in the order of reading."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))["chapter"]
    return tuple(
        Chapter(c["name"], c["title"], c["text"], tuple(c["pages"]), tuple(c.get("beside", ())))
        for c in found
    )


def order() -> list[str]:
    """The pages of the path, one after the other."""
    return [page for chapter in chapters() for page in chapter.pages]


def everything() -> list[str]:
    """Every page that some chapter names."""
    return [page for chapter in chapters() for page in (*chapter.pages, *chapter.beside)]


def minutes(words: int, lines: int) -> int:
    """How long a page takes to read."""
    return max(1, round(words / WORDS + lines / LINES))
