"""`anyformer data`: texts into token shards, and the data sets that need no hub."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from anyformer.cli.text import columns, in_bytes
from anyformer.errors import DataError

EXAMPLE = """\
anyformer data prepare my-texts/ --tokenizer my-tokenizer --out my-shards
anyformer data show my-shards --tokenizer my-tokenizer
anyformer data list
anyformer data fetch shakespeare"""
ACTIONS = ("prepare", "show", "list", "fetch")
SAMPLE = 64  # tokens of the sample that is shown


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("what", nargs="*", metavar="PATH", help="files, folders, shards, or a name")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="the folder of a tokenizer")
    parser.add_argument("--out", metavar="DIR", help="prepare: the folder to write")
    reading(parser)
    parser.add_argument("--segments", choices=["line", "sentence", "paragraph"])
    parser.add_argument("--end", metavar="ROLE", help="put this token behind documents, as eos")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("--overwrite", action="store_true", help="replace shards that are there")


def reading(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how texts are read."""
    add = parser.add_argument
    add("--split", default="file", choices=["file", "block", "line"], help="text files: a document")
    add("--field", default="text", help="records: the field of the text (default: text)")
    add("--name", help="records: the field of a document's label")
    add("--encoding", default="utf-8", help="of text files (default: utf-8)")
    bad(parser)
    add("--part", help="a saved DatasetDict: the part to read, as train")


def bad(parser: argparse.ArgumentParser) -> None:
    """Add what is done about records that can't be read."""
    told = "records that can't be read: an error (default), or left out and counted"
    parser.add_argument("--on-bad", default="raise", choices=["raise", "skip"], help=told)


def run(args: argparse.Namespace) -> int:
    """Do what is asked."""
    return {"prepare": _prepare, "show": _show, "list": _list, "fetch": _fetch}[args.action](args)


def options(args: argparse.Namespace) -> dict[str, object]:
    """The options of sources in the arguments."""
    names = ("split", "field", "name", "encoding", "on_bad", "part")
    return {name: vars(args)[name] for name in names}


def found(args: argparse.Namespace) -> object:
    """What to read: a name of the registry, or paths."""
    words: list[str] = args.what
    if not words:
        raise DataError(f"name files, folders or a data set: {EXAMPLE.splitlines()[0]}")
    return words[0] if len(words) == 1 else [Path(word) for word in words]


def _prepare(args: argparse.Namespace) -> int:
    from anyformer.data.corpus import texts_of
    from anyformer.data.prepare import prepare
    from anyformer.data.tokenizer import Tokenizer

    if not args.tokenizer or not args.out:
        raise DataError("data prepare needs --tokenizer FOLDER and --out DIR")
    source = texts_of(found(args), **options(args))
    tokenizer = Tokenizer.load(args.tokenizer)
    with bar("tokenizing") as progress:
        shards = prepare(
            source,
            tokenizer,
            args.out,
            workers=args.workers,
            segments=args.segments,
            progress=progress,
            end=args.end,
            overwrite=args.overwrite,
        )
    left = f", {source.bad} bad records left out" if source.bad else ""
    print(f"{shards.folder}: {shards.documents:,} documents, {shards.tokens:,} tokens{left}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from anyformer.data.shards import Shards

    for folder in args.what or ["."]:
        shards = Shards.open(folder)
        size = sum(about for _, about in shards.files())
        lengths = shards.lengths
        rows = [
            ("documents", f"{shards.documents:,}"),
            ("tokens", f"{shards.tokens:,}"),
            ("tokens a document", f"{lengths.min():,} to {lengths.max():,}"),
            ("vocabulary", f"{shards.vocabulary:,} ({shards.manifest['dtype']})"),
            ("segments", shards.segmented or "none"),
            ("shards", f"{shards.shards} ({in_bytes(size)})"),
        ]
        print("\n".join([str(shards.folder), *(f"  {line}" for line in columns(rows))]))
        print(f"  {_sample(shards, args.tokenizer)}")
    return 0


def _sample(shards: object, folder: str | None) -> str:
    from anyformer.data.shards import Shards
    from anyformer.data.tokenizer import Tokenizer

    assert isinstance(shards, Shards)
    ids = shards.slice(0, min(SAMPLE, shards.tokens))
    if folder is None:
        return f"begins {ids[:16].tolist()}; --tokenizer FOLDER shows it as text"
    tokenizer = Tokenizer.load(folder)
    shards.require(tokenizer)
    text = tokenizer.decode(ids.tolist(), skip_special=False)
    return f"begins {text!r}"


def _list(args: argparse.Namespace) -> int:
    from anyformer.data import registry

    rows = [("name", "fetched", "licence", "tasks")]
    for name in registry.names():
        entry = registry.get(name)
        size = in_bytes(entry.size) if entry.size else "with Python"
        rows.append((name, size, entry.data_licence, ", ".join(entry.tasks)))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[3]]).rstrip())
    return 0


def _fetch(args: argparse.Namespace) -> int:
    from anyformer.data import registry

    if not args.what:
        raise DataError("name a data set: `anyformer data list` shows them")
    for name in args.what:
        entry = registry.get(name)
        registry.fetch(name)
        print(f"{name}: {entry.title} ({entry.data_licence}, {in_bytes(entry.size)}) is ready")
    return 0


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int | None], object] | None]:
    """A progress bar of bytes on the error stream of a terminal, or none."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    shown = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*shown, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
