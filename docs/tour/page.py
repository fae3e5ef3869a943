"""A page of the tour: a file's rows with their notes, as one stretch of HTML."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from docs.tour import markdown
from docs.tour.code import html_lines
from docs.tour.language import ENGLISH, Words, between, languages, site, switcher
from docs.tour.names import Place, attribute, known, module_name, resolve
from docs.tour.notes import END, NOTES, Notes, notes
from docs.tour.path import main_path, minutes, order
from docs.tour.source import MODULE, SOURCE, Row, Text, files, name_of, read, rows

ROOF = {1: "h2", 2: "h3", 3: "h4"}


@dataclass
class Page:
    """A source file, its rows with all that is said about them, and the notes' front matter."""

    name: str  # as ops/relative
    source: Text
    rows: list[Row]
    notes: Notes

    @property
    def title(self) -> str:
        """The title of the notes, or the file's path."""
        return self.notes.title or f"{self.name}.py"

    @property
    def minutes(self) -> int:
        """How long it takes to read."""
        words = sum(len(row.note.split()) for row in self.rows)
        return minutes(words, sum(bool(line.strip()) for line in self.source.lines))


def page(file: Path, home: Path = NOTES) -> Page:
    """The page of a source file."""
    name, source = name_of(file), read(file)
    found = notes(name, home)
    known_rows = rows(source, found.sections)
    for row in known_rows:
        more = found.sections.get(row.key, "")
        row.note = "\n\n".join(filter(None, (row.note, more)))
    if END in found.sections:
        known_rows.append(Row(END, found.sections[END]))
    return Page(name, source, known_rows, found)


@cache
def pages() -> dict[str, Page]:
    """Every page by its name."""
    return {name_of(file): page(file) for file in files()}


@cache
def covered() -> dict[str, str]:
    """The modules that have a page, and its name."""
    return {module_name(file): name_of(file) for file in files()}


def href(place: Place, here: str, code: str = ENGLISH) -> str | None:
    """The address of a place from a page; None where the tour doesn't show it."""
    there = covered().get(place.module)
    if there is None:
        return None
    path = "" if there == here else between(here, there, code)
    return f"{path}#L{place.line}" if place.line else path or "#"


def named(name: str, where: str, here: str, code: str = ENGLISH) -> str | None:
    """The address of a name in backticks: as `Relative`, `ops.relative` or `S.Attention`."""
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    first, *rest = name.split(".")
    found = resolve(where, first) or (
        Place(f"anyformer.{name}") if f"anyformer.{name}" in known() else None
    )
    for part in rest if found and found.module != f"anyformer.{name}" else []:
        found = attribute(found, part)
    return href(found, here, code) if found else None


def body(found: Page, words: Words | None = None) -> str:
    """The page below its title, in English or in what is given."""
    said = words or Words(languages()[ENGLISH])
    code = said.language.code
    lines = html_lines(found.source, lambda place: href(place, found.name, code))
    inner = "\n".join(_row(row, found, lines, said) for row in found.rows)
    top = f"{switcher(found.name, said.language)}{_facts(found, said)}"
    return f'<div class="tour">\n{top}\n{inner}\n{_onward(found.name, said)}\n</div>'


def _facts(found: Page, said: Words) -> str:
    """The file, the time it takes and the papers."""
    file = found.source.file.relative_to(SOURCE.parents[1]).as_posix()
    papers = "".join(
        f'<a href="https://arxiv.org/abs/{escape(p)}">arXiv:{escape(p)}</a>'
        for p in found.notes.papers
    )
    time = said.language.minutes.format(found.minutes)
    parts = f"<code>{escape(file)}</code><span>{time}</span>{papers}"
    return f'<p class="tour-facts">{parts}</p>'


def _row(row: Row, found: Page, lines: list[str], words: Words) -> str:
    said, mark = _said(row, found, words)
    if row.key == END:
        return f'<div class="tour-end" {mark}>{said}</div>'
    code = _code(row, found.source, lines)
    if row.key == MODULE and found.notes.sections.get(MODULE):  # a long one takes the whole width
        lead = f'<div class="tour-lead" {mark}>{said}</div>'
        return f'{lead}<div class="tour-row"><div class="tour-note"></div>{code}</div>'
    kind = " tour-intro" if row.key == MODULE else ""
    note = f'<div class="tour-note" {mark}>{_head(row)}{said}</div>'
    return f'<div class="tour-row{kind}">{note}{code}</div>'


def _said(row: Row, found: Page, words: Words) -> tuple[str, str]:
    """A row's note as HTML, and the attributes of what holds it: key, hash, language."""
    where, code = module_name(found.source.file), words.language.code
    text = markdown.html(
        words.texts.get(row.key, row.note),
        lambda name: named(name, where, found.name, code),
        lambda to: _linked(to, found.name, code),
    )
    if row.key in (MODULE, END):  # headings of a text that has the whole width follow the title
        text = text.replace("<h3>", "<h2>").replace("</h3>", "</h2>")
    mark = f'data-key="{escape(row.key)}" data-digest="{row.digest}"'
    english = row.note and row.key not in words.texts and not words.language.is_english
    return text, f'{mark} lang="en"' if english else mark


def _head(row: Row) -> str:
    """The heading of a class, function or method, which links lead to."""
    if not row.depth or "#" in row.key or " " in row.key:
        return ""
    tag, name = ROOF[min(row.depth, 3)], row.key.partition("~")[0]
    anchor = f'<a class="headerlink" href="#{escape(row.key)}" title="Link to this">¶</a>'
    return f'<{tag} id="{escape(row.key)}"><code class="name">{escape(name)}</code>{anchor}</{tag}>'


def _code(row: Row, source: Text, lines: list[str]) -> str:
    """The row's lines without blank ones at both ends."""
    shown = list(row.lines)
    while shown and not source.lines[shown[0] - 1].strip():
        shown.pop(0)
    while shown and not source.lines[shown[-1] - 1].strip():
        shown.pop()
    inner = "\n".join(f'<span id="L{n}" data-n="{n}">{lines[n - 1]}</span>' for n in shown)
    if not shown:
        return '<div class="tour-code"></div>'
    return f'<div class="tour-code highlight"><pre tabindex="0"><code>{inner}</code></pre></div>'


def _linked(target: str, here: str, code: str) -> str:
    """The address of a link in a note: to a page of the tour, of docs/, or elsewhere."""
    if target.startswith(("http:", "https:", "#")):
        return target
    path, mark, anchor = target.partition("#")
    if path.startswith("/"):  # from the root of the site
        up = posixpath.relpath(path[1:], posixpath.dirname(site(here, code)))
        return up.removesuffix(".md") + (".html" if path.endswith(".md") else "") + mark + anchor
    if path not in pages_known():
        raise ValueError(f"notes of {here} link to {target}, which is no page of the tour")
    return between(here, path, code) + mark + anchor


@cache
def pages_known() -> frozenset[str]:
    """The names of all pages."""
    return frozenset(map(name_of, files()))


def _onward(name: str, said: Words) -> str:
    """Links to the pages before and after on the path; in other languages the main one."""
    language = said.language
    path = order() if language.is_english else main_path().pages
    if name not in path:
        return ""
    at, to = path.index(name), []
    for step, word in ((-1, language.before), (1, language.next)):
        if 0 <= at + step < len(path):
            other = path[at + step]
            title = escape(said.titles.get(other, pages()[other].title))
            address = between(name, other, language.code)
            to.append(f'<a href="{address}"><span>{word}</span> {title}</a>')
    return f'<nav class="tour-onward" aria-label="{language.path}">{"".join(to)}</nav>'
