"""The page of attention as a browser shows it; `-m slow`, as tests/study/browser.py says."""

import numpy as np
import pytest

import anyformer
from tests.study import browser as chromium
from tests.tasks.attending import folder, tiny, vit

pytestmark = pytest.mark.slow
TEXT = 'the cat <script> & </script> " the dog sat ' + "the cat sat " * 4


@pytest.fixture(scope="module")
def found():
    reason = chromium.missing()
    if reason:
        pytest.skip(reason)
    with chromium.browser() as started:
        yield started


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    home = folder(tmp_path_factory.mktemp("model"), tiny(depth=3, heads=4))
    return anyformer.attend(home, TEXT)


@pytest.fixture(scope="module")
def page(seen, tmp_path_factory):
    return seen.save(tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="module")
def image():
    return anyformer.attend(vit(), image=np.full((12, 12, 3), 200, np.uint8))


@pytest.fixture(scope="module")
def pages(page, image, tmp_path_factory):
    home = tmp_path_factory.mktemp("pages")
    both = anyformer.attend(tiny("encoder-decoder"), [3, 5, 8], target=[1, 2])
    long = anyformer.attend(tiny("decoder", depth=12, heads=8), [3, 5, 8, 4] * 32)
    made = {"both": both, "image": image, "long": long}
    return [page, *(one.save(home / f"{name}.html") for name, one in made.items())]


def told(seen, layer, head, q, k):
    """What the page is to say of a weight."""
    m = seen.maps[layer]
    return f"{m.queries[q]} → {m.keys[k]}: {m.weights[head, q, k]:.3f}"


def over(page, q, k):
    """Point at a cell."""
    box = page.locator("#picture").bounding_box()
    rows, columns = page.locator("#rows span").count(), page.locator("#columns span").count()
    side = box["width"] / columns
    assert abs(side - box["height"] / rows) < 0.01
    page.mouse.move(box["x"] + (k + 0.5) * side, box["y"] + (q + 0.5) * side)


@pytest.mark.parametrize("look", chromium.LOOKS)
def test_nothing_is_said_and_nothing_sticks_out(found, pages, look):
    for path in pages:
        with chromium.opened(found, path, look) as (page, said):
            for tab in ("#tab-lines", "#tab-heat"):
                page.click(tab)
                wide, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
                assert wide <= window
        assert said == []


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
@pytest.mark.parametrize("tab", ["#tab-heat", "#tab-lines", "#tab-image"])
def test_axe_finds_nothing(found, pages, look, tab):
    if chromium.axe() is None:
        pytest.skip("axe-core: set ANYFORMER_AXE to its axe.min.js")
    for path in pages:
        with chromium.opened(found, path, look, bypass_csp=True) as (page, _):
            if not page.locator(tab).is_visible():
                continue
            page.click(tab)
            page.add_script_tag(path=chromium.axe())
            wrong = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert [(rule["id"], rule["nodes"][0]["html"][:160]) for rule in wrong] == []


def test_hover_shows_the_weight(found, page, seen):
    with chromium.opened(found, page) as (shown, said):
        for q, k in ((0, 0), (3, 1), (8, 2), (5, 11)):
            over(shown, q, k)
            assert shown.text_content("#tip") == told(seen, 0, 0, q, k)
            assert shown.locator("#tip").is_visible()
        shown.mouse.move(5, 5)
        assert not shown.locator("#tip").is_visible()
        assert said == []


def test_layers_and_heads_are_chosen(found, page, seen):
    with chromium.opened(found, page) as (shown, said):
        shown.select_option("#layer", label="2")
        shown.select_option("#head", label="3")
        over(shown, 4, 1)
        assert shown.text_content("#tip") == told(seen, 2, 3, 4, 1)
        assert shown.text_content("#now") == "Layer 2, head 3"
        shown.click("[aria-label='Previous layer']")
        shown.click("[aria-label='Previous head']")
        over(shown, 4, 1)
        assert shown.text_content("#tip") == told(seen, 1, 2, 4, 1)
        assert shown.locator("[aria-label='Next layer']").is_enabled()
        shown.click("#grid button[aria-label='layer 0, head 1']")
        assert shown.text_content("#now") == "Layer 0, head 1"
        assert shown.locator("[aria-label='Previous layer']").is_disabled()
        assert shown.locator("#grid button").count() == 12
        assert said == []


def test_all_by_keyboard(found, page, seen):
    with chromium.opened(found, page) as (shown, _):
        shown.focus("#grid button[tabindex='0']")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
            shown.keyboard.press(key)
        assert shown.text_content("#now") == "Layer 1, head 1"
        assert shown.evaluate("document.activeElement.title") == "layer 1, head 1"
        shown.focus("#tab-heat")
        shown.keyboard.press("Tab")
        assert shown.text_content("#tip") == told(seen, 1, 1, 0, 0)
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "End", "ArrowLeft"):
            shown.keyboard.press(key)
        last = len(seen.maps[0].keys) - 2
        assert shown.text_content("#said") == told(seen, 1, 1, 1, last)
        assert shown.text_content("#tip") == told(seen, 1, 1, 1, last)
        shown.focus("#tab-heat")
        shown.keyboard.press("ArrowRight")
        assert shown.locator("#lines").is_visible()


