"""Figures drawn with matplotlib: colours of light paper, text as text, no state of its own."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from anyformer.errors import AnyformerError
from anyformer.study.report.colours import GRID, INK, MUTED, OTHER, PAPER, Style
from anyformer.study.report.curves import Curve, window
from anyformer.study.report.markup import clean
from anyformer.study.report.numbers import short, unit

WIDE, HIGH = 5.6, 3.5  # inches: small, so that letters stay readable on a phone
LETTERS = 60  # letters of what an axis is called
_SETTINGS = {
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
}

Axes = Any  # matplotlib.axes.Axes: the library may be missing
Draw = Callable[[Axes], None]


def matplotlib() -> Any:
    """The library that draws; an error that says how to install it where it is missing."""
    try:
        import_module("matplotlib.figure")
        import_module("matplotlib.lines")
        return import_module("matplotlib")
    except ImportError as error:
        raise AnyformerError("charts need matplotlib: pip install 'anyformer[plots]'") from error


@contextlib.contextmanager
def _drawing(**more: object) -> Iterator[Any]:
    library = matplotlib()
    with library.rc_context(_SETTINGS | more), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the reader's font may have it
        yield library


def render(
    draw: Draw,
    kind: str,
    high: float = HIGH,
    keys: Mapping[str, Style] | None = None,
    name: str = "chart",
) -> bytes:
    """A drawing as an SVG or PNG file; with keys it has a legend of its own."""
    with _drawing(**{"svg.hashsalt": name}) as library:
        figure = library.figure.Figure(figsize=(WIDE, high))
        axes = figure.add_subplot()
        draw(axes)
        if keys:
            _legend(library, figure, keys)
        file = io.BytesIO()
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        paper = "none" if keys is None else "white"
        figure.savefig(file, format=kind, dpi=200, metadata=metadata, facecolor=paper)
        return file.getvalue()


def _legend(library: Any, figure: Any, keys: Mapping[str, Style]) -> None:
    named = [(label(name), style) for name, style in keys.items() if not style.faint]
    named += [("others", style) for style in keys.values() if style.faint][:1]
    handles = [library.lines.Line2D([], [], label=n, **_line(s), **_mark(s)) for n, s in named]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))


def label(name: str, letters: int = 26) -> str:
    """A name short enough for a figure; matplotlib would hide one that begins with _."""
    name = " ".join(clean(name).split())
    if len(name) > letters:
        name = f"{name[: letters // 2]}…{name[-(letters // 2 - 1) :]}"
    return f" {name}" if name.startswith("_") else name


def _line(style: Style) -> dict[str, Any]:
    dashes = (0, style.dashes) if style.dashes else "-"
    return {"color": style.colour, "linestyle": dashes, "linewidth": 0.8 if style.faint else 1.6}


def _mark(style: Style, size: float = 5.5) -> dict[str, Any]:
    if style.faint:
        edge = {"markeredgecolor": style.colour, "markerfacecolor": style.colour}
        return {"marker": ".", **edge}
    mark = {"marker": style.marker, "markersize": size + (style.marker == "*") * 3}
    return {
        **mark,
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.7,
        "markerfacecolor": style.colour,
    }


def _order(styles: Mapping[str, Style]) -> list[str]:
    """Faint ones first, below the others."""
    return sorted(styles, key=lambda name: not styles[name].faint)


def draw_curves(
    curves: Sequence[Curve], styles: Mapping[str, Style], x_label: str, y_label: str
) -> Draw:
    """Mean curves with bands; runs that diverged or are not done as thin lines."""
    by_name = {c.variant: c for c in curves}
    size, name = 1.0, ""
    if x_label == "time":
        size, name = unit(max((x for c in curves for x in c.x), default=1.0))
        x_label = f"time of training ({name})"

    def draw(axes: Axes) -> None:
        for variant in (v for v in _order(styles) if v in by_name):
            curve, style = by_name[variant], styles[variant]
            x = [place / size for place in curve.x]
            if curve.seeds > 1 and not style.faint:
                axes.fill_between(x, curve.low, curve.high, color=style.colour, alpha=0.18, lw=0)
            marks = {} if style.faint else _mark(style, 4.5) | {"markevery": _every(len(x))}
            axes.plot(x, curve.mean, **_line(style), **marks)
            for stray in curve.strays:
                thin = _line(style) | {"linewidth": 0.7}
                axes.plot([place / size for place in stray.x], stray.y, **thin)
                mark = {"marker": "x" if stray.diverged else ".", "color": style.colour}
                axes.plot([stray.x[-1] / size], [stray.y[-1]], linestyle="", **mark)
        seen = window(curves)
        if seen is not None:
            axes.set_ylim(*seen)
        axes.set_xlim(left=0)
        axes.set_xlabel(label(x_label, LETTERS))
        axes.set_ylabel(label(y_label, LETTERS))
        _ticks(axes.xaxis)

    return draw


def _every(points: int) -> int:
    return max(1, math.ceil(points / 8))


def _ticks(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: short(value))


def draw_forest(
    rows: Sequence[tuple[str, float | None, float | None, Sequence[float]]],
    styles: Mapping[str, Style],
    noise: float | None,
    x_label: str,
) -> Draw:
    """Mean differences with intervals, a row for each variant; seeds as small dots."""

    def draw(axes: Axes) -> None:
        if noise is not None:
            axes.axvspan(-noise, noise, color=OTHER, alpha=0.18, lw=0)
        axes.axvline(0, color=MUTED, linewidth=1)
        for place, (name, mean, half, seeds) in enumerate(reversed(rows)):
            style = styles[name]
            axes.plot(seeds, [place - 0.22] * len(seeds), ".", color=style.colour, markersize=3)
            if mean is None:
                axes.text(0, place, "  not known yet", va="center", color=MUTED)
                continue
            if half is not None:
                axes.plot([mean - half, mean + half], [place] * 2, color=style.colour, lw=1.8)
            axes.plot([mean], [place], linestyle="", **_mark(style, 7))
        dots = [d for _, mean, _, seeds in rows for d in (*seeds, mean or 0)]
        reach = 2.5 * max((abs(d) for d in dots), default=0)
        ends = [abs(mean or 0) + (half or 0) for _, mean, half, _ in rows]
        reach = min(reach, 1.05 * max([*ends, noise or 0])) or 1.0
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(range(len(rows)), [label(row[0]) for row in reversed(rows)])
        axes.grid(False, axis="y")
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(label(x_label, LETTERS))

    return draw


def draw_pareto(
    points: Mapping[str, tuple[float, Sequence[float]]],
    styles: Mapping[str, Style],
    x_label: str,
    y_label: str,
    front: Sequence[tuple[float, float]],
) -> Draw:
    """Final scores against a cost; seeds as ranges, a line along what nothing else beats."""

    def draw(axes: Axes) -> None:
        if len(front) > 1:
            x, y = zip(*front, strict=True)
            dashed = {"linewidth": 0.9, "linestyle": (0, (3, 2))}
            axes.plot(x, y, color=MUTED, drawstyle="steps-post", **dashed)
        for name in (n for n in _order(styles) if n in points):
            cost, values = points[name]
            mean = sum(values) / len(values)
            axes.plot([cost] * 2, [min(values), max(values)], color=styles[name].colour, lw=1)
            axes.plot([cost], [mean], linestyle="", **_mark(styles[name], 8))
        costs = [cost for cost, _ in points.values()]
        if costs and min(costs) > 0 and max(costs) / min(costs) > 8:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
        else:
            axes.locator_params(axis="x", nbins=5)
        axes.margins(x=0.12, y=0.12)
        axes.set_xlabel(label(x_label, LETTERS))
        axes.set_ylabel(label(y_label, LETTERS))
        _ticks(axes.xaxis)

    return draw


def draw_rates(
    values: Mapping[str, Mapping[float, Sequence[float]]],
    lost: Mapping[str, Sequence[float]],
    best: Mapping[str, float],
    styles: Mapping[str, Style],
    y_label: str,
) -> Draw:
    """Final scores against the learning rate; the best of each ringed, × where a run diverged."""
    rates = sorted({lr for found in values.values() for lr in found})

    def draw(axes: Axes) -> None:
        for name in (n for n in _order(styles) if n in values):
            style, found = styles[name], values[name]
            x = [lr for lr in sorted(found) if found[lr]]
            means = [sum(found[lr]) / len(found[lr]) for lr in x]
            axes.plot(x, means, **_line(style), **_mark(style))
            for lr in x:
                seeds = found[lr]
                axes.plot([lr] * len(seeds), seeds, ".", color=style.colour, markersize=3)
            if name in best and best[name] in x and not style.faint:
                at = means[x.index(best[name])]
                ring = {
                    "markersize": 12,
                    "markerfacecolor": "none",
                    "markeredgecolor": style.colour,
                }
                axes.plot([best[name]], [at], "o", **ring)
        top = axes.get_xaxis_transform()
        for i, (name, where) in enumerate((n, w) for n, w in lost.items() if w):
            high = [0.97 - 0.05 * i] * len(where)
            axes.plot(where, high, "x", color=styles[name].colour, transform=top, clip_on=False)
        axes.set_xscale("log")
        axes.set_xticks(rates, [f"{lr:.3g}" for lr in rates])
        axes.minorticks_off()
        axes.set_xlabel("learning rate")
        axes.set_ylabel(label(y_label, LETTERS))

    return draw
