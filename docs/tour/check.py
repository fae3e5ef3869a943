"""`python -m docs.tour.check`: what the tour doesn't cover, and what has no note."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.tour.notes import NOTES, unknown
from docs.tour.page import Page, pages
from docs.tour.path import everything, order
from docs.tour.source import MODULE


def faults() -> list[str]:
    """Everything that is wrong, a line each."""
    return [*_files(), *_strays(), *(line for page in pages().values() for line in _page(page))]


def _files() -> list[str]:
    """Files that no chapter names, names without a file, pages named twice."""
    named, there = everything(), pages()
    missing = [f"{p}: no chapter of path.toml has it" for p in there if p not in named]
    unknown_ = [
        f"{p}: path.toml names it, but there is no such file" for p in named if p not in there
    ]
    return missing + unknown_ + [f"{p}: it is in path.toml twice" for p in _twice(named)]


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _strays(home: Path = NOTES) -> list[str]:
    """Notes of files that are not there."""
    found = (file.relative_to(home).with_suffix("").as_posix() for file in home.rglob("*.md"))
    return [
        f"notes/{name}.md: there is no such source file" for name in found if name not in pages()
    ]


def _page(page: Page) -> list[str]:
    """Sections of a page without a note, and notes without a section."""
    silent = [row.key or "the module" for row in page.rows if row.section and not row.note]
    keys = {row.key for row in page.rows}
    strays = unknown(page.notes, keys)
    return [f"{page.name}: {key} has no note" for key in silent] + [
        f"notes/{page.name}.md: nothing in the file is called {key!r}" for key in strays
    ]


def units(page: Page) -> dict[str, tuple[str, str]]:
    """What there is to translate: the hash and the English text of each note, by its key."""
    return {row.key or MODULE: (row.digest, row.note) for row in page.rows if row.note}


def main() -> int:
    """Print the faults; the status is 1 where there are some."""
    found = faults()
    print(*found, sep="\n", end="\n" if found else "")
    there, path = pages(), order()
    sections = sum(row.section for page in there.values() for row in page.rows)
    hours = sum(there[name].minutes for name in path if name in there) / 60
    print(f"{len(there)} files, {sections} sections, {len(found)} faults")
    print(f"{len(path)} pages on the path, {hours:.1f} hours")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
