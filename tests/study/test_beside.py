"""Tables beside the common ones: other conditions, and what the sources measured."""

import dataclasses

import pytest

from anyformer.study import beside
from anyformer.study.report import page
from anyformer.study.results import Results
from anyformer.study.shipped import modifications, recursive, sources
from anyformer.study.stats import judge
from tests.study import fake


def scored(results: Results, **scores) -> Results:
    """The results with more scores at the end of each run, as functions of its loss."""
    outcomes = []
    for run in results.outcomes:
        last = run.points[-1]
        more = {k.replace("_at_", "@"): f(last.scores["loss"]) for k, f in scores.items()}
        point = dataclasses.replace(last, scores={**last.scores, **more})
        outcomes.append(dataclasses.replace(run, points=(point,)))
    return dataclasses.replace(results, outcomes=tuple(outcomes))


def made(values: dict[str, float], name: str) -> Results:
    noise = (0.0, 0.01, 0.005, 0.002)
    seeds = lambda i, loss: [loss + noise[(i + s) % (3 + (i > 0))] for s in range(3)]
    runs = {v: {1e-3: seeds(i, loss)} for i, (v, loss) in enumerate(values.items())}
    return fake.table(runs, name=name)


def test_recursive_layers_stand_beside_the_source():
    values = {recursive.PLAIN: 2.0, recursive.SHARED: 2.2, recursive.ONE: 3.0, "mine": 2.5}
    results = made(values, "recursive-layers/masked-relative")
    results = scored(results, accuracy=lambda loss: 1 - loss / 4)
    (table,) = beside.tables(results, judge(results))
    rows = {row[0]: row for row in table.rows}
    assert rows[recursive.SHARED][2] == 0.4901 and rows[recursive.SHARED][3:5] == ("80%", "97%")
    assert rows["mine"][2] is None and rows[recursive.PLAIN][3] is None
    text = page(results)
    assert "Beside the source" in text and "97%" in text


def test_modifications_stand_beside_narang_et_al():
    values = {"plain": 2.0, "SwiGLU": 1.5, "ReZero": 1.4, "Swish": 2.0001, "macaron": 1.0}
    results = made(values, "modifications/decoder")
    (table,) = beside.tables(results, judge(results))
    told = {row[0]: (row[-2], row[-1]) for row in table.rows}
    assert told["SwiGLU"] == ("helps", "agree")
    assert told["ReZero"] == ("hurts", "disagree")
    assert told["Swish"][0] == "does nothing sure" and "macaron" not in told


@pytest.mark.parametrize(
    "ours,theirs,said",
    [
        ("diverged", "hurts", "agree"),
        ("inconclusive", "hurts", "open"),
        ("no evidence", "does nothing sure", "agree"),
        ("helps", "does nothing sure", "open"),
    ],
)
def test_agreement(ours, theirs, said):
    assert beside.agreement(ours, theirs) == said


def test_other_conditions_are_told_and_what_was_not_possible():
    results = scored(
        made({"plain": 2.0, "other": 1.0}, "positions/decoder"),
        loss_at_64=lambda loss: loss + 1,
        loss_at_128=lambda loss: loss + 2,
    )
    short = dataclasses.replace(results.outcomes[0], note="not evaluated at 128 (<b>)")
    results = dataclasses.replace(results, outcomes=(short, *results.outcomes[1:]))
    (table,) = beside.tables(results, judge(results))
    assert table.header == ("variant", "as trained", "64", "128")
    assert table.rows[0][2] == "3.0050 ± 0.0050"
    text = page(results)
    assert "under other conditions" in text and "(&lt;b&gt;)" in text and "(<b>)" not in text


def test_a_plain_study_has_no_more_tables():
    results = made({"plain": 2.0, "other": 1.0}, "compare")
    assert beside.tables(results, judge(results)) == []


def test_the_sources_name_variants_that_ship():
    studies = {p.name: p for p in recursive.panels("gpu")}
    names = {v.name for panel in studies.values() for v in panel.variants}
    for panel, told in sources.RECURSIVE.items():
        assert f"{recursive.STUDY}/{panel}" in studies
        assert {t.variant for t in told} <= names, panel
    names = {n for kind in modifications.BASES for n in modifications.switches(kind, "gpu")}
    assert {*sources.narang()} <= names
    assert sources.narang()["LayerNorm"].early == pytest.approx(2.197)
