"""`anyformer study`: what ships, and one of one's own."""

import pytest

from anyformer.cli.main import main
from anyformer.spec import to_json
from anyformer.study import shipped
from anyformer.study.run import read_study
from tests.study import tiny


def test_studies_are_listed(capsys):
    assert main(["study"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in shipped.STUDIES)


def test_a_study_is_shown_as_json(tmp_path, capsys):
    study = tiny.study(tiny.text(tmp_path))
    (tmp_path / "mine.json").write_text(to_json(study))
    assert main(["study", str(tmp_path / "mine.json"), "--show"]) == 0
    (tmp_path / "again.json").write_text(capsys.readouterr().out)
    assert read_study(tmp_path / "again.json") == study


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no study"),
        ('{"is": "Rotary"}', "describes a Rotary, not a Study"),
        ('{"is": "Study", "name": "x", "varants": []}', "did you mean 'variants'"),
    ],
)
def test_a_file_that_is_no_study(tmp_path, text, told, capsys):
    (tmp_path / "mine.json").write_text(text)
    assert main(["study", str(tmp_path / "mine.json")]) == 2
    assert told in capsys.readouterr().err


def test_a_study_that_is_not_known(capsys):
    assert main(["study", "recursive-layer"]) == 2
    assert "unknown study" in capsys.readouterr().err
    assert main(["study", "gone.json"]) == 2
    assert "can't read gone.json" in capsys.readouterr().err
