"""`anyformer list`: every recipe with what it is."""

from __future__ import annotations

import argparse

from anyformer.recipes import options, recipes

EXAMPLE = "anyformer list --options"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--options", action="store_true", help="show each recipe's options")


def run(args: argparse.Namespace) -> int:
    """Print the recipes."""
    found = recipes()
    width = max(map(len, found))
    for name, summary in found.items():
        print(f"{name:<{width}}  {summary}")
        if args.options:
            print(
                " " * width, *(f"{key}={value}" for key, value in options(name).items()), sep="  "
            )
    return 0
