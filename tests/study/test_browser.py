"""The report as a browser shows it; `-m slow`, with a browser and axe-core as browser.py says."""

import pytest

from tests.study import browser as chromium
from tests.study.fake import many, study, table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
    reason = chromium.missing()
    if reason:
        pytest.skip(reason)
    with chromium.browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    from anyformer.study.report import write

    return write(study(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    from anyformer.study.report import write

    grown = [many(), table({"a" * 60: {0.1: [1.0, 1.1]}, "<b>": {0.1: [None, 1.1]}})]
    return [write(results, tmp_path_factory.mktemp("report")) for results in grown]


@pytest.mark.parametrize("look", chromium.LOOKS)
def test_nothing_is_said_and_nothing_sticks_out(found, report, others, look):
    for path in (report, *others):
        with chromium.opened(found, path, look) as (page, said):
            wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert said == []
        assert wide <= window


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_nothing(found, report, others, look):
    if chromium.axe() is None:
        pytest.skip("axe-core: set ANYFORMER_AXE to its axe.min.js")
    for path in (report, *others):
        assert chromium.violations(found, path, look) == {}


def test_colours_follow_the_paper(found, report):
    seen = {}
    for look in ("light", "dark"):
        with chromium.opened(found, report, look) as (page, _):
            seen[look] = page.evaluate(
                "[...document.querySelectorAll('svg.chart :is(path, use, text):not(defs *)')]"
                ".map((p) => getComputedStyle(p))"
                ".flatMap((s) => [s.fill, s.stroke]).filter((c) => c.startsWith('rgb('))"
            )
    assert len(seen["light"]) > 100
    alike = [(a, b) for a, b in zip(seen["light"], seen["dark"], strict=True) if a == b]
    assert not alike


def test_tabs_by_keyboard(found, report):
    shown = "[...document.querySelectorAll('#curves .panel')].map((p) => !p.hidden)"
    with chromium.opened(found, report) as (page, _):
        assert page.evaluate(shown) == [True, False, False, False]
        page.focus("#curves [role=tab]")
        page.keyboard.press("ArrowRight")
        assert page.evaluate(shown) == [False, True, False, False]
        assert page.evaluate("document.activeElement.textContent") == "FLOPs"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(shown) == [False, False, False, True]
        page.keyboard.press("Home")
        assert page.evaluate(shown)[0]
        page.click("#curves [role=tab]:nth-child(3)")
        assert page.evaluate(shown)[2]


def test_without_javascript_all_is_shown(found, report):
    with chromium.opened(found, report, java_script_enabled=False) as (page, _):
        assert page.locator("#curves svg.chart:visible").count() == 4
        assert page.locator("[role=tab]").count() == 0


def test_on_paper_all_is_shown_in_light(found, report):
    with chromium.opened(found, report, "dark") as (page, _):
        page.emulate_media(media="print")
        assert page.locator("#curves svg.chart:visible").count() == 4
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )


def test_columns_sort(found, report):
    column = "[...document.querySelectorAll('#verdicts table.sortable tbody th')]"
    names = f"{column}.map((c) => c.textContent)"
    with chromium.opened(found, report) as (page, _):
        assert page.evaluate(names) == ["plain", "rotary", "glu", "recursion", "t5 bias"]
        button = page.locator("#verdicts thead button").nth(2)
        button.click()
        assert page.evaluate(names) == ["rotary", "glu", "t5 bias", "recursion", "plain"]
        button.click()
        assert page.evaluate(names) == ["recursion", "t5 bias", "glu", "rotary", "plain"]
