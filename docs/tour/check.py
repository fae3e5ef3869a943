"""`python -m docs.tour.check`: what the tour doesn't cover, and what has no note.

`--languages` tells what translations lack: entries that are missing, stale or unknown, and what
they don't keep. `--template zh recipes/xl` prints what is to be translated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.tour import coverage
from docs.tour.language import others
from docs.tour.notes import NOTES, unknown
from docs.tour.page import Page, pages
from docs.tour.path import everything, main_path, order


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


def main(argv: list[str] | None = None) -> int:
    """Print the faults; the status is 1 where there are some."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.tour.check", description="Check the tour."
    )
    parser.add_argument("--languages", action="store_true", help="check the translations")
    parser.add_argument(
        "--template", nargs=2, metavar=("LANGUAGE", "PAGE"), help="print what is to be translated"
    )
    args = parser.parse_args(argv)
    if args.template:
        code, name = args.template
        if code not in others():
            parser.error(f"no language {code!r}: there are {', '.join(others())}")
        if name not in (main_path().name, *pages()):
            parser.error(f"no page {name!r}: give a path of the tour, as recipes/xl")
        print(coverage.template(code, name))
        return 0
    return _translations() if args.languages else _tour()


def _tour() -> int:
    found = faults()
    print(*found, sep="\n", end="\n" if found else "")
    there, path = pages(), order()
    sections = sum(row.section for page in there.values() for row in page.rows)
    hours = sum(there[name].minutes for name in path if name in there) / 60
    print(f"{len(there)} files, {sections} sections, {len(found)} faults")
    print(f"{len(path)} pages on the path, {hours:.1f} hours")
    return 1 if found else 0


def _translations() -> int:
    found = coverage.faults()
    print(*found, sep="\n", end="\n" if found else "")
    for code in others():
        done, total = coverage.counts(code)
        print(f"{code}: {done} of {total} sections of the main path")
    print(f"{len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
