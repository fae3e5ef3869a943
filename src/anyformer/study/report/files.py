"""The report in a folder: the page, its figures as PNG and SVG, its numbers as CSV, raw runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from anyformer.study.judgement import Comparison, Judgement
from anyformer.study.report.charts import charts
from anyformer.study.report.curves import Band, scores
from anyformer.study.report.figures import matplotlib, render
from anyformer.study.report.markup import clean
from anyformer.study.report.page import page
from anyformer.study.results import Results
from anyformer.study.stats import judge

NAME = "report.html"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how what a spreadsheet runs begins


def write(results: Results, folder: str | Path, band: Band = "range") -> Path:
    """Write report.html, figures/, points, runs and verdicts as CSV, runs as JSON lines.

    Returns the page's path.
    """
    matplotlib()  # before anything is written
    folder, judged = Path(folder), judge(results)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for chart in (c for group in charts(results, judged, band).values() for c in group):
        for kind in ("png", "svg"):
            drawn = render(chart.draw, kind, chart.high, chart.keys, chart.name)
            (figures / f"{chart.name}.{kind}").write_bytes(drawn)
    names = scores(results)
    start = ("variant", "seed", "lr", "key", "status")
    places = ("step", "tokens", "flops", "seconds")
    _csv(folder / "points.csv", (*start, *places, *names), _points(results, names))
    _csv(folder / "runs.csv", (*start, "reason", *places, *names), _runs(results, names))
    _csv(folder / "verdicts.csv", [f.name for f in fields(Comparison)], _verdicts(judged))
    lines = (json.dumps(asdict(run)) + "\n" for run in results.outcomes)
    (folder / "runs.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    return _page(folder / NAME, page(results, band))


def _page(path: Path, text: str) -> Path:
    """Write the page in one move, so that a reader never sees half of it."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    return part.replace(path)


def _csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(_cell, header))
        writer.writerows(map(_cell, row) for row in rows)


def _cell(value: object) -> object:
    """A cell that can be written and that no spreadsheet takes for a formula: such is quoted."""
    if not isinstance(value, str):
        return value
    return clean(f"'{value}" if value[:1] in FORMULA else value)


def _points(results: Results, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    for run in results.outcomes:
        start = (run.variant, run.seed, run.lr, run.key, run.status)
        for p in run.points:
            told = (p.scores.get(name) for name in names)
            yield *start, p.step, p.tokens, p.flops, p.seconds, *told


def _runs(results: Results, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    for run in results.outcomes:
        p = run.points[-1] if run.points else None
        last = (p.step, p.tokens, p.flops, p.seconds) if p else (None,) * 4
        told = (p.scores.get(name) if p else None for name in names)
        yield run.variant, run.seed, run.lr, run.key, run.status, run.reason, *last, *told


def _verdicts(judged: Judgement) -> Iterator[tuple[object, ...]]:
    for c in judged.comparisons:
        cells = (getattr(c, field.name) for field in fields(Comparison))
        yield tuple(" ".join(map(str, v)) if isinstance(v, tuple) else v for v in cells)
