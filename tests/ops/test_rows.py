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


@pytest.mark.parametrize("rows", [1, 3, 7, 40])
@pytest.mark.parametrize("kind", ["none", "layer", "root"])
@pytest.mark.parametrize("gated", [False, True])
def test_equals_its_parts(rows, kind, gated):
    ins, outs = 40, 37
    map, gate = ((drawn(outs, ins), drawn(outs)) for _ in "mg")
    more = drawn(rows, outs)
    x = drawn(rows, ins, shift=1.0)
    check(x, map, norm_of(kind, ins), gate if gated else None, "silu", more)


@pytest.mark.parametrize("dtype", list(NEAR))
@pytest.mark.parametrize("rows", [1, 6, 17])
def test_every_type(dtype, rows):
    map = drawn(24, 136, dtype=dtype), drawn(24, dtype=dtype)
    check(drawn(rows, 136, dtype=dtype), map, norm_of("layer", 136, dtype), None, "gelu")


@pytest.mark.parametrize("act", ACTS)
def test_every_activation(act):
    check(drawn(2, 24), (drawn(9, 24), None), act=act)


@pytest.mark.parametrize("cut", range(17))
def test_every_cut_gives_the_same(cut, monkeypatch):
    from anyformer.ops.kernels import launch_rows

    assert len(launch_rows.CANDIDATES) == 17
    chosen = launch_rows.CANDIDATES[cut]
    short = chosen._replace(k=chosen.k // 32)  # so that rows are longer than a tile
    assert launch_rows.cut_of(72, 21, True, 1) != short
    monkeypatch.setattr(launch_rows, "CUTS", {(72, 21, True): short})
    assert launch_rows.cut_of(72, 21, True, 1) == short
    map, gate = ((drawn(21, 72), drawn(21)) for _ in "mg")
    check(drawn(1, 72), map, norm_of("layer", 72), gate, "silu", drawn(1, 21))


def chosen(x, weight, norm=None):
    """The tokens that kernels choose, and whether rows are broken."""
    tokens = torch.full((len(x),), -1, device=WHERE)
    broken = torch.zeros(len(x), dtype=torch.bool, device=WHERE)
    Rows((weight, None), norm).choose(x, tokens, broken)
    return tokens.tolist(), broken.tolist()


@pytest.mark.parametrize("rows", [1, 3, 7, 40])
@pytest.mark.parametrize("dtype", list(NEAR))
def test_the_greatest_output_is_that_of_the_outputs(rows, dtype):
    x, weight = drawn(rows, 24, dtype=dtype), drawn(150, 24, dtype=dtype)
    norm = norm_of("layer", 24, dtype)
    outputs = Rows((weight, None), norm)(x)
    assert chosen(x, weight, norm) == (outputs.argmax(-1).tolist(), [False] * rows)


@pytest.mark.parametrize("ins", [1024, 1500])
def test_long_inputs_of_tens_of_rows_are_parted(ins, monkeypatch):
    from anyformer.ops.kernels import launch_rows

    assert launch_rows.block_of(ins, 16, False).shares == 2
    x, map, more = drawn(64, ins), (drawn(16, ins), drawn(16)), drawn(64, 16)
    rows = Rows(map, None, None, "gelu")
    for _ in range(2):  # counts of arrivals are 0 again
        found, wanted = rows(x, more).double(), plain(x, map, None, None, "gelu", more)
        assert (found - wanted).norm() / wanted.norm() < NEAR[torch.float32]
    assert not rows.arrived.any()


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("block", range(0, 74, 5))
def test_every_block_gives_the_same(block, gated, monkeypatch):
    from anyformer.ops.kernels import launch_rows

    assert len(launch_rows.BLOCK_CANDIDATES) == 74
    chosen = launch_rows.BLOCK_CANDIDATES[block]
    monkeypatch.setattr(launch_rows, "BLOCKS", {(200, 21, gated): chosen})
    map, gate = ((drawn(21, 200), drawn(21)) for _ in "mg")
    norm = norm_of("layer", 200)
    check(drawn(18, 200), map, norm, gate if gated else None, "silu", drawn(18, 21))


def test_sums_of_squares_keep_their_digits():
    """One channel far greater than others, and a mean that isn't small, in bfloat16."""
    x = drawn(20, 64, dtype=torch.bfloat16, shift=4.0)
    x[:, 5] = 300.0
    map = drawn(24, 64, dtype=torch.bfloat16), None
    check(x, map, norm_of("layer", 64, torch.bfloat16))


@pytest.mark.gpu
def test_there_may_be_more_programs_than_a_grid_is_high(monkeypatch):
    from anyformer.ops.kernels import launch_rows

    monkeypatch.setattr(launch_rows, "CUTS", {(16, 70_000, False): launch_rows.Cut(1, 16, 4)})
    x, weight = drawn(2, 16), drawn(70_000, 16)
    assert chosen(x, weight)[0] == (x @ weight.T).argmax(-1).tolist()


@pytest.mark.parametrize("rows", [1, 6])
def test_the_first_of_equal_outputs_is_chosen(rows):
    weight = torch.zeros(150, 16, device=WHERE)
    weight[[40, 41, 97, 149]] = 1.0
    assert chosen(torch.ones(rows, 16, device=WHERE), weight)[0] == [40] * rows
    assert chosen(torch.zeros(rows, 16, device=WHERE), weight)[0] == [0] * rows


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("rows", [2, 6])
def test_rows_without_numbers_are_told(value, rows):
    x, weight = torch.zeros(rows, 16, device=WHERE), torch.ones(150, 16, device=WHERE)
    x[1, 0] = value
    tokens, broken = chosen(x, weight)
    assert broken == [row == 1 for row in range(rows)]
    assert all(0 <= token < 150 for token in tokens)


def test_kernels_do_not_start_early_where_no_gpu_can(monkeypatch):
    from anyformer.ops.kernels import launch_rows

    monkeypatch.setattr(launch_rows, "EARLY", False)
    assert not launch_rows.early(drawn(1))
    monkeypatch.setattr(launch_rows, "EARLY", True)
    able = WHERE == "cuda" and torch.cuda.get_device_capability() >= (9, 0)
    assert launch_rows.early(drawn(1)) == able
    check(drawn(1, 40), (drawn(21, 40), None))


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
