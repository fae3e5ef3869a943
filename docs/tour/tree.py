"""The family tree as a picture: a node for each recipe, with its code and what it changes."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import anyformer
from anyformer.recipes import recipe, sizes
from anyformer.recipes.registry import RECIPES
from anyformer.recipes.tree import lines
from docs.tour import markdown
from docs.tour.code import html_lines
from docs.tour.page import covered, href, named, pages

SCRIPT = Path(__file__).with_suffix(".js")
HERE = "tree"  # the name of the page, beside those of the files
STEP, ROW, LEFT, TOP, WIDTH = 34, 27, 14, 20, 400
# What the first model of a branch is compared with; the tree doesn't name it.
PLAIN = {
    "encoders": "encoder",
    "decoders": "decoder",
    "encoder-decoders": "encoder-decoder",
    "vision": "encoder",
}
AGAIN = {"recursive-roberta": "roberta", "recursive-gpt2": "gpt2"}


@dataclass(frozen=True)
class Node:
    """A line of the tree: its level, its name, and the model that it is compared with."""

    level: int
    name: str
    parent: str | None = None

    @property
    def is_model(self) -> bool:
        """A recipe, not the name of a branch."""
        return self.level > 0


def nodes() -> list[Node]:
    """The tree, line by line."""
    found: list[Node] = []
    above: list[str] = []
    for level, name in lines():
        above = [*above[:level], name]
        parent = above[-2] if level > 1 else AGAIN.get(name) or PLAIN.get(above[0])
        found.append(Node(level, name, parent if level else None))
    return found


def changes(name: str, parent: str) -> list[Any]:
    """What a recipe changes of its parent, at the parent's sizes where it has such options."""
    given, own = RECIPES[parent].defaults, RECIPES[name].defaults
    common = {key: value for key, value in given.items() if key in own}
    return list(anyformer.diff(recipe(parent), recipe(name, **common)))


def page() -> str:
    """The page in Markdown."""
    found = nodes()
    panels = "\n".join(_panel(node) for node in found if node.is_model)
    count = sum(node.is_model for node in found)
    lead = (
        f"{count} recipes and who descends from whom. Choose one, by a click, a tap or the arrow "
        "keys: its recipe is shown as it stands in the source, and what differs from the model "
        "above it, field by field, at equal sizes."
    )
    body = (
        f'<div class="tree" id="tree">\n<div class="tree-picture">\n{svg(found)}\n</div>\n'
        f'<div class="tree-panels" aria-live="polite">\n{_welcome()}\n{panels}\n</div>\n</div>\n'
        f"<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>"
    )
    fence = "`" * 8
    top = f"---\nhide-toc: true\n---\n# The family tree\n\n{lead}\n\n"
    return f"{top}{fence}{{raw}} html\n{body}\n{fence}\n"


def svg(found: list[Node]) -> str:
    """The picture: curves from each model to those below it, and a link for each."""
    high = TOP + ROW * len(found)
    parts = [f'<svg viewBox="0 0 {WIDTH} {high}" role="group" aria-label="The family tree">']
    parts += _curves(found)
    for i, node in enumerate(found):
        x, y = _at(node, i)
        if not node.is_model:
            parts.append(
                f'<text class="tree-branch" x="{x - 6}" y="{y + 5}">{escape(node.name)}</text>'
            )
            continue
        text = f'<text x="{x + 12}" y="{y + 5}">{escape(node.name)}</text>'
        label = f'<circle cx="{x}" cy="{y}" r="5"/>{text}'
        box = f'<rect x="{x - 10}" y="{y - 12}" width="{WIDTH - x}" height="24" rx="4"/>'
        parts.append(f'<a href="#{node.name}" data-model="{node.name}">{box}{label}</a>')
    return "\n".join([*parts, "</svg>"])


def _at(node: Node, row: int) -> tuple[int, int]:
    return LEFT + STEP * node.level, TOP + ROW * row


def _curves(found: list[Node]) -> list[str]:
    """A line from each node to the one above it in the tree."""
    parts, above = [], {}
    for i, node in enumerate(found):
        x, y = _at(node, i)
        above[node.level] = (x, y)
        if node.level:
            a, b = above[node.level - 1]
            parts.append(f'<path d="M{a} {b + 6} V{y - 10} Q{a} {y} {a + 10} {y} H{x - 6}"/>')
    return parts


def _welcome() -> str:
    return (
        '<section class="tree-panel tree-welcome"><p>Choose a model. Its recipe and what it '
        "changed are shown here.</p></section>"
    )


def _panel(node: Node) -> str:
    """What is shown of a model."""
    build = RECIPES[node.name].build
    file = covered()[build.__module__]
    found = pages()[file]
    row = next(r for r in found.rows if r.key == build.__name__)
    text = markdown.html((build.__doc__ or "").partition("\n\n")[0])
    coloured = html_lines(found.source, lambda place: href(place, HERE))
    code = "\n".join(coloured[n - 1] for n in row.lines).rstrip()
    address = f"{file}.html#{build.__name__}"
    known = ", ".join(sizes(node.name))
    more = f"<p>Published sizes: {escape(known)}</p>" if known else ""
    return (
        f'<section class="tree-panel" id="{node.name}" data-panel="{node.name}" tabindex="-1">'
        '<button class="tree-close" type="button" aria-label="Close">×</button>'
        f"<h2>{escape(node.name)}</h2>{text}{more}{_changed(node)}"
        f'<h3>Its recipe, in <a href="{address}">{escape(file)}.py</a></h3>'
        f'<div class="highlight"><pre tabindex="0"><code>{code}</code></pre></div></section>'
    )


def _changed(node: Node) -> str:
    """The table of what differs from the parent."""
    if node.parent is None:
        return ""
    head = f'<h3>What it changes of <a href="#{node.parent}">{escape(node.parent)}</a></h3>'
    found = changes(node.name, node.parent)
    if not found:
        return f"{head}<p>Nothing: the same structure, trained otherwise.</p>"
    rows = "".join(
        f"<tr><td><code>{escape(c.path)}</code></td><td>{_value(c.before)}</td><td>{_value(c.after)}</td></tr>"
        for c in found
    )
    top = "<tr><th>field</th><th>there</th><th>here</th></tr>"
    return f'{head}<div class="tree-changes" tabindex="0"><table>{top}{rows}</table></div>'


def _value(value: Any) -> str:
    """A value; a node leads to its class and shows its fields when asked."""
    text = repr(value)
    kind, bracket, _ = text.partition("(")
    address = named(kind, "anyformer.spec", HERE) if bracket else None
    shown = f"<code>{escape(kind)}</code>"
    linked = f'<a href="{address}" title="{escape(text)}">{shown}</a>'
    return linked if address else f"<code>{escape(text)}</code>"
