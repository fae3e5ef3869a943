"""The reference of the spec: every node, its fields and their papers, read from the source."""

from __future__ import annotations

import ast
import re

from docs.tour.source import SOURCE, Text, read

PAPER = re.compile(r"(?<![\w./-])(?:arXiv:)?(\d{4}\.\d{4,5})(?!\w)")
PAGES = {  # file of spec/ -> heading, in the order of a model from the outside in
    "model": "Models, stacks, embeddings, heads",
    "attention": "Attention",
    "position": "Positions",
    "distance": "Disentangled attention",
    "blocks": "Block-sparse attention",
    "feedforward": "Feed-forward",
    "parallel": "Branches side by side",
    "norm": "Norms",
    "residual": "Residuals",
    "convolution": "Convolution",
    "schedule": "Schedules: which block runs when",
    "loop": "Loops",
    "lora": "Updates of each turn",
}
HEAD = """\
# The vocabulary of specs

Every node that a model is made of, with its fields, what they take, and what they are without being
set. A field is changed by its path: `anyformer.override(spec, "stack.block.0.branch.window", 128)`.
[Models as data](../models.md) says how nodes fit together; a node's name leads to its page in the
tour. This page is made from the source.

"""


def page() -> str:
    """The page in Markdown."""
    return HEAD + "\n".join(_file(name, heading) for name, heading in PAGES.items())


def missing() -> list[str]:
    """Files of spec/ that define nodes which no heading has."""
    there = {file.stem for file in (SOURCE / "spec").glob("*.py") if _nodes(read(file))}
    return sorted(there - set(PAGES))


def _file(name: str, heading: str) -> str:
    source = read(SOURCE / "spec" / f"{name}.py")
    blocks = [_node(node, source, name) for node in _nodes(source)]
    return "\n".join([f"## {heading}\n", *blocks])


def _nodes(source: Text) -> list[ast.ClassDef]:
    """The classes of a file that are nodes of a spec."""
    classes = [n for n in source.tree.body if isinstance(n, ast.ClassDef)]
    return [c for c in classes if any(_is_node(d) for d in c.decorator_list)]


def _is_node(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "node"


def _node(node: ast.ClassDef, source: Text, file: str) -> str:
    said = _linked((ast.get_docstring(node) or "").strip())
    fields = [f for f in node.body if isinstance(f, ast.AnnAssign)]
    lines = [f"### [`{node.name}`](../tour/spec/{file}.md)\n", said, ""]
    if fields:
        lines += ["| field | takes | unless set | |", "|---|---|---|---|"]
        lines += [_field(each, source) for each in fields]
    return "\n".join([*lines, ""])


def _field(field: ast.AnnAssign, source: Text) -> str:
    default = "*must be set*" if field.value is None else _code(ast.unparse(field.value))
    cells = [
        _code(ast.unparse(field.target)),
        _code(ast.unparse(field.annotation)),
        default,
        _linked(_remark(field, source)),
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`"


def _remark(field: ast.AnnAssign, source: Text) -> str:
    """The comment behind a field, or the block of comments above it."""
    behind = source.lines[(field.end_lineno or field.lineno) - 1].partition("  # ")[2]
    if behind:
        return behind.strip()
    above, at = [], field.lineno - 2
    while source.lines[at].strip().startswith("#"):
        above.insert(0, source.lines[at].strip().removeprefix("#").strip())
        at -= 1
    return " ".join(above)


def _linked(text: str) -> str:
    """Papers as links."""
    return PAPER.sub(r"[\g<0>](https://arxiv.org/abs/\1)", text)
