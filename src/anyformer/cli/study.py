"""`anyformer study`: a study that ships, or one that a JSON file describes."""

from __future__ import annotations

import argparse
from pathlib import Path

from anyformer.cli import studying

EXAMPLE = """\
anyformer study
anyformer study recursive-layers --tier cpu
anyformer study modifications --tier gpu --minutes 8 --out studies/mods
anyformer study mine.json --jobs 4 --engine ray"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a study, or a JSON file of one (default: list)"
    )
    parser.add_argument(
        "--tier", choices=("cpu", "gpu"), default=None,
        help="minutes on a CPU, or about 25 minutes of a large GPU (default: what is there)",
    )  # fmt: skip
    parser.add_argument("--show", action="store_true", help="print the study and run nothing")
    studying.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run a study to its end, or list those that ship."""
    from anyformer.spec import to_json
    from anyformer.study import shipped
    from anyformer.study.run import read_study

    if args.name is None:
        for name, summary in shipped.summaries().items():
            print(f"{name:<18} {summary}")
        return 0
    if args.name.endswith(".json") or Path(args.name).is_file():
        study = read_study(args.name)
    else:
        study = shipped.study(args.name, args.tier)
    if args.show:
        print(to_json(study))
        return 0
    return studying.carry_out(study, args, studying.folder(args.out, study.name))
