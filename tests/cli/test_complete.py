"""anyformer complete."""

import shutil
import subprocess

import pytest

from anyformer.cli.complete import FOLDERS
from anyformer.cli.main import VERBS, main
from anyformer.recipes import recipes


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_verbs_and_recipes_are_in_the_script(shell, capsys):
    assert main(["complete", shell]) == 0
    script = capsys.readouterr().out
    assert " ".join(VERBS) in script
    assert " ".join(recipes()) in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(capsys):
    assert main(["complete", "bash"]) == 0
    ask = "\nCOMP_WORDS=(anyformer show bert2); COMP_CWORD=2; _anyformer; echo ${COMPREPLY[@]}"
    script = capsys.readouterr().out + ask
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "bert2bert\n", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("verb", FOLDERS)
def test_bash_completes_folders(verb, capsys, tmp_path):
    (tmp_path / "model-a").mkdir()
    (tmp_path / "model.json").touch()
    assert main(["complete", "bash"]) == 0
    ask = f"\nCOMP_WORDS=(anyformer {verb} mo); COMP_CWORD=2; _anyformer; echo ${{COMPREPLY[@]}}"
    script = capsys.readouterr().out + ask
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=20, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "model-a\n", "")
    assert verb in VERBS
