"""Words of Python modules with exact labels: kinds of tokens, and spans of names by their use."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

from anyformer.data.registry import library
from anyformer.data.registry.entry import Entry
from anyformer.data.registry.split import Key

Keyed = Iterator[tuple[Key, dict[str, Any]]]
Place = tuple[int, int]

KINDS = {
    tokenize.NAME: "name",
    tokenize.OP: "op",
    tokenize.STRING: "string",
    tokenize.NUMBER: "number",
    tokenize.COMMENT: "comment",
}
QUIET = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
LONGEST = 40  # characters of a word; lines with longer ones (docstrings, mostly) are left out
FEWEST, MOST = 16, 64  # words of a record


def kinds(entry: Entry, task: str) -> Keyed:
    """Tokens of code with their kind: keyword, name, op, string, number or comment."""
    yield from _records(lambda tree, tokens: [_kind(token) for token in tokens])


def spans(entry: Entry, task: str) -> Keyed:
    """Tokens of code with IOB2 tags of spans that only their surroundings tell apart."""
    yield from _records(_tags)


def _records(label: Callable[[ast.Module, list[tokenize.TokenInfo]], list[str]]) -> Keyed:
    seen: set[tuple[str, ...]] = set()
    for name, code in library.codes():
        if "." in name or not code.isascii():  # columns of the syntax tree count bytes
            continue
        tree, lines = library.parsed(code), _lines(code)
        if tree is None or lines is None:
            continue
        flat = [token for line in lines for token in line]
        tags = iter(label(tree, flat))
        tagged = [[(token.string, next(tags)) for token in line] for line in lines]
        for words in _gathered(tagged):
            key = tuple(word for word, _ in words)
            if key not in seen:
                seen.add(key)
                record = {"words": list(key), "tags": [tag for _, tag in words]}
                yield " ".join(key), record


def _lines(code: str) -> list[list[tokenize.TokenInfo]] | None:
    """Tokens by logical line, None for what this Python can't read."""
    lines: list[list[tokenize.TokenInfo]] = [[]]
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.NEWLINE:
                lines.append([])
            elif token.type not in QUIET:
                lines[-1].append(token)
    except (tokenize.TokenError, SyntaxError):
        return None
    return lines


def _gathered(lines: list[list[tuple[str, str]]]) -> Iterator[list[tuple[str, str]]]:
    """Neighbouring lines together, up to MOST words; a line with a long word ends a record."""
    record: list[tuple[str, str]] = []
    for line in lines:
        bad = len(line) > MOST or any(len(word) > LONGEST or not word.strip() for word, _ in line)
        if bad or len(record) + len(line) > MOST:
            if len(record) >= FEWEST:
                yield record
            record = []
        if not bad:
            record = record + line
    if len(record) >= FEWEST:
        yield record


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME and keyword.iskeyword(token.string):
        return "keyword"
    return KINDS.get(token.type, "string")  # the parts of f-strings of newer Pythons


def _tags(tree: ast.Module, tokens: list[tokenize.TokenInfo]) -> list[str]:
    """IOB2 tags: the first token of a span has B-, the others I-; inner spans give way."""
    tags = ["O"] * len(tokens)
    index = {token.start: at for at, token in enumerate(tokens)}
    taken: set[int] = set()
    for start, stop, kind in _spans(tree):
        at = index.get(start)
        inside = []
        while at is not None and at < len(tokens) and tokens[at].start < stop:
            inside.append(at)
            at += 1
        if inside and not taken & set(inside):
            taken |= set(inside)
            tags[inside[0]] = f"B-{kind}"
            for other in inside[1:]:
                tags[other] = f"I-{kind}"
    return tags


def _spans(tree: ast.Module) -> Iterator[tuple[Place, Place, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func):
            yield (*_place(node.func), "call")
        elif isinstance(node, ast.ClassDef):
            for base in filter(_dotted, node.bases):
                yield (*_place(base), "base")
        elif isinstance(node, ast.ExceptHandler) and node.type and _dotted(node.type):
            yield (*_place(node.type), "exception")
        elif isinstance(node, ast.Raise) and node.exc and _dotted(node.exc):
            yield (*_place(node.exc), "exception")
        elif isinstance(node, ast.arg):
            start = (node.lineno, node.col_offset)
            yield start, (start[0], start[1] + len(node.arg)), "parameter"
        elif isinstance(node, ast.Assign):
            for target in filter(_dotted, node.targets):
                yield (*_place(target), "target")


def _dotted(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _place(node: ast.expr) -> tuple[Place, Place]:
    stop = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return (node.lineno, node.col_offset), stop
