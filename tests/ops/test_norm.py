"""Norms on a stream: gradients as float64 has them, by kernels, which Python runs on a CPU."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from anyformer.ops.norm import WIDEST, Norm, Tails, _Entered, entered, takes
from anyformer.ops.tiles import INSTALLED, interpreted

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
NEAR = {torch.bfloat16: 3e-2, torch.float16: 3e-3, torch.float32: 1e-5}


@pytest.fixture(autouse=True)
def kernels():
    if not INSTALLED or not (WHERE == "cuda" or interpreted()):
        pytest.skip("kernel: runs on a GPU, or with TRITON_INTERPRET=1")


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=WHERE).to(dtype).requires_grad_()


def formula(x, said, norm):
    """The sum and its norm, in the type of x."""
    stream = x if said is None else x + said
    if norm.centred:
        return stream, F.layer_norm(stream, norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return stream, F.rms_norm(stream, norm.weight.shape, norm.weight, norm.eps)


def gradients(found, given, grads):
    used = [x for x in given if x is not None]
    return torch.autograd.grad(found, used, grads)


@pytest.mark.parametrize(
    ("dtype", "branch"),
    [
        (torch.float32, None), (torch.bfloat16, None), (torch.float16, torch.float16),
        (torch.float32, torch.float32), (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("centred", "bias"), [(True, True), (True, False), (False, False)])
def test_values_and_gradients_are_those_of_float64(dtype, branch, centred, bias):
    torch.manual_seed(0)
    width, rows = 20, (3, 7)
    x = (2 * torch.randn(*rows, width, device=WHERE) + 1).to(dtype).requires_grad_()
    said = None if branch is None else drawn(*rows, width, dtype=branch)
    norm = Norm(drawn(width), drawn(width) if bias else None, 1e-5, centred)
    found = entered(x, said, norm, Tails())
    stream = dtype if branch is None else torch.promote_types(dtype, branch)
    assert [y.dtype for y in found] == [stream, dtype]
    grads = [torch.randn_like(y) for y in found]
    given = [x, said, norm.weight, norm.bias]
    wide = [None if t is None else t.detach().double().requires_grad_() for t in given]
    wanted = formula(*wide[:2], Norm(*wide[2:], norm.eps, centred))
    own = gradients(found, given, grads)
    right = gradients(wanted, wide, [g.double() for g in grads])
    near = NEAR[torch.bfloat16 if torch.bfloat16 in (dtype, branch) else dtype]
    for a, b in zip((*found, *own), (*wanted, *right), strict=True):
        assert (a.double() - b).norm() <= near * b.norm()
    assert [g.dtype for g in own] == [t.dtype for t in given if t is not None]


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 32), (40, 33)])
def test_biases_before_and_behind_have_the_sums_of_the_stream(rows, width):
    torch.manual_seed(0)
    x, before, behind = drawn(rows, width), drawn(width), drawn(width)
    said, norm = drawn(rows, width), Norm(drawn(width), drawn(width), 1e-5, True)
    stream, y = entered(x, said + before.detach(), norm, Tails(before, behind))
    weights = torch.randn(rows, width, device=WHERE)
    loss = lambda stream, y: (stream * weights).sum() + (y * weights).sin().sum()
    own = torch.autograd.grad(loss(stream + behind.detach(), y), (before, behind, x))
    stream, y = formula(x, said + before, norm)
    wanted = torch.autograd.grad(loss(stream + behind, y), (before, behind, x))
    for a, b in zip(own, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_product_gets_the_type_of_autocast():
    x, norm = drawn(4, 8), Norm(drawn(8), None, 1e-5, True)
    with torch.autocast(WHERE, torch.bfloat16):
        stream, y = entered(x, None, norm, Tails())
    assert (stream.dtype, y.dtype) == (torch.float32, torch.bfloat16)


class InVain(TorchFunctionMode):
    """Remembers tensors that were asked for what they are already."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and args and found is args[0]:
            self.asked.append(found)
        return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("centred", [True, False])
def test_no_output_is_asked_for_what_it_is(dtype, centred):
    """Such an output loses its gradient where torch 2.11 compiles it."""
    x, said, weight = drawn(3, 8, dtype=dtype), drawn(3, 8, dtype=dtype), drawn(8, dtype=dtype)
    ctx = SimpleNamespace(save_for_backward=lambda *_: None)
    with torch.no_grad(), InVain() as vain:
        found = _Entered.forward(ctx, (1e-5, centred, dtype), x, said, weight, None)
        assert x.to(dtype) is vain.asked[-1]  # that is what it hears
    assert not any(y is asked for y in found for asked in vain.asked)


def test_rows_that_are_too_wide_or_too_fine_are_torchs():
    assert takes(torch.zeros(1, WIDEST)) and takes(torch.zeros(1, 8, dtype=torch.float16))
    assert not takes(torch.zeros(1, WIDEST + 1))
    assert not takes(torch.zeros(1, 8, dtype=torch.float64))
