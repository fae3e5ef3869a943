"""Lines of code: our recipes and key tables, and the files of transformers that they replace."""

from __future__ import annotations

import ast
import inspect
import io
import pathlib
import tokenize

import transformers

from anyformer import checkpoint, recipes
from anyformer.checkpoint.family import FAMILIES
from benchmarks.runner import Settings, Table

assert checkpoint  # importing it makes the families known
SILENT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code(text: str) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            found |= set(range(token.start[0], token.end[0] + 1))
    for tree in ast.walk(ast.parse(text)):
        if isinstance(tree, DOCUMENTED) and ast.get_docstring(tree, clean=False) is not None:
            first = tree.body[0]
            found -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(found)


def count(files: list[pathlib.Path]) -> tuple[int, int]:
    """Lines in all and lines of code."""
    texts = [file.read_text(encoding="utf-8") for file in files]
    return sum(len(text.splitlines()) for text in texts), sum(map(code, texts))


def here(package: object) -> list[pathlib.Path]:
    """The Python files of a package of ours."""
    return sorted(pathlib.Path(str(package)).rglob("*.py"))


def replaced() -> list[pathlib.Path]:
    """The modelling and configuration files of transformers for our families."""
    names = {task.architecture for f in FAMILIES.values() for task in f.tasks.values()}
    folders: set[pathlib.Path] = set()
    for name in names:
        made = getattr(transformers, name, None)  # releases drop models: Transformer-XL is gone
        if made is not None:
            folders.add(pathlib.Path(inspect.getfile(made)).parent)
    kinds = ("modeling_*.py", "configuration_*.py")
    return sorted(file for folder in folders for kind in kinds for file in folder.glob(kind))


def lines(settings: Settings) -> None:
    """Print the table."""
    root = pathlib.Path(recipes.__file__).parent
    kinds = {
        "our recipes": here(root),
        "our key tables (families)": here(root.parent / "checkpoint" / "families"),
        f"transformers {transformers.__version__}, the same models": replaced(),
    }
    table = Table("Lines", ["what", "files", "lines", "lines of code"])
    for name, files in kinds.items():
        whole, lean = count(files)
        table.rows.append([name, str(len(files)), f"{whole:,}", f"{lean:,}"])
        table.raw[name] = {"files": len(files), "lines": whole, "code": lean}
    table.notes.append("lines of code: without blank lines, comments and docstrings")
    table.notes.append(f"{len(FAMILIES)} model types; theirs are modelling and configuration files")
    table.show(settings, "lines")
