"""Colours, dashes and markers of variants: told apart without colour, in light and in dark.

The hues are near those of Okabe and Ito, darkened or lightened so that each has a contrast of at
least 3 with the paper it is drawn on.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyformer.study.judgement import Judgement
from anyformer.study.results import Results

INK, MUTED, GRID, PAPER, OTHER = "#1f2428", "#57606a", "#d0d7de", "#fffffe", "#8c959f"
SERIES = (
    ("#24292e", "#e8eaed"),
    ("#0072b2", "#58b4f0"),
    ("#d55e00", "#ff8f4a"),
    ("#00875f", "#35c99b"),
    ("#b0548d", "#e49bc6"),
    ("#9a7000", "#e8c34d"),
    ("#6a51c8", "#a99bff"),
    ("#8c2d2d", "#f07f7f"),
)
VARIABLES = {  # drawn in the colour of light paper; the page knows them by name
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    OTHER: "--other",
    **{light: f"--series-{i}" for i, (light, _) in enumerate(SERIES)},
}
DASHES = ("", "6 2", "2 1.5", "7 2 1.5 2", "4 1.5 1.5 1.5 1.5 1.5", "9 3", "1 1", "5 1")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SHOWN = len(SERIES)  # variants that have a colour of their own


@dataclass(frozen=True)
class Style:
    """How a variant is drawn; a faint one is one of many and has no entry in the legend."""

    colour: str
    dash: str
    marker: str
    variable: str
    faint: bool = False

    @property
    def dashes(self) -> tuple[float, ...] | None:
        """The lengths of strokes and gaps; None: a whole line."""
        return tuple(map(float, self.dash.split())) or None


FAINT = Style(colour=OTHER, dash="", marker="o", variable=VARIABLES[OTHER], faint=True)


def styles(results: Results, judged: Judgement) -> dict[str, Style]:
    """A style for each variant; of many, those furthest from the baseline have colours."""
    far = sorted(judged.comparisons, key=lambda c: -abs(c.mean or 0))[: SHOWN - 1]
    named = {results.baseline, *(c.variant for c in far)}
    first = [results.arm(results.baseline)]
    order = first + [arm for arm in results.arms if arm.name != results.baseline]
    chosen = [arm.name for arm in order if arm.name in named]
    found = {arm.name: FAINT for arm in results.arms}
    for i, name in enumerate(chosen):
        colour = SERIES[i][0]
        found[name] = Style(colour, DASHES[i], MARKERS[i], VARIABLES[colour])
    return found
