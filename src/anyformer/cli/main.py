"""The command: finds the verb, reads its arguments, runs it, and turns errors into one line.

Only the verb that is asked for is imported, so that help and data verbs start at once. A verb is
a module with `EXAMPLE`, `arguments(parser)` and `run(args)`.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import anyformer
from anyformer.errors import AnyformerError, known_or_raise

DESCRIPTION = "One core of transformer parts; every model a short recipe over it."
EXAMPLE = "anyformer show bert depth=6 --length 128"
VERBS = {
    "list": "name every recipe",
    "show": "print a model's modules, parameters, FLOPs and memory",
    "diff": "compare two models",
    "convert": "turn a folder into safetensors, another format or another dtype",
    "verify": "compare a folder's outputs with those of Hugging Face's library",
    "laws": "say which laws a model breaks: no future, cache, padding, backends, counts",
    "compare": "find out whether a modification helps, at equal cost, beyond noise",
    "study": "run a study that ships, or one of your own",
    "report": "write the report of a study as it stands",
    "watch": "follow a study while it runs, in the terminal or the browser",
    "train": "train a model on texts with its paper's objective",
    "finetune": "teach a model a task from records, and score it",
    "evaluate": "score a model on a task, or on texts: loss, perplexity, bits per byte",
    "predict": "answer texts or images, one a line, as JSON lines",
    "resume": "go on with a run that stopped",
    "generate": "write on from a text, as tokens come, or chat",
    "attend": "draw what every head of a model looks at, as a page and a picture",
    "data": "turn texts into token shards; list and fetch data sets",
    "tokenizer": "train a tokenizer, or try one on a text",
    "doctor": "say what this machine has, and which fast path each switch takes on it",
    "complete": "print a completion script for bash or zsh",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal can't show is written out
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(words)
    except AnyformerError as error:
        if "--debug" in words:
            traceback.print_exception(error)
        _say(str(error))
        return error.status
    except KeyboardInterrupt:
        print("anyformer: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if "--debug" in words:
            traceback.print_exception(error)
        where = "" if error.filename is None else f": {str(error.filename)[:200]}"
        _say(f"{error.strerror or error}{where}; give another path, or make room there")
        return 2


def _say(text: str) -> None:
    """An error in one line; what a terminal would obey is written out."""
    line = " ".join(text.split())
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print(f"anyformer: {''.join(shown)}", file=sys.stderr)


def _run(words: list[str]) -> int:
    parser = _parser("anyformer", DESCRIPTION, EXAMPLE)
    listed = "\n".join(f"  {name:<10}{summary}" for name, summary in VERBS.items())
    parser.usage = "anyformer [-h] [--version] [--debug] VERB ..."
    parser.description = f"{DESCRIPTION}\n\nverbs:\n{listed}"
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    at = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    parser.parse_args(words[:at])
    if at == len(words):
        parser.print_help()
        return 0
    return _verb(words[at], words[at + 1 :])


def _verb(name: str, words: list[str]) -> int:
    module = import_module(f"anyformer.cli.{known_or_raise(name, VERBS, 'verb')}")
    parser = _parser(
        f"anyformer {name}", f"{VERBS[name][0].upper()}{VERBS[name][1:]}.", module.EXAMPLE
    )
    module.arguments(parser)
    return module.run(parser.parse_intermixed_args(words))


def _parser(name: str, description: str, example: str) -> argparse.ArgumentParser:
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    parser = _Parser(
        prog=name,
        description=description,
        epilog=f"example:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser that names the nearest flag or value where one is not known."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and end."""
        wrong = re.search(r"(?:unrecognized arguments: |invalid choice: ')([^\s'=]+)", message)
        known = [flag for action in self._actions for flag in action.option_strings]
        known += [str(c) for action in self._actions for c in action.choices or ()]
        near = difflib.get_close_matches(wrong[1], known, 1, 0.6) if wrong else []
        hint = f"; did you mean {near[0]}?" if near else f"; `{self.prog} -h` lists what it takes"
        super().error("".join(c if c.isprintable() else repr(c)[1:-1] for c in message) + hint)


class _Version(argparse.Action):
    """Print the version; it is looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"anyformer {anyformer.__version__}")
        parser.exit(0)
