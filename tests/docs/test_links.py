"""Names of the code lead to their definitions, found without running it."""

import re

import pytest

from docs.tour.code import html_lines
from docs.tour.links import links
from docs.tour.names import Place, attribute, known, module, resolve
from docs.tour.page import href
from docs.tour.source import SOURCE, read


def found(page: str) -> dict[tuple[str, int], Place]:
    """The links of a page by the text that they stand on and their line."""
    source = read(SOURCE / f"{page}.py")
    return {(source.lines[n - 1][a:b], n): place for (n, a, b), place in links(source).items()}


def named(page: str, name: str) -> set[Place]:
    return {place for (text, _), place in found(page).items() if text == name}


def line_of(where: str, pattern: str) -> int:
    lines = known()[where].read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if re.search(pattern, line))


def test_names_are_followed_through_what_passes_them_on():
    place = resolve("anyformer.spec", "Attention")
    assert place == Place(
        "anyformer.spec.attention",
        line_of("anyformer.spec.attention", r"^class Attention"),
        "Attention",
    )
    assert resolve("anyformer", "build") == resolve("anyformer.model.model", "build")
    assert resolve("anyformer.spec", "no_such_name") is None


def test_an_attribute_of_a_module_leads_to_the_class():
    at = line_of("anyformer.spec.position", r"^class XL:")
    assert {(p.module, p.line) for p in named("recipes/xl", "XL")} == {
        ("anyformer.spec.position", at)
    }


def test_a_keyword_leads_to_the_field():
    at = line_of("anyformer.spec.position", r"^    biases:")
    assert named("recipes/xl", "biases") == {Place("anyformer.spec.position", at)}


def test_self_leads_to_members_and_their_types():
    assert named("parts/position", "project")
    at = line_of("anyformer.spec.position", r"^    clamp:")
    assert Place("anyformer.spec.position", at) in named("parts/position", "clamp")


def test_an_import_leads_to_the_module_and_to_the_name():
    assert Place("anyformer.ops.relative") in named("parts/position", "anyformer.ops.relative")
    assert resolve("anyformer.ops.relative", "Relative") in named("parts/position", "Relative")


def test_a_local_name_hides_the_module_s():
    relative = read(SOURCE / "ops/relative.py")
    hidden = [n for n, line in enumerate(relative.lines, 1) if "map(leaf, " in line]
    assert ("leaf", hidden[0]) in found("ops/relative")  # the function of that name
    text = "def leaf(): ...\ndef other(leaf):\n    return leaf\n"
    import ast

    from docs.tour.source import Text

    own = Text(relative.file, text, text.splitlines(), ast.parse(text))
    assert not links(own)


def test_a_base_class_s_members_are_found():
    place = resolve("anyformer.objectives.segments", "Segments")
    assert attribute(place, "bind")
    assert module("anyformer.objectives.segments").classes["Segments"].bases


@pytest.mark.parametrize("page", ["recipes/xl", "ops/relative", "spec/node"])
def test_coloured_lines_say_what_the_source_says(page):
    source = read(SOURCE / f"{page}.py")
    shown = html_lines(source, lambda place: href(place, page))
    plain = [re.sub(r"<[^>]+>", "", line) for line in shown]
    unescaped = [
        line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for line in plain
    ]
    assert unescaped == source.lines
    assert all(line.count("<a ") == line.count("</a>") for line in shown)


def test_every_link_leads_to_a_line_that_is_shown():
    for page in ("parts/attention", "model/stack", "recipes/deberta", "objectives/masked"):
        for (text, _), place in found(page).items():
            lines = known()[place.module].read_text().splitlines()
            assert place.line <= len(lines)
            if place.line:
                assert text in lines[place.line - 1], (page, text, place)
