"""Commands held against the program without running them: do their words mean something?"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from anyformer.cli import laws, main, predict, read, study
from anyformer.cli.compare import study_of
from anyformer.cli.train import changed, settings_of
from anyformer.objectives.registry import default_for, objective
from anyformer.recipes import recipe
from anyformer.spec import override
from anyformer.study.words import spec_of
from anyformer.train.settings import Settings
from tests.docs.pages import PYTHON, ROOT, Block, commands

STARTERS = {"python", "python3", "pip", "anyformer", "torchrun", "make", "."}
APART = {"lm_eval"}  # libraries that the pages speak of and the tests don't have
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def assert_held(block: Block) -> None:
    """Raise where a block asks for what is not there."""
    if block.kind in PYTHON:
        return assert_imports(block.text)
    for command in commands(block.text):
        if re.match(r"\w+=\$\(", command):  # what another program says
            continue
        for piece in re.split(r" && | \| ", command):
            assert_line(piece)


def assert_line(command: str) -> None:
    """Raise where a command of a shell asks for what is not there."""
    words = shlex.split(command)
    while words and (re.match(r"\w+=", words[0]) or words[0] in ("srun", "env")):
        words = words[1:]
    if not words:
        return
    name = words[0].rpartition("/")[2]
    if "-m" in words and name in ("python", "python3", "torchrun"):
        words = words[words.index("-m") + 1 :]
        name = module(words)
    if name == "anyformer":
        ours(words[1:])
    elif name == "anyformer.laws":
        ours(["laws", *words[1:]])
    elif name == "pip":
        extras(words)
    elif name == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), command
    elif name not in STARTERS and find_spec(name) is None:
        assert shutil.which(name), f"{command}: there is no {name}"


def module(words: list[str]) -> str:
    """The name of a module that is run, which must be there; of a benchmark, its own too."""
    names = [words[0]]
    if words[0] == "benchmarks" and words[1:] and words[1].isidentifier():
        names.append(f"benchmarks.{words[1]}")
    for name in names:
        assert find_spec(name), f"there is no module {name}"
    return words[0]


def extras(words: list[str]) -> None:
    """Raise where pip is asked for an extra or a file that we don't have."""
    for word in words:
        asked = re.fullmatch(r"(?:\.|anyformer)\[(.+)\]", word)
        unknown = {*(asked[1].split(",") if asked else ())} - {*EXTRAS}
        assert not unknown, f"{word}: the extras are {', '.join(EXTRAS)}"
    if "-c" in words:
        assert (ROOT / words[words.index("-c") + 1]).exists(), words


def assert_imports(text: str) -> None:
    """Raise where Python doesn't parse, or takes a name from where it isn't."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.partition(".")[0]
                assert top in APART or find_spec(top), name.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            top = node.module.partition(".")[0]
            assert top in APART or find_spec(top), top
            if top == "anyformer":
                there = vars(importlib.import_module(node.module))
                whole = "__getattr__" in there  # names that are made when they are asked for
                for name in {a.name for a in node.names} - {*there}:
                    inside = "__path__" in there and find_spec(f"{node.module}.{name}")
                    assert whole or inside, f"{node.module} has no {name}"


# ---------------------------------------------------------------- our own command


def parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a verb, read by its own parser."""
    verb, rest = words[0], words[1:]
    assert verb in main.VERBS, f"there is no verb {verb}"
    module = importlib.import_module(f"anyformer.cli.{verb}")
    parser = main._parser(f"anyformer {verb}", "", "")
    module.arguments(parser)
    return parser.parse_intermixed_args(rest)


def ours(words: list[str]) -> None:
    """Raise where a verb, an option, a model's name, a path or a value is not known."""
    if not words or words == ["--version"]:
        return
    try:
        args = parsed(words)
    except SystemExit as end:
        assert end.code == 0, f"anyformer {' '.join(words)} can't be read"
        return
    if words[0] in MEANINGS:
        MEANINGS[words[0]](args)


def _elsewhere(name: str | None) -> bool:
    """Whether a name stands for a folder, a file or the hub, and not for a recipe."""
    return name is None or "/" in name or name.isupper() or name.endswith(".json")


def _recipe(args: argparse.Namespace) -> str:
    """A recipe's name that was checked with its settings."""
    settings = read.pairs(args.settings)
    if _elsewhere(args.model):
        return "gpt2"
    recipe(args.model, **settings)
    return args.model


def _train(args: argparse.Namespace) -> None:
    _asked(args.objective, _recipe(args), args.ask)
    settings_of(args, {})


def _asked(name: str | None, model: str, words: list[str]) -> None:
    plan: Any = default_for(model) if name is None else objective(name)
    for path, value in read.pairs(words).items():
        plan = override(plan, path, value)


def _finetune(args: argparse.Namespace) -> None:
    _recipe(args)
    changed(Settings(), args.set)
    _asked(args.task, "gpt2", args.ask)


def _compare(args: argparse.Namespace) -> None:
    for text in args.variants:
        spec_of(text)
    study_of(args)


def _show(args: argparse.Namespace) -> None:
    if not _elsewhere(args.model):
        read.model(args.model, args.settings)


def _laws(args: argparse.Namespace) -> None:
    from anyformer.laws import LAWS

    assert {*args.law} <= {*LAWS}, args.law
    if args.model is not None and not _elsewhere(args.model):
        laws.model(args.model, args.settings)


def _predict(args: argparse.Namespace) -> None:
    assert args.task in predict.TASKS or args.task.isupper(), args.task
    read.pairs(word for word in args.rest if "=" in word)


def _evaluate(args: argparse.Namespace) -> None:
    if args.objective is not None:
        _asked(args.objective, "gpt2", args.ask)


def _study(args: argparse.Namespace) -> None:
    if args.name is not None and not args.name.isupper() and not args.name.endswith(".json"):
        assert study._panels(args)


MEANINGS: dict[str, Callable[[argparse.Namespace], None]] = {
    "train": _train,
    "finetune": _finetune,
    "compare": _compare,
    "show": _show,
    "laws": _laws,
    "predict": _predict,
    "evaluate": _evaluate,
    "study": _study,
}
