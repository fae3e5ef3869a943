"""`anyformer study`: a study that ships, or one that a JSON file describes."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anyformer.cli import studying

if TYPE_CHECKING:
    from anyformer.study.nodes import Study

EXAMPLE = """\
anyformer study
anyformer study recursive-layers --tier cpu
anyformer study recursive-layers/masked-relative --tier gpu --minutes 8
anyformer study modifications --tier gpu --minutes 8 --out studies/mods
anyformer study mine.json --jobs 4 --engine ray"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "name", metavar="NAME", nargs="?",
        help="a study, one panel of it as NAME/PANEL, or a JSON file of one (default: list)",
    )  # fmt: skip
    parser.add_argument(
        "--tier", choices=("cpu", "gpu"), default=None,
        help="minutes on a CPU, or about 25 minutes of a large GPU (default: what is there)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, default=None,
        help="save and stop after so long; the same command goes on (default: to the end)",
    )  # fmt: skip
    parser.add_argument("--budget", default=None, help="of each run, as 600steps or 5Mtokens")
    parser.add_argument("--show", action="store_true", help="print the study and run nothing")
    studying.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run a study to its end, or list those that ship."""
    from anyformer.spec import to_json

    if args.name is None:
        print("\n".join(listed()))
        return 0
    panels = _panels(args)
    if args.show:
        for study in panels:
            print(to_json(study))
        return 0
    end = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    status = 0
    for study in panels:
        left = None if end is None else (end - time.monotonic()) / 60
        if left is not None and left <= 0:
            print(f"{study.name}: not begun, the time is over", file=sys.stderr)
            continue
        ended = studying.carry_out(study, args, _home(args, study, panels), left)
        if ended >= 128:  # a signal
            return ended
        status = status or ended
    if len(panels) > 1:
        studying.all_told(_home(args, panels[0], panels).parent)
    return status


def _panels(args: argparse.Namespace) -> tuple[Study, ...]:
    """The studies that are asked for."""
    from dataclasses import replace

    from anyformer.study import shipped
    from anyformer.study.run import read_study

    if args.name.endswith(".json") or Path(args.name).is_file():
        found: tuple[Study, ...] = (read_study(args.name),)
    else:
        found = shipped.panels(args.name.rstrip("/"), args.tier)
    if args.budget is None:
        return found
    return tuple(replace(study, budget=studying.budget(args.budget)) for study in found)


def _home(args: argparse.Namespace, study: Study, panels: tuple[Study, ...]) -> Path:
    """A study's folder: of several each in its own, within the one that is asked for."""
    if args.out is None or len(panels) == 1:
        return studying.folder(args.out, study.name)
    return Path(args.out) / study.name.rpartition("/")[2]


def listed() -> list[str]:
    """A line for each study that ships, and one for each of its panels: what it has to run."""
    from anyformer.study import shipped

    lines: list[str] = []
    for name, summary in shipped.summaries().items():
        lines.append(f"{name}: {summary}")
        large = {study.name: study for study in shipped.panels(name, "gpu")}
        small = {study.name: study for study in shipped.panels(name, "cpu")}
        for panel in dict.fromkeys([*small, *large]):
            told = [
                f"{tier} {shipped.runs(found[panel]):>3} runs of {_size(found[panel])}"
                for tier, found in (("cpu", small), ("gpu", large))
                if panel in found
            ]
            lines.append(f"  {panel:<34} {'; '.join(told)}")
    return lines


def _size(study: Study) -> str:
    """How long a run is: steps or tokens."""
    from anyformer.study.nodes import StepBudget, TokenBudget

    if isinstance(study.budget, StepBudget):
        return f"{study.budget.steps} steps"
    if isinstance(study.budget, TokenBudget):
        return f"{study.budget.tokens / 1e6:g}M tokens"
    return str(study.budget)
