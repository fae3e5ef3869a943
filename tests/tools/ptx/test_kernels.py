"""Small kernels as compiled equal torch: on a GPU, or on the emulator (test_runs.py starts it)."""

import pytest
import torch

pytest.importorskip("triton", reason="tools.ptx: Triton isn't installed")

import triton
import triton.language as tl

from tools.ptx.faults import KernelError

pytestmark = pytest.mark.compiled
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = [torch.float16, torch.bfloat16, torch.float32]


@triton.jit
def curve(x, y, out, n, STEP: tl.constexpr):
    i = tl.program_id(0) * STEP + tl.arange(0, STEP)
    a = tl.load(x + i, i < n, 0.0).to(tl.float32)
    b = tl.load(y + i, i < n, 1.0).to(tl.float32)
    tl.store(out + i, tl.where(a > 0, tl.exp(-a) / b, a * b + 1), i < n)


@pytest.mark.parametrize("kind", KINDS)
def test_number_by_number(kind: torch.dtype) -> None:
    """The last program has a part of its numbers only, and writes no others."""
    x, y = (torch.randn(333, device=WHERE).to(kind) for _ in range(2))
    out = torch.full((400,), 7.0, device=WHERE).to(kind)
    curve[(3,)](x, y, out, 333, 128)
    a, b = x.float(), y.float()
    want = torch.where(a > 0, (-a).exp() / b, a * b + 1).to(kind)
    torch.testing.assert_close(
        out[:333], want, rtol=1e-2 if kind != torch.float32 else 1e-5, atol=0
    )
    assert (out[333:] == 7).all()


@pytest.mark.skipif(WHERE == "cuda", reason="a GPU would not forgive it")
def test_stops_beyond_a_tensor() -> None:
    """And says which line of the source it was."""
    x, out = torch.randn(300), torch.zeros(300)
    with pytest.raises(KernelError, match=r"bytes at \w+ lie in no tensor\n.*test_kernels\.py:\d+"):
        curve[(3,)](x, x, out, 333, 128)


@triton.jit
def row_sums(x, out, most, n, stride, WIDE: tl.constexpr):
    i, j = tl.program_id(0), tl.arange(0, WIDE)
    row = tl.load(x + i * stride + j, j < n, 0.0).to(tl.float32)
    tl.store(out + i, tl.sum(row, 0))
    tl.store(most + i, tl.max(tl.where(j < n, row, float("-inf")), 0))


@pytest.mark.parametrize("warps", [1, 4])
def test_sums_by_row(warps: int) -> None:
    """By shuffles within a warp, by shared memory between several."""
    x = torch.randn(5, 300, device=WHERE) - 4
    out, most = torch.zeros(5, device=WHERE), torch.zeros(5, device=WHERE)
    made = row_sums[(5,)](x, out, most, 300, x.stride(0), 512, num_warps=warps)
    torch.testing.assert_close(out, x.sum(1))
    torch.testing.assert_close(most, x.amax(1))
    assert ("st.shared" in made.asm["ptx"]) == (warps > 1)


@triton.jit
def together(x, out, n, STEP: tl.constexpr):
    i = tl.program_id(0) * STEP + tl.arange(0, STEP)
    tl.atomic_add(out + i % 8, tl.load(x + i, i < n, 0.0), i < n)


def test_sums_where_they_lie() -> None:
    x, out = torch.randn(300, device=WHERE), torch.ones(8, device=WHERE)
    together[(5,)](x, out, 300, 64)
    want = 1 + torch.cat([x, x.new_zeros(4)]).view(-1, 8).sum(0)
    torch.testing.assert_close(out, want)


@triton.jit
def turned(x, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + j[None, :])
    tl.store(out + j[:, None] * M + i[None, :], tl.trans(tile))


@pytest.mark.parametrize("kind", KINDS)
def test_turns_a_tile(kind: torch.dtype) -> None:
    """Numbers go from thread to thread through shared memory."""
    x = torch.randn(32, 64, device=WHERE).to(kind)
    out = torch.zeros(64, 32, device=WHERE, dtype=kind)
    made = turned[(1,)](x, out, 32, 64)
    assert torch.equal(out, x.T)
    assert "bar.sync" in made.asm["ptx"]


@triton.jit
def product(
    a,
    b,
    out,
    depth,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, depth, K, num_stages=STAGES):
        left = tl.load(a + m[:, None] * depth + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + n[None, :])
        sums = tl.dot(left, right, sums, input_precision=EXACT)
    tl.store(out + m[:, None] * N + n[None, :], sums)


PRODUCTS = {
    "a warp's": (torch.bfloat16, 1, 2, "tf32", "mma.sync"),
    "warps', loads ahead": (torch.float16, 2, 2, "tf32", "mma.sync"),
    "tf32": (torch.float32, 2, 2, "tf32", "mma.sync"),
    "float32": (torch.float32, 1, 4, "ieee", "fma.rn.f32"),
    "a group's": (torch.bfloat16, 1, 4, "tf32", "wgmma"),
    "a group's, one load ahead": (torch.float16, 2, 4, "tf32", "wgmma"),
    "a group's, two loads ahead": (torch.bfloat16, 3, 4, "tf32", "wgmma"),
    "two groups'": (torch.bfloat16, 3, 8, "tf32", "wgmma"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    """Of whole numbers, which are exact in all types."""
    kind, stages, warps, exact, by = PRODUCTS[name]
    m, n, k = (64 if warps < 8 else 128), 32, 32
    a, b = (torch.randint(-4, 5, s, device=WHERE).to(kind) for s in ((m, 5 * k), (5 * k, n)))
    out = torch.zeros(m, n, device=WHERE)
    made = product[(1,)](a, b, out, 5 * k, m, n, k, stages, exact, num_warps=warps)
    assert torch.equal(out, a.float() @ b.float())
    text = made.asm["ptx"]
    assert ("cp.async" in text) == (stages > 1)
    assert by in text or "sm_90" not in text
