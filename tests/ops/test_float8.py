"""Products in float8: near float64's, with exact scales; what is no number stays seen."""

import pytest
import torch
import torch.nn.functional as F

from anyformer.errors import InputError
from anyformer.ops import float8

NEAR = {"y": 0.04, "x": 0.07, "weight": 0.07, "bias": 4e-3}  # 3, 2, 2 bits; sums of bfloat16
COMPILES = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",  # dynamo's
    "ignore:The .grad attribute of a Tensor",
)


def _given(rows=(4, 12), sizes=(48, 64), device="cpu"):
    torch.manual_seed(0)
    weight = torch.randn(*sizes, device=device) / 8
    return torch.randn(*rows, sizes[1], device=device), weight, torch.randn(sizes[0], device=device)


def _all(map, *given):
    """y and the gradients of all that is given, for one gradient from above."""
    leaves = [t.detach().clone().requires_grad_() for t in given]
    y = map(*leaves)
    dice = torch.Generator().manual_seed(1)
    above = torch.randn(y.shape, generator=dice).to(y)
    grads = torch.autograd.grad(y, leaves, above)
    return dict(zip(("y", "x", "weight", "bias"), (y.detach(), *grads), strict=False))


def _assert_near(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        off = (found[name].double() - value).norm() / value.norm()
        assert off < NEAR[name], (name, float(off))


@pytest.mark.parametrize("rows", [(4, 12), (5, 7), (1,), (2, 3, 8)])
def test_values_and_gradients_are_near_float64s(rows):
    given = _given(rows)
    found = _all(float8.linear, *given)
    _assert_near(found, _all(F.linear, *(t.double() for t in given)))
    assert found["y"].shape == (*rows, 48) and found["y"].dtype == torch.bfloat16
    assert all(found[n].dtype == torch.float32 for n in ("x", "weight", "bias"))


def test_it_is_float8_that_multiplies():
    """Numbers that 3 bits hold come out as they are; others are rounded to those."""
    weight = torch.eye(16)
    exact = torch.tensor([[448.0, 1.125, -0.25, 26.0] * 4] * 16)
    assert torch.equal(float8.linear(exact, weight).float(), exact)
    rounded = float8.linear(torch.tensor([[448.0, 1.1, -0.26, 27.1] * 4] * 16), weight)
    assert rounded[0, :4].tolist() == [448.0, 1.125, -0.25, 28.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_of_weights_are_those_of_their_gradients(dtype):
    x, weight, bias = _given()
    found = _all(float8.linear, x.bfloat16(), weight.to(dtype), bias.to(dtype))
    assert found["x"].dtype == torch.bfloat16
    assert found["weight"].dtype == found["bias"].dtype == dtype


def test_a_map_without_a_bias_or_with_a_frozen_weight():
    x, weight, _ = _given()
    _assert_near(_all(float8.linear, x, weight), _all(F.linear, x.double(), weight.double()))
    leaf = x.clone().requires_grad_()
    float8.linear(leaf, weight).sum().backward()
    assert leaf.grad is not None and weight.grad is None


@pytest.mark.parametrize("most", [448.0, 3.0, 1e-20, 1e30])
@pytest.mark.parametrize("kind", [float8.NUMBERS, float8.SLOPES])
def test_the_largest_number_is_the_end_of_the_range(kind, most):
    x = torch.linspace(-1, 0.5, 64).view(4, 16) * most
    found = float8.narrow(x, kind)
    assert found.scale == torch.tensor(most) / torch.finfo(kind).max
    assert found.scale.dtype == torch.float32 and found.scale.shape == ()
    assert found.data.float().abs().max() == torch.finfo(kind).max
    step = torch.finfo(kind).eps / 2  # half a step of a number's last bit
    least = torch.finfo(kind).smallest_normal * found.scale
    off = (found.data.float() * found.scale - x).abs()
    assert (off <= 1.001 * step * x.abs().clamp(min=least)).all()


def test_zeros_give_zeros():
    x, weight, bias = _given()
    found = _all(float8.linear, torch.zeros_like(x), weight, bias)
    assert torch.equal(found["y"], bias.bfloat16().expand(4, 12, 48))
    assert not found["weight"].any() and found["x"].isfinite().all()
    assert not float8.linear(x, torch.zeros_like(weight)).any()
    leaf = x.clone().requires_grad_()
    (float8.linear(leaf, weight) * 0.0).sum().backward()
    assert leaf.grad is not None and not leaf.grad.any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_stays_seen(bad):
    x, weight, _ = _given()
    broken = lambda t: t.clone().index_fill_(0, torch.tensor([0]), bad)
    assert float8.linear(broken(x), weight)[0].isnan().all()
    assert float8.linear(x, broken(weight))[..., 0].isnan().all()
    leaf, own = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = float8.linear(leaf, own)
    y.backward(broken(torch.ones_like(y)))
    assert leaf.grad is not None and leaf.grad[0].isnan().all()
    assert own.grad is not None and own.grad.isnan().all()


def test_other_sizes_are_refused():
    with pytest.raises(InputError, match=r"multiples of 16, not \(40, 64\)"):
        float8.linear(torch.ones(2, 64), torch.ones(40, 64))


@COMPILES
@pytest.mark.parametrize("rows", [(4, 12), (5, 7)])
def test_compiled_it_is_one_graph_with_the_same_numbers(rows):
    torch._dynamo.reset()
    given = _given(rows)
    wanted = _all(float8.linear, *given)
    found = _all(torch.compile(float8.linear, backend="aot_eager", fullgraph=True), *given)
    for name, value in wanted.items():
        assert torch.equal(found[name], value)


@COMPILES
def test_code_that_torch_writes_gives_the_same_numbers():
    torch._dynamo.reset()
    given = _given()[:2]
    wanted = _all(float8.linear, *given)
    made = torch.compile(float8.linear, fullgraph=True)
    found = _all(made, *given)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=2**-8, atol=1e-5)
    given[0][0, 0, 0] = float("inf")
    assert made(*given)[0, 0].isnan().all()


def test_autocast_changes_nothing():
    given = _given()
    with torch.autocast("cpu", torch.bfloat16):
        found = _all(float8.linear, *given)
    for name, value in _all(float8.linear, *given).items():
        assert torch.equal(found[name], value)


@pytest.mark.parametrize("out", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", [float8.NUMBERS, float8.SLOPES])
def test_the_twin_is_torchs_scaled_product(kind, out):
    x, weight, bias = _given((32,))
    a, b = float8.narrow(x, kind), float8.narrow(weight, float8.NUMBERS)
    added = bias.bfloat16() if out == torch.bfloat16 else None  # float32 takes none
    scales = {"scale_a": a.scale, "scale_b": b.scale}
    try:
        wanted = torch._scaled_mm(a.data, b.data.t(), bias=added, out_dtype=out, **scales)
    except RuntimeError as error:
        pytest.skip(f"this CPU has no scaled product: {str(error).splitlines()[0]}")
    found = float8.product(a, b, added, out)
    assert found.dtype == out
    torch.testing.assert_close(found, wanted, rtol=2**-8 if added is not None else 1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [32, 37])
@pytest.mark.parametrize("above", ["plain", "turned", "expanded"])
def test_matrices_lie_as_a_gpus_product_asks(above, rows, monkeypatch):
    """Rows lie one after another, sizes are even, types are pairs that there are."""
    seen, plain = [], float8.plain

    def asked(a, b, bias, out):
        for matrix in (a, b):
            assert matrix.data.is_contiguous() and matrix.data.shape[1] % 16 == 0
            assert matrix.scale.shape == () and matrix.scale.dtype == torch.float32
        assert b.data.shape[0] % 16 == 0 and b.data.dtype == torch.float8_e4m3fn
        assert bias is None or bias.dtype == out == torch.bfloat16
        seen.append((a.data.dtype, out))
        return plain(a, b, bias, out)

    monkeypatch.setattr(float8, "plain", asked)
    x, weight, bias = (t.requires_grad_() for t in _given((rows,)))
    y = float8.linear(x.t().contiguous().t(), weight, bias)
    grads = {
        "plain": torch.ones_like(y),
        "turned": torch.ones(48, rows, dtype=y.dtype).t(),
        "expanded": torch.ones((), dtype=y.dtype).expand(rows, 48),
    }
    y.backward(grads[above])
    half, slopes = torch.bfloat16, torch.float8_e5m2
    assert seen == [(torch.float8_e4m3fn, half), (slopes, half), (slopes, torch.float32)]


def test_a_device_without_it_is_told_of(monkeypatch):
    assert "cpu has no products in float8" in (float8.fault(torch.device("cpu")) or "")
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "An old one")
    told = float8.fault(cuda)
    assert told == "An old one has capability 8.0, and float8 begins with 8.9"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    monkeypatch.setattr(torch, "ones", lambda *size, device: torch.zeros(size))

    def raises(*given, **more):
        raise RuntimeError("not here\nbecause")

    monkeypatch.setattr(float8, "product", raises)
    assert float8.fault(cuda) == "torch's scaled product doesn't run on cuda:0: not here"
    monkeypatch.setattr(float8, "product", lambda *given: None)
    assert float8.fault(cuda) is None


@pytest.mark.gpu
@COMPILES
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [(8, 128), (3, 37)])
def test_a_gpu_gives_what_a_cpu_gives(rows, compiled):
    if (wrong := float8.fault(torch.device("cuda"))) is not None:
        pytest.skip(f"gpu: {wrong}")
    torch._dynamo.reset()
    given = _given(rows, (256, 128), "cuda")
    map = torch.compile(float8.linear, fullgraph=True) if compiled else float8.linear
    found = {n: t.cpu() for n, t in _all(map, *given).items()}
    _assert_near(found, _all(F.linear, *(t.cpu().double() for t in given)))
    for name, value in _all(float8.linear, *(t.cpu() for t in given)).items():
        off = (found[name].float() - value.float()).norm() / value.float().norm()
        assert off < 0.01, name  # fast sums have fewer bits
    broken = given[0].clone().index_fill_(0, torch.tensor([0], device="cuda"), float("inf"))
    assert map(broken, *given[1:])[0].isnan().all()
    assert torch.equal(map(given[0] * 0, *given[1:])[0, 0], given[2].bfloat16())
