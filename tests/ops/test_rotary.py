"""Rotary positions against complex numbers and two of Hugging Face's models; sinusoids."""

import math

import pytest
import torch
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

from anyformer.ops.rotary import angles, sinusoid, turn


def by_complex(x, positions, theta, layout):
    """Each pair of channels as a complex number, times e^(i·position·frequency)."""
    half = x.shape[-1] // 2
    pairs = (x[..., :half], x[..., half:]) if layout == "halves" else (x[..., ::2], x[..., 1::2])
    out = torch.empty_like(x)
    for i in range(half):
        at = positions.double() * theta ** (-2 * i / (2 * half))
        z = torch.complex(pairs[0][..., i], pairs[1][..., i]) * torch.polar(torch.ones_like(at), at)
        first, second = (i, half + i) if layout == "halves" else (2 * i, 2 * i + 1)
        out[..., first], out[..., second] = z.real, z.imag
    return out


@pytest.mark.parametrize("layout", ["halves", "pairs"])
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_turning_is_complex_multiplication(layout, theta):
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    positions = torch.arange(7, 12, dtype=torch.float64)[None]
    got = turn(x, angles(positions, 8, theta), layout)
    torch.testing.assert_close(got, by_complex(x, positions[0], theta, layout))


def test_halves_are_llama():
    x = torch.randn(2, 3, 5, 8)
    positions = torch.arange(5)[None]
    angle = angles(positions, 8, 10000.0)
    wide = torch.cat([angle, angle], -1)
    theirs, _ = llama(x, x, wide.cos(), wide.sin())
    torch.testing.assert_close(turn(x, angle, "halves"), theirs)


def test_pairs_are_gptj():
    x = torch.randn(2, 3, 5, 8)
    sin, cos = create_sinusoidal_positions(5, 8)[None].chunk(2, -1)
    theirs = gptj(x.transpose(1, 2), sin, cos).transpose(1, 2)
    got = turn(x, angles(torch.arange(5)[None], 8, 10000.0), "pairs")
    torch.testing.assert_close(got, theirs)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_channels_beyond_dims_stay(layout):
    x = torch.randn(2, 3, 5, 8)
    angle = angles(torch.arange(5)[None], 4, 10000.0)
    got = turn(x, angle, layout)
    assert torch.equal(got[..., 4:], x[..., 4:])
    assert torch.equal(got[..., :4], turn(x[..., :4], angle, layout))


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_scores_depend_on_the_distance_alone(layout):
    q, k = (
        torch.randn(1, 1, 1, 8, dtype=torch.float64),
        torch.randn(1, 1, 1, 8, dtype=torch.float64),
    )
    at = lambda x, p: turn(x, angles(torch.tensor([[float(p)]]).double(), 8, 100.0), layout)
    near = (at(q, 3) * at(k, 1)).sum()
    torch.testing.assert_close((at(q, 53) * at(k, 51)).sum(), near)


def test_positions_of_each_row():
    x = torch.randn(2, 1, 3, 4)
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]])
    got = turn(x, angles(positions, 4, 10000.0), "halves")
    for row in range(2):
        alone = turn(x[row : row + 1], angles(positions[row : row + 1], 4, 10000.0), "halves")
        torch.testing.assert_close(got[row : row + 1], alone)


def test_low_precision_turns_in_float32():
    x = torch.randn(1, 1, 9, 8)
    angle = angles(torch.arange(1000, 1009)[None], 8, 10000.0)
    got = turn(x.bfloat16(), angle, "halves")
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, turn(x.bfloat16().float(), angle, "halves").bfloat16())


@pytest.mark.parametrize("dims", [6, 7])
def test_sinusoids(dims):
    halves = sinusoid(torch.arange(5), dims, 10000.0)
    pairs = sinusoid(torch.arange(5), dims, 10000.0, "pairs")
    even = dims + dims % 2
    for p in range(5):
        for i in range(even // 2):
            at = p / 10000 ** (2 * i / even)
            assert halves[p, i].item() == pytest.approx(math.sin(at), abs=1e-6)
            assert pairs[p, 2 * i].item() == pytest.approx(math.sin(at), abs=1e-6)
            if 2 * i + 1 < dims:
                assert pairs[p, 2 * i + 1].item() == pytest.approx(math.cos(at), abs=1e-6)
            if even // 2 + i < dims:
                assert halves[p, even // 2 + i].item() == pytest.approx(math.cos(at), abs=1e-6)
    assert halves.shape == pairs.shape == (5, dims)


@pytest.mark.parametrize("dims", [2, 5, 8])
def test_closed_sinusoids_are_those_of_m2m(dims):
    wanted = M2M100SinusoidalPositionalEmbedding.get_embedding(7, max(dims, 4), None)[:, :dims]
    found = sinusoid(torch.arange(7), max(dims, 4), 10000.0, closed=True)[:, :dims]
    assert (found - wanted).abs().max() < 1e-6
    assert sinusoid(torch.arange(7), 2, 10000.0, closed=True).isfinite().all()
