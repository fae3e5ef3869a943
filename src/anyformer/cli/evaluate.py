"""`anyformer evaluate`: scores of a model on a task, or on texts as a language model."""

from __future__ import annotations

import argparse
from typing import Any

from anyformer.cli import finetune, read
from anyformer.errors import InputError

EXAMPLE = """\
anyformer evaluate runs/bert-1/model --data reviews.csv
anyformer evaluate my-bert/ --task question-answering --data dev-v1.1.json
anyformer evaluate my-gpt2/ --data python-docs --split validation
anyformer evaluate my-gpt2/ --data book.txt --length 256"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("model", metavar="MODEL", help="a folder or a name of the hub")
    parser.add_argument(
        "--task", choices=finetune.TASKS,
        help="(default: what the folder was fine-tuned for, else a language model's loss)",
    )  # fmt: skip
    finetune.records(parser)
    parser.add_argument("--split", default="test", help="of a data set (default: test)")
    parser.add_argument("--objective", help="texts: as masked (default: the model's own)")
    parser.add_argument("--batch", type=int, default=32, help="rows at a time (default: 32)")
    parser.add_argument("--rows", type=int, help="texts: rows at most (default: all)")
    parser.add_argument("--device", default="auto", help="as cpu or cuda")


def run(args: argparse.Namespace) -> int:
    """Evaluate, and print the scores."""
    task = args.task or (None if args.objective else _task(args.model))
    found = _texts(args) if task is None else _records(args, task)
    finetune.table({args.split if _named(args.data) else "all": found})
    return 0


def _task(model: str) -> str | None:
    """What a folder says it was fine-tuned for."""
    from anyformer.checkpoint import hub
    from anyformer.objectives.about import plan_in

    about = plan_in(hub.folder_of(model))
    return None if about is None else about[0]


def _named(data: str) -> bool:
    from anyformer.data import registry

    return data in registry.names()


def _records(args: argparse.Namespace, task: str) -> dict[str, float]:
    from anyformer.train import ranks
    from anyformer.train.assess import on_task
    from anyformer.train.tune import Tuning

    wish = Tuning(
        model=args.model,
        task=task,
        data=args.data,
        fields=finetune.fields_of(args),
        asks=read.pairs(args.ask),
        length=args.length,
        on_bad=args.on_bad,
    )
    return on_task(wish, args.split, args.batch, ranks.device_of(args.device))


def _texts(args: argparse.Namespace) -> dict[str, float]:
    from anyformer.train.assess import context_for, on_texts, reading, texts_in

    strange = [name for name in finetune.fields_of(args) if name != "text"]
    if strange:
        raise InputError(f"--{strange[0]} is a field of a task's records: name the task (--task)")
    options: dict[str, Any] = {"context": context_for(args.model, args.length)}
    options["on_bad"] = args.on_bad
    if args.text:
        options["field"] = args.text
    source = texts_in((args.data,), args.split, **options)
    asks = {**({"objective": args.objective} if args.objective else {}), **read.pairs(args.ask)}
    return on_texts(args.model, source, asks, reading(args.rows, args.batch, args.device))
