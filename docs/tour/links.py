"""Which stretches of a file's code lead where: every use of a name that the package defines."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from docs.tour.names import (
    Function,
    Place,
    annotated,
    attribute,
    field_type,
    is_self,
    is_store,
    known,
    module_name,
    resolve,
)
from docs.tour.source import Text

Spot = tuple[int, int, int]  # line, first column, column behind the last


def links(source: Text) -> dict[Spot, Place]:
    """The stretches of a file that name something of the package, and where that is defined."""
    seeker = _Seeker(source)
    seeker.visit(source.tree)
    return seeker.found


class _Seeker(ast.NodeVisitor):
    """Walks a tree with the names that functions around give to themselves."""

    def __init__(self, source: Text):
        self.lines, self.where = source.lines, module_name(source.file)
        self.found: dict[Spot, Place] = {}
        self.scopes: list[dict[str, Place | None]] = []  # local names; the class of each, if known
        self.classes: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all([*node.decorator_list, *node.bases, *node.keywords])
        self.classes.append(node.name)
        self._all(node.body)
        self.classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self.scopes.append({a.arg: None for a in _arguments(node.args)})
        self.visit(node.body)
        self.scopes.pop()

    def _function(self, node: Function) -> None:
        self._all(node.decorator_list)
        self.visit(node.args)
        if node.returns:
            self.visit(node.returns)
        local: dict[str, Place | None] = {n.id: None for n in ast.walk(node) if is_store(n)}  # type: ignore[attr-defined]
        local |= {a.arg: annotated(self.where, a.annotation) for a in _arguments(node.args)}
        self.scopes.append(local)
        self._all(node.body)
        self.scopes.pop()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._link(alias, alias.name, resolve(self.where, alias.asname or alias.name))
        if node.module in known():
            at = self.lines[node.lineno - 1].find(node.module, node.col_offset)
            self.found[(node.lineno, at, at + len(node.module))] = Place(node.module)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and not self._is_local(node.id):
            self._link(node, node.id, resolve(self.where, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        target = attribute(self._what(node.value), node.attr)
        if target and node.end_lineno and node.end_col_offset is not None:
            end = self._column(node.end_lineno, node.end_col_offset)
            self._keep(node.end_lineno, end - len(node.attr), end, target)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        made = self._class(node.func)
        for keyword in node.keywords:
            if made and keyword.arg:
                self._link(keyword, keyword.arg, attribute(made, keyword.arg))

    def _what(self, node: ast.expr) -> Place | None:
        """The module or class that an expression is, or is an instance of."""
        if isinstance(node, ast.Name) and not self._is_local(node.id):
            return resolve(self.where, node.id)
        if isinstance(node, ast.Name):
            if is_self(node) and self.classes:
                return resolve(self.where, self.classes[0])
            return next(scope[node.id] for scope in reversed(self.scopes) if node.id in scope)
        if isinstance(node, ast.Attribute):
            base = self._what(node.value)
            found = attribute(base, node.attr)
            if base and base.kind:
                return field_type(base, node.attr)
            return found if found and (found.kind or not found.line) else None
        return self._class(node.func) if isinstance(node, ast.Call) else None

    def _class(self, node: ast.expr) -> Place | None:
        """The class that an expression names."""
        if isinstance(node, ast.Name | ast.Attribute):
            found = self._what(node) if not isinstance(node, ast.Name) else None
            if isinstance(node, ast.Name) and not self._is_local(node.id):
                found = resolve(self.where, node.id)
            return found if found and found.kind else None
        return None

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _link(self, node: ast.Name | ast.alias | ast.keyword, name: str, to: Place | None) -> None:
        start = self._column(node.lineno, node.col_offset)
        if to:
            self._keep(node.lineno, start, start + len(name), to)

    def _keep(self, line: int, start: int, end: int, to: Place) -> None:
        if (to.module, to.line) != (self.where, line):  # a definition doesn't lead to itself
            self.found[(line, start, end)] = to

    def _column(self, line: int, offset: int) -> int:
        """A column in characters; trees count bytes."""
        return len(self.lines[line - 1].encode()[:offset].decode())


def _arguments(given: ast.arguments) -> list[ast.arg]:
    more = [a for a in (given.vararg, given.kwarg) if a]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]
