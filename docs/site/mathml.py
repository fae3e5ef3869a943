"""Formulas as MathML, written when the site is built: no script and no network in the browser."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import Any

from latex2mathml.converter import convert


class FormulaError(ValueError):
    """A formula that can't be rendered, with its text."""


@cache
def mathml(formula: str, block: bool = False) -> str:
    """A formula of LaTeX as a `<math>` element; its source stays as the alternative text."""
    _check(formula)
    try:
        found = convert(formula.strip(), display="block" if block else "inline")
    except Exception as error:
        raise FormulaError(f"{formula!r} is no formula that latex2mathml knows: {error}") from error
    if "\\" in found:  # a command that it doesn't know is passed on as it is
        command = re.search(r"\\\w*", found)
        raise FormulaError(f"{formula!r}: latex2mathml doesn't know {command and command[0]!r}")
    return found.replace("<math ", f'<math alttext="{escape(formula.strip())}" ', 1)


def _check(formula: str) -> None:
    """Refuse what latex2mathml would read as something else: brackets without a partner."""
    plain = re.sub(r"\\[{}\\]", "", formula)
    pairs = ((r"\{", r"\}"), (r"\\left\b", r"\\right\b"), (r"\\begin\b", r"\\end\b"))
    for opens, closes in pairs:
        if len(re.findall(opens, plain)) != len(re.findall(closes, plain)):
            raise FormulaError(f"{formula!r}: {opens!r} and {closes!r} are not in pairs")


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
