"""GELU behind a bias: what torch computes, with its gradients; on a CPU the kernels by Python."""

import pytest
import torch
import torch.nn.functional as F

from anyformer.ops import gelu

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
EPS = {torch.bfloat16: 2**-7, torch.float16: 2**-11}  # Triton in Python cuts bits of bfloat16 off
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp2")  # of Python's alone


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    pytest.importorskip("triton", reason="kernel: Triton isn't installed")
    from anyformer.ops.kernels import launch_gelu

    if not gelu.takes(torch.zeros(1, dtype=torch.bfloat16, device=WHERE)):
        pytest.skip("kernel: runs on a GPU, or with TRITON_INTERPRET=1")
    if WHERE == "cpu":
        monkeypatch.setattr(launch_gelu, "COLUMNS", 16)
        monkeypatch.setattr(launch_gelu, "BACKWARD", 3)


def assert_near(found, wanted, eps):
    """Within the rounding of a result, which float32 numbers were the ground of."""
    assert ((found.double() - wanted).abs() <= 1.01 * eps * wanted.abs() + 1e-6).all()


@pytest.mark.parametrize("tanh", [True, False])
@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize(("rows", "width"), [(37, 40), (1, 7), (12, 16)])
def test_values_and_gradients_are_torchs(rows, width, dtype, tanh):
    torch.manual_seed(0)
    h = (3 * torch.randn(rows, width, device=WHERE)).to(dtype).requires_grad_()
    bias = torch.randn(width, device=WHERE).requires_grad_()
    grad = torch.randn(rows, width, device=WHERE).to(dtype)
    found = gelu.biased(h, bias, tanh)
    wide = (h.double() + bias.double()).detach().requires_grad_()
    wanted = F.gelu(wide, approximate="tanh" if tanh else "none")
    slope = torch.autograd.grad(wanted, wide, grad.double())[0]
    own, sums = torch.autograd.grad(found, (h, bias), grad)
    assert found.dtype == own.dtype == dtype and sums.dtype == torch.float32
    assert_near(found, wanted, EPS[dtype])
    assert_near(own, slope, EPS[dtype])
    torch.testing.assert_close(sums.double(), slope.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tanh", [True, False])
def test_far_from_zero_it_is_nothing_or_all(tanh):
    h = torch.tensor([[-1e4, -40.0, 40.0, 1e4]], dtype=torch.bfloat16, device=WHERE)
    bias = torch.zeros(4, device=WHERE)
    h.requires_grad_()
    y = gelu.biased(h, bias, tanh)
    assert y.tolist() == [[0.0, 0.0, h[0, 2].item(), h[0, 3].item()]]
    assert torch.autograd.grad(y.sum(), h)[0].tolist() == [[0.0, 0.0, 1.0, 1.0]]
