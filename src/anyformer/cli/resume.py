"""`anyformer resume`: go on with a run that stopped."""

from __future__ import annotations

import argparse

EXAMPLE = """\
anyformer resume runs/gpt2-1
torchrun --nproc-per-node 4 -m anyformer resume runs/gpt2-1"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--changed-data", action="store_true", help="go on though the data is not what it was"
    )


def run(args: argparse.Namespace) -> int:
    """Go on from the last complete checkpoint."""
    from anyformer.cli import finetune, train
    from anyformer.train import ranks
    from anyformer.train.begin import again

    with ranks.start():
        done = again(args.folder, args.changed_data)
        if ranks.rank() == 0:
            (finetune if done.scores else train).tell(done)
    return 0
