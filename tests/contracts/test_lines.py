"""The family tree stays short: recipes and key tables have a limit; the README quotes them."""

import pathlib

import anyformer
from benchmarks.lines import count, here, replaced

ROOT = pathlib.Path(anyformer.__file__).parent
README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()


def test_recipes_and_key_tables_stay_short():
    recipes, tables = here(ROOT / "recipes"), here(ROOT / "checkpoint" / "families")
    assert len(recipes) > 15
    assert len(tables) > 20
    assert count(recipes)[1] < 900
    assert count(tables)[1] < 1800


def test_the_readme_quotes_what_the_script_prints():
    kinds = {
        "our recipes": here(ROOT / "recipes"),
        "our key tables": here(ROOT / "checkpoint" / "families"),
    }
    for name, files in kinds.items():
        assert f"| {name} | {len(files)} | {count(files)[1]:,} |" in README
    files = replaced()
    assert f"the same models | {len(files)} | {count(files)[1]:,} |" in README
