"""Blocks of code in documents: what a reader may type, run in order or held against the program.

A fence of `sh`, `bash`, `python` or `py` is run, in an empty folder that the blocks of a page
share. A comment above it says where it is not:

    <!-- parsed: WHY -->    held against the program only
    <!-- slow: WHY -->      run with the slow tests, and otherwise held against the program

A fence of `text` right below a block is what it prints, but for numbers; a line `…` stands for any
number of lines.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyformer.cli.main import main

ROOT = Path(__file__).parents[2]
APART = ("site", "tour", "notebooks")  # folders of docs/ that other tests look at
SEEN = [str(Path(p).resolve()) for p in sys.path if p]  # where modules are looked for
SHELL, PYTHON = ("sh", "bash", "console"), ("python", "py")
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>parsed|slow): [^\n]+? -->\n|^<!-- (?P<ci>main|test)-command -->\n)?"
    r"^```(?P<kind>[a-z]+)\n(?P<text>.*?)^```$"
    r"(?:\n```text\n(?P<shown>.*?)^```$)?",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fence of code: its language, its text, what it prints, and whether it is run."""

    page: str
    line: int
    kind: str
    text: str
    mark: str | None  # "parsed", "slow", or None: run
    shown: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """The README, what stands beside it, and every page of docs/ that is written by hand."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    written = (f for f in sorted((ROOT / "docs").rglob("*.md")))
    return [*found, *(f for f in written if f.relative_to(ROOT).parts[1] not in APART)]


def blocks(page: Path) -> list[Block]:
    """The blocks of shell and Python of a page."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name
    found = []
    for match in FENCE.finditer(text):
        if match["kind"] in SHELL + PYTHON:
            mark = "parsed" if match["ci"] else match["mark"]  # .ci/run runs those two itself
            line = text.count("\n", 0, match.start("text"))
            found.append(Block(name, line, match["kind"], match["text"], mark, match["shown"]))
    return found


def commands(text: str) -> list[str]:
    """The commands of a block of shell, one a line, without comments."""
    joined = text.replace("\\\n", " ")
    lines = (re.sub(r"\s#\s.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


# ---------------------------------------------------------------- run


def run(block: Block, names: dict[str, Any]) -> str:
    """Run a block in the folder where we are; what it printed."""
    said = io.StringIO()
    if block.kind in PYTHON:
        with contextlib.redirect_stdout(said):
            exec(compile(block.text, str(block), "exec"), names)
        return said.getvalue()
    for command in commands(block.text):
        said.write(_command(command))
    return said.getvalue()


def _command(command: str) -> str:
    before, _, last = command.rpartition(" | ")
    if last.startswith("anyformer "):
        return _ours(shlex.split(last)[1:], _shell(before) if before else "")
    return _shell(command)


def _shell(command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(SEEN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def _ours(words: list[str], given: str) -> str:
    """Run our command in this process, with patterns of files filled in as a shell does."""
    filled = [n for w in words for n in (sorted(glob.glob(w)) if "*" in w else []) or [w]]
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong), _typed(given):
        status = main(filled)
    assert status == 0, f"anyformer {' '.join(words)}: {wrong.getvalue()}"
    return said.getvalue()


@contextlib.contextmanager
def _typed(text: str) -> Iterator[None]:
    """Text on the standard input."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before


# ---------------------------------------------------------------- what was shown


def same(shown: str, said: str) -> bool:
    """Whether a page shows what was said, but for numbers and for lines that `…` stands for."""
    parts = re.split(r"^…\n", _bare(shown), flags=re.M)
    return re.fullmatch("(?:.*\n)*?".join(map(re.escape, parts)), _bare(said)) is not None


def _bare(text: str) -> str:
    plain = re.sub(r"-?[0-9][0-9.,e+-]*", "#", re.sub("─+", "─", text))
    return "".join(f"{' '.join(line.split())}\n" for line in plain.rstrip().splitlines())
