"""The command itself: help, version, errors, start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anyformer.cli.main import VERBS, main

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_no_verb_prints_help(capsys):
    assert main([]) == 0
    assert "anyformer show bert" in capsys.readouterr().out


def test_help_names_every_verb(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert all(f"  {verb} " in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_shows_an_example(verb, capsys):
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    assert end.value.code == 0
    assert "example:\n  " in (out := capsys.readouterr().out)
    assert f"anyformer {verb}" in out.partition("example:")[2]


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("anyformer 0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo"], "unknown verb 'shwo'; did you mean 'show'?"),
        (["show", "brt"], "unknown recipe 'brt'; did you mean 'bert'?"),
        (["show", "bert", "dept=3"], "did you mean 'depth'?"),
        (["show", "bert", "depth"], "'depth' is not of the form key=value"),
        (["show", "bert", "=3"], "'=3' is not of the form key=value"),
        (["show", "bert", "depth=six"], "bert: depth takes an int, not 'six'"),
        (["show", "bert", "head=Classes(3)"], "Classes takes its fields by name"),
        (["show", "bert", "--length", "513"], "length 513 is beyond the 512 positions of embed"),
        (["show", "bert", "--length", "0"], "at least 1"),
        (["show", "gone.json"], "can't read gone.json: No such file"),
        (["diff", "bert", "gone.json"], "can't read gone.json"),
    ],
)
def test_an_error_is_one_line_and_status_2(words, message, capsys):
    assert main(words) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert message in caught.err
    assert caught.err.count("\n") == 1
    assert caught.err.startswith("anyformer: ")


def test_several_problems_are_one_line_too(capsys):
    assert main(["show", "bert", "heads=7", "stack.kinds=(3,)"]) == 2
    err = capsys.readouterr().err
    assert "multiple of heads" in err
    assert "kinds names a block" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["--debug", "show", "brt"], ["show", "brt", "--debug"]])
def test_debug_shows_the_traceback(words, capsys):
    assert main(words) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["show"], ["show", "bert", "--nonsense"], ["complete", "fish"]])
def test_bad_usage_ends_with_status_2(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "usage: anyformer" in capsys.readouterr().err


def run(code):
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("words", [["list"], ["show", "t5"], ["diff", "bert", "gpt2"]])
def test_verbs_over_data_load_nothing_heavy(words):
    heavy = "{'torch', 'numpy', 'rich', 'transformers'} & set(sys.modules)"
    done = run(
        f"import sys; from anyformer.cli.main import main; main({words}); assert not {heavy}"
    )
    assert done.returncode == 0, done.stderr


def test_help_loads_no_specs():
    done = run(
        "import sys; from anyformer.cli.main import main; main([]);"
        "assert not any(m.startswith(('anyformer.spec', 'anyformer.recipes')) for m in sys.modules)"
    )
    assert done.returncode == 0, done.stderr


def test_python_dash_m():
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    words = [sys.executable, "-m", "anyformer", "list"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "bert" in done.stdout
