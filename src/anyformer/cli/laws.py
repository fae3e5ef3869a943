"""`anyformer laws`: which of the laws a model breaks, or random models do, in words."""

from __future__ import annotations

import argparse
import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING

from anyformer.cli import read
from anyformer.errors import SpecError

if TYPE_CHECKING:
    from anyformer.spec import Model

EXAMPLE = """\
anyformer laws gpt2+rotary
anyformer laws mine.json --law "1 causal" --law "2 cache"
anyformer laws models/my-t5 --overflow
anyformer laws --random 2000 --seed today --jobs 2 --keep broken"""
A_DAY = 100_000  # seeds that a day has for itself


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?",
        help="a recipe, with switches as gpt2+rotary, a JSON file of a spec, or a folder",
    )  # fmt: skip
    parser.add_argument(
        "settings", metavar="key=value", nargs="*",
        help="options of the recipe, or dotted paths into the spec",
    )  # fmt: skip
    parser.add_argument("--random", type=int, metavar="N", help="try N random specs instead")
    parser.add_argument(
        "--seed", default="0",
        help="of the first spec, or of weights and inputs (default: 0); today: the date's",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="--random: processes (default: 1)")
    parser.add_argument("--law", action="append", default=[], help="this law only; may repeat")
    parser.add_argument(
        "--overflow", action="store_true",
        help="instead of the laws: does the model of a folder, as it is, fit into float16?",
    )  # fmt: skip
    parser.add_argument("--keep", metavar="FOLDER", help="write what breaks a law there, as JSON")


def run(args: argparse.Namespace) -> int:
    """Try the laws; 0 if they hold, 1 if one is broken."""
    if (args.model is None) == (args.random is None):
        raise SpecError("name a model, as gpt2+rotary, or how many --random specs to try: one")
    seed = seed_of(args.seed)
    if args.overflow:
        return _overflow(args, seed)
    return _one(args, seed) if args.random is None else _random(args, seed)


def seed_of(text: str) -> int:
    """A seed, or that of the date."""
    if text == "today":
        return datetime.date.today().toordinal() * A_DAY
    if not text.isdigit():
        raise SpecError(f"--seed takes a whole number or today, not {text[:50]!r}")
    return int(text)


def _one(args: argparse.Namespace, seed: int) -> int:
    from anyformer.laws.check import SEEDS, check
    from anyformer.laws.reduce import reduced
    from anyformer.laws.table import LAWS

    spec = model(args.model, args.settings)
    small = reduced(spec)
    found = check(spec, args.law, range(seed, seed + len(SEEDS)))
    asked = [LAWS[name] for name in args.law or LAWS]
    spoken = sum(law.of_one and law.applies(small.spec) for law in asked)
    told = f"{spoken} laws speak of {args.model}: {len(found) or 'none'} broken"
    print(*small.notes, *found, told, sep="\n")
    _keep(args.keep, found)
    return int(bool(found))


def _overflow(args: argparse.Namespace, seed: int) -> int:
    """Read one batch in float16 with the weights of a folder; 1 where numbers are lost."""
    from anyformer.checkpoint import load
    from anyformer.laws.overflow import overflows

    if args.random is not None or not os.path.isdir(args.model):
        raise SpecError("--overflow is asked of a folder: its weights decide")
    found = overflows(load(args.model, dtype="float16"), seed)
    print(f"warning: {found}" if found else f"{args.model}: one batch in float16 stays finite")
    return int(found is not None)


def _random(args: argparse.Namespace, seed: int) -> int:
    from anyformer.errors import known_or_raise
    from anyformer.laws.many import run as run_many
    from anyformer.laws.table import LAWS

    if args.random < 1 or args.jobs < 1:
        raise SpecError("--random and --jobs are at least 1")
    names = [known_or_raise(name, LAWS, "law") for name in args.law] or list(LAWS)
    print(f"{args.random} specs from seed {seed} on", flush=True)
    say = lambda text: print(text, flush=True)
    tally = run_many(names, range(seed, seed + args.random), args.jobs, say)
    print(*tally.table(names), sep="\n")
    _keep(args.keep, tally.found)
    return int(bool(tally.found))


def _keep(folder: str | None, found: list) -> None:
    from anyformer.laws.keep import write

    for finding in found if folder else ():
        print(f"kept {write(finding, Path(folder or '.'))}")


def model(text: str, words: list[str]) -> Model:
    """The spec of a recipe with switches, of a JSON file or of a checkpoint's folder."""
    from anyformer.recipes.registry import edited

    if "+" not in text or os.path.exists(text):
        return read.model(text, words)
    from anyformer.study.words import spec_of

    return edited(spec_of(text), read.pairs(words))
