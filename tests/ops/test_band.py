"""Band and far equal eager: outputs and gradients, causal and both ways, at and beyond the ends."""

import pytest
import torch

from anyformer.ops.attend import attend, refusal
from anyformer.ops.band import BLOCK, ROW, Reach
from anyformer.ops.mask import Causal, Padding, Window
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative


def results(backend, n, reach, mask, dtype, heads=(4, 2)):
    torch.manual_seed(1)
    h, g = heads
    given = [torch.randn(2, n, h, 8).transpose(1, 2), *torch.randn(2, 2, g, n, 8)]
    table = torch.randn(h, reach[1] - reach[0] + 1)
    leaves = [t.to(dtype).requires_grad_() for t in (*given, table)]
    plan = Plan(0.4, mask, Relative(*reach, leaves[3]))
    out = attend(leaves[0], leaves[1], leaves[2], plan, backend)
    weight = torch.cos(torch.arange(out.numel())).view_as(out).to(dtype)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]


@pytest.mark.parametrize(
    ("n", "reach", "mask"),
    [
        (300, (-20, 0), Causal()),
        (BLOCK * (ROW + 3) + 5, (-70, 0), Causal()),  # more blocks than are taken at once
        (64, (-70, 0), Causal()),  # nothing is far
        (130, (-1, 0), Causal()),
        (200, (-20, 20), Causal()),  # rows that a causal mask never reads
        (200, (0, 0), Causal()),
        (300, (-20, 30), None),
        (333, (-100, 20), None),
        (5, (-2, 1), None),
        (100, (-128, 128), None),
        (90, (3, 9), None),
    ],
)
def test_equals_eager(n, reach, mask):
    found, wanted = (results(name, n, reach, mask, torch.float64) for name in ("band", "eager"))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_narrow_types():
    wanted = results("eager", 200, (-30, 40), None, torch.float64)
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        for a, b in zip(results("band", 200, (-30, 40), None, dtype), wanted, strict=True):
            assert (a.double() - b).norm() < most * b.norm()


def test_padding_on_the_right_under_a_causal_mask():
    keep = torch.ones(2, 150, dtype=torch.bool)
    keep[1, 100:] = False
    keep = Padding(keep, queries=True, right=True)
    found, wanted = (
        results(name, 150, (-20, 0), Causal() & keep, torch.float64) for name in ("band", "eager")
    )
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_blocks_cover_every_query_once_and_all_its_near_keys():
    for n, back, ahead in ((300, 20, 1), (1500, 70, 40), (7, 3, 3), (64, 200, 200)):
        seen = torch.zeros(n, n, dtype=torch.int)
        for piece in Reach(back, ahead, ahead == 1, 1.0).pieces(n):
            for i in range(piece.blocks):
                rows = slice(piece.at + i * BLOCK, piece.at + i * BLOCK + piece.size)
                first = piece.first + i * BLOCK
                assert 0 <= first and first + piece.keys <= n
                seen[rows, first : first + piece.keys] += 1
        away = torch.arange(n) - torch.arange(n)[:, None]
        assert (seen[(away > -back) & (away < ahead)] == 1).all()
        assert seen.max() == 1


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
@pytest.mark.parametrize("mask", [Causal(), None])
def test_a_compiled_graph_has_no_break(mask):
    def run(q, k, v, table):
        return attend(q, k, v, Plan(0.4, mask, Relative(-9, 9, table)), "band").sin()

    leaves = [torch.randn(1, 2, 150, 8, requires_grad=True) for _ in "qkv"]
    leaves += [torch.randn(2, 19, requires_grad=True)]
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    found = [(f(*leaves), torch.autograd.grad(f(*leaves).sum(), leaves)) for f in (run, compiled)]
    torch.testing.assert_close(*found)


def test_says_what_it_cannot():
    q, k, v = (torch.randn(1, 2, 16, 8) for _ in "qkv")
    bias, rows = torch.randn(2, 5), torch.randn(1, 5, 8)
    says = lambda *x, **more: str(refusal("band", q, k, v, Plan(1.0, *x, **more)))
    assert says(Causal(), Relative(-4, 0, bias)) == "None"
    assert "a bias alone" in says(Causal())
    assert "a bias alone" in says(None, Relative(-4, 0, bias, rows))
    assert "a bias alone" in says(None, Relative(-4, 0, bias, slope=bias[:, 0]))
    assert "a bias alone" in says(None, Relative(0, 0, slope=bias[:, 0]))
    assert "the same tokens" in says(None, Relative(-4, 0, bias), start=2)
    assert "but a causal one" in says(Window(3), Relative(-4, 0, bias))
    assert "on the right" in says(Padding(torch.ones(1, 16).bool()), Relative(-4, 0, bias))
