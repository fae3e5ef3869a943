"""Safetensors that are broken in every way: named, refused, never half read."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from anyformer.checkpoint.reader import Place, Stored, entries_of, finite, place
from anyformer.errors import CheckpointError

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).view(2, 3),
    "b": torch.randn(5).to(torch.bfloat16),
    "c": torch.tensor([1, 2, 3]),
    "d": torch.randn(()),
    "e": torch.zeros(0, 4),
    "f": torch.randn(3).to(torch.float8_e4m3fn),
    "g": torch.tensor([True, False]),
    "h": torch.randn(2, 2, dtype=torch.float64),
    "i": torch.randn(2).half(),
}


@pytest.fixture
def file(tmp_path):
    save_file(TENSORS, tmp_path / "x.safetensors", {"format": "pt"})
    return tmp_path / "x.safetensors"


def test_tensors_are_read_bit_for_bit_into_aligned_memory(file):
    found = Stored(entries_of(file))
    assert set(found) == set(TENSORS)
    for key, tensor in TENSORS.items():
        again = found[key]
        assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
        assert found.metas()[key].shape == tensor.shape
        assert again.view(-1).view(torch.uint8).equal(tensor.view(-1).view(torch.uint8)), key
        assert again.data_ptr() % 64 == 0 or again.numel() == 0


def test_every_cut_is_named(file):
    whole = file.read_bytes()
    for size in [*range(0, 64, 7), *range(64, len(whole), 41), len(whole) - 1]:
        file.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"x\.safetensors is (empty|cut short)"):
            entries_of(file)


def with_header(file, header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"{", "broken header"),
        (b"\xff\xfe{}", "broken header"),
        (b"[" * 50_000, "broken header"),
        (b"[]", "names no tensors"),
        (b'{"a": 1}', "says nothing of 'a'"),
        (b'{"a": {"dtype": "F32", "shape": [2]}}', "says nothing of 'a'"),
        (
            b'{"a": {"dtype": "F32", "shape": [Infinity], "data_offsets": [0, 8]}}',
            "says nothing of",
        ),
        ({"a": GOOD | {"shape": [2.0]}}, "says nothing of 'a'"),
        ({"a": GOOD | {"data_offsets": [0, 8.5]}}, "says nothing of 'a'"),
        ({"a": GOOD | {"shape": [3]}}, r"'a' of shape \(3,\)"),
        ({"a": GOOD | {"shape": [-2]}}, r"'a' of shape \(-2,\)"),
        ({"a": GOOD | {"data_offsets": [-8, 0]}}, "'a' of shape"),
        ({"a": GOOD | {"data_offsets": [8, 0]}}, "'a' of shape"),
        ({"a": GOOD | {"shape": [2**40, 2**40]}}, "'a' of shape"),
        ({"a": GOOD | {"dtype": "F99"}}, "no sound safetensors"),
        ({"a": GOOD, "b": GOOD}, "no sound safetensors"),
        ({"a": GOOD | {"data_offsets": [0, 4], "shape": [1]}}, "longer than its header says"),
        ({"a": GOOD | {"data_offsets": [8, 16]}}, "cut short: "),
        (b'{"a": %s, "a": %s}' % ((json.dumps(GOOD).encode(),) * 2), "'a' stands there twice"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, says):
    with pytest.raises(CheckpointError, match=rf"x\.safetensors.*{says}"):
        entries_of(with_header(tmp_path / "x.safetensors", header))


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 101_000_000, 9_999])
def test_a_header_of_any_length_is_refused_before_it_is_read(tmp_path, length):
    file = tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", length) + b"{}" * 20)
    with pytest.raises(CheckpointError, match="no safetensors file"):
        entries_of(file)


def test_what_is_no_weights_at_all(tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(CheckpointError, match=r"Git LFS pointer.*git lfs pull"):
        entries_of(file)
    file.write_text("<!doctype html><html></html>")
    with pytest.raises(CheckpointError, match="is a web page"):
        entries_of(file)


def test_a_file_that_shrinks_meanwhile(file):
    found = Stored(entries_of(file))
    file.write_bytes(file.read_bytes()[:-60])
    with pytest.raises(CheckpointError, match="ends inside"):
        for key in found:
            found[key]


def test_places():
    assert place(None, None) == Place()
    assert place("bfloat16", "cpu").dtype == place(torch.bfloat16, None).dtype == torch.bfloat16
    for dtype, says in (("bfloat", "did you mean 'bfloat16'"), (torch.int8, "can't hold weights")):
        with pytest.raises(CheckpointError, match=says):
            place(dtype, None)
    with pytest.raises(CheckpointError, match="unknown device 'gpu'"):
        place(None, "gpu")


def test_weights_in_their_place():
    tensor = torch.randn(6, 4)
    assert Place().put(tensor, "x") is tensor
    part = Place().put(tensor[:3], "x")
    assert part.untyped_storage().nbytes() == part.nbytes  # not the whole of a fused matrix
    assert Place().put(tensor.mT, "x").is_contiguous()
    assert Place(torch.float16).put(tensor, "x").dtype == torch.float16
    for bad, says in (
        (torch.ones(3, dtype=torch.int64), "int64"),
        (TENSORS["f"], "float8.*dtype='bfloat16'"),
        (torch.tensor([1.0, float("nan")]), "NaN"),
        (torch.tensor([float("inf"), -float("inf")]), "NaN or infinite"),
    ):
        with pytest.raises(CheckpointError, match=rf"file: 'k' .*{says}"):
            Place().put(bad, "file: 'k'")
    with pytest.raises(CheckpointError, match=r"numbers beyond torch\.float16: choose"):
        Place(torch.float16).put(torch.tensor([1e6]), "x")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finite(dtype):
    most = torch.finfo(dtype).max
    assert finite(torch.full((1000,), most, dtype=dtype))  # the sum alone would overflow
    assert finite(torch.zeros(0, dtype=dtype))
    for bad in (float("nan"), float("inf"), -float("inf")):
        assert not finite(torch.tensor([0.0, bad, 1.0], dtype=dtype))
