"""`anyformer train`: a recipe, texts and an objective to a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyformer.cli import read
from anyformer.cli.data import bad, bar

if TYPE_CHECKING:
    from anyformer.train.run import Run
    from anyformer.train.settings import Settings

EXAMPLE = """\
anyformer train
anyformer train bert dim=256 depth=4 heads=4 --data my-texts/ --steps 2000
anyformer train t5 depth=4 --data shakespeare --tokenizer unigram:8000 --out runs/t5
anyformer train gpt2 dim=128 depth=4 heads=4 --data a.txt --set optimiser=Muon --set lr=0.01
torchrun --nproc-per-node 4 -m anyformer train llama dim=512 depth=8 --data big/ --batch 256"""

SMALL = {"dim": 128, "depth": 4, "heads": 4, "dropout": 0.0}  # where no recipe is named
LITTLE = {"steps": 600, "batch": 16, "lr": 2e-3}
NAMED = ("steps", "batch", "lr", "seed", "precision", "device", "compile", "float8")  # settings


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a recipe, or a folder to go on from"
    )
    parser.add_argument(
        "settings", metavar="key=value", nargs="*", help="options of the recipe, or paths into it"
    )
    parser.add_argument(
        "--data", nargs="+", default=["python-docs"], metavar="WHAT",
        help="data sets (`anyformer data list`), files or folders (default: python-docs)",
    )  # fmt: skip
    parser.add_argument("--objective", help="as masked (default: the one of the model's paper)")
    parser.add_argument(
        "--ask", action="append", default=[], metavar="key=value",
        help="a setting of the objective, as rate=0.2",
    )  # fmt: skip
    parser.add_argument(
        "--tokenizer", help="a folder, or characters, bytes, bpe:8000, wordpiece:8000, unigram:8000"
    )
    parser.add_argument("--length", type=int, help="tokens that are read at once (default: 128)")
    parser.add_argument(
        "--split", choices=("file", "block", "line"), help="a text file's documents"
    )
    bad(parser)
    shared(parser)


def shared(parser: argparse.ArgumentParser) -> None:
    """Add what training and fine-tuning have in common."""
    parser.add_argument("--out", help="the run's folder (default: a new one in runs/)")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, help="rows of a step, over all processes")
    parser.add_argument("--lr", type=float, help="the highest learning rate")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--device", help="as cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--compile", action="store_true", default=None)
    parser.add_argument(
        "--float8", action="store_true", default=None,
        help="products of wide maps in float8 (with --precision bfloat16 --compile, on a GPU)",
    )  # fmt: skip
    parser.add_argument(
        "--report-to", nargs="+", metavar="TRACKER", help="tensorboard, wandb, trackio"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="path=value",
        help="any setting, as schedule.warmup=100 or optimiser=Muon (anyformer.train.Settings)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Train, and say what came of it."""
    from anyformer.train import ranks
    from anyformer.train.begin import Wish, again, begin, gather

    small = args.model is None
    with ranks.start():
        out = folder_of(args.out, args.model or "gpt2")
        if ranks.restarted() and (out / "run.json").exists():
            return _told(again(out))
        with bar("preparing texts") as progress:
            wish = Wish(
                model=args.model or "gpt2",
                options={**(SMALL if small else {}), **read.pairs(args.settings)},
                data=tuple(args.data),
                objective=args.objective,
                asks=read.pairs(args.ask),
                tokenizer=args.tokenizer or ("characters" if small else None),
                context=args.length,
                source={"on_bad": args.on_bad} | ({"split": args.split} if args.split else {}),
                settings=settings_of(args, LITTLE if small else {}),
                progress=progress,
            )
            found = gather(wish)
        return _told(begin(found, out))


def _told(done: Run) -> int:
    from anyformer.train import ranks

    if ranks.rank() == 0:
        tell(done)
    return 0


def settings_of(args: argparse.Namespace, defaults: dict[str, Any]) -> Settings:
    """The settings that the words of a command ask for."""
    from anyformer.train.settings import Cosine, Evaluation, Settings

    given = {n: getattr(args, n) for n in NAMED if getattr(args, n) is not None}
    found = {**defaults, **given}
    steps = found.get("steps", Settings().steps)
    found["schedule"] = Cosine(warmup=min(100, steps // 10), final=0.1)
    found["evaluation"] = Evaluation(every=max(steps // 10, 1))
    if args.report_to:
        found["trackers"] = tuple(args.report_to)
    return changed(Settings(**found), args.set)


def changed(settings: Settings, words: list[str]) -> Settings:
    """The settings with those that words of the form path=value name."""
    from anyformer import spec as S

    for path, value in read.pairs(words).items():
        settings = S.override(settings, path, _node(value))
    return settings


def _node(value: Any) -> Any:
    """A value; the name of a node stands for it with its defaults."""
    from anyformer.spec.node import KINDS

    return KINDS[value]() if isinstance(value, str) and value in KINDS else value


def folder_of(out: str | None, name: str) -> Path:
    """The folder that is asked for, or a new one in runs/, the same on every rank.

    Processes that torchrun started again go on in the one that they were in.
    """
    from anyformer.train import ranks

    if out is not None:
        return Path(out)
    stem = Path("runs") / Path(name).name
    number = 1
    while stem.with_name(f"{stem.name}-{number}").exists():
        number += 1
    number -= ranks.restarted()
    return Path(ranks.from_first(str(stem.with_name(f"{stem.name}-{number}"))))


def tell(done: Run) -> None:
    """Print the numbers of a run, and a sample where its model writes text."""
    from anyformer.train.sample import sample, writes

    told = {k: v for k, v in done.validation.items() if not k.startswith("loss/")}
    numbers = [f"{name.replace('_', ' ')} {value:.4g}" for name, value in told.items()]
    print(f"{done.steps} steps; validation: {', '.join(numbers) or 'none'}")
    model, words = done.model(), done.tokenizer()
    if words and writes(model.spec):
        print(f"a sample:\n{sample(model, words)}")
    print(f"{done.folder / 'model'}: anyformer.load reads it")
