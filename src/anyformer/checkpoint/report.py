"""What became of every weight when a model's spec was changed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

COUNTED = re.compile(r"(?<=blocks\.)\d+")


@dataclass(frozen=True)
class Report:
    """Our keys, by what became of them; `print(report)` lists them, alike blocks together."""

    kept: tuple[str, ...] = ()  # the same weights under the same keys
    converted: tuple[tuple[str, str], ...] = ()  # made from old weights: the key, and how
    fresh: tuple[str, ...] = ()  # drawn anew
    dropped: tuple[str, ...] = ()  # old weights that nothing uses any more

    @property
    def summary(self) -> str:
        """The counts, in one line."""
        counts = [(len(self.kept), "kept"), (len(self.converted), "converted")]
        counts += [(len(self.fresh), "fresh"), (len(self.dropped), "dropped")]
        return ", ".join(f"{count} {word}" for count, word in counts)

    def __str__(self) -> str:
        lines = [f"weights: {self.summary}"]
        for name, how in _together(self.converted):
            lines.append(f"  converted  {name}: {how}")
        for word, keys in (("fresh", self.fresh), ("dropped", self.dropped)):
            lines += [f"  {word:<9}  {name}" for name, _ in _together((k, "") for k in keys)]
        return "\n".join(lines)


def _together(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """One line for what was done alike in several blocks, whose numbers become a star."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, how in pairs:
        found.setdefault((COUNTED.sub("*", key), COUNTED.sub("*", how)), []).append((key, how))
    return [
        (f"{name} ({len(alike)})", how) if len(alike) > 1 else alike[0]
        for (name, how), alike in found.items()
    ]
