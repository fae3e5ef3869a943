"""The standard library as text: reference, sources and docstrings, with nothing imported."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anyformer.errors import DataError

LARGEST = 2 * 1024**2  # bytes of a source file; tables of code points are no text
LEFT_OUT = {
    *("site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"),
    *("ensurepip", "lib2to3", "pydoc_data"),
}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Docstring:
    """A docstring with the dotted name of what it documents and the top package of that."""

    name: str
    package: str
    text: str


@functools.cache
def sources(root: Path | None = None) -> tuple[tuple[str, Path], ...]:
    """Dotted names and files of the modules of the standard library, tests left out, sorted."""
    root = root or Path(sysconfig.get_path("stdlib"))
    found = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT and "-" not in name]
        for name in files:
            if name.endswith(".py") and not name.startswith("_sysconfigdata"):
                file = Path(folder, name)
                parts = file.relative_to(root).with_suffix("").parts
                found.append((".".join(parts).removesuffix(".__init__"), file))
    return tuple(sorted(found))


def codes(root: Path | None = None) -> Iterator[tuple[str, str]]:
    """Dotted names and texts of the modules; what can't be decoded is left out."""
    for name, file in sources(root):
        try:
            if not 0 < file.stat().st_size <= LARGEST:
                continue
            with tokenize.open(file) as stream:
                yield name, stream.read()
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue


def parsed(code: str) -> ast.Module | None:
    """A syntax tree, None for what this Python can't read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes of old code
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError):
            return None


@functools.cache
def docstrings(root: Path | None = None) -> tuple[Docstring, ...]:
    """The docstrings of modules, classes and functions, each text once; read in seconds, kept."""
    found: dict[str, Docstring] = {}
    for name, code in codes(root):
        tree = parsed(code)
        if tree is not None:
            for dotted, text in _documented(tree, name):
                found.setdefault(text, Docstring(dotted, name.partition(".")[0], text))
    return tuple(found.values())


def _documented(node: Documented, name: str) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _documented(child, f"{name}.{child.name}")


@functools.cache
def topics() -> dict[str, str]:
    """Python's language reference by topic, read as literals from the file of `pydoc_data`."""
    spec = importlib.util.find_spec("pydoc_data.topics")
    tree = parsed(Path(spec.origin).read_text(encoding="utf-8")) if spec and spec.origin else None
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            found = ast.literal_eval(node.value)
            return {str(name): str(found[name]) for name in sorted(found)}
    raise DataError(
        "this Python has no pydoc_data.topics, its reference as text; install the full standard "
        "library (on Debian: libpython3-stdlib) or choose another data set"
    )
