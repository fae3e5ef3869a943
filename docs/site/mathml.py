"""Formulas as MathML, written when the site is built: no script and no network in the browser."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from latex2mathml.converter import convert


class FormulaError(ValueError):
    """A formula that can't be rendered, with its text."""


@cache
def mathml(formula: str, block: bool = False) -> str:
    """A formula of LaTeX as a `<math>` element; its source stays as the alternative text."""
    try:
        found = convert(formula.strip(), display="block" if block else "inline")
    except Exception as error:
        raise FormulaError(f"{formula!r} is no formula that latex2mathml knows: {error}") from error
    return found.replace("<math ", f'<math alttext="{escape(formula.strip())}" ', 1)


def _inline(self: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    self.body.append(mathml(node.astext()))
    raise SkipNode


def _block(self: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    self.body.append(f'<div class="formula">{mathml(node.astext(), True)}</div>')
    raise SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
