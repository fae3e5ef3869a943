"""Checkpoints: whole or not there, checked before they are read, purged when the next is whole."""

import json
import os
import threading

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter

from anyformer.errors import TrainError
from anyformer.train import save
from anyformer.train.save import Saver


def _tensors(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((3, 4), value), "b/step": torch.tensor(value)}


def _saver(home, background=False, keep=2) -> Saver:
    return Saver(home, keep, background)


@pytest.mark.parametrize("background", [False, True])
def test_what_is_saved_comes_back(tmp_path, background):
    saver = _saver(tmp_path, background)
    tensors = _tensors(1.5)
    saver.save(3, tensors, {"x": [1.0, 1e-17]})
    tensors["a"].zero_()  # training goes on
    saver.wait()
    assert save.newest(tmp_path, pytest.fail) == 3
    folder = tmp_path / save.name(3)
    assert save.state_of(folder) == {"x": [1.0, 1e-17]}
    assert save.stored(folder)["a"] == (torch.Size([3, 4]), torch.float32)
    found = {k: torch.zeros_like(v) for k, v in tensors.items()}
    save.fill(folder, found)
    if background:
        assert found["a"].eq(1.5).all()
    assert found["b/step"] == 1.5


def test_the_newest_and_the_best_are_kept(tmp_path):
    saver = _saver(tmp_path)
    for step in range(1, 7):
        saver.save(step, _tensors(step), {}, also={2})
    assert save.steps(tmp_path) == [6, 5, 2]
    assert not list(tmp_path.glob(".*"))


def test_the_next_saver_of_a_folder_waits_for_what_was_left_to_itself(tmp_path, monkeypatch):
    saver, go, inner = _saver(tmp_path, background=True, keep=1), threading.Event(), Saver._finish
    saver.save(1, _tensors(1.0), {})
    saver.wait()

    def slow(self, *args):
        go.wait(10)
        return inner(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Saver, "_finish", slow)
        saver.save(2, _tensors(2.0), {})  # and then removes the first
        saver.abandon()
        threading.Timer(0.2, go.set).start()
        _saver(tmp_path, keep=1)
        assert go.is_set() and save.steps(tmp_path) == [2]


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    saver = _saver(tmp_path)
    for value in (1.0, 2.0):
        saver.save(4, _tensors(value), {"v": value})
    found = _tensors(0.0)
    save.fill(tmp_path / save.name(4), found)
    assert found["a"].eq(2.0).all()
    assert save.state_of(tmp_path / save.name(4)) == {"v": 2.0}


def _break(folder, how):
    data = next(folder.glob("__0_*"))
    if how == "bit":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    elif how == "cut":
        os.truncate(data, data.stat().st_size - 7)
    elif how == "missing":
        data.unlink()
    elif how == "index":
        (folder / ".metadata").write_bytes(b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    elif how == "manifest":
        (folder / save.MANIFEST).write_text("{")
    else:
        (folder / save.MANIFEST).unlink()


@pytest.mark.parametrize("how", ["bit", "cut", "missing", "index", "manifest", "no manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path, how):
    saver, said = _saver(tmp_path), []
    for step in (1, 2):
        saver.save(step, _tensors(step), {})
    _break(tmp_path / save.name(2), how)
    assert save.newest(tmp_path, said.append) == 1
    assert bool(said) == (how != "no manifest")
    assert all("damaged" in text and "step-00000002" in text for text in said)


def test_what_a_killed_save_left_is_removed(tmp_path):
    (tmp_path / ".step-00000009.tmp").mkdir()
    (tmp_path / ".step-00000009.tmp" / "x").write_text("half")
    _saver(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_leaves_the_last_one_and_says_so(tmp_path, monkeypatch, background):
    saver = _saver(tmp_path, background)
    saver.save(1, _tensors(1), {})
    saver.wait()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystemWriter, "write_data", full)
    with pytest.raises(TrainError, match=r"No space left.*step 1 is intact.*resume"):
        saver.save(2, _tensors(2), {})
        saver.wait()
    assert save.newest(tmp_path, pytest.fail) == 1
    assert not list(tmp_path.glob(".*"))
    monkeypatch.undo()
    saver.save(2, _tensors(2), {})
    saver.wait()
    assert save.newest(tmp_path, pytest.fail) == 2


def test_a_full_disk_while_the_old_one_would_go(tmp_path, monkeypatch):
    """The manifest can't be written: nothing old is purged."""
    saver = _saver(tmp_path, keep=1)
    saver.save(1, _tensors(1), {})

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(save, "_durable", full)
    with pytest.raises(TrainError, match="No space left"):
        saver.save(2, _tensors(2), {})
    assert save.steps(tmp_path) == [1]


def test_a_save_waits_for_the_one_before(tmp_path, monkeypatch):
    before = threading.active_count()
    saver, running, most = _saver(tmp_path, background=True), [], []
    write = Saver._write

    def watched(self, to, tensors):
        running.append(to)
        most.append(len(running))
        write(self, to, tensors)
        running.pop()

    monkeypatch.setattr(Saver, "_write", watched)
    for step in range(1, 5):
        saver.save(step, _tensors(step), {})
    saver.wait()
    assert most == [1, 1, 1, 1]
    assert save.steps(tmp_path) == [4, 3]
    assert threading.active_count() == before


def test_a_manifest_names_every_file(tmp_path):
    _saver(tmp_path).save(1, _tensors(1), {})
    folder = tmp_path / save.name(1)
    named = json.loads((folder / save.MANIFEST).read_text())["files"]
    assert {*named, save.MANIFEST} == {f.name for f in folder.iterdir()}
