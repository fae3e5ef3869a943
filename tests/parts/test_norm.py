"""Norms against torch's own and against formulas."""

import pytest
import torch

from anyformer import spec as S
from anyformer.parts import build


def fitted(spec, dim=12, dtype=torch.float64):
    """A norm with weights that are not 1 and 0."""
    norm = build(spec, dim).to(dtype)
    with torch.no_grad():
        for p in norm.parameters():
            p.uniform_(0.5, 2.0)
    return norm


def vectors(dtype=torch.float64):
    return torch.randn(2, 5, 12, dtype=dtype) * 3 + 1


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_torchs(bias):
    ours = fitted(S.LayerNorm(eps=1e-3, bias=bias))
    theirs = torch.nn.LayerNorm(12, eps=1e-3, bias=bias).double()
    theirs.load_state_dict(ours.state_dict())
    x = vectors()
    torch.testing.assert_close(ours(x), theirs(x))
    assert len(list(ours.parameters())) == 1 + bias


def test_rms_norm_is_torchs():
    ours = fitted(S.RMSNorm(eps=1e-3))
    theirs = torch.nn.RMSNorm(12, eps=1e-3).double()
    theirs.load_state_dict(ours.state_dict())
    x = vectors()
    torch.testing.assert_close(ours(x), theirs(x))


def test_scale_norm_has_one_gain():
    norm, x = fitted(S.ScaleNorm()), vectors()
    gain = norm.weight.item()
    want = x / x.square().mean(-1, keepdim=True).sqrt() * gain
    torch.testing.assert_close(norm(x), want)
    assert [p.numel() for p in norm.parameters()] == [1]


@pytest.mark.parametrize("spec", [S.LayerNorm(), S.RMSNorm(), S.ScaleNorm()])
def test_a_row_of_zeros_stays_finite_forwards_and_backwards(spec):
    x = torch.zeros(1, 2, 12, requires_grad=True)
    out = build(spec, 12)(x)
    out.sum().backward()
    assert (out == 0).all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_scale_norm_counts_small_roots_as_eps():
    x = torch.full((1, 12), 1e-3)
    torch.testing.assert_close(build(S.ScaleNorm(eps=0.1), 12)(x), x / 0.1)


@pytest.mark.parametrize("spec", [S.RMSNorm(), S.ScaleNorm()])
def test_squares_are_taken_in_float32(spec):
    norm = build(spec, 12).half()
    x = torch.full((1, 12), 1000.0, dtype=torch.float16)  # its square is no float16
    torch.testing.assert_close(norm(x), torch.ones_like(x))


@pytest.mark.parametrize("spec", [S.LayerNorm(), S.RMSNorm(), S.ScaleNorm()])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dtype_is_kept(spec, dtype):
    assert build(spec, 12).to(dtype)(vectors(dtype)).dtype == dtype


@pytest.mark.parametrize("spec", [S.LayerNorm(), S.RMSNorm(), S.ScaleNorm()])
def test_gradients(spec):
    norm = fitted(spec)
    assert torch.autograd.gradcheck(
        norm, torch.randn(2, 12, dtype=torch.float64, requires_grad=True)
    )
