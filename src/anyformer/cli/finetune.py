"""`anyformer finetune`: a model and records to a model of a task, with its scores."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from anyformer.cli import read
from anyformer.cli.data import bad
from anyformer.cli.text import columns

if TYPE_CHECKING:
    from anyformer.train.run import Run
    from anyformer.train.settings import Settings
    from anyformer.train.tune import Ready

EXAMPLE = """\
anyformer finetune my-bert/ --task classification --data reviews.csv --text review --label stars
anyformer finetune bert dim=128 depth=2 heads=2 --task token-classification --data python-spans
anyformer finetune my-t5/ --task summarisation --data papers.jsonl --ask "prefix=summarize: "
anyformer finetune vit image=28 patch=7 dim=64 --task image-classification --data digits"""

TASKS = (
    "classification",
    "many-labels",
    "regression",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "summarisation",
    "translation",
    "image-classification",
    "captioning",
)
FIELDS = {
    "text": "classification: the text",
    "pair": "classification: a second text beside it",
    "label": "the label or number",
    "words": "token-classification: the words",
    "tags": "token-classification: the words' tags",
    "question": "question-answering, multiple-choice",
    "context": "question-answering, multiple-choice",
    "answers": "question-answering: texts and where they start",
    "choices": "multiple-choice: a list of texts",
    "source": "summarisation, translation: the text that is read",
    "target": "summarisation, translation, captioning: the text that is written",
    "image": "an image, its file or its numbers",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    from anyformer.cli.train import shared

    parser.add_argument("model", metavar="MODEL", help="a folder, a name of the hub, or a recipe")
    parser.add_argument("settings", metavar="key=value", nargs="*", help="options of the recipe")
    parser.add_argument("--task", required=True, choices=TASKS)
    records(parser)
    parser.add_argument("--validation", metavar="FILE", help="records to validate on")
    parser.add_argument(
        "--held-out", type=float, default=0.1, metavar="SHARE",
        help="of a file, to validate on where no other is given (default: 0.1)",
    )  # fmt: skip
    parser.add_argument("--labels", nargs="+", default=[], help="(default: those of the data)")
    parser.add_argument(
        "--new-head", action="store_true", help="though the model tells other labels apart"
    )
    parser.add_argument("--tokenizer", help="of a recipe: a folder, or a kind as wordpiece:4000")
    parser.add_argument("--epochs", type=float, default=3.0, help="(default: 3)")
    shared(parser)


def records(parser: argparse.ArgumentParser) -> None:
    """Add what fine-tuning and evaluation ask of records."""
    add = parser.add_argument
    add("--data", required=True, metavar="WHAT", help="a file of records, or a data set")
    bad(parser)
    add("--length", type=int, help="tokens of a row at most (default: the model's)")
    add(
        "--ask", action="append", default=[], metavar="key=value",
        help="a setting of the objective, as stride=64 or impossible=true",
    )  # fmt: skip
    fields = parser.add_argument_group("fields of a record, where they have other names")
    for name, told in FIELDS.items():
        fields.add_argument(f"--{name}", metavar="FIELD", help=told)


def fields_of(args: argparse.Namespace) -> dict[str, str]:
    """The names of fields that are given."""
    return {name: vars(args)[name] for name in FIELDS if vars(args)[name] is not None}


def run(args: argparse.Namespace) -> int:
    """Fine-tune, and print the scores."""
    from anyformer.cli.train import folder_of
    from anyformer.train import ranks
    from anyformer.train.begin import again
    from anyformer.train.tune import Tuning, prepare, tune

    with ranks.start():
        out = folder_of(args.out, args.model)
        if ranks.restarted() and (out / "run.json").exists():
            done = again(out)
        else:
            ready = prepare(
                Tuning(
                    model=args.model,
                    task=args.task,
                    data=args.data,
                    validation=args.validation,
                    held_out=args.held_out,
                    options=read.pairs(args.settings),
                    fields=fields_of(args),
                    asks=read.pairs(args.ask),
                    labels=tuple(args.labels),
                    new_head=args.new_head,
                    tokenizer=args.tokenizer,
                    length=args.length,
                    on_bad=args.on_bad,
                )
            )
            done = tune(ready, out, _settings(args, ready))
        if ranks.rank() == 0:
            tell(done)
    return 0


def _settings(args: argparse.Namespace, ready: Ready) -> Settings:
    from anyformer.cli.train import NAMED, changed
    from anyformer.train.tune import usual

    given: dict[str, Any] = {n: vars(args)[n] for n in NAMED if vars(args)[n] is not None}
    if args.report_to:
        given["trackers"] = tuple(args.report_to)
    return changed(usual(ready, args.epochs, **given), args.set)


def tell(done: Run) -> None:
    """Print the scores of a run that was fine-tuned."""
    how = f", stopped: {done.stopped}" if done.stopped else ""
    print(f"{done.steps} steps{how}")
    table(done.scores)
    print(f"{done.folder / 'model'}: anyformer.load reads it")


def table(scores: dict[str, dict[str, float]]) -> None:
    """Print scores, a column for each split."""
    names = list(dict.fromkeys(name for found in scores.values() for name in found))
    if not names:
        return print("no records were held out: no scores")
    cell = lambda found, name: f"{found[name]:.4f}" if name in found else ""
    rows = [["", *scores], *([n, *(cell(f, n) for f in scores.values())] for n in names)]
    print("\n".join(columns(rows)))
