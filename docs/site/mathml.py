"""Formulas as MathML, written when the site is built: no script and no network in the browser."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import Any

from latex2mathml.converter import convert

SPACE = '<mspace width="0.167em" />'
NAME = "<mi>(?:log|ln|exp|sin|cos)</mi>"
AFTER_NAME = re.compile(rf"(?<!<msub>)(?<!<msup>)(?<!<msubsup>)({NAME})(?=<m(?!o\b|space))")
BEFORE_NAME = re.compile(rf"(</m(?:i|n|sub|sup|subsup|frac)>)(?={NAME})")
INLINE = r'(?:<span class="math inline">)?<math (?:(?!</math>).)*</math>(?:</span>)?'
TOUCHED = re.compile(
    rf"[(“（]+{INLINE}[,.;:!?)”、，。；：）]*|{INLINE}[,.;:!?)”、，。；：）]+", re.S
)


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
    return _spaced(found).replace("<math ", f'<math alttext="{escape(formula.strip())}" ', 1)


def _spaced(found: str) -> str:
    """Room beside names of functions and none beside a slash, as TeX has it."""
    found = BEFORE_NAME.sub(rf"\1{SPACE}", AFTER_NAME.sub(rf"\1{SPACE}", found))
    return found.replace("<mo>&#x0002F;</mo>", '<mo lspace="0em" rspace="0em">&#x0002F;</mo>')


def joined(body: str) -> str:
    """A page whose commas and brackets stay in the line of the formula that they touch."""
    return TOUCHED.sub(r'<span class="joined">\g<0></span>', body)


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


def _page(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    if "body" in context:
        context["body"] = joined(context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("html-page-context", _page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
