"""Three parts of a product: their gradients side by side, and the bias's."""

import pytest
import torch

from anyformer.ops.sides import apart
from anyformer.ops.tiles import INSTALLED, interpreted

WHERE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    if not INSTALLED or not (WHERE == "cuda" or interpreted()):
        pytest.skip("kernel: runs on a GPU, or with TRITON_INTERPRET=1")
    from anyformer.ops.kernels import launch_sides, launch_sums

    monkeypatch.setattr(launch_sides, "COLUMNS", 16)
    monkeypatch.setattr(launch_sides, "ROWS", 4)
    monkeypatch.setattr(launch_sums, "ROWS", 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "widths"), [((3, 7), (32, 16, 16)), ((50,), (20, 7, 33))])
def test_gradients_lie_side_by_side_and_are_summed(rows, widths, dtype):
    torch.manual_seed(0)
    y = torch.randn(*rows, sum(widths), device=WHERE).to(dtype).requires_grad_()
    bias = torch.randn(sum(widths), device=WHERE, requires_grad=True)
    found = apart(y, bias, widths)
    grads = [torch.randn_like(part) for part in found]
    for part, wanted in zip(found, y.split_with_sizes(widths, -1), strict=True):
        assert torch.equal(part, wanted)
    own, sums = torch.autograd.grad(found, (y, bias), grads)
    joined = torch.cat(grads, -1)
    assert torch.equal(own, joined) and sums.dtype == torch.float32
    wanted = joined.double().flatten(0, -2).sum(0)
    torch.testing.assert_close(sums.double(), wanted, rtol=1e-5, atol=1e-5)


def test_gradients_may_lie_otherwise():
    y = torch.randn(2, 6, 12, device=WHERE, requires_grad=True)
    bias = torch.zeros(12, device=WHERE, requires_grad=True)
    found = apart(y, bias, (4, 4, 4))
    grads = [torch.randn(2, 4, 6, device=WHERE).mT for _ in found]
    own, sums = torch.autograd.grad(found, (y, bias), grads)
    assert torch.equal(own, torch.cat(grads, -1))
    torch.testing.assert_close(sums, own.sum((0, 1)))
