"""Tables that only some studies have: scores under other conditions, and a source's numbers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from anyformer.study.again import MARK
from anyformer.study.judgement import Judgement
from anyformer.study.results import Outcome, Results
from anyformer.study.shipped import sources
from anyformer.study.shipped.modifications import STUDY as MODIFICATIONS
from anyformer.study.shipped.recursive import STUDY as RECURSIVE

Cell = str | float | None


@dataclass(frozen=True)
class Table:
    """A table as data, with what it is called and how it is to be read."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str


def tables(results: Results, judged: Judgement) -> list[Table]:
    """The tables that a study has beside the common ones."""
    found = [_elsewhere(results, judged, score) for score in ("loss", "accuracy")]
    study, _, panel = results.name.partition("/")
    if study == RECURSIVE and panel in sources.RECURSIVE:
        found.append(_recursive(results, judged, panel))
    if study == MODIFICATIONS:
        found.append(_modified(results, judged))
    return [table for table in found if table is not None]


# ------------------------------------------------------------------ other conditions


def _elsewhere(results: Results, judged: Judgement, score: str) -> Table | None:
    """A score of each variant at each of the other lengths, memories or rounds."""
    start = f"{score}{MARK}"
    ends = {arm.name: _ends(results, judged, arm.name) for arm in results.arms}
    names = dict.fromkeys(n for e in ends.values() for s in e for n in s if n.startswith(start))
    if not names:
        return None
    rows = [
        (variant, _told(runs, score), *(_told(runs, name) for name in names))
        for variant, runs in ends.items()
    ]
    notes = {o.note: o.variant for o in results.outcomes if o.note}
    said = "".join(f" {variant}: {note}." for note, variant in notes.items())
    return Table(
        name=f"elsewhere-{score}",
        title=f"{score.capitalize()} under other conditions",
        header=("variant", "as trained", *(name.removeprefix(start) for name in names)),
        rows=tuple(rows),
        caption=f"Final {score} as trained and otherwise: means over seeds ± deviation.{said}",
    )


def _ends(results: Results, judged: Judgement, variant: str) -> list[dict[str, float]]:
    """The last scores of a variant's runs at its best rate."""
    runs: tuple[Outcome, ...] = results.of(variant, judged.best.get(variant))
    return [run.points[-1].scores for run in runs if run.status == "done" and run.points]


def _told(runs: list[dict[str, float]], name: str) -> str:
    values = [scores[name] for scores in runs if name in scores]
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{deviation}"


# ------------------------------------------------------------------ sources


def _recursive(results: Results, judged: Judgement, panel: str) -> Table | None:
    """Accuracy of ours and of TSBpt's, and how much of the gap from 1 to 6 layers each closes."""
    told = sources.RECURSIVE[panel]
    last = {t.variant: t for t in told}  # the longest run of each
    ours = {arm.name: _mean(_ends(results, judged, arm.name), "accuracy") for arm in results.arms}
    theirs = {name: t.accuracy for name, t in last.items()}
    rows = [
        (name, _rounded(accuracy), theirs.get(name), _share(ours, name), _share(theirs, name),
         last[name].samples if name in last else None)
        for name, accuracy in ours.items()
        if accuracy is not None or name in theirs
    ]  # fmt: skip
    return Table(
        name="source",
        title="Beside the source's numbers",
        header=("variant", "accuracy here", "accuracy there", "of the gap here",
                "of the gap there", "million samples there"),
        rows=tuple(rows),
        caption=f"{sources.TSBPT}: one run each, of other sizes and data. The gap is that from "
        "1 layer to 6 layers.",
    )  # fmt: skip


def _mean(runs: list[dict[str, float]], name: str) -> float | None:
    values = [scores[name] for scores in runs if name in scores]
    return statistics.fmean(values) if values else None


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _share(values: dict[str, float] | dict[str, float | None], name: str) -> str | None:
    one, six, mine = values.get("1 layer"), values.get("6 layers"), values.get(name)
    if one is None or six is None or mine is None or one == six or name in ("1 layer", "6 layers"):
        return None
    return f"{(mine - one) / (six - one):.0%}"


def _modified(results: Results, judged: Judgement) -> Table | None:
    """Differences of ours and of Narang et al., and whether both say the same."""
    known, rows = sources.narang(), []
    for c in judged.comparisons:
        theirs = known.get(c.variant)
        if theirs is None:
            continue
        early = theirs.early - sources.VANILLA.early
        final = theirs.final - sources.VANILLA.final
        says = direction(early)
        cells = (_signed(c.mean), c.verdict, _signed(early), _signed(final), says)
        rows.append((c.variant, *cells, agreement(c.verdict, says)))
    if not rows:
        return None
    return Table(
        name="source",
        title="Beside Narang et al.",
        header=("modification", "difference here", "verdict here", "early loss there",
                "final loss there", "there it", "the two"),
        rows=tuple(rows),
        caption=f"{sources.NARANG}: differences of validation loss from the vanilla model, an "
        f"encoder-decoder of 223M parameters whose five runs deviate by {sources.SPREAD}. Ours "
        "are from a far smaller model, trained for a far shorter time. A LayerNorm in place of "
        "RMSNorm is their difference the other way round.",
    )  # fmt: skip


def _signed(value: float | None) -> str | None:
    return None if value is None else f"{value:+.3f}".replace("-", "−")


def direction(difference: float) -> str:
    """What a difference of early loss there says: beyond twice the deviation of a difference."""
    if abs(difference) <= 2 * 2**0.5 * sources.SPREAD:
        return "does nothing sure"
    return "helps" if difference < 0 else "hurts"


def agreement(ours: str, theirs: str) -> str:
    """Whether a verdict here and a direction there say the same."""
    sure = ("helps", "hurts")
    if ours == "diverged":
        ours = "hurts"
    if ours in sure and theirs in sure:
        return "agree" if ours == theirs else "disagree"
    if ours == "no evidence" and theirs not in sure:
        return "agree"
    return "open"
