"""Change and compare spec trees by dotted paths."""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from typing import Any

from anyformer.errors import SpecError, known_or_raise
from anyformer.spec.node import KINDS, is_node, make, names


def override(tree: Any, path: str, value: Any) -> Any:
    """A copy of the tree with the value at a dotted path replaced.

    `override(spec, "stack.depth", 6)`; a number picks an item of a tuple, and `*` picks every
    item that has the rest of the path: `override(spec, "stack.block.*.branch.dropout", 0.1)`.
    """
    return _set(tree, path.split("."), value, path)


def _set(tree: Any, steps: list[str], value: Any, path: str) -> Any:
    if not steps:
        return value
    if isinstance(tree, tuple):
        return _set_items(tree, steps, value, path)  # type: ignore[arg-type]
    if not is_node(tree):
        raise SpecError(f"{path!r} goes into {tree!r}, which has no fields at {steps[0]!r}")
    name = known_or_raise(steps[0], names(tree), f"field of {type(tree).__name__} in {path!r}:")
    return dataclasses.replace(tree, **{name: _set(getattr(tree, name), steps[1:], value, path)})


def _set_items(items: tuple[Any, ...], steps: list[str], value: Any, path: str) -> tuple[Any, ...]:
    step, rest = steps[0], steps[1:]
    if step == "*":
        return _set_all(items, rest, value, path)
    if not step.lstrip("-").isdigit() or not -len(items) <= int(step) < len(items):
        raise SpecError(f"{path!r}: {step!r} should be '*' or an index of {len(items)} items")
    at = int(step) % len(items)
    return (*items[:at], _set(items[at], rest, value, path), *items[at + 1 :])


def _set_all(items: tuple[Any, ...], rest: list[str], value: Any, path: str) -> tuple[Any, ...]:
    changed = [_set(item, rest, value, path) if has(item, rest) else item for item in items]
    if not any(has(item, rest) for item in items):
        raise SpecError(f"{path!r}: none of the {len(items)} items has {'.'.join(rest)!r}")
    return tuple(changed)


def has(tree: Any, steps: list[str]) -> bool:
    """Whether a path leads somewhere in the tree."""
    if not steps:
        return True
    if isinstance(tree, tuple):
        items: tuple[Any, ...] = tree
        if steps[0] == "*":
            return any(has(item, steps[1:]) for item in items)
        inside = steps[0].isdigit() and int(steps[0]) < len(items)
        return inside and has(items[int(steps[0])], steps[1:])
    return is_node(tree) and steps[0] in names(tree) and has(getattr(tree, steps[0]), steps[1:])


def get(tree: Any, path: str) -> Any:
    """The value at a dotted path."""
    for step in path.split("."):
        if isinstance(tree, tuple) and step.isdigit() and int(step) < len(tree):  # type: ignore[arg-type]
            tree = tree[int(step)]
        elif is_node(tree):
            tree = getattr(
                tree, known_or_raise(step, names(tree), f"field of {type(tree).__name__}")
            )
        else:
            raise SpecError(f"{path!r}: nothing is at {step!r}")
    return tree


@dataclass(frozen=True)
class Change:
    """One difference between two trees."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {self.before!r} → {self.after!r}"


def diff(before: Any, after: Any, path: str = "") -> tuple[Change, ...]:
    """What differs between two trees, as the smallest changes that lead from one to the other."""
    if type(before) is type(after) and before == after:
        return ()
    below = lambda step: f"{path}.{step}" if path else str(step)
    if is_node(before) and type(before) is type(after):
        pairs = [(n, getattr(before, n), getattr(after, n)) for n in names(before)]
    elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):  # type: ignore[arg-type]
        pairs = [(str(i), b, a) for i, (b, a) in enumerate(zip(before, after, strict=True))]  # type: ignore[arg-type]
    else:
        return (Change(path, before, after),)
    return tuple(change for step, b, a in pairs for change in diff(b, a, below(step)))


def parse(text: str) -> Any:
    """A value on a command line: `6`, `0.1`, `none`, `true`, `gelu`, `RMSNorm(eps=1e-6)`."""
    words = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return _literal(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return text


def _literal(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        if tree.args:
            raise SpecError(f"{ast.unparse(tree)}: {tree.func.id} takes its fields by name")
        return make(tree.func.id, **{str(k.arg): _literal(k.value) for k in tree.keywords})
    if isinstance(tree, (ast.Tuple, ast.List)):
        return tuple(map(_literal, tree.elts))
    if isinstance(tree, ast.Name):
        return KINDS[tree.id]() if tree.id in KINDS else parse_word(tree.id)
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError) as error:
        raise SpecError(f"can't read {ast.unparse(tree)!r} as a value") from error


def parse_word(word: str) -> Any:
    """A bare word inside a value: none, true, false, or the string itself."""
    return {"none": None, "true": True, "false": False}.get(word.lower(), word)
