"""The kernels for few rows equal their parts in float64; on a CPU interpreted."""

import pytest
import torch
import torch.nn.functional as F

from anyformer.ops.rows import ACTS, Norm, Rows, lacks
from anyformer.parts.feedforward import ACTIVATIONS

pytest.importorskip("triton", reason="rows: Triton isn't installed")
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Wide tiles: the interpreter's time is that of its programs."""
    from anyformer.ops.kernels import launch_rows

    monkeypatch.setattr(launch_rows, "PROGRAMS", 4)


def drawn(*shape, dtype=torch.float32, shift=0.0):
    return (torch.randn(shape) * 0.5 + shift).to(WHERE, dtype)


def plain(x, map, norm, gate, act, more):
    """What the kernels do, in float64."""
    wide = lambda t: None if t is None else t.double()
    x = x.double()
    if norm is not None and norm.kind == "layer":
        x = F.layer_norm(x, x.shape[-1:], wide(norm.gain), wide(norm.shift), norm.eps)
    elif norm is not None:
        x = F.rms_norm(x, x.shape[-1:], wide(norm.gain), norm.eps)
    y = F.linear(x, *map_of(map))
    y = ACTIVATIONS[act](y) if gate is None else y * ACTIVATIONS[act](F.linear(x, *map_of(gate)))
    return y if more is None else y + more.double()


def map_of(pair):
    return tuple(None if t is None else t.double() for t in pair)


def check(x, map, norm=None, gate=None, act="identity", more=None):
    """Raise unless the kernel gives what its parts give in float64."""
    found = Rows(map, norm, gate, act)(x, more).double()
    wanted = plain(x, map, norm, gate, act, more)
    gap = (found - wanted).norm() / wanted.norm()
    assert found.shape == wanted.shape
    assert gap < NEAR[x.dtype], f"differs by {gap:.1e}"


def norm_of(kind, ins, dtype=torch.float32):
    if kind == "none":
        return None
    shift = drawn(ins, dtype=dtype) if kind == "layer" else None
    return Norm(kind, 1e-5, drawn(ins, dtype=dtype, shift=1.0), shift)


@pytest.mark.parametrize("rows", [1, 3, 7, 20])
@pytest.mark.parametrize("kind", ["none", "layer", "root"])
@pytest.mark.parametrize("gated", [False, True])
def test_equals_its_parts(rows, kind, gated):
    ins, outs = 40, 37
    map, gate = ((drawn(outs, ins), drawn(outs)) for _ in "mg")
    more = drawn(rows, outs)
    x = drawn(rows, ins, shift=1.0)
    check(x, map, norm_of(kind, ins), gate if gated else None, "silu", more)


@pytest.mark.parametrize("dtype", list(NEAR))
@pytest.mark.parametrize("rows", [1, 6])
def test_every_type(dtype, rows):
    map = drawn(24, 136, dtype=dtype), drawn(24, dtype=dtype)
    check(drawn(rows, 136, dtype=dtype), map, norm_of("layer", 136, dtype), None, "gelu")


@pytest.mark.parametrize("act", ACTS)
def test_every_activation(act):
    check(drawn(2, 24), (drawn(9, 24), None), act=act)


def test_shapes_around_the_rows_stay():
    map = Rows((drawn(9, 24), None))
    assert map(drawn(2, 3, 24)).shape == (2, 3, 9)
    turned = drawn(24, 4).t()  # not contiguous
    torch.testing.assert_close(map(turned), map(turned.contiguous()))


def test_long_rows_are_read_in_pieces(monkeypatch):
    from anyformer.ops.kernels import launch_rows

    monkeypatch.setattr(launch_rows, "DEEP", 16)
    check(drawn(2, 50), (drawn(12, 50), None), norm_of("layer", 50))


def test_says_why_not():
    assert lacks(drawn(2, 2)) is None
    assert "float32" in str(lacks(drawn(2, 2).double()))
