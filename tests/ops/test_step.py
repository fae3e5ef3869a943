"""The kernel for a decoding step's attention equals its parts in float64; on a CPU interpreted."""

import pytest
import torch

from anyformer.ops.rotary import angles, turn, waves
from anyformer.ops.step import Facts, Slots, Step

pytest.importorskip("triton", reason="step: Triton isn't installed")
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
ROOM = 150


def drawn(*shape, dtype=torch.float32):
    return torch.randn(shape).to(WHERE, dtype)


def plain(y, slots, how, turned):
    """What the kernel does in float64: what comes out, and the keys and values afterwards."""
    (heads, groups), (size, value_size), rows = how.heads, how.sizes, len(y)
    q, k, v = y.double().split([heads * size, groups * size, groups * value_size], -1)
    q, k, v = (
        q.view(rows, heads, 1, size),
        k.view(rows, groups, 1, size),
        v.view(rows, groups, 1, -1),
    )
    if turned is not None:
        at, dims = turned
        layout = "pairs" if how.pairs else "halves"
        q, k = (turn(x, angles(at.double(), dims, 100.0), layout, 1.5) for x in (q, k))
        q, k = (x.to(y.dtype).double() for x in (q, k))  # as they are remembered
    at, room = int(slots.at), slots.keys.shape[2]
    keys, values = slots.keys.double(), slots.values.double()
    keys[:, :, at % room], values[:, :, at % room] = k[:, :, 0], v[:, :, 0]
    index = torch.arange(room, device=WHERE)
    seen = index <= at
    if how.window and not slots.ring:
        seen = seen & (at - index < how.window)
    seen = seen.expand(rows, room)
    if slots.keep is not None:
        seen = seen & torch.nn.functional.pad(slots.keep, (0, room - slots.keep.shape[1]))
    wide = [x.repeat_interleave(heads // groups, 1) for x in (keys, values)]
    s = (q @ wide[0].mT) * how.scale
    weight = s.masked_fill(~seen[:, None, None], float("-inf")).softmax(-1)
    return (weight @ wide[1]).reshape(rows, -1), keys, values


def check(how, at, rows=2, dtype=torch.float32, room=ROOM, ring=False, keep=None, turned=None):
    """Raise unless two steps in a row give what their parts give, and leave what those leave."""
    (heads, groups), (size, value_size) = how.heads, how.sizes
    keys, values = (drawn(rows, groups, room, d, dtype=dtype) for d in (size, value_size))
    live = 1 << at.bit_length() if not ring else room
    live = min(live + 1, room)
    for place in (at, at + 1):
        y = drawn(rows, (heads + groups) * size + groups * value_size, dtype=dtype)
        slots = Slots(
            keys, values, torch.tensor([place], device=WHERE), live, ring,
            None if keep is None else keep[:, :live],
        )  # fmt: skip
        wave = None
        if turned is not None:
            wave = waves(angles(turned[0], turned[1], 100.0), 1.5)
        wanted, *held = plain(y, slots, how, turned)
        found = how(y, slots, wave)
        assert found.shape == wanted.shape
        gap = (found.double() - wanted).norm() / wanted.norm()
        assert gap < NEAR[dtype], f"differs by {gap:.1e}"
        for now, then in zip((keys, values), held, strict=True):
            torch.testing.assert_close(now.double(), then, rtol=NEAR[dtype], atol=NEAR[dtype])
        assert not how.arrived.any()


def made(heads=(2, 2), sizes=(16, 16), window=None, pairs=False):
    like = torch.empty(0, device=WHERE)
    return Step(heads, sizes, 0.15, window, pairs, like, rows=4)


ONE = pytest.param("one program", marks=pytest.mark.slow)  # as with shares of few keys


@pytest.fixture(params=[ONE, "shares"], autouse=True)
def shared(request, monkeypatch):
    """Each head's keys by one program, and by several."""
    from anyformer.ops.kernels import launch_step

    torch.manual_seed(0)
    programs = 1 if request.param == "one program" else 264
    for kind in ("ALONE", "CROWDED", "TOGETHER"):  # 32 keys of 16 channels a tile
        monkeypatch.setattr(launch_step, kind, launch_step.Tile(512, 4, programs))


@pytest.mark.parametrize("heads", [(3, 3), (4, 2), (5, 1)])
@pytest.mark.parametrize("at", [1, 31, 100])
def test_equals_its_parts(heads, at):
    check(made(heads), at)


@pytest.mark.parametrize("sizes", [(24, 16), (8, 40), (64, 64)])
@pytest.mark.parametrize("heads", [(2, 2), (4, 1)])
def test_sizes_of_heads(sizes, heads):
    check(made(heads, sizes), 70)


@pytest.mark.parametrize("dtype", list(NEAR))
@pytest.mark.parametrize("heads", [(2, 2), (2, 1)])
def test_every_type(dtype, heads):
    at = torch.tensor([[33], [70]], device=WHERE)
    check(made(heads), 70, dtype=dtype, turned=(at, 16))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("dims", [16, 6])
@pytest.mark.parametrize("apart", [False, True])
def test_turns_heads(pairs, dims, apart):
    at = torch.tensor([[40], [7]] if apart else [[40]], device=WHERE)
    check(made((4, 2), pairs=pairs), 40, turned=(at, dims))


@pytest.mark.parametrize("window", [1, 20, 1000])
def test_windows(window):
    check(made(window=window), 90)


@pytest.mark.parametrize("at", [10, 38, 39, 133])
def test_rings(at):
    check(made((4, 2), window=40), at, room=40, ring=True)


def test_rows_of_unequal_length():
    keep = torch.arange(ROOM, device=WHERE)[None] >= torch.tensor([[0], [66]], device=WHERE)
    check(made((4, 2)), 101, keep=keep)
    check(made((2, 2), window=50), 101, keep=keep)


def test_shares_follow_the_room_that_a_gpu_has(monkeypatch):
    from anyformer.ops.kernels import launch_step

    monkeypatch.setattr(launch_step, "ALONE", launch_step.Tile(1024, 1, 1000))
    monkeypatch.setattr(launch_step, "CROWDED", launch_step.Tile(1024, 1, 6336))
    monkeypatch.setattr(launch_step, "TOGETHER", launch_step.Tile(8192, 4, 528))
    facts = Facts(12, 12, 64, 64, 0, 0, 272, 0, 0)
    assert launch_step.shares_of(1, facts) == 17  # tiles of 16 keys
    assert launch_step.shares_of(64, facts) == 8
    assert launch_step.shares_of(1, facts._replace(live=4096)) == 32  # what one warp joins
    assert launch_step.shares_of(1, facts._replace(groups=4)) == 3  # tiles of 128 keys
    assert launch_step.shares_of(1, facts._replace(heads=384, value_size=128)) == 2
