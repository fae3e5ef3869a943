"""Pictures of result tables, and the page that shows them: `python -m benchmarks.pictures`.

A table that has a ratio becomes bars: of their times over ours (right of 1 ours is faster), or of a
switch over plain attention. The page docs/performance/index.md is made from what lies in
benchmarks/results and from nothing else.
"""

from __future__ import annotations

import pathlib
import re
from importlib.util import find_spec
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance" / "index.md"
RATIOS = {  # column -> what it says
    "their time / ours": "their time over ours: to the right ours is faster",
    "ratio to ours": "their time over ours: to the right ours is faster",
    "ratio of times": "their time over ours: to the right ours is faster",
    "by rounds": "their time over ours: to the right ours is faster",
    "ratio of wall time": "their time over ours: to the right ours is faster",
    "of plain": "time over that of plain attention",
}
NAMES = (
    "",
    "family",
    "model",
    "import",
    "length",
    "batch",
    "dtype",
    "mode",
    "contestant",
    "attention",
)
COUNTED = ("length", "batch")  # of these, which are numbers
OURS, THEIRS, LINE, SAME = "#1f6f8b", "#b0b7bf", "#444444", 1.0
THICK, LONGEST, LONG = 0.24, 44, 120  # inches of a bar, letters of a name and of a note
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
KINDS = {"h200": "One H200", "cpu": "Two threads of a CPU", "xeon": "A Xeon", "": "Elsewhere"}


class Result(NamedTuple):
    """A table as it lies in a file."""

    name: str
    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]

    @property
    def ratio(self) -> str | None:
        """The column that is drawn, if there is one."""
        return next((name for name in RATIOS if name in self.head), None)

    @property
    def kind(self) -> str:
        """Where it was measured, by the name of its file."""
        first = self.name.split("_")[0]
        return first if first in KINDS else ""

    def bars(self) -> list[tuple[str, float]]:
        """What each row is called, and its ratio."""
        assert self.ratio is not None
        at = self.head.index(self.ratio)
        told = [i for i, name in enumerate(self.head) if name in NAMES and self._differs(i)]
        named = lambda i, cell: f"{self.head[i]} {cell}" if self.head[i] in COUNTED else cell
        cells = [([named(i, row[i]) for i in told], _number(row[at])) for row in self.rows]
        return [(", ".join(filter(None, name)), value) for name, value in cells if value]

    def ours(self, bar: str) -> bool:
        """Whether a bar is about something of ours."""
        return "plain, " not in bar if self.ratio == "of plain" else "anyformer" in bar

    def told(self, name: str) -> str:
        """A link to the table by a name, and its shorter notes."""
        link = f"[{name}](../../benchmarks/results/{self.name}.md)"
        return "; ".join([link, *(note for note in self.notes if len(note) < LONG)])

    def _differs(self, column: int) -> bool:
        return len({row[column] for row in self.rows}) > 1


def _number(cell: str) -> float | None:
    """The number that a cell begins with."""
    found = re.match(r"\s*(\d+(\.\d+)?)", cell)
    return float(found[1]) if found else None


def read(file: pathlib.Path) -> Result:
    """The first table of a file, and the notes below it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    title = next((x.lstrip("# ") for x in lines if x.startswith("#")), file.stem)
    first = next((i for i, x in enumerate(lines) if x.startswith("|")), len(lines))
    last = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    cells = [[c.strip() for c in x.strip().strip("|").split("|")] for x in lines[first:last]]
    head, rows = (cells[0], cells[2:]) if cells else ([], [])
    later = next((i for i in range(last, len(lines)) if lines[i].startswith(("#", "|"))), None)
    notes = [x[2:] for x in lines[last:later] if x.startswith("- ")]
    return Result(file.stem, title, head, rows, notes)


def drawn(result: Result) -> bytes:
    """Bars of a table's ratios, as a PNG file."""
    from anyformer.study.report.figures import render

    bars = result.bars()
    names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name, _ in bars]
    values = [value for _, value in bars]
    colours = [OURS if result.ours(name) else THEIRS for name, _ in bars]
    low, high = min(values), max(values)

    def draw(axes: Any) -> None:
        axes.set_xscale("log")  # half and twice are as far from 1
        ticks = [tick for tick in TICKS if low / 1.6 <= tick <= high * 1.6]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8.5)
        axes.set_xticks([], minor=True)
        axes.set_xlim(min(low, SAME) / 1.15, high * 1.9)
        axes.barh(range(len(bars)), [v - SAME for v in values], 0.7, SAME, color=colours)
        axes.set_yticks(range(len(bars)), names, fontsize=8.5)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.axvline(SAME, color=LINE, linewidth=1.0)
        for at, value in enumerate(values):
            axes.annotate(f" {value:g}", (max(value, SAME), at), va="center", fontsize=8.5)
        axes.grid(False, axis="y")
        axes.set_title(RATIOS[result.ratio or ""], fontsize=9, loc="right")

    return render(draw, "png", 0.8 + THICK * len(bars), {}, result.name)  # no keys: white paper


def beside(file: pathlib.Path) -> None:
    """Draw the table of a file into a picture beside it, where it has a ratio."""
    found = read(file)
    if found.ratio is not None and find_spec("matplotlib") is not None:
        file.with_suffix(".png").write_bytes(drawn(found))


def results() -> list[Result]:
    """All that lies in the folder, by name."""
    return [read(file) for file in sorted(RESULTS.glob("*.md"))]


def page(found: list[Result]) -> str:
    """The page that shows them."""
    text = [
        "# Performance\n",
        "Every number below was written by a command of the repository, `python -m benchmarks …`;",
        "the table behind each picture names the machine and the versions.",
        "[Notes](../../benchmarks/NOTES.md) say what was decided by them.",
        "This page is made by `python -m benchmarks.pictures`.\n",
    ]
    for kind, told in KINDS.items():
        here = [one for one in found if one.kind == kind]
        text.append(f"## {told}\n")
        for one in here:
            if one.ratio is not None:
                text += [f"### {one.title}\n", f"![{one.title}]({one.name}.png)\n"]
                text.append(f"{one.told('table')}.\n")
        rest = [f"- {one.told(one.title)}" for one in here if one.ratio is None]
        text.append("\n".join(["Tables alone:\n", *rest]) + "\n")
    pages = "```{toctree}\n:hidden:\n:maxdepth: 1\n:glob:\n\nnotes\nresults/*\n```\n"
    return "\n".join([*text, pages])


def main() -> None:
    """Draw every table that has a ratio, and write the page."""
    found = results()
    for old in PAGE.parent.glob("*.png"):
        old.unlink()
    for one in found:
        if one.ratio is not None:
            (PAGE.parent / f"{one.name}.png").write_bytes(drawn(one))
    PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
