"""`anyformer list`: the family tree, branch by branch, with what each recipe is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from anyformer.recipes import options, recipes, sizes
from anyformer.recipes.tree import lines

EXAMPLE = """\
anyformer list
anyformer list --sizes"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--options", action="store_true", help="show each recipe's options")
    parser.add_argument("--sizes", action="store_true", help="name each recipe's published sizes")


def run(args: argparse.Namespace) -> int:
    """Print the tree."""
    found = recipes()
    for twigs, stem, name in drawn([*lines()]):
        print(f"{twigs}{name}  {found[name]}" if twigs else name)
        if twigs and args.options:
            print(stem + "  ".join(f"{key}={value}" for key, value in options(name).items()))
        if twigs and args.sizes and sizes(name):
            print(stem + "  ".join(sizes(name)))
    return 0


def drawn(tree: list[tuple[int, str]]) -> Iterator[tuple[str, str, str]]:
    """Each name with the twigs before it, and before further lines under it."""
    for i, (level, name) in enumerate(tree):
        goes_on = [_goes_on(tree, i, at) for at in range(1, level + 1)]
        stem = "".join("│   " if on else "    " for on in goes_on)
        twigs = stem[:-4] + ("├── " if goes_on[-1] else "└── ") if level else ""
        yield twigs, stem, name


def _goes_on(tree: list[tuple[int, str]], i: int, level: int) -> bool:
    """Whether a branch of that level has more items below line i."""
    below = (other for other, _ in tree[i + 1 :] if other <= level)
    return next(below, -1) == level
