"""The tables of a report as rows of cells: verdicts, sizes, runs that went wrong, and facts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence

from anyformer.study.judgement import Comparison, Judgement
from anyformer.study.reading import diverged
from anyformer.study.report.markup import Html, clean, join, safe, tag, tied
from anyformer.study.report.numbers import duration, exact, short
from anyformer.study.results import Arm, Results
from anyformer.study.verdicts import amount, decimals, p_words, rate

MARKS = {
    "helps": "▲",
    "hurts": "▼",
    "may help": "△",
    "may hurt": "▽",
    "no evidence": "≈",
    "inconclusive": "?",
    "diverged": "✕",
}


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], caption: str, sortable: bool = False
) -> Html:
    """A table in a box of its own that scrolls; the first cell of a row names it."""
    head = tag("tr", *(tag("th", name, scope="col") for name in header))
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(_cell(value) for value in row[1:]))
        for row in rows
    ]
    made = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", head),
        tag("tbody", *body),
        class_="sortable" if sortable else None,
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(value: object) -> Html:
    if isinstance(value, Html):
        return tag("td", value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return tag("td", exact(value), class_="number" if is_number else None)


def figure(text: object, value: float | None = None) -> Html:
    """A number in words in its cell, to be sorted by its value."""
    told = None if value is None else repr(float(value))
    return tag("span", text, class_="number", data_value=told)


def badge(verdict: str) -> Html:
    """A verdict's word with a mark that needs no colour."""
    kind = verdict.replace(" ", "-")
    mark = tag("span", MARKS[verdict], aria_hidden="true")
    return tag("span", mark, "\N{NO-BREAK SPACE}", verdict, class_=f"badge {kind}")


def verdicts(results: Results, judged: Judgement) -> Html:
    """The verdict on each variant, its difference and what stands behind it."""
    share = judged.gap is not None
    header = ["variant", "verdict", "difference", "p, corrected", "p, own seeds"]
    header += [*(["recovered"] if share else []), f"final {results.score}"]
    header += [*(["rate"] if len(results.rates) > 1 else []), "seeds"]
    rows = [_row(results, judged, arm.name, share) for arm in results.arms]
    rows.sort(key=lambda row: row[0] != results.baseline)
    better = "lower" if results.lower else "higher"
    caption = f"Verdicts on {results.score} ({better} is better) against {results.baseline}"
    return table(header, rows, caption, sortable=True)


def _row(results: Results, judged: Judgement, name: str, share: bool) -> list[object]:
    reading = judged.readings[name]
    values = list(reading.values.values())
    c = judged.of(name)
    lr = "" if reading.lr is None else rate(reading.lr)
    rates = [figure(lr, reading.lr)] if len(results.rates) > 1 else []
    end = [*rates, figure(len(values), len(values))]
    if c is None:
        empty = [Html("")] * (3 + share)
        return [name, tag("span", "baseline", class_="badge"), *empty, _mean(values), *end]
    p, own = (figure("" if v is None else p_words(v), v) for v in (c.corrected, c.own_p))
    shares = [_share(c)] if share else []
    gone = figure("" if c.mean is None else amount(c), c.mean)
    words = tag("span", badge(c.verdict), tied(c.words.removeprefix(c.verdict)), class_="words")
    return [name, words, gone, p, own, *shares, _mean(values), *end]


def _mean(values: Sequence[float]) -> Html:
    if not values:
        return Html("")
    mean = statistics.fmean(values)
    if len(values) < 2:
        return figure(f"{mean:.4g}", mean)
    sd = statistics.stdev(values)
    places = decimals(max(sd, abs(mean) / 1e5))
    return figure(f"{mean:.{places}f} (sd {sd:.{places}f})", mean)


def _share(c: Comparison) -> Html:
    if c.recovered is None or c.share is None:
        return Html("")
    low, high = c.share
    told = f"{c.recovered:.0%} ({low:.0%} to {high:.0%})".replace("-", "−")
    return figure(told, c.recovered)


def sizes(results: Results, judged: Judgement) -> Html:
    """What each variant has and costs."""
    header = ("variant", "parameters", "embeddings aside", "applied", "FLOPs per token")
    header += ("steps", "tokens per step", "time of a run")
    rows = [
        [
            arm.name,
            *(figure(short(n, 4), n) for n in (arm.parameters, arm.non_embedding, arm.applied)),
            figure(short(arm.flops, 4), arm.flops),
            *(figure(f"{n:,}".replace(",", " "), n) for n in (arm.steps, arm.tokens)),
            _time(results, arm, judged.best.get(arm.name)),
        ]
        for arm in results.arms
    ]
    return table(header, rows, "Parameters and floating-point operations (forward)", sortable=True)


def _time(results: Results, arm: Arm, lr: float | None) -> Html:
    ends = [
        r.points[-1].seconds for r in results.of(arm.name, lr) if r.status == "done" and r.points
    ]
    known = [seconds for seconds in ends if seconds is not None]
    mean = statistics.fmean(known) if known else None
    return figure("" if mean is None else duration(mean), mean)


def changes(results: Results) -> Html:
    """What each variant's spec has otherwise than the baseline's."""
    parts: list[Html] = []
    for arm in results.arms:
        same = "the baseline" if arm.name == results.baseline else "no change of the model"
        lines = "\n".join(arm.changes)
        told = tag("pre", lines, tabindex="0") if lines else tag("p", same, class_="muted")
        parts += [tag("dt", arm.name), tag("dd", told)]
    return tag("dl", *parts, class_="changes")


def wrong(results: Results) -> Html | None:
    """Runs that diverged, failed or aren't done, and why."""
    rows = [
        (
            run.variant,
            "diverged" if diverged(run, results.score) else run.status,
            run.seed,
            figure(rate(run.lr), run.lr),
            run.points[-1].step if run.points else 0,
            run.reason or "",
        )
        for run in results.outcomes
        if run.status != "done" or diverged(run, results.score)
    ]
    header = ("variant", "status", "seed", "learning rate", "last step", "reason")
    return table(header, rows, "Runs that are not in the means", sortable=True) if rows else None


def facts(told: Mapping[str, object]) -> Html:
    """Names and values; what is nested as JSON."""
    parts: list[Html] = []
    for key, value in told.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        parts += [tag("dt", key), tag("dd", clean(text))]
    return tag("dl", *parts, class_="facts")


def samples(results: Results, judged: Judgement) -> Html | None:
    """A text that each variant wrote."""
    parts: list[Html] = []
    for arm in results.arms:
        runs = results.of(arm.name, judged.best.get(arm.name))
        run = next((run for run in runs if run.sample), None)
        if run is not None and run.sample:
            text = run.sample if len(run.sample) <= 1500 else f"{run.sample[:1500]}…"
            head = tag("h3", arm.name, " ", tag("small", f"seed {run.seed}, rate {rate(run.lr)}"))
            parts += [head, tag("pre", text, tabindex="0", class_="sample")]
    return join(parts) if parts else None


def raw(told: object) -> Html:
    """Data as indented JSON."""
    return tag("pre", safe(json.dumps(told, indent=1, default=str)), tabindex="0")
