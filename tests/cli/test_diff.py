"""anyformer diff."""

from anyformer.cli.diff import parameters_line
from anyformer.cli.main import main
from anyformer.recipes import recipe
from anyformer.spec import to_json


def test_changes_and_parameters(capsys):
    assert main(["diff", "bert", "bert", "--b", "depth=6", "stack.block.*.place=pre"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "stack.block.0.place: 'post' → 'pre'",
        "stack.block.1.place: 'post' → 'pre'",
        "stack.depth: 12 → 6",
        "",
        "parameters: 109,482,240 → 66,955,008 (-42,527,232, -38.8%)",
    ]


def test_settings_of_both_sides(capsys):
    assert main(["diff", "gpt2", "--a", "depth=2", "--b", "depth=2", "--", "gpt2"]) == 0
    assert capsys.readouterr().out.startswith("no difference\n")


def test_a_file_against_its_recipe(capsys, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(to_json(recipe("encoder", depth=1)))
    assert main(["diff", str(file), "encoder", "--b", "depth=1"]) == 0
    assert capsys.readouterr().out == "no difference\n\nparameters: 19,799,552, the same\n"


def test_parameters_line():
    assert parameters_line(0, 5) == "parameters: 0 → 5 (+5)"
    assert parameters_line(1000, 1100) == "parameters: 1,000 → 1,100 (+100, +10.0%)"
