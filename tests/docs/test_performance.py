"""The page of results is made from them, and pictures show what tables say."""

import pytest

from benchmarks import pictures
from benchmarks.runner import Settings, Table

TEXT = """## A race

| batch | contestant | ms | their time / ours         |
|-------|------------|----|---------------------------|
| 1     | anyformer  | 10 | 1.00 (1.00 to 1.00); 1.00 |
| 1     | others     | 25 | 2.50 (2.40 to 2.60); 2.51 |
| 64    | anyformer  | 10 | 1.00 (1.00 to 1.00); 1.00 |
| 64    | others     | -  | -                         |

- three rounds
- a machine

## Another

- not of the first
"""


@pytest.fixture
def result(tmp_path):
    file = tmp_path / "cpu_race.md"
    file.write_text(TEXT)
    return pictures.read(file)


def test_a_table_is_read(result):
    assert (result.title, result.kind, result.ratio) == ("A race", "cpu", "their time / ours")
    assert result.notes == ["three rounds", "a machine"]
    bars = [("batch 1, anyformer", 1.0), ("batch 1, others", 2.5), ("batch 64, anyformer", 1.0)]
    assert result.bars() == bars  # what has no number has no bar
    assert [result.ours(name) for name, _ in bars] == [True, False, True]


def test_the_page_is_what_results_say():
    found = pictures.results()
    again = "run `python -m benchmarks.pictures`"
    assert pictures.page(found) == pictures.PAGE.read_text(encoding="utf-8"), again
    wanted = {f"{one.name}.png" for one in found if one.ratio is not None}
    assert {file.name for file in pictures.PAGE.parent.glob("*.png")} == wanted, again


def test_tables_are_kept_with_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures: matplotlib isn't installed")
    for name, head in (("race", "ratio to ours"), ("plain", "seconds")):
        table = Table("A race", ["contestant", head], [["anyformer", "1.00"], ["others", "0.50"]])
        table.keep(Settings(out=str(tmp_path)), name)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["plain.json", "plain.md", "race.json", "race.md", "race.png"]
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")
