"""`anyformer predict`: lines of text or JSON in, lines of JSON out, in order."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anyformer.cli import read
from anyformer.errors import InputError

if TYPE_CHECKING:
    from anyformer.tasks import Tool

EXAMPLE = """\
echo "a lovely film" | anyformer predict classify runs/bert-1/model
anyformer predict answer my-bert/ questions.jsonl --out answers.jsonl
anyformer predict classify my-bert/ reviews.jsonl --field review --batch 64
anyformer predict summarise my-t5/ articles.jsonl max_new_tokens=60
anyformer predict classify my-bert/ reviews.txt --labels bad good
anyformer predict classify my-bert/ --labels bad good -- reviews.txt
ls photos/*.jpg | anyformer predict classify-image my-vit/ - top=3"""

TASKS = (
    "fill-mask",
    "classify",
    "classify-tokens",
    "answer",
    "choose",
    "embed",
    "generate",
    "summarise",
    "translate",
    "caption",
    "classify-image",
    "detect-replaced",
)
JSON = (".jsonl", ".json", ".ndjson")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("task", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("model", metavar="MODEL", help="a folder or a name of the hub")
    parser.add_argument("rest", metavar="[FILE|-] [key=value ...]", nargs="*",
                        help="texts or JSON, one a line (default: -, the standard input); "
                        "options of the task")  # fmt: skip
    parser.add_argument(
        "--field", action="append", default=[], metavar="[NAME=]FIELD",
        help="the field of a JSON line to read, as review or question=q",
    )  # fmt: skip
    parser.add_argument("--batch", type=int, help="inputs at a time; 1 answers each line at once")
    parser.add_argument("--truncate", action="store_true", help="cut what is too long")
    parser.add_argument("--labels", nargs="+", metavar="LABEL",
                        help="names of the labels (default: the model's); the next option, or --, "
                        "ends them: --labels bad good -- FILE")  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="(default: the standard output)")
    parser.add_argument("--device", default=None, help="as cpu or cuda")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Answer every line; 1 where some had no answer."""
    file, settings = _file(args.rest)
    _check_labels(args.labels, args.rest)
    tool = _tool(args, settings)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_source(file))
        out = stack.enter_context(_target(args.out, file))
        return _answer(tool, lines(source, Path(file).suffix in JSON), out, _shown(args))


def _file(words: list[str]) -> tuple[str, list[str]]:
    """The file among the words, and the settings."""
    files = [word for word in words if "=" not in word or Path(word).is_file()]
    if len(files) > 1:
        raise InputError(f"one file is read at a time, not {', '.join(files)}: join them with cat")
    return (files or ["-"])[0], [word for word in words if word not in files]


def _check_labels(labels: list[str] | None, rest: list[str]) -> None:
    """Raise where the file was taken for a label: one that is there, and no other was named."""
    last = labels[-1] if labels else ""
    if labels and not rest and (last == "-" or Path(last).is_file()):
        raise InputError(
            f"--labels took {last!r} for a label, and it is a file: name it before --labels, or "
            f"end the labels with --, as in --labels {' '.join(labels[:-1]) or 'a b'} -- {last}"
        )


def _tool(args: argparse.Namespace, settings: list[str]) -> Tool:
    from anyformer.tasks.registry import entry_of, job_of, task

    main = job_of(entry_of(args.task)).fields[0]
    named = (word.partition("=") for word in args.field)
    fields = {(a if b else main): (c if b else a) for a, b, c in named}
    given: dict[str, Any] = {"truncate": args.truncate, **read.pairs(settings)}
    if args.batch is not None:
        given["batch"] = args.batch
    return task(
        args.task, args.model, labels=args.labels, device=args.device, fields=fields, **given
    )


def _answer(tool: Tool, items: Iterable[tuple[int, Any]], out: IO[str], shown: bool | None) -> int:
    """Write the result of each line, or what is wrong with it."""
    from anyformer.tasks.flow import Failure
    from anyformer.tasks.progress import Bar

    status = 0
    with Bar(tool.name, None, shown) as bar:
        for found in tool.numbered(items):
            if isinstance(found, Failure):
                bare = str(found.error).removeprefix(f"input {found.number}: ")
                found, status = {"error": bare, "line": found.number}, 1
            out.write(json.dumps(found, ensure_ascii=False, default=_listed) + "\n")
            out.flush()  # a reader at the other end of a pipe gets it now
            bar.step()
    return status


def _listed(value: Any) -> Any:
    """An array as lists, which JSON knows."""
    return value.tolist()


def lines(source: Iterable[bytes], strict: bool) -> Iterator[tuple[int, Any]]:
    """The number of each line that isn't empty, and its input or what is wrong with it.

    Lines are JSON where the file's name says so, or where the first of them is an object.
    """
    as_json = True if strict else None
    for number, raw in enumerate(source, 1):
        try:
            line = raw.decode("utf-8").removeprefix("\ufeff").strip("\r\n")
        except UnicodeDecodeError as error:
            yield number, InputError(f"it is not text in UTF-8 ({error.reason})")
            continue
        if not line.strip():
            continue
        if as_json is None:
            as_json = line.lstrip().startswith("{")
        yield number, _parsed(line) if as_json else line


def _parsed(line: str) -> Any:
    """The object or text of a line of JSON, or what is wrong with it."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"it is not JSON ({error}); each line must be one object")
    if isinstance(found, dict | str):
        return found
    return InputError(f"it must be an object or a text, not {type(found).__name__}")


@contextlib.contextmanager
def _source(file: str) -> Iterator[Iterable[bytes]]:
    if file == "-":
        yield iter(sys.stdin.buffer.readline, b"")  # each line as soon as it is there
        return
    try:
        with open(file, "rb") as opened:
            yield opened
    except OSError as error:
        if error.filename != file:
            raise
        raise InputError(f"can't read {file}: {error.strerror}") from error


@contextlib.contextmanager
def _target(out: str | None, file: str) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    if Path(file).exists() and Path(out).exists() and Path(out).samefile(file):
        raise InputError(f"{out} is the file that is read: name another (--out)")
    try:
        with open(out, "w", encoding="utf-8") as opened:
            yield opened
    except OSError as error:
        if error.filename != out:
            raise
        raise InputError(f"can't write {out}: {error.strerror}") from error


def _shown(args: argparse.Namespace) -> bool | None:
    """A bar on a terminal, but not among results that are printed there too."""
    if args.quiet or (args.out is None and sys.stdout.isatty()):
        return False
    return None
