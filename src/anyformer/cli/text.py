"""Plain text that is pleasant to read: trees, columns, numbers."""

from __future__ import annotations

from collections.abc import Sequence

from anyformer.model.entry import Entry

SAID_BY_DETAIL = {"Linear", "Embedding", "LayerNorm", "RMSNorm", "ScaleNorm", "GRUCell"}


def tree(entry: Entry, label: str = "") -> list[str]:
    """The lines of a module tree; equal neighbours stand once, with their number."""
    times = f"{entry.repeats} x " if entry.repeats > 1 else ""
    head = f"{label}{times}{entry.kind}("
    inner = [line for child in entry.children for line in tree(child, f"({_span(child)}): ")]
    if entry.kind not in SAID_BY_DETAIL:
        sizes = {name: ", ".join(map(str, shape)) for name, shape in entry.shapes.items()}
        inner = [f"({name}): Parameter({size})" for name, size in sizes.items()] + inner
    if not inner:
        return [f"{head}{entry.detail})"]
    inner = [entry.detail, *inner] if entry.detail else inner
    return [head, *(f"  {line}" for line in inner), ")"]


def _span(entry: Entry) -> str:
    if entry.repeats == 1:
        return entry.name
    return f"{entry.name}-{int(entry.name) + entry.repeats - 1}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with aligned cells: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def in_bytes(number: int) -> str:
    """A number of bytes in the unit that fits."""
    power = min(max(number.bit_length() - 1, 0) // 10, 4)
    unit = ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{number / 1024**power:,.1f} {unit}" if power else f"{number} B"
