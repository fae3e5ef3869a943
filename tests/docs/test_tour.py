"""The tour covers every file of the core, and every section of it has a note."""

import re

import pytest

from docs.tour import check, path
from docs.tour.page import Page, body, named, page, pages
from docs.tour.source import SOURCE, files, name_of
from docs.tour.words import units
from docs.tour.write import places, write


def test_every_file_is_covered_and_every_section_has_a_note():
    assert check.faults() == []
    assert sorted(path.everything()) == sorted(map(name_of, files()))


def test_the_path_takes_about_ten_hours():
    total = sum(pages()[name].minutes for name in path.order()) / 60
    assert 9 <= total <= 11


def test_a_silent_section_and_a_stray_note_are_reported(tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "weigh.md").write_text("## nobody\n\nNothing.\n")
    found = check._page(page(SOURCE / "ops" / "weigh.py", tmp_path))
    assert "ops/weigh: _ranks has no note" in found
    assert "notes/ops/weigh.md: nothing in the file is called 'nobody'" in found


def test_units_of_translation_have_a_key_and_a_hash():
    found = units(pages()["recipes/xl"])
    assert {"(title)", "", "transformer_xl", "(end)"} <= set(found)
    assert all(re.fullmatch("[0-9a-f]{12}", digest) and text for digest, text in found.values())


def shown(name: str) -> str:
    return body(pages()[name])


def test_a_page_has_notes_beside_code():
    text = shown("recipes/xl")
    assert '<h2 id="transformer_xl">' in text
    assert 'href="../spec/position.html#L' in text
    assert text.count("<math ") > 20
    assert text.count('class="tour-row') == text.count('class="tour-code')
    assert '<nav class="tour-onward"' in text


def test_names_in_backticks_are_found():
    assert named("Relative", "anyformer.ops.relative", "ops/relative").startswith("#L")
    assert named("S.XL", "anyformer.recipes.xl", "recipes/xl").startswith("../spec/position.html#L")
    assert named("no such name", "anyformer.recipes.xl", "recipes/xl") is None


def addresses(found: Page, text: str) -> set[str]:
    """Targets of a page's links inside the tour, from its root."""
    home = re.sub(r"[^/]*$", "", found.name)
    inside = re.findall(r'href="([^":]*)"', text)
    return {_joined(home, found.name, a) for a in inside if not a.startswith("../../") or "#L" in a}


def _joined(home: str, name: str, address: str) -> str:
    import posixpath

    file, _, mark = address.partition("#")
    to = posixpath.normpath(home + file).removesuffix(".html") if file else name
    return f"{to}#{mark}"


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere(tmp_path):
    texts = {name: body(found) for name, found in pages().items()}
    marks = {name: set(re.findall(r'id="([^"]+)"', text)) for name, text in texts.items()}
    for name, found in pages().items():
        for address in addresses(found, texts[name]):
            to, _, mark = address.partition("#")
            if to.startswith(".."):
                continue
            assert to in texts, (name, address)
            assert not mark or mark in marks[to], (name, address)
    write(tmp_path)
    assert (tmp_path / "index.md").read_text().count("min\n") > 50
    assert all(
        (tmp_path.parent / tmp_path.name / p[5:]).exists()
        for p in places().values()
        if "tree" not in p
    )
