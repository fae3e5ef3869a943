"""`anyformer compare`: which of some models is better, at equal cost, beyond noise?"""

from __future__ import annotations

import argparse
import hashlib
from typing import TYPE_CHECKING, Any

from anyformer.cli import read, studying
from anyformer.cli.train import changed
from anyformer.errors import StudyError

if TYPE_CHECKING:
    from anyformer.study.nodes import Amount, Study

EXAMPLE = """\
anyformer compare
anyformer compare gpt2 gpt2+rotary "gpt2+stack.depth=4" --data mine.txt --budget 10m
anyformer compare bert bert+rmsnorm+glu --match parameters --seeds 5 --rates 1e-3 2e-3 4e-3
anyformer compare llama llama+one-kv-head --options dim=256 depth=6 heads=8 --budget 20Mtokens"""

SMALL = ("dim=64", "depth=4", "heads=4", "dropout=0.0")  # where no size is asked for
USUAL: dict[str, Any] = {"batch": 16, "lr": 2e-3}
MATCHES: dict[str, Amount] = {
    "parameters": "parameters",
    "non-embedding": "non_embedding",
    "flops": "flops",
}

OF_VARIANTS = (  # options that mean something only where variants are named
    *("data", "match", "by", "options", "full", "seeds", "rates", "lr", "batch", "length"),
    *("objective", "tokenizer", "precision", "device", "compile", "set"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "variants", metavar="VARIANT", nargs="*",
        help="recipes with switches, as gpt2+rotary+ff_glu or gpt2+stack.depth=4; the first is the "
        "baseline (default: a small decoder against rotary, GLU, recursion and T5's bias)",
    )  # fmt: skip
    parser.add_argument(
        "--data", nargs="+", metavar="WHAT",
        help="data sets (`anyformer data list`), files or folders (default: python-docs)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", default=None,
        help="of the whole study as 10m, or of each run as 600steps, 5Mtokens, 1e15flops",
    )  # fmt: skip
    parser.add_argument("--match", choices=(*MATCHES, "none"), help="what all variants have alike")
    parser.add_argument(
        "--by", choices=("width", "feedforward"),
        help="what is made wider or narrower for it (default: feedforward)",
    )  # fmt: skip
    parser.add_argument(
        "--options", nargs="+", default=None, metavar="key=value",
        help=f"sizes and other options of all recipes (default: {' '.join(SMALL)})",
    )  # fmt: skip
    parser.add_argument("--full", action="store_true", help="the recipes in their own sizes")
    parser.add_argument("--seeds", type=int, help="how many (default: 3)")
    parser.add_argument("--rates", type=float, nargs="+", default=[], help="learning rates to try")
    parser.add_argument("--lr", type=float, help="(default: 0.002)")
    parser.add_argument("--batch", type=int, help="rows of a step (default: 16)")
    parser.add_argument("--length", type=int, help="tokens that are read at once (default: 64)")
    parser.add_argument("--objective", help="as masked (default: the one of the model's paper)")
    parser.add_argument(
        "--tokenizer", help="a folder, or characters, bytes, bpe:8000, wordpiece:8000, unigram:8000"
    )
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--device", help="as cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--compile", action="store_true", default=None)
    parser.add_argument(
        "--set", action="append", default=[], metavar="path=value",
        help="any setting of training, as weight_decay=0.01",
    )  # fmt: skip
    studying.arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compare, and open the report."""
    study = study_of(args)
    return studying.carry_out(study, args, studying.folder(args.out, study.name))


def study_of(args: argparse.Namespace) -> Study:
    """The study that the words of a command ask for."""
    from dataclasses import replace

    from anyformer.study.nodes import Match, StepBudget, Study
    from anyformer.study.words import variant
    from anyformer.train.settings import Settings

    if not args.variants:
        return first(args)
    _refuse_clashes(args)
    names = ("batch", "lr", "precision", "device", "compile")
    given = {n: getattr(args, n) for n in names if getattr(args, n) is not None}
    settings = changed(Settings(**{**USUAL, **given}), args.set)
    options = () if args.full else tuple(args.options or SMALL)
    read.pairs(options)
    found: dict[str, Any] = {
        "variants": tuple(variant(text) for text in args.variants),
        "title": " against ".join([args.variants[0], ", ".join(args.variants[1:])]),
        "options": options,
        "objective": args.objective,
        "data": tuple(args.data or ["python-docs"]),
        "tokenizer": args.tokenizer,
        "length": 64 if args.length is None else args.length,
        "settings": settings,
        "budget": studying.budget(args.budget) if args.budget else StepBudget(steps=600),
        "match": Match(on=MATCHES[args.match], by=args.by or "feedforward")
        if args.match in MATCHES
        else None,
        "seeds": tuple(range(3 if args.seeds is None else args.seeds)),
        "rates": tuple(args.rates),
        "rows": 256,
    }
    study = Study(name="compare", **found)
    digest = hashlib.sha256(repr(study).encode()).hexdigest()[:8]
    return replace(study, name=f"compare-{digest}")


def _refuse_clashes(args: argparse.Namespace) -> None:
    """Refuse an option that another one would leave without effect."""
    if args.full and args.options:
        raise StudyError("--full takes the recipes in their own sizes: leave out --options, or it")
    if args.by and args.match not in MATCHES:
        raise StudyError("--by says how to match: give --match too, as --match parameters")


def first(args: argparse.Namespace) -> Study:
    """The study of no arguments: small, real, done in minutes on two cores."""
    from dataclasses import replace

    from anyformer.study.shipped import first_look

    idle = [f"--{name}" for name in OF_VARIANTS if getattr(args, name) not in (None, False, [])]
    if idle:
        raise StudyError(
            f"{', '.join(idle)}: name the variants to compare too, as `anyformer compare gpt2 "
            f"gpt2+rotary {idle[0]} …`; without any a study that ships is run as it is"
        )
    study = first_look()
    return replace(study, budget=studying.budget(args.budget)) if args.budget else study
