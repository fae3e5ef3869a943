"""The user's own pip: its settings and its downloads, so that mirrors and proxies are obeyed."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anyformer.errors import DataError

SECTIONS = ("global", "download", ":env:")  # later ones win
DEFAULT = re.compile(r"--index-url\b.*?\(default:?\s+(\S+?)\)", re.DOTALL)
YES = {"1", "true", "yes", "on", "y", "t"}
SECRET = re.compile(r"(\w+://)[^/@\s]+@")


@dataclass(frozen=True)
class Settings:
    """Where pip looks for files, and how it gets there."""

    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    certificates: str | None = None
    proxy: str | None = None


def hidden(text: str) -> str:
    """A text without the names and passwords of its addresses."""
    return SECRET.sub(r"\1****@", text)


def command() -> list[str]:
    """How to start pip: this Python's, the one that Python carries along, or one on the path."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    carried = importlib.util.find_spec("ensurepip")
    if carried and carried.origin:
        for wheel in sorted((Path(carried.origin).parent / "_bundled").glob("pip-*.whl")):
            return [sys.executable, str(wheel / "pip")]
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found:
            return [found]
    raise DataError("pip is needed to find your package index; install it: python -m ensurepip")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip quietly, without questions, and return what it said."""
    flags = ("--disable-pip-version-check", "--no-input", "--no-color")
    return subprocess.run(  # nosec B603 # pip, with words of ours and names of the registry
        [*command(), *arguments, *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def settings() -> Settings:
    """What pip's configuration files and PIP_ variables say of indexes, links and the way there."""
    found = _configured(run("config", "list").stdout.splitlines())
    links = tuple(found.get("find-links", "").split())
    way = {"certificates": found.get("cert"), "proxy": found.get("proxy")}
    if found.get("no-index", "").lower() in YES:
        return Settings((), links, **way)
    first = found.get("index-url") or _default()
    indexes = (*([first] if first else []), *found.get("extra-index-url", "").split())
    return Settings(indexes, links, **way)


def _configured(lines: Iterable[str]) -> dict[str, str]:
    """The options of `pip config list`, lines of section.name='value', the strongest of each."""
    found: dict[str, str] = {}
    read = [line.partition("=") for line in lines]
    for section in SECTIONS:
        for key, _, value in read:
            where, _, name = key.rpartition(".")
            if where == section:
                try:
                    found[name] = str(ast.literal_eval(value))
                except (ValueError, SyntaxError):
                    found[name] = value
    return found


def _default() -> str | None:
    """The index that pip takes when told nothing, as its help says."""
    found = DEFAULT.search(run("download", "--help").stdout)
    return found[1] if found else None


def download(project: str, version: str, folder: Path) -> None:
    """Download a wheel as it is into a folder; nothing is installed, built or run."""
    flags = ("--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--quiet")
    said = run("download", *flags, "--dest", str(folder), f"{project}=={version}")
    if said.returncode:
        words = [line for line in hidden(said.stderr).splitlines() if line.startswith("ERROR")]
        raise DataError(words[0] if words else f"pip ended with status {said.returncode}")
