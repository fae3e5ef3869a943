"""What verbs about studies share: their arguments, how they show a study, how they end it."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from anyformer.errors import StudyError

if TYPE_CHECKING:
    from anyformer.study.nodes import Budget, Study
    from anyformer.study.results import Outcome, Results
    from anyformer.study.run import Watch

UNITS = {"m": 60.0, "min": 60.0, "h": 3600.0, "s": 1.0}
SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every verb that runs a study takes."""
    parser.add_argument("--out", help="the study's folder (default: in studies/)")
    parser.add_argument("--jobs", type=int, help="runs at once (default: one for each core)")
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local",
        help="ray: over the machines of a Ray cluster that see the same folder",
    )  # fmt: skip
    parser.add_argument("--no-open", action="store_true", help="don't open the report in a browser")


def budget(text: str) -> Budget:
    """A budget as it is written: 10m, 600steps, 5Mtokens, 1e15flops."""
    from anyformer.study.nodes import FlopBudget, StepBudget, TimeBudget, TokenBudget

    lowered = text.strip().lower().replace(" ", "")
    try:
        for word, make in (("tokens", lambda n: TokenBudget(tokens=n)),
                           ("flops", lambda n: FlopBudget(flops=n)),
                           ("steps", lambda n: StepBudget(steps=int(n)))):  # fmt: skip
            if lowered.endswith(word):
                return make(_number(lowered.removesuffix(word)))
        unit = lowered.lstrip("0123456789.")
        minutes = float(lowered.removesuffix(unit) if unit else lowered) * UNITS[unit] / 60
        return TimeBudget(minutes=minutes)
    except (KeyError, ValueError) as error:
        raise StudyError(
            f"--budget {text!r}: write minutes as 10m, or 600steps, 5Mtokens, 1e15flops"
        ) from error


def _number(text: str) -> float:
    size = SIZES.get(text[-1:], None) if text[-1:].isalpha() else 1.0
    if size is None:
        raise ValueError(text)
    return float(text.rstrip("kmgbt")) * size


def carry_out(
    study: Study, args: argparse.Namespace, home: Path, minutes: float | None = None
) -> int:
    """Run a study with its progress shown, write its report, and open it.

    After so many minutes it stops where it is; the same command goes on.
    """
    from anyformer.study.report.figures import matplotlib
    from anyformer.study.run import run

    matplotlib()  # now, not after all the runs
    print(f"{study.title or study.name}: {home}", file=sys.stderr)
    try:
        with terminable(), shown() as watch:
            found = run(study, home, args.jobs, args.engine, watch, minutes)
    except Interrupt as stop:
        print(f"{stop}: runs under way were saved, the same command goes on", file=sys.stderr)
        return stop.code
    waiting = sum(o.status in ("waiting", "running") for o in found.outcomes)
    if waiting:
        print(f"{waiting} runs are left: the same command goes on", file=sys.stderr)
    return ended(found, home, not args.no_open)


class Interrupt(KeyboardInterrupt):
    """A signal that asks the command to end; `code` is the exit status for it."""

    def __init__(self, which: signal.Signals):
        super().__init__(which.name)
        self.code = 128 + which


@contextmanager
def terminable() -> Iterator[None]:
    """SIGINT and SIGTERM raise an Interrupt, so that what was begun is ended in order."""

    def heard(number: int, _: FrameType | None) -> None:
        raise Interrupt(signal.Signals(number))

    old = {s: signal.signal(s, heard) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in old.items():
            signal.signal(which, handler)


def ended(found: Results, home: Path, look: bool) -> int:
    """Print the verdicts, write the report and open it."""
    from anyformer.study.stats import judge

    for comparison in judge(found).comparisons:
        print(f"{comparison.variant}: {comparison.words}")
    failed = [o for o in found.outcomes if o.status == "failed"]
    for outcome in failed:
        print(f"{told(outcome)} failed: {outcome.reason}", file=sys.stderr)
    report(found, home, look)
    return 1 if failed else 0


def report(found: Results, home: Path, look: bool) -> None:
    """Write the report of results into a folder and open it where that is wanted."""
    from anyformer.study.report import write

    page = write(found, home)
    print(f"report: {page}")
    if look and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def all_told(folder: Path, out: str | None = None) -> None:
    """Write what panels of a study say together, where they do."""
    from anyformer.study.together import together

    for file in together(folder, out):
        print(f"together: {file}")


def told(outcome: Outcome) -> str:
    """A run in a few words."""
    return f"{outcome.variant}, seed {outcome.seed}, lr {outcome.lr:g}"


@contextmanager
def shown(timed: bool = True) -> Iterator[Watch]:
    """On a terminal a table of the variants that follows the runs; else a line for each that ends.

    What is left is told in minutes where the runs are timed from here on.
    """
    from rich.console import Console

    console, begun = Console(stderr=True), time.monotonic()
    seen: set[str] = set()
    if not console.is_terminal:
        yield lambda found: _lines(found, seen)
        return
    from rich.live import Live

    with Live(console=console, refresh_per_second=4) as live:
        yield lambda found: live.update(table(found, time.monotonic() - begun if timed else None))


def _lines(found: Results, seen: set[str]) -> None:
    for outcome in found.outcomes:
        if outcome.status in ("waiting", "running") or outcome.key in seen:
            continue
        seen.add(outcome.key)
        last = outcome.points[-1].scores.get(found.score) if outcome.points else None
        value = f"{found.score} {last:.4f}" if last is not None else ""
        many = f"{len(seen)}/{len(found.outcomes)}"
        print(f"[{many}] {told(outcome)}: {outcome.status} {value}", file=sys.stderr, flush=True)


def table(found: Results, passed: float | None = None) -> Any:
    """The variants with their runs; what is left, where it is known how long it took so far."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=escape(found.title), title_justify="left")
    for name in ("variant", "parameters", "runs", "under way", found.score):
        made.add_column(name, justify="left" if name == "variant" else "right")
    done = total = 0.0
    for arm in found.arms:
        runs = found.of(arm.name)
        over = [o for o in runs if o.status not in ("waiting", "running")]
        steps = [o.training[-1][0] if o.training else 0 for o in runs if o.status == "running"]
        ends = [o.points[-1].scores[found.score] for o in over if o.points and o.status == "done"]
        mean = f"{sum(ends) / len(ends):.4f}" if ends else ""
        way = " ".join(f"{step}/{arm.steps}" for step in steps)
        made.add_row(escape(arm.name), f"{arm.parameters:,}", f"{len(over)}/{len(runs)}", way, mean)
        cost = arm.flops * arm.tokens
        done += cost * (len(over) * arm.steps + sum(steps))
        total += cost * len(runs) * arm.steps
    if 0 < done < total:
        left = (
            "" if passed is None else f", about {passed * (total / done - 1) / 60:.1f} minutes left"
        )
        made.caption = f"{done / total:.0%}{left}"
    return made


def folder(out: str | None, name: str) -> Path:
    """The folder that is asked for, or that of the study's name; it goes on where one is there."""
    return Path(out) if out is not None else Path("studies") / name
