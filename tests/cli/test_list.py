"""anyformer list."""

from anyformer.cli.main import main
from anyformer.recipes import recipes
from anyformer.recipes.sizes import SIZES
from anyformer.recipes.tree import lines


def test_every_recipe_stands_in_the_tree_once():
    assert sorted(name for level, name in lines() if level) == sorted(recipes())


def test_every_recipe_with_what_it_is(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}  {summary}" in out for name, summary in recipes().items())


def test_children_stand_under_their_parents(capsys):
    main(["list"])
    out = capsys.readouterr().out.splitlines()
    at = {name: next(i for i, x in enumerate(out) if f"── {name}  " in x) for name in recipes()}
    indent = lambda name: out[at[name]].index(name)
    assert at["bert"] < at["roberta"] < at["xlm-roberta"]
    assert indent("bert") < indent("roberta") < indent("xlm-roberta")
    assert indent("gpt") == indent("bert")


def test_options(capsys):
    assert main(["list", "--options"]) == 0
    out = capsys.readouterr().out
    assert "dim=768  depth=12  heads=12  vocab=30522  length=512  dropout=0.1\n" in out


def test_sizes(capsys):
    assert main(["list", "--sizes"]) == 0
    words = capsys.readouterr().out.split()
    assert set(SIZES) <= set(words)
