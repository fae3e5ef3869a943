"""The registry as a table of Markdown, as docs/datasets.md shows it."""

from __future__ import annotations

from collections.abc import Iterable

from anyformer.data.registry.entry import Entry

HEAD = ("name", "tasks", "what is in it", "language", "to fetch", "from", "licence", "of the data")


def table(entries: Iterable[Entry]) -> str:
    """One row for each entry: name, tasks, content, size, source and licences."""
    rows = [HEAD, ("---",) * len(HEAD), *map(_row, entries)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _row(entry: Entry) -> tuple[str, ...]:
    said = entry.title
    if entry.derived:
        said += " (derived)"
    if entry.note:
        said += f": {entry.note}" if entry.derived else f"; {entry.note}"
    source = ", ".join(f"{each.project}=={each.version} {each.kind}" for each in entry.artefacts)
    return (
        f"`{entry.name}`",
        ", ".join(entry.tasks),
        said,
        entry.language,
        f"{entry.size / 1e6:.1f} MB" if entry.size else "nothing",
        source or "Python itself",
        entry.licence,
        entry.data_licence,
    )
