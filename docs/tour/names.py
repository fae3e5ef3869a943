"""Where names are defined, found without running anything: modules, classes, members, imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from docs.tour.source import SOURCE, Definition, read

PACKAGE = "anyformer"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Place:
    """A line of a module, or the module itself where it is 0."""

    module: str
    line: int = 0
    kind: str = ""  # the name of the class that stands there


@dataclass
class Module:
    """What a module defines and imports, by name."""

    name: str
    defined: dict[str, int] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)  # name -> module, its name


def module_name(file: Path) -> str:
    """The dotted name of a file: `anyformer.ops.relative`."""
    parts = [PACKAGE, *file.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def known() -> dict[str, Path]:
    """Every module of the package and its file."""
    return {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


@cache
def module(name: str) -> Module:
    """What a module of the package defines."""
    found, tree = Module(name), read(known()[name]).tree
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found.imported[alias.asname or alias.name] = (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                found.imported[alias.asname or whole] = (whole, "")
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = node
        for name_, line in _bound(node):
            found.defined.setdefault(name_, line)
    return found


def _bound(node: ast.stmt) -> list[tuple[str, int]]:
    """Names that a statement of a module gives, and their lines."""
    if isinstance(node, Definition):
        return [(node.name, node.lineno)]
    return [(n.id, n.lineno) for n in ast.walk(node) if is_store(n)]  # type: ignore[attr-defined]


def is_store(node: ast.AST) -> bool:
    """A name that is given something."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@cache
def resolve(where: str, name: str, far: int = 8) -> Place | None:
    """The definition of a name of a module, through imports and what passes them on."""
    if where not in known() or not far:
        return None
    here = module(where)
    if name in here.defined:
        return Place(where, here.defined[name], name if name in here.classes else "")
    if name not in here.imported:
        return Place(f"{where}.{name}") if f"{where}.{name}" in known() else None
    source, theirs = here.imported[name]
    if not theirs:
        return Place(source) if source in known() else None
    if f"{source}.{theirs}" in known() and theirs not in _defined(source):
        return Place(f"{source}.{theirs}")
    return resolve(source, theirs, far - 1)


def _defined(where: str) -> dict[str, int]:
    return module(where).defined if where in known() else {}


@cache
def attribute(place: Place | None, name: str, far: int = 8) -> Place | None:
    """The definition of a module's name or of a class's member, its bases included."""
    if place is None or not far:
        return None
    if not place.line:
        return resolve(place.module, name)
    if not place.kind:
        return None
    node = module(place.module).classes[place.kind]
    line = members(node).get(name)
    if line is not None:
        return Place(place.module, line)
    bases = (annotated(place.module, base) for base in node.bases)
    return next(filter(None, (attribute(base, name, far - 1) for base in bases)), None)


@cache
def members(node: ast.ClassDef) -> dict[str, int]:
    """Methods, fields, and what methods give to self: their first lines."""
    found: dict[str, int] = {}
    for item in node.body:
        for name, line in _bound(item) if not isinstance(item, Function) else []:
            found.setdefault(name, line)
    for item in node.body:
        if isinstance(item, Function):
            found.setdefault(item.name, item.lineno)
            for name, target in _given(item):
                found.setdefault(name, target.lineno)
    return found


def _given(method: Function) -> list[tuple[str, ast.Attribute]]:
    """Attributes of self that a method sets."""
    return [
        (n.attr, n)
        for n in ast.walk(method)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and is_self(n.value)
    ]


def is_self(node: ast.expr) -> bool:
    """The name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def annotated(where: str, node: ast.expr | None) -> Place | None:
    """The class that an annotation names: `X`, `S.X`, or `X | None`."""
    if isinstance(node, ast.BinOp):
        return annotated(where, node.left)
    if isinstance(node, ast.Name):
        found = resolve(where, node.id)
    elif isinstance(node, ast.Attribute):
        found = attribute(annotated_module(where, node.value), node.attr)
    else:
        return None
    return found if found and found.kind else None


def annotated_module(where: str, node: ast.expr) -> Place | None:
    """The module that an expression as `S` names."""
    return resolve(where, node.id) if isinstance(node, ast.Name) else None


@cache
def field_type(place: Place, name: str) -> Place | None:
    """The class of a member: as annotated in the class, or as the argument it is set from."""
    if not place.kind:
        return None
    for item in module(place.module).classes[place.kind].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if item.target.id == name:
                return annotated(place.module, item.annotation)
        if isinstance(item, Function):
            found = _set_from(place.module, item, name)
            if found:
                return found
    return None


def _set_from(where: str, method: Function, name: str) -> Place | None:
    """The class of `self.name`, where a method sets it from an argument of its own."""
    types = {a.arg: a.annotation for a in method.args.args}
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign):
            continue
        for target, value in _pairs(node.targets[0], node.value):
            if not isinstance(target, ast.Attribute) or not is_self(target.value):
                continue
            if target.attr == name and isinstance(value, ast.Name):
                return annotated(where, types.get(value.id))
    return None


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]
