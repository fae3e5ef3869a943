"""A source file in rows: a note, and the lines of code that it stands beside.

The module's docstring, the docstring of each class, function and method, and each block of comments
begins a row. What became a note is left out of the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "anyformer"
PACKAGES = ("spec", "ops", "parts", "model", "recipes", "objectives")  # what the tour covers

PRAGMA = re.compile(r"#\s*(type:|noqa|pyright:|ruff:|fmt:)")
RULER = re.compile(r"^[-=─ ]{4,}|[-=─ ]{4,}$")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
MODULE = ""  # the key of a page's introduction


def files() -> list[Path]:
    """Every source file of the tour."""
    return [file for name in PACKAGES for file in sorted((SOURCE / name).rglob("*.py"))]


def name_of(file: Path) -> str:
    """The name of a page: its path inside the package, without `.py`, as `ops/relative`."""
    return file.relative_to(SOURCE).with_suffix("").as_posix()


@dataclass
class Row:
    """A note and its lines of code, by their numbers."""

    key: str  # the name of what is explained, as `Attention.forward`; with #2 for a later comment
    note: str = ""  # Markdown
    lines: list[int] = field(default_factory=list)
    depth: int = 0  # 0 for the module, 1 for what stands in it, 2 for methods
    section: bool = False  # a class, function or method: it must have a note

    @property
    def digest(self) -> str:
        """A short hash of the note: a translation of another text is stale."""
        return hashed(self.note)


def hashed(text: str) -> str:
    """The first twelve digits of a text's hash."""
    return sha256(text.encode()).hexdigest()[:12]


@dataclass
class Text:
    """A file's text, lines and tree."""

    file: Path
    text: str
    lines: list[str]
    tree: ast.Module


def read(file: Path) -> Text:
    """A source file, parsed."""
    text = file.read_text(encoding="utf-8")
    return Text(file, text, text.splitlines(), ast.parse(text))


def rows(source: Text, also: Collection[str] = ()) -> list[Row]:
    """The rows of a file, in order; every line of code is in exactly one of them.

    `also` names magic methods and constants that begin rows of their own.
    """
    starts = {1: Row(MODULE, ast.get_docstring(source.tree) or "", section=True)}
    hidden = set(_docstring_lines(source.tree))
    for node, key, depth in definitions(source.tree):
        hidden |= set(_docstring_lines(node))
        said = ast.get_docstring(node) or ""
        if said or key in also or not is_magic(node):
            starts[first_line(node)] = Row(key, said, depth=depth, section=not is_magic(node))
    for key, line in _statements(source.tree, also):
        starts.setdefault(line, Row(key, depth=1))
    comments = _comments(source)
    found = _filled(source, starts, comments, hidden)
    return [row for row in found if row.note or any(_code(source, row))]


def definitions(tree: ast.Module) -> Iterator[tuple[Definition, str, int]]:
    """Classes, functions and methods with their keys; a second one of a name gets a number."""
    seen: dict[str, int] = {}

    def walk(body: list[ast.stmt], before: str, depth: int):
        for node in body:
            if isinstance(node, Definition):
                key = before + node.name
                seen[key] = seen.get(key, 0) + 1
                yield node, key if seen[key] == 1 else f"{key}~{seen[key]}", depth
                if isinstance(node, ast.ClassDef):
                    yield from walk(node.body, f"{key}.", depth + 1)

    yield from walk(tree.body, "", 1)


def is_magic(node: Definition) -> bool:
    """A method as `__init__`, which its class explains."""
    return node.name.startswith("__") and node.name.endswith("__")


def first_line(node: Definition) -> int:
    """The line where a definition begins, decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _docstring_lines(node: ast.Module | Definition) -> range:
    if not ast.get_docstring(node):
        return range(0)
    first = node.body[0]
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def _statements(tree: ast.Module, also: Collection[str]) -> Iterator[tuple[str, int]]:
    """Statements that follow a definition or are asked for, under the name that they give."""
    for before, node in zip(tree.body, tree.body[1:], strict=False):
        follows = isinstance(before, Definition) and not isinstance(node, Definition)
        if follows or _named(node) in also:
            yield _named(node), node.lineno


def _named(node: ast.stmt) -> str:
    targets = {
        ast.Assign: lambda n: n.targets[0],
        ast.AnnAssign: lambda n: n.target,
    }
    target = targets[type(node)](node) if type(node) in targets else None
    return target.id if isinstance(target, ast.Name) else f"line {node.lineno}"


def _comments(source: Text) -> dict[int, list[int]]:
    """Blocks of comments on lines of their own, by the line of code that follows each."""
    inside = _string_lines(source.tree)
    found: dict[int, list[int]] = {}
    block: list[int] = []
    for number, line in enumerate(source.lines, 1):
        bare = line.strip()
        if bare.startswith("#") and number not in inside and not PRAGMA.match(bare):
            block.append(number)
        elif block and bare:
            found[number] = block
            block = []
    return found


def _string_lines(tree: ast.Module) -> set[int]:
    """Lines inside of strings of several lines, where `#` begins no comment."""
    strings = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is str)
    return {at for n in strings for at in range(n.lineno, n.end_lineno or 0) if n.end_lineno}


def _filled(
    source: Text, starts: dict[int, Row], comments: dict[int, list[int]], hidden: set[int]
) -> list[Row]:
    """Rows with their lines, where comments begin rows of their own or join a docstring's."""
    hidden = hidden | {line for block in comments.values() for line in block}
    found: list[Row] = []
    counts: dict[str, int] = {}
    for number in range(1, len(source.lines) + 1):
        said = _words(source, comments.get(number, []))
        if number in starts:
            found.append(starts[number])
            if said:
                found[-1].note = f"{said}\n\n{found[-1].note}".strip()
        elif said:
            key = found[-1].key.partition("#")[0]
            counts[key] = counts.get(key, 1) + 1
            found.append(Row(f"{key}#{counts[key]}", said, depth=found[-1].depth))
        if number not in hidden:
            found[-1].lines.append(number)
    return found


def _words(source: Text, block: list[int]) -> str:
    """What a block of comments says, without its signs."""
    lines = [source.lines[n - 1].strip().removeprefix("#").strip() for n in block]
    return "\n".join(re.sub(RULER, "", line).strip() for line in lines).strip()


def _code(source: Text, row: Row) -> Iterator[str]:
    return (source.lines[n - 1] for n in row.lines if source.lines[n - 1].strip())
