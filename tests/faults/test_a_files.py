"""Group A: files of weights that are broken, lie, point elsewhere or carry code."""

import json
import os
import pickle
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

import anyformer
from anyformer.checkpoint.reader import Stored, entries_of
from anyformer.errors import CheckpointError, UnsafeError
from anyformer.train import save
from tests.faults.helping import (
    CONFIG,
    INDEX,
    WEIGHTS,
    assert_kept,
    assert_refused,
    edited,
    header_of,
    put_header,
)

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def assert_load_refused(folder, *says, error=CheckpointError):
    with assert_kept(folder), assert_refused(WEIGHTS, *says, error=error):
        anyformer.load(folder)


def test_a1_empty_file(theirs, command):
    (theirs / WEIGHTS).write_bytes(b"")
    assert_load_refused(theirs, "is empty", "Download or save it again")
    command.assert_fails(["convert", theirs, "out"], "is empty")


def test_a2_seven_bytes(theirs):
    (theirs / WEIGHTS).write_bytes(b"\x01\0\0\0\0\0\0")
    assert_load_refused(theirs, "is cut short or no safetensors file")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 101_000_000, 10_000])
def test_a3_header_of_absurd_length(theirs, length):
    (theirs / WEIGHTS).write_bytes(struct.pack("<Q", length) + b"{}" * 400)
    assert_load_refused(theirs, "is cut short or no safetensors file")


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe{}", b"[" * 20_000, b'"x"', b"null"])
def test_a4_header_that_is_no_json(theirs, text):
    put_header(theirs / WEIGHTS, text, b"")
    assert_load_refused(theirs, "header")


@pytest.mark.parametrize("tenth", range(10))
def test_a5_data_cut_short(theirs, tenth):
    file = theirs / WEIGHTS
    _, data = header_of(file)
    size = file.stat().st_size
    os.truncate(file, size - len(data) + len(data) * tenth // 10)
    assert_load_refused(theirs, "is cut short", f"{file.stat().st_size:,} bytes, not {size:,}")


def test_a6_bytes_behind_the_end(theirs):
    with (theirs / WEIGHTS).open("ab") as file:
        file.write(b"\0")
    assert_load_refused(theirs, "is longer than its header says")


@pytest.mark.parametrize("start", [4, 12], ids=["overlap", "hole"])
def test_a7_offsets_that_overlap_or_leave_holes(theirs, start):
    second = ONE | {"data_offsets": [start, start + 8]}
    put_header(theirs / WEIGHTS, {"a": ONE, "b": second}, b"\0" * (start + 8))
    assert_load_refused(theirs, "is no sound safetensors file")


@pytest.mark.parametrize(
    "about",
    [
        {"shape": [2**40, 2**40]},
        {"shape": [3]},
        {"shape": [-2]},
        {"data_offsets": [-8, 0]},
        {"dtype": "F99"},
        {"dtype": None},
        {"shape": None},
    ],
)
def test_a8_shape_size_or_dtype_that_lie(theirs, about):
    put_header(theirs / WEIGHTS, {"a": ONE | about}, b"\0" * 8)
    assert_load_refused(theirs)


def test_a9_one_name_twice(theirs):
    one = json.dumps(ONE)
    put_header(theirs / WEIGHTS, f'{{"a": {one}, "a": {one}}}'.encode(), b"\0" * 8)
    assert_load_refused(theirs, "'a' stands there twice")


def test_a10_two_hundred_thousand_entries(theirs):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    put_header(theirs / WEIGHTS, {f"k{i}": empty for i in range(200_000)}, b"")
    assert_load_refused(theirs, "names 200,000 tensors")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a\0b", "a\u202eb", "\x1b[31mred", "x" * 1_000_000]
)
def test_a11_hostile_tensor_names(theirs, command, name):
    tensors = load_file(theirs / WEIGHTS)
    data = b"".join(t.numpy().tobytes() for t in tensors.values())
    header, at = {}, 0
    for key, tensor in tensors.items():
        about = {"dtype": "F32", "shape": list(tensor.shape)}
        header[key] = about | {"data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    header[name] = {"dtype": "F32", "shape": [0], "data_offsets": [at, at]}
    put_header(theirs / WEIGHTS, header, data)
    with assert_kept(theirs), assert_refused(str(theirs), error=CheckpointError):
        anyformer.load(theirs)
    err = command.assert_fails(["convert", theirs, "out", "--to", "anyformer"], str(theirs))
    assert err.strip().isprintable()


def test_a12_missing_keys(theirs):
    tensors = load_file(theirs / WEIGHTS)
    gone = sorted(tensors)[:14]
    save_file({k: t for k, t in tensors.items() if k not in gone}, theirs / WEIGHTS)
    with assert_kept(theirs), assert_refused(gone[0], "and 9 more", error=CheckpointError):
        anyformer.load(theirs)
    tensors.pop("lm_head.weight", None)  # a tied key is never missing
    save_file(tensors, theirs / WEIGHTS)
    assert anyformer.load(theirs).spec.head.tied


def test_a13_keys_too_many(ours):
    tensors = load_file(ours / WEIGHTS)
    save_file(tensors | {f"stack.blok.{i}": torch.ones(1) for i in range(20)}, ours / WEIGHTS)
    assert_load_refused(
        ours, "unknown to the model", "nearest: 'stack.block", "and 12 more", "save"
    )


def test_a14_shapes_that_differ(theirs):
    edited(theirs / CONFIG, n_positions=20)
    assert_load_refused(theirs, "of shape (16, 8), not (20, 8)", CONFIG)


@pytest.mark.parametrize("name", ["../x.safetensors", "/tmp/x.safetensors", "link", "gone", "two"])
def test_a15_an_index_that_lies(sharded, tmp_path, command, name):
    index = json.loads((sharded / INDEX).read_text())
    key, shard = next(iter(index["weight_map"].items()))
    outside = tmp_path / "x.safetensors"
    save_file({key: torch.ones(1)}, outside)
    named = {"link": shard, "gone": "gone.safetensors"}.get(name, name)
    if name == "link":
        (sharded / shard).unlink()
        (sharded / shard).symlink_to(outside)
    if name == "two":
        tensors = load_file(sharded / shard)
        save_file(tensors, sharded / "z.safetensors")
        index["weight_map"] |= {"more": "z.safetensors"}
    else:
        index["weight_map"][key] = named
    (sharded / INDEX).write_text(json.dumps(index))
    away = name not in ("gone", "two")
    with assert_kept(sharded), assert_refused(error=UnsafeError if away else CheckpointError):
        anyformer.load(sharded)
    command.assert_fails(["convert", sharded, "out"], str(sharded), code=3 if away else 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a16_weights_that_are_no_numbers(theirs, bad):
    tensors = load_file(theirs / WEIGHTS)
    tensors["transformer.ln_f.weight"][3] = bad
    save_file(tensors, theirs / WEIGHTS)
    assert_load_refused(theirs, "transformer.ln_f.weight", "NaN or infinite numbers")


def test_a17_other_dtypes(theirs):
    tensors = load_file(theirs / WEIGHTS)
    save_file({k: t.to(torch.bfloat16) for k, t in tensors.items()}, theirs / WEIGHTS)
    assert next(anyformer.load(theirs).parameters()).dtype == torch.bfloat16
    assert next(anyformer.load(theirs, dtype="float32").parameters()).dtype == torch.float32
    narrow = {k: t.to(torch.float8_e4m3fn) for k, t in tensors.items()}
    save_file(narrow, theirs / WEIGHTS)
    assert_load_refused(theirs, "stored as torch.float8_e4m3fn", "give dtype='bfloat16'")
    assert next(anyformer.load(theirs, dtype="bfloat16").parameters()).dtype == torch.bfloat16


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("hostile", [False, True])
def test_a18_pickles(theirs, command, marker, hostile):
    tensors = load_file(theirs / WEIGHTS)
    (theirs / WEIGHTS).unlink()
    torch.save(tensors | ({"x": Evil(marker)} if hostile else {}), theirs / "pytorch_model.bin")
    with (
        assert_kept(theirs),
        assert_refused("pytorch_model.bin", "anyformer convert", error=UnsafeError),
    ):
        anyformer.load(theirs)
    if hostile:
        command.assert_fails(["convert", theirs, "out"], "could run code: refused", code=3)
    else:
        assert command.ends(["convert", theirs, "out"])[0] == 0
        assert anyformer.load(command.folder / "out").spec.dim == 8


def test_a19_poisoned_index_of_torchs_format(tmp_path, marker):
    """Even where the manifest fits, which whoever made the folder could see to."""
    saver = save.Saver(tmp_path / "run", 2, background=False)
    saver.save(1, {"a": torch.ones(3)}, {})
    home = tmp_path / "run" / save.name(1)
    (home / ".metadata").write_bytes(pickle.dumps(Evil(marker)))
    assert ".metadata" in (save.fault(home) or "")
    manifest = json.loads((home / save.MANIFEST).read_text())
    path = home / ".metadata"
    manifest["files"][".metadata"] = [path.stat().st_size, save.digest(path)]
    (home / save.MANIFEST).write_text(json.dumps(manifest))
    assert save.fault(home) is None
    for read in (save.stored, lambda folder: save.fill(folder, {"a": torch.ones(3)})):
        with (
            assert_kept(tmp_path),
            assert_refused(".metadata", "could run code", error=UnsafeError),
        ):
            read(home)
    with assert_refused(str(home), error=CheckpointError):
        anyformer.load(home)


@pytest.mark.parametrize(
    ("text", "says"), [(LFS, "git lfs pull"), ("<!doctype html><p>404", "is a web page")]
)
def test_a20_pointers_and_web_pages(theirs, text, says):
    (theirs / WEIGHTS).write_text(text)
    assert_load_refused(theirs, says)


def test_a21_a_file_that_changes_meanwhile(theirs, tmp_path):
    found = Stored(entries_of(theirs / WEIGHTS))
    os.truncate(theirs / WEIGHTS, (theirs / WEIGHTS).stat().st_size // 2)
    with assert_refused(WEIGHTS, "ends inside", error=CheckpointError):
        for key in found:
            found[key]
    saver = save.Saver(tmp_path / "run", 2, background=False)
    saver.save(1, {"a": torch.ones(300)}, {})
    home, said = tmp_path / "run", []
    data = next((home / save.name(1)).glob("__0_*"))
    whole = bytearray(data.read_bytes())
    whole[len(whole) // 2] ^= 1
    data.write_bytes(whole)
    assert save.newest(home, said.append) is None
    assert "damaged" in said[0]
    assert data.name in said[0]
