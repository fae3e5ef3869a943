"""`anyformer report`: the report of a study as it stands."""

from __future__ import annotations

import argparse
from pathlib import Path

from anyformer.cli import studying

EXAMPLE = """\
anyformer report studies/compare
anyformer report studies/recursive-layers --out docs/studies/recursive-layers"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("folder", metavar="STUDY", help="the folder of a study, or of its panels")
    parser.add_argument("--out", help="where to write it (default: into the study's folder)")
    parser.add_argument("--no-open", action="store_true", help="don't open it in a browser")


def run(args: argparse.Namespace) -> int:
    """Write the report of a study, whether it is over or not."""
    from anyformer.study.gather import STUDY
    from anyformer.study.results import to_json
    from anyformer.study.run import opened
    from anyformer.study.together import panels_in
    from anyformer.train.run import write

    folder = Path(args.folder)
    panels = [] if (folder / STUDY).is_file() else panels_in(folder)
    for one in panels or [folder]:
        found, home = opened(one), Path(args.out or args.folder)
        home = home / one.name if panels else home
        home.mkdir(parents=True, exist_ok=True)
        write(home / "results.json", to_json(found))
        studying.report(found, home, not args.no_open)
    if panels:
        studying.all_told(folder, args.out)
    return 0
