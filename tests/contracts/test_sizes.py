"""The norms of size and form that keep the source readable; the linter holds the tighter ones."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "anyformer"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}

FILE_LINES = 400
FUNCTION_LINES = 60
ARGUMENTS = 9
TABLES: frozenset[str] = frozenset()  # files that are tables of facts, as "recipes/example.py"

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _where(file: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.stmt | ast.expr) else ""
    return f"{file.relative_to(SOURCE).as_posix()}{line}"


def _functions() -> Iterator[tuple[Path, Function]]:
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                yield file, node


def _arguments(function: Function) -> int:
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _decorators(node: Function | ast.ClassDef) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}


def _public(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Public classes and functions of a module, and the public methods of those classes."""
    for node in body:
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if _decorators(node) & {"overload", "override", "setter", "deleter"}:
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(node.body)


def test_there_is_source_to_check():
    assert FILES


def test_no_file_is_too_long():
    lines = {_where(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    too_long = {name: n for name, n in lines.items() if n > FILE_LINES and name not in TABLES}
    assert not too_long


def test_no_function_is_too_long():
    lines = {
        f"{_where(file, node)} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for file, node in _functions()
    }
    assert not {name: n for name, n in lines.items() if n > FUNCTION_LINES}


def test_no_function_has_too_many_arguments():
    counts = {f"{_where(file, node)} {node.name}": _arguments(node) for file, node in _functions()}
    assert not {name: n for name, n in counts.items() if n > ARGUMENTS}


def test_nothing_asks_hasattr():
    calls = [
        _where(file, node)
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == "hasattr"
    ]
    assert not calls


def test_public_names_have_docstrings():
    silent = [
        f"{_where(file, node)} {node.name}"
        for file, tree in TREES.items()
        for node in _public(tree.body)
        if not ast.get_docstring(node)
    ]
    assert not silent
