"""Notes as HTML: Markdown, formulas between dollars, papers and names as links."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from unicodedata import east_asian_width

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from mdit_py_plugins.dollarmath import dollarmath_plugin

from docs.site.mathml import mathml

PAPER = re.compile(r"(?<![\w./-])(?:arXiv:)?(\d{4}\.\d{4,5})(?![\w])")
Named = Callable[[str], str | None]  # the address of a name in backticks, if it has one


def html(text: str, named: Named = lambda name: None, link: Named = lambda target: target) -> str:
    """A note as HTML; `named` leads from names in backticks, `link` from targets of links."""
    made = parser()
    made.add_render_rule("text", _text)
    made.add_render_rule("code_inline", lambda r, tokens, i, *_: _code(tokens[i].content, named))
    made.add_render_rule("fence", lambda r, tokens, i, *_: _fence(tokens[i]))
    made.add_render_rule("softbreak", lambda r, tokens, i, *_: _break(tokens, i))
    made.add_render_rule("link_open", lambda r, tokens, i, *_: _link(tokens[i], link))
    return made.render(text)


def parser() -> MarkdownIt:
    """What reads the Markdown of notes: tables, and formulas between dollars."""
    return (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .use(
            dollarmath_plugin,
            renderer=lambda formula, options: mathml(formula, options["display_mode"]),
            allow_labels=False,
        )
    )


def _text(self: RendererHTML, tokens, i, options, env) -> str:
    inside = i and tokens[i - 1].type == "link_open"
    shown = escape(tokens[i].content, quote=False)
    return shown if inside else PAPER.sub(r'<a href="https://arxiv.org/abs/\1">\g<0></a>', shown)


def _break(tokens, i: int) -> str:
    """The end of a line: nothing between letters of Chinese or Japanese, else a space."""
    before = next((t.content[-1] for t in reversed(tokens[:i]) if t.content), "")
    after = next((t.content[0] for t in tokens[i + 1 :] if t.content), "")
    return "" if unspaced(before + after) else "\n"


def unspaced(around: str) -> bool:
    """Whether the two letters around the end of a line stand without a space between them."""
    return len(around) == 2 and all(east_asian_width(letter) in "WF" for letter in around)


def _code(text: str, named: Named) -> str:
    shown, address = f"<code>{escape(text, quote=False)}</code>", named(text)
    return f'<a href="{escape(address)}">{shown}</a>' if address else shown


def _fence(token) -> str:
    """A block of code, coloured where it is Python."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    kind = token.info.strip().partition(" ")[0] or "text"
    if kind == "svg":
        return f'<div class="picture">{token.content}</div>'
    shown = highlight(token.content, get_lexer_by_name(kind), HtmlFormatter())
    return shown.replace("<pre>", '<pre tabindex="0">')  # a keyboard can scroll it


def _link(token, link: Named) -> str:
    return f'<a href="{escape(link(str(token.attrs["href"])) or "")}">'
