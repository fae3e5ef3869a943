"""`anyformer diff`: what differs between two models."""

from __future__ import annotations

import argparse

from anyformer.cli import read
from anyformer.model.census import census
from anyformer.spec import diff

EXAMPLE = """\
anyformer diff encoder decoder
anyformer diff bert bert --b depth=6 stack.block.*.place=pre"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("before", metavar="A", help="a recipe, a JSON file of a spec, or a folder")
    parser.add_argument("after", metavar="B", help="another one")
    for name in ("a", "b"):
        parser.add_argument(
            f"--{name}",
            metavar="key=value",
            nargs="+",
            default=[],
            help=f"options of {name.upper()}'s recipe, or dotted paths into its spec",
        )


def run(args: argparse.Namespace) -> int:
    """Print the differences and what they do to the number of parameters."""
    before, after = read.model(args.before, args.a), read.model(args.after, args.b)
    print(*(diff(before, after) or ["no difference"]), sep="\n")
    print("\n" + parameters_line(census(before).size(), census(after).size()))
    return 0


def parameters_line(before: int, after: int) -> str:
    """How the number of parameters changes, in words."""
    if before == after:
        return f"parameters: {before:,}, the same"
    share = f", {(after - before) / before:+.1%}" if before else ""
    return f"parameters: {before:,} → {after:,} ({after - before:+,}{share})"
