"""anyformer list."""

from anyformer.cli.main import main
from anyformer.recipes import recipes


def test_every_recipe_with_what_it_is(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[k, v] for k, v in recipes().items()]


def test_options(capsys):
    assert main(["list", "--options"]) == 0
    out = capsys.readouterr().out
    assert "dim=768  depth=12  heads=12  vocab=30522  length=512  dropout=0.1\n" in out