def test_lines_of_one_token(found, page, seen):
    m = seen.maps[0]
    with chromium.opened(found, page) as (shown, said):
        shown.click("#tab-lines")
        strong = (m.weights[0] / m.weights[0].max() >= 0.0801).sum()
        assert shown.locator("#strands path").count() >= int(strong)
        shown.hover("#from li:nth-child(3)")
        assert shown.locator("#strands path").count() == len(m.keys)
        values = shown.locator("#to .value").all_text_contents()
        assert values == [f"{w:.3f}" for w in m.weights[0, 2].tolist()]
        shown.mouse.move(5, 5)
        assert shown.locator("#to .value").first.text_content() == ""
        shown.focus("#to")
        shown.keyboard.press("ArrowDown")
        shown.keyboard.press("ArrowDown")
        values = shown.locator("#from .value").all_text_contents()
        assert values == [f"{w:.3f}" for w in m.weights[0, :, 1].tolist()]
        assert shown.get_attribute("#to", "aria-activedescendant") == "to-1"
        shown.keyboard.press("Escape")
        assert shown.locator("#from .value").first.text_content() == ""
        assert said == []


def test_kinds_are_chosen(found, pages):
    with chromium.opened(found, pages[1]) as (shown, said):
        assert shown.locator("#kind option").all_text_contents() == [
            "encoder self-attention",
            "decoder self-attention",
            "cross-attention",
        ]
        shown.select_option("#kind", label="cross-attention")
        assert shown.text_content("#now") == "Cross-attention, layer 0, head 0"
        assert shown.locator("#rows span").count() == 2
        assert shown.locator("#columns span").count() == 3
        assert said == []


def test_an_image_is_bright_where_it_is_read(found, pages, image):
    m = image.maps[0]
    with chromium.opened(found, pages[2]) as (shown, said):
        shown.click("#tab-image")
        box = shown.locator("#patches").bounding_box()
        side = box["width"] / 3
        shown.mouse.move(box["x"] + 2.5 * side, box["y"] + 1.5 * side)
        assert shown.text_content("#tip") == f"class token → patch 1,2: {m.weights[0, 0, 6]:.3f}"
        shown.mouse.click(box["x"] + 2.5 * side, box["y"] + 1.5 * side)
        assert shown.locator("#query option:checked").text_content() == "patch 1,2"
        shown.mouse.move(box["x"] + 0.5 * side, box["y"] + 0.5 * side)
        assert shown.text_content("#tip") == f"patch 1,2 → patch 0,0: {m.weights[0, 6, 1]:.3f}"
        shown.select_option("#head", label="1")
        shown.select_option("#query", label="patch 0,1")
        shown.mouse.move(box["x"] + 1.5 * side, box["y"] + 0.5 * side)
        assert shown.text_content("#tip") == f"patch 0,1 → patch 0,1: {m.weights[1, 2, 2]:.3f}"
        assert said == []  # the browser itself says that pixels are read
        pixel = "[...document.getElementById('patches').getContext('2d').getImageData(%s).data]"
        light = [sum(shown.evaluate(pixel % f"{160 * i + 80}, 400, 1, 1")) for i in range(3)]
        assert light.index(max(light)) == int(m.weights[1, 2, 7:].argmax())
    with chromium.opened(found, pages[0]) as (shown, _):
        assert not shown.locator("#tab-image").is_visible()


def test_colours_follow_the_paper_and_the_scale(found, page):
    first = "[...document.getElementById('picture').getContext('2d').getImageData(0, 0, 9, 9).data]"
    looks = {}
    for look in ("light", "dark"):
        with chromium.opened(found, page, look) as (shown, _):
            looks[look] = shown.evaluate(first)
            if look == "light":
                shown.emulate_media(color_scheme="dark")
                shown.wait_for_timeout(300)  # until the page is told
                looks["turned"] = shown.evaluate(first)
                shown.select_option("#scale", "one")
                assert shown.evaluate(first) != looks["turned"]
                assert shown.text_content("#most") == "1.000"
    assert looks["light"] != looks["dark"] == looks["turned"]


def test_tokens_are_text(found, page):
    with chromium.opened(found, page) as (shown, _):
        assert shown.locator("#rows span").nth(2).text_content() == "<script>"
        assert shown.evaluate("document.scripts.length") == 2


def test_without_javascript_it_says_so(found, page):
    with chromium.opened(found, page, java_script_enabled=False) as (shown, _):
        assert shown.locator("noscript").is_visible()
        assert not shown.locator("#bar").is_visible()
