"""The picture of the family tree shows every recipe, and what each changes."""

import re

from anyformer.recipes.registry import RECIPES
from docs.tour import tree


def test_every_recipe_is_in_the_picture():
    drawn = re.findall(r'data-model="([^"]+)"', tree.svg(tree.nodes()))
    assert sorted(drawn) == sorted(RECIPES)


def test_what_a_model_changes_of_its_parent():
    parents = {node.name: node.parent for node in tree.nodes()}
    assert parents["deberta-v2"] == "deberta"
    assert parents["bert"] == "encoder"
    assert parents["recursive-gpt2"] == "gpt2"
    paths = {change.path for change in tree.changes("t5-1-1", "t5")}
    assert "head.tied" in paths
    assert not any(path.endswith("dim") or "depth" in path for path in paths)  # at equal sizes


def test_a_panel_shows_the_recipe_and_the_changes():
    node = next(n for n in tree.nodes() if n.name == "deberta")
    text = tree._panel(node)
    assert 'data-panel="deberta"' in text
    assert "stack.distances" in text
    assert 'href="recipes/deberta.html#deberta"' in text
    assert 'href="#bert"' in text


def test_every_model_has_a_parent_it_can_be_compared_with():
    for node in tree.nodes():
        if node.parent is not None:
            assert node.parent in RECIPES, node
