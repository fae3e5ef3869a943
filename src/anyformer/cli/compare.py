"""`anyformer compare`: which of some models is better, at equal cost, beyond noise?"""

from __future__ import annotations

import argparse
import hashlib
from typing import TYPE_CHECKING, Any

from anyformer.cli import read, studying
from anyformer.cli.train import changed

if TYPE_CHECKING:
    from anyformer.study.nodes import Amount, Study

EXAMPLE = """\
anyformer compare
anyformer compare gpt2 gpt2+rotary "gpt2+stack.depth=4" --data mine.txt --budget 10m
anyformer compare bert bert+rmsnorm+glu --match parameters --seeds 5 --rates 1e-3 2e-3 4e-3
anyformer compare llama llama+one-kv-head --options dim=256 depth=6 heads=8 --budget 20Mtokens"""

SMALL = ("dim=64", "depth=4", "heads=4", "dropout=0.0")  # where no size is asked for
MATCHES: dict[str, Amount] = {
    "parameters": "parameters",
    "non-embedding": "non_embedding",
    "flops": "flops",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "variants", metavar="VARIANT", nargs="*",
        help="recipes with switches, as gpt2+rotary+ff_glu or gpt2+stack.depth=4; the first is the "
        "baseline (default: a small decoder against rotary, GLU, recursion and T5's bias)",
    )  # fmt: skip
    parser.add_argument(
        "--data", nargs="+", default=["python-docs"], metavar="WHAT",
        help="data sets (`anyformer data list`), files or folders (default: python-docs)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", default=None,
        help="of the whole study as 10m, or of each run as 600steps, 5Mtokens, 1e15flops",
    )  # fmt: skip
    parser.add_argument("--match", choices=(*MATCHES, "none"), help="what all variants have alike")
    parser.add_argument(
        "--by", choices=("width", "feedforward"), default="feedforward",
        help="what is made wider or narrower for it",
    )  # fmt: skip
    parser.add_argument(
        "--options", nargs="+", default=None, metavar="key=value",
        help=f"sizes and other options of all recipes (default: {' '.join(SMALL)})",
    )  # fmt: skip
    parser.add_argument("--full", action="store_true", help="the recipes in their own sizes")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--rates", type=float, nargs="+", default=[], help="learning rates to try")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64, help="tokens that are read at once")
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
    names = ("precision", "device", "compile")
    given = {n: getattr(args, n) for n in names if getattr(args, n) is not None}
    settings = changed(Settings(batch=args.batch, lr=args.lr, **given), args.set)
    options = () if args.full else tuple(args.options or SMALL)
    read.pairs(options)
    found: dict[str, Any] = {
        "variants": tuple(variant(text) for text in args.variants),
        "title": " against ".join([args.variants[0], ", ".join(args.variants[1:])]),
        "options": options,
        "objective": args.objective,
        "data": tuple(args.data),
        "tokenizer": args.tokenizer,
        "length": args.length,
        "settings": settings,
        "budget": studying.budget(args.budget) if args.budget else StepBudget(steps=600),
        "match": Match(on=MATCHES[args.match], by=args.by) if args.match in MATCHES else None,
        "seeds": tuple(range(args.seeds)),
        "rates": tuple(args.rates),
        "rows": 256,
    }
    study = Study(name="compare", **found)
    digest = hashlib.sha256(repr(study).encode()).hexdigest()[:8]
    return replace(study, name=f"compare-{digest}")


def first(args: argparse.Namespace) -> Study:
    """The study of no arguments: small, real, done in minutes on two cores."""
    from anyformer.study.shipped import first_look

    study = first_look()
    if args.budget:
        from dataclasses import replace

        study = replace(study, budget=studying.budget(args.budget))
    return study
