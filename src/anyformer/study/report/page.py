"""The report as one HTML page: no network, no fonts, nothing outside the file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources

from anyformer.study.beside import tables as more_tables
from anyformer.study.judgement import Judgement
from anyformer.study.report import tables
from anyformer.study.report.charts import Chart, charts
from anyformer.study.report.colours import SERIES, Style
from anyformer.study.report.curves import Band
from anyformer.study.report.figures import render
from anyformer.study.report.markup import Html, folded, join, tag, tied
from anyformer.study.report.svg import inline
from anyformer.study.report.words import GUIDE, answer, progress
from anyformer.study.results import Results
from anyformer.study.stats import judge

_SHAPES = {  # markers of the legend, about 14, 6
    "o": "M11 6a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "s": "M11.3 3.3h5.4v5.4h-5.4z",
    "^": "M14 2.6l3.4 6h-6.8z",
    "D": "M14 2.3L17.7 6 14 9.7 10.3 6z",
    "v": "M14 9.4l3.4-6h-6.8z",
    "P": "M12.8 2.6h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2v-2.4h2.2z",
    "X": "M11.6 2.4L14 4.8l2.4-2.4 1.2 1.2L15.2 6l2.4 2.4-1.2 1.2L14 7.2l-2.4 2.4-1.2-1.2L12.8 6"
    "l-2.4-2.4z",
    "*": "M14 1.6l1.2 3.2h3.4l-2.7 2 1 3.4-2.9-2-2.9 2 1-3.4-2.7-2h3.4z",
}


def page(results: Results, band: Band = "range", state: str | None = None) -> str:
    """The whole report as the text of an HTML file; bands of curves: range or interval.

    With a state it is a page that follows a study: it asks its server for another one.
    """
    judged = judge(results)
    drawn = charts(results, judged, band)
    sections = _sections(results, judged, drawn)
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]
    body = [
        tag("h1", results.title or results.name),
        tag("p", progress(results), class_="muted"),
        tag("p", tied(answer(results, judged)), class_="answer"),
        tag("nav", tag("ul", *links), aria_label="Contents"),
        *(
            tag("section", tag("h2", title, id=f"{name}-head"), content, id=name,
                aria_labelledby=f"{name}-head")
            for name, title, content in sections
        ),
    ]  # fmt: skip
    told = tag("p", id="live", class_="muted", role="status", data_state=state)
    made = tag("p", f"Study {results.name}, written by anyformer.", class_="muted")
    foot = tag("footer", *([] if state is None else [told]), made)
    whole = join([tag("main", *body), foot])
    return _document(results.title or results.name, whole, state is not None)


def _sections(
    results: Results, judged: Judgement, drawn: Mapping[str, Sequence[Chart]]
) -> list[tuple[str, str, Html]]:
    verdicts = [tables.verdicts(results, judged), *map(_figure, drawn["differences"])]
    repeats = [
        tag("pre", results.command or "not recorded", tabindex="0", class_="command"),
        tag("h3", "Data"),
        tables.facts(results.data),
        tag("h3", "Environment"),
        tables.facts(results.environment),
        folded("The study as data", tables.raw(results.study)),
    ]
    beside = more_tables(results, judged)
    wrong, samples = tables.wrong(results), tables.samples(results, judged)
    found = [
        ("verdicts", "Verdicts", join(verdicts)),
        *((t.name, t.title, tables.table(t.header, t.rows, t.caption)) for t in beside),
        ("curves", "Curves", _tabs(drawn["curves"], "Axes of the curves")),
        ("costs", "Score against cost", _tabs(drawn["costs"], "Costs")),
        ("rates", "Learning rates", join(map(_figure, drawn["rates"]))),
        ("changes", "What differs", tables.changes(results)),
        ("sizes", "Sizes and costs", tables.sizes(results, judged)),
        ("runs", "Runs not in the means", wrong or Html("")),
        ("samples", "Samples", samples or Html("")),
        ("repeat", "Repeat it", join(repeats)),
        ("reading", "How to read this", join(tag("p", text) for text in GUIDE)),
    ]
    return [section for section in found if section[2]]


def _tabs(drawn: Sequence[Chart], words: str) -> Html:
    """Charts behind tabs where there is JavaScript, below each other where there is none."""
    if not drawn:
        return Html("")
    panels = [
        tag("div", tag("h3", c.title), _figure(c), class_="panel", id=f"panel-{c.name}",
            data_tab=c.tab)
        for c in drawn
    ]  # fmt: skip
    return tag("div", *panels, class_="tabs", data_label=words)


def _figure(chart: Chart) -> Html:
    drawing = inline(
        render(chart.draw, "svg", chart.high, name=chart.name), chart.name, chart.words
    )
    data = tables.table(chart.header, chart.rows, f"{chart.title}: data")
    return tag(
        "figure",
        _legend(chart.keys),
        drawing,
        tag("figcaption", chart.caption),
        folded("The numbers", data),
    )


def _legend(keys: Mapping[str, Style]) -> Html:
    entries = [tag("li", _swatch(s), name) for name, s in keys.items() if not s.faint]
    faint = [style for style in keys.values() if style.faint]
    if faint:
        entries.append(tag("li", _swatch(faint[0]), f"{len(faint)} others"))
    return tag("ul", *entries, class_="legend") if entries else Html("")


def _swatch(style: Style) -> Html:
    colour = f"var({style.variable})"
    line = tag("path", d="M1 6h26", fill="none", stroke=colour, stroke_width="2",
               stroke_dasharray=style.dash or None)  # fmt: skip
    mark = tag("path", d=_SHAPES[style.marker], fill=colour, stroke="var(--paper)")
    return tag("svg", line, mark, viewBox="0 0 28 12", class_="swatch", aria_hidden="true")


def _document(title: str, body: Html, live: bool) -> str:
    style, scripts = _style(), [_asset("page.js"), *([_asset("live.js")] if live else [])]
    allowed = " ".join(f"'{_digest(script)}'" for script in scripts)
    asks = "; connect-src 'self'" if live else ""
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src {allowed}; "
        f"base-uri 'none'; form-action 'none'{asks}"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(style)),
    )
    made = [tag("script", Html(script)) for script in scripts]
    page = tag("html", head, tag("body", body, *made), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _style() -> str:
    """The style sheet with the variants' colours, for light and for dark paper."""
    text = _asset("style.css")
    for place, name in enumerate(("light", "dark")):
        told = " ".join(f"--series-{i}: {pair[place]};" for i, pair in enumerate(SERIES))
        text = text.replace(f"/*{name}*/", told)
    return text


def _asset(name: str) -> str:
    return (resources.files("anyformer.study.report") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
