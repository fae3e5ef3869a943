"""Hostile names in the pages that are written, opened in headless Chromium: all of it stays text.

Every text of a study's results is hostile here: names of variants, runs, data files and versions,
messages and samples; on a page of attention the model's folder and the tokens. The browser is told
to ignore the pages' Content-Security-Policy, so that it is the escaping that must hold; a page
that doesn't escape shows that the browser would have told. tests/study/browser.py says which
browser is started.
"""

import html
import json

import pytest

import anyformer
from anyformer.study.results import Arm, Outcome, Point, Results
from tests.faults.helping import made, words
from tests.study import browser as chromium

AWAY = "http://hostile.invalid"
HOSTILE = (
    "<script>alert(1)</script>",
    f'"><img src={AWAY}/a onerror=alert(2)>',
    "'><svg onload=alert(3)>",
    "</script><script>alert(4)</script>",
    f"</style><style>@import '{AWAY}/b'</style>",
    f"</title><iframe src={AWAY}/c></iframe>",
    f"--><link rel=stylesheet href={AWAY}/d><!--",
    f"]]><object data={AWAY}/e></object>",
    "javascript:alert(5)",
    "\" onmouseover=alert(6) onfocus=alert(7) autofocus x='",
    r"$\href{x}{$ \frac{ $_^ %",
    "\x00\x1b[31m\u202e\ud800",
)


@pytest.fixture(scope="module")
def found():
    reason = chromium.missing()
    if reason:
        pytest.skip(reason)
    with chromium.browser() as started:
        yield started


def results():
    """Results in which every text is hostile; the numbers are those of a small study."""
    arms = tuple(
        Arm(name=name, changes=(name, HOSTILE[0]), spec={name: name}, parameters=9, non_embedding=8,
            applied=8, flops=1e6, steps=2, tokens=8, equal=name)
        for name in HOSTILE
    )  # fmt: skip
    outcomes = tuple(
        Outcome(name, seed, 0.1, name, points=_points(i + seed / 9), reason=name, note=name,
                sample=name, status="failed" if seed == 3 and i % 2 else "done")
        for i, name in enumerate(HOSTILE) for seed in (1, 2, 3)
    )  # fmt: skip
    told = {name: name for name in HOSTILE}
    text = "".join(HOSTILE)
    return Results(text, text, HOSTILE[0], arms, outcomes, (1, 2, 3), (0.1,), match=text,
                   study=told, data=told, environment=told, command=text)  # fmt: skip


def _points(shift):
    scores = lambda s: {"loss": 3.0 + shift / s, **dict.fromkeys(HOSTILE, shift)}
    return tuple(Point(s, s, s * 1e9, float(s), scores(s)) for s in (1, 2))


def used(page):
    """Do what a reader can: open all, press every button, point at and focus everything."""
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    for button in page.locator("button:visible").all():
        button.click(timeout=2000) if button.is_enabled() else None
    page.evaluate(
        "document.querySelectorAll('*').forEach((e) => { e.focus?.();"
        " e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})) })"
    )
    page.wait_for_timeout(300)


def assert_silent(found, path, look="light"):
    for javascript in (True, False):
        options = {"bypass_csp": True, "java_script_enabled": javascript}
        with chromium.opened(found, path, look, **options) as (page, said):
            if javascript:
                used(page)
                strange = "script[src], img, iframe, object, link, base, [onerror], [onload]"
                assert page.locator(strange).count() == 0
                assert page.locator("a[href^='javascript']").count() == 0
            page.wait_for_timeout(200)
        assert said == []


def test_a_page_that_does_not_escape_is_heard(found, tmp_path):
    """What the other tests hope not to hear."""
    (tmp_path / "a.html").write_text("\n".join(f"<p>{text}" for text in HOSTILE[:8]))
    with chromium.opened(found, tmp_path / "a.html", bypass_csp=True) as (page, said):
        page.wait_for_timeout(500)
    assert {"dialog: 1", "dialog: 3"} <= set(said)
    assert any(text.startswith(AWAY) for text in said)


def test_a_report(found, tmp_path):
    pytest.importorskip("matplotlib", reason="charts need matplotlib")
    from anyformer.study.report import write

    path = write(results(), tmp_path)
    assert_silent(found, path)
    assert html.escape(HOSTILE[0]) in path.read_text("utf-8")


def test_a_page_of_attention(found, tmp_path):
    """The hostile texts are tokens, and the folder's name is one."""
    home = tmp_path / HOSTILE[1].replace("/", "\N{DIVISION SLASH}")
    texts = HOSTILE[:10]
    made(vocab=len(words()) + len(texts), length=64).save_pretrained(home, "anyformer")
    words().save(home)
    file = home / "tokenizer.json"
    about = json.loads(file.read_text("utf-8"))
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    about["added_tokens"] += [
        {"id": len(words()) + i, "content": text, "special": False, **plain}
        for i, text in enumerate(texts)
    ]
    file.write_text(json.dumps(about), "utf-8")
    seen = anyformer.attend(home, "".join(texts))
    assert len(seen.maps[0].queries) == len(texts)
    assert_silent(found, seen.save(tmp_path / "page.html"))
