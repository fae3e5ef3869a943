"""All heads as one PNG, drawn by matplotlib: a row for each layer, a column for each head."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anyformer.errors import InputError
from anyformer.tasks.attention.page import check, clean

if TYPE_CHECKING:
    from anyformer.tasks.attention.maps import Map

INK, MUTED, GRID = "#1f2428", "#57606a", "#d0d7de"
COLOURS = ("#ffffff", "#b5d5f1", "#2f7fc6", "#08264f")
CELL, GAP = 0.8, 0.12  # inches
HEADS = 2000  # in a picture
NAMED = 40  # tokens that can be named beside a single head


def png(title: str, maps: Sequence[Map]) -> bytes:
    """The picture as the content of a PNG file."""
    check(maps)
    count = sum(len(m.heads) for m in maps)
    if count > HEADS:
        raise InputError(
            f"{count} heads are too many for one picture (at most {HEADS}): choose layers "
            "(--layers 0-11) or heads (--heads 0-3)"
        )
    library = matplotlib()
    settings = {"font.family": "sans-serif", "font.size": 9, "text.parse_math": False,
                "text.color": INK}  # fmt: skip
    with library.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = _one(library, maps[0]) if count == 1 else _many(library, maps)
        figure.suptitle(clean(f"Attention of {title}"), fontsize=11)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=130, metadata={"Software": None}, facecolor="white",
                       bbox_inches="tight")  # fmt: skip
        return file.getvalue()


def matplotlib() -> Any:
    """The library, or an error that says how to get it."""
    try:
        import_module("matplotlib.figure")
        import_module("matplotlib.colors")
        return import_module("matplotlib")
    except ImportError as error:
        raise InputError(
            "a PNG needs matplotlib: pip install 'anyformer[plots]'; the page needs nothing"
        ) from error


def _colours(library: Any) -> Any:
    return library.colors.LinearSegmentedColormap.from_list("attention", COLOURS)


def _many(library: Any, maps: Sequence[Map]) -> Any:
    """A grid of heads, each coloured up to its own greatest weight."""
    wide = max(len(m.heads) for m in maps)
    kinds = list(dict.fromkeys(m.kind for m in maps))
    colours, step = _colours(library), 1 + GAP / CELL
    size = (wide * (CELL + GAP) + 1.8, len(maps) * (CELL + GAP) + 0.3 * len(kinds) + 1.0)
    figure = library.figure.Figure(figsize=(max(size[0], 4.2), size[1]), layout="constrained")
    axes = figure.add_subplot()
    y, image = 0.0, None
    for kind in kinds:
        y += 0.3
        axes.text(0, y - 0.12, kind.capitalize(), fontweight="bold", va="bottom")
        y += 0.1
        for row, m in enumerate(m for m in maps if m.kind == kind):
            axes.text(-0.1, y + 0.5, _wrapped(m.name), ha="right", va="center")
            for column, (head, w) in enumerate(zip(m.heads, m.weights, strict=True)):
                x, top = column * step, float(w.max()) or 1.0
                image = axes.imshow(
                    (w / top).numpy(), colours, extent=(x, x + 1, y + 1, y), aspect="equal",
                    vmin=0.0, vmax=1.0,
                )  # fmt: skip
                frame = ([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y])
                axes.plot(*frame, color=GRID, linewidth=0.6)
                if row == 0:
                    axes.text(
                        x + 0.5, y - 0.04, f"head {head}", ha="center", va="bottom", color=MUTED
                    )
            y += step
    axes.set_xlim(-0.05, max(wide * step, 2.0))
    axes.set_ylim(y, 0)
    axes.axis("off")
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", fraction=0.02, aspect=40)
    bar.set_label("share of the head's greatest weight; queries down, keys across", fontsize=9)
    return figure


def _one(library: Any, m: Map) -> Any:
    """One head with its tokens named."""
    w = m.weights[0]
    side = max(3.5, 0.2 * max(w.shape))
    figure = library.figure.Figure(figsize=(min(side, 12) + 1.6, min(side, 12) + 0.8),
                                   layout="constrained")  # fmt: skip
    axes = figure.add_subplot(title=f"{m.kind.capitalize()}, {m.name}, head {m.heads[0]}")
    image = axes.imshow(w.numpy(), _colours(library), vmin=0.0, vmax=float(w.max()) or 1.0)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    if max(w.shape) <= NAMED:
        axes.set_xticks(range(len(m.keys)), [_short(k) for k in m.keys], rotation=90)
        axes.set_yticks(range(len(m.queries)), [_short(q) for q in m.queries])
    figure.colorbar(image, ax=axes, shrink=0.7, label="weight")
    return figure


def _wrapped(name: str) -> str:
    return name.replace(" (", "\n(")


def _short(token: str) -> str:
    token = clean(token)
    return token if len(token) <= 16 else f"{token[:15]}…"
