"""The report: what it says, what it writes, and that text from data stays text."""

import csv
import dataclasses
import html.parser
import re
import sys

import pytest

from anyformer.errors import AnyformerError
from anyformer.study.report.charts import front
from anyformer.study.report.colours import SERIES, styles
from anyformer.study.report.curves import curve, scores
from anyformer.study.report.markup import Html, clean, join, tag, tied
from anyformer.study.report.numbers import duration, exact, short
from anyformer.study.results import from_json, to_json
from anyformer.study.stats import judge
from tests.study.fake import ARMS, arm, changed, many, run, study, table

EVIL = "<script>alert('x')</script>\"&'"


class _Reader(html.parser.HTMLParser):
    """Tags, attributes and text of a page; an error where tags don't close."""

    VOID = frozenset({"meta", "br", "hr"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.hrefs, self.text, self.open = [], [], [], [], []
        self.attributes = set()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        told = dict(attrs)
        self.attributes |= set(told)
        self.ids += [told["id"]] if "id" in told else []
        self.hrefs += [told["href"]] if "href" in told else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page():
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    from anyformer.study.report import page

    return page


@pytest.fixture(scope="module")
def text(page):
    return page(study())


def test_the_page_says_what_was_found(text):
    read = " ".join("".join(_Reader(text).text).split())
    for told in (
        "Does a small decoder gain from rotary positions",
        "rotary helps by 0.060 ± 0.011 (p < 0.001)",
        "no evidence of a difference for t5 bias",
        "43 of 45 runs are done, 1 diverged, 1 to come",
        "the loss was nan at step 431",
        "stack.schedule: Plain → Shared(unique=1)",
        "anyformer compare --seeds 3 --rates 0.001,0.003,0.01",
        "def t5_bias(self, key):",
        "Python's standard library, 9.4 MB",
        "so far 8 of 9 runs",
        "from the least to the greatest of the seeds",
    ):
        assert told in read


def test_the_page_needs_nothing_else(text):
    read = _Reader(text)
    assert not {"link", "img", "iframe", "object"} & set(read.tags)
    assert read.tags.count("script") == 1 and read.tags.count("style") == 1
    assert all(href.startswith("#") and href[1:] in read.ids for href in read.hrefs)
    assert len(read.ids) == len(set(read.ids))
    addresses = set(re.findall(r"(?:https?:)?//[^\s\"'<>]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "style" not in read.attributes  # the page's policy would refuse it
    assert not any(name.startswith("on") for name in read.attributes)


def test_every_chart_has_words_and_numbers(text):
    charts = re.findall(r"<svg[^>]*class=\"chart\"[^>]*>", text)
    assert len(charts) == 1 + 4 + 4 + 1
    assert all(
        'role="img"' in chart and re.search('aria-label="[^"]{20,}', chart) for chart in charts
    )
    assert text.count("<summary>The numbers</summary>") == len(charts)


def test_colours_come_from_the_style_sheet(text):
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert not re.findall(r"(?:fill|stroke)=\"#", drawn)
    assert all(f"var(--series-{i})" in drawn for i in range(len(ARMS)))
    for light, dark in SERIES:
        assert light in text and dark in text


def _evil():
    """Results with markup in every text that they have."""
    results = table({EVIL: {0.1: [1.0, 1.2]}, f"b{EVIL}": {0.1: [2.0, 2.1]}})
    results = changed(results, EVIL, 1, 0.1, sample=EVIL)
    lost = run(f"b{EVIL}", 3, 0.1, None, status="diverged", reason=EVIL)
    told = {EVIL: EVIL, "deep": {EVIL: [EVIL]}}
    return dataclasses.replace(
        results,
        name=EVIL,
        title=EVIL,
        match=EVIL,
        command=EVIL,
        arms=tuple(arm(a.name, [EVIL]) for a in results.arms),
        outcomes=(*results.outcomes, lost),
        study=told,
        data=told,
        environment=told,
    )


def test_text_from_data_stays_text(page):
    text = page(_evil())
    read = _Reader(text)
    assert read.tags.count("script") == 1
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert") > 20
    assert "alert('x')" in "".join(read.text)


def test_strange_names_are_drawn(page):
    names = ["$a_b$", "_hidden", "100%", "ü\x00\x1b", "日本語", "a" * 200, "\u202eback"]
    text = page(table({name: {0.1: [1.0 + i, 1.2 + i]} for i, name in enumerate(names)}))
    assert "$a_b$" in text and "_hidden" in text and "日本語" in text
    assert not re.search("[\x00-\x08\x0e-\x1f\u202e]", text)


@pytest.mark.parametrize(
    "results",
    [
        table({"a": {0.1: [None]}, "b": {0.1: [None]}}),
        table({"a": {0.1: [1.0]}}),
        table({"a": {0.1: [1.0]}, "b": {0.1: [1.0]}}),
        table({"a": {0.1: [float("nan")] * 2}, "b": {0.1: [1.0, 2.0]}}),
        table({"a": {0.1: [1.0, 2.0], 0.2: [None, None]}, "b": {0.2: [0.0, 0.0]}}),
        dataclasses.replace(table({"a": {0.1: [1.0]}, "b": {0.1: [2.0]}}), outcomes=()),
    ],
    ids=["waiting", "alone", "one seed", "lost", "ragged", "empty"],
)
def test_thin_results_make_a_page(page, results):
    read = _Reader(page(results))
    assert "Verdicts" in read.text


def test_times_that_are_not_known(page):
    results = study()
    outcomes = tuple(
        dataclasses.replace(o, points=tuple(dataclasses.replace(p, seconds=None) for p in o.points))
        for o in results.outcomes
    )
    text = page(dataclasses.replace(results, outcomes=outcomes))
    assert 'data-tab="time"' not in text and 'data-tab="FLOPs"' in text


def test_pages_are_the_same_twice(page, text):
    assert page(from_json(to_json(study()))) == text


def test_anchors_have_a_column(page):
    values = {"deep": [1.0, 1.1, 1.2], "flat": [2.0, 2.1, 2.2], "tied": [1.2, 1.32, 1.38]}
    results = table({n: {0.1: v} for n, v in values.items()}, anchors=("flat", "deep"))
    text = page(results)
    assert ">recovered<" in text and ">80% (" in text


def test_bands_of_intervals(page):
    assert "t-interval of the mean over seeds" in page(study(), band="interval")


@pytest.fixture(scope="module")
def folder(page, tmp_path_factory):
    from anyformer.study.report import write

    new = tmp_path_factory.mktemp("report") / "new"
    assert write(study(), new) == new / "report.html"
    return new


def test_a_folder(folder, text):
    assert (folder / "report.html").read_text(encoding="utf-8") == text
    names = {p.name for p in folder.iterdir()}
    assert names == {
        "report.html",
        "figures",
        "points.csv",
        "runs.csv",
        "runs.jsonl",
        "verdicts.csv",
    }
    figures = {p.name: p.read_bytes() for p in (folder / "figures").iterdir()}
    assert {n.rpartition(".")[0] for n in figures if n.endswith(".png")} == {
        n.rpartition(".")[0] for n in figures if n.endswith(".svg")
    }
    assert len(figures) == 20
    assert all(v[:4] == b"\x89PNG" for n, v in figures.items() if n.endswith(".png"))
    assert b"t5 bias" in figures["curves-tokens.svg"]


def test_tables_as_csv(folder):
    results = study()
    read = {}
    for name in ("points", "runs", "verdicts"):
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            read[name] = list(csv.DictReader(file))
    assert len(read["runs"]) == 45
    assert len(read["points"]) == sum(len(o.points) for o in results.outcomes)
    assert float(read["points"][0]["loss"]) == results.outcomes[0].points[0].scores["loss"]
    lost = [r for r in read["runs"] if r["status"] == "diverged"]
    assert [(r["variant"], r["seed"], r["reason"]) for r in lost] == [
        ("glu", "2", "the loss was nan at step 431")
    ]
    first = read["verdicts"][0]
    assert (first["variant"], first["verdict"], first["seeds"]) == ("rotary", "helps", "1 2 3")


def test_without_matplotlib(monkeypatch, tmp_path):
    from anyformer.study.report import write

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AnyformerError, match=r"pip install 'anyformer\[plots\]'"):
        write(study(), tmp_path / "none")
    assert not (tmp_path / "none").exists()


# ------------------------------------------------------------------- pieces


def test_curves_leave_out_what_is_not_done():
    results = study()
    judged = judge(results)
    whole = curve(results, judged, "plain", "loss", "tokens")
    assert whole.seeds == 3 and not whole.strays and len(whole.x) == 11
    assert all(a <= m <= b for a, m, b in zip(whole.low, whole.mean, whole.high, strict=True))
    results = changed(results, "glu", 1, 0.003, status="running")
    found = curve(results, judged, "glu", "loss", "flops")
    assert found.seeds == 2 and [s.seed for s in found.strays] == [1]
    wide = curve(results, judged, "glu", "loss", "flops", "interval")
    assert wide.high[-1] - wide.low[-1] > found.high[-1] - found.low[-1]
    assert scores(results) == ["loss", "accuracy"]


def test_fronts():
    points = [(1.0, 5.0), (2.0, 6.0), (3.0, 4.0), (3.0, 3.0), (4.0, 3.5)]
    assert front(points, lower=True) == [(1.0, 5.0), (3.0, 3.0)]
    assert front(points, lower=False) == [(1.0, 5.0), (2.0, 6.0)]


def test_of_many_variants_the_furthest_have_colours():
    results = many()
    judged = judge(results)
    look = styles(results, judged)
    named = [name for name, style in look.items() if not style.faint]
    assert len(named) == len(SERIES) and results.baseline in named
    furthest = max(judged.comparisons, key=lambda c: abs(c.mean))
    assert furthest.variant in named
    assert len({(s.colour, s.dash, s.marker) for s in look.values()}) == len(SERIES) + 1
    assert look[results.baseline].colour == SERIES[0][0]


def _light(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_stand_out_from_their_paper():
    for light, dark in SERIES:
        assert 1.05 / (_light(light) + 0.05) >= 3
        assert (_light(dark) + 0.05) / (_light("#14171a") + 0.05) >= 3


def test_markup_is_escaped():
    assert tag("p", "<b>", class_='"') == '<p class="&quot;">&lt;b&gt;</p>'
    assert tag("p", Html("<b>"), title=None) == "<p><b></p>"
    assert join(["<", Html("<")], "&") == "&lt;&amp;<"
    assert clean("a\x00\ud800\nb") == "a\ufffd\ufffd\nb"
    assert tied("1 ± 2 (p = 3)") == "1\xa0±\xa02 (p\xa0=\xa03)"


def test_numbers_for_people():
    assert [short(v) for v in (0, 12, 999.6, 1500, 2.5e6, 7.1e13)] == [
        "0", "12", "1 k", "1.5 k", "2.5 M", "71 T"
    ]  # fmt: skip
    assert [duration(v) for v in (5, 150, 9000)] == ["5 s", "2.5 min", "2.5 h"]
    assert [exact(v) for v in (None, 0.123456789, 7, "x")] == ["", "0.123457", "7", "x"]
