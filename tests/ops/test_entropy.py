"""Losses of chunks equal those of all logits, with every gradient; on a CPU the kernel too."""

import pytest
import torch
import torch.nn.functional as F

from anyformer.ops import entropy
from anyformer.ops.entropy import IGNORED, Map, entropy_sum

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
NEAR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}


@pytest.fixture(params=["torch", "kernel"])
def by(request, monkeypatch):
    """Torch's operations and our kernel, with chunks of a few rows."""
    monkeypatch.setattr(entropy, "NUMBERS", {"cpu": 1, "cuda": 1})
    monkeypatch.setattr(entropy, "_room", lambda device: 0)
    monkeypatch.setattr(entropy, "FEWEST", 7)
    monkeypatch.setattr(entropy, "EVEN", {"cpu": 8, "cuda": 64})  # 75 words are 80
    if request.param == "torch":
        monkeypatch.setattr(entropy, "fused", lambda logits: False)
        return request.param
    pytest.importorskip("triton", reason="kernel: Triton isn't installed")
    from anyformer.ops.kernels import launch_entropy

    monkeypatch.setattr(launch_entropy, "PIECE", 32)
    if not entropy.fused(torch.zeros(1, 1, device=WHERE)):
        pytest.skip("kernel: runs on a GPU, or with TRITON_INTERPRET=1")
    return request.param


def drawn(tokens=20, vocab=75, width=12, dtype=torch.float32, bias=True):
    torch.manual_seed(0)
    make = lambda *shape: torch.randn(shape, device=WHERE).to(dtype).requires_grad_()
    labels = torch.randint(0, vocab, (tokens,), device=WHERE)
    labels[::3] = IGNORED
    return make(tokens, width), make(vocab, width), make(vocab) if bias else None, labels


def plain(x, weight, bias, labels, cap):
    """Loss and hits of all logits in float64."""
    logits = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    logits = logits if cap is None else torch.tanh(logits / cap) * cap
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return loss, int((logits.argmax(-1) == labels).sum())


def assert_same(given, labels, cap, near):
    """Losses, hits and gradients of chunks are those of all logits."""
    wanted, hits = plain(*given, labels, cap)
    found, found_hits = entropy_sum(given[0], Map(given[1], given[2], cap), labels)
    there = [t for t in given if t is not None]
    slopes = torch.autograd.grad(3 * wanted, there)
    ours = torch.autograd.grad(3 * found, there)
    assert abs((found - wanted).item()) <= near * abs(wanted.item()) and int(found_hits) == hits
    for a, b in zip(ours, slopes, strict=True):
        assert a.dtype == b.dtype or a.dtype == torch.bfloat16
        assert (a.double() - b.double()).norm() <= near * b.double().norm()


@pytest.mark.parametrize("dtype", list(NEAR))
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_chunks_equal_all_logits(by, dtype, bias, cap):
    if by == "kernel" and dtype == torch.float64:
        assert not entropy.fused(torch.zeros(1, 1, dtype=dtype))  # torch's operations again
    *given, labels = drawn(dtype=dtype, bias=bias)
    assert_same(given, labels, cap, NEAR[dtype])


def test_labels_that_are_all_ignored_give_nothing(by):
    x, weight, bias, labels = drawn()
    loss, hits = entropy_sum(x, Map(weight, bias), torch.full_like(labels, IGNORED))
    assert loss.item() == 0.0 and int(hits) == 0
    assert not any(g.any() for g in torch.autograd.grad(loss, (x, weight, bias)))


def test_no_rows_have_no_loss_and_no_gradient():
    x, weight, bias, labels = drawn(tokens=0)
    loss, hits = entropy_sum(x, Map(weight, bias), labels)
    assert loss.item() == 0.0 and int(hits) == 0
    slopes = torch.autograd.grad(loss, (weight, bias))
    assert [g.shape for g in slopes] == [(75, 12), (75,)] and not any(g.any() for g in slopes)


def test_without_gradients_none_are_made(by):
    x, weight, bias, labels = drawn()
    with torch.no_grad():
        loss, _ = entropy_sum(x, Map(weight, bias), labels)
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(plain(x, weight, bias, labels, None)[0].item(), rel=1e-5)


def test_under_autocast_products_are_of_that_type(by):
    x, weight, bias, labels = drawn(tokens=40)
    with torch.autocast(WHERE, torch.bfloat16):
        loss, _ = entropy_sum(x, Map(weight, bias), labels)
    assert loss.dtype == torch.float32
    grads = torch.autograd.grad(loss, (x, weight, bias))
    wanted = torch.autograd.grad(plain(x, weight, bias, labels, None)[0], (x, weight, bias))
    for found, right in zip(grads, wanted, strict=True):
        assert found.dtype == torch.float32
        assert (found - right).norm() <= 2e-2 * right.norm()


def test_of_equal_logits_the_first_is_the_likeliest(by):
    """Wherever they lie: in a group that one thread reads, in a piece, in two, at the end."""
    for first, second in ((1, 2), (3, 30), (5, 70), (40, 74), (64, 74), (0, 33)):
        weight = torch.zeros(75, 12, device=WHERE)
        weight[[first, second]] = 1.0
        x = torch.ones(2, 12, device=WHERE)
        labels = torch.tensor([first, second], device=WHERE)
        assert int(entropy_sum(x[:1], Map(weight), labels[:1])[1]) == 1
        assert int(entropy_sum(x[:1], Map(weight), labels[1:])[1]) == 0
        assert int(entropy_sum(x, Map(weight), labels)[1]) == 1


def test_words_that_are_ruled_out_have_no_share(by):
    x, weight, bias, labels = drawn()
    with torch.no_grad():
        bias[5:70] = float("-inf")
    labels = labels.clamp(max=4)
    found, wanted = (
        entropy_sum(x, Map(weight, bias), labels)[0],
        plain(x, weight, bias, labels, None),
    )
    assert found.item() == pytest.approx(wanted[0].item(), rel=1e-5)
    slope = torch.autograd.grad(found, bias)[0]
    assert not slope[5:70].any() and slope.isfinite().all()


@pytest.mark.parametrize(("tokens", "words"), [(32768, 50304), (1, 50304), (5000, 300000), (0, 9)])
def test_chunks_are_alike_and_hold_all_rows(tokens, words):
    rows = entropy._rows(tokens, words, "cuda")
    fewest = -(-tokens * words // entropy.NUMBERS["cuda"])
    assert rows * words <= max(entropy.NUMBERS["cuda"], entropy.FEWEST * words)
    assert -(-tokens // rows) <= fewest + 1
    assert rows % entropy.STEP == 0 or rows == entropy.NUMBERS["cuda"] // words


def test_logits_are_never_all_there(monkeypatch):
    """2,000 tokens by 5,000 words: no tensor of a pass has as many numbers."""
    from torch.utils._python_dispatch import TorchDispatchMode

    if WHERE == "cpu":
        monkeypatch.setattr(entropy, "fused", lambda logits: False)  # it copies
    monkeypatch.setattr(entropy, "NUMBERS", {"cpu": 1 << 22, "cuda": 1 << 22})
    monkeypatch.setattr(entropy, "_room", lambda device: 0)
    largest = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest[0] = max(largest[0], out.numel())
            return out

    x, weight, bias, labels = drawn(tokens=2000, vocab=5000)
    with Watch():
        loss, _ = entropy_sum(x, Map(weight, bias), labels)
        loss.backward()
    assert largest[0] <= max(entropy.NUMBERS[WHERE], weight.numel()) < 2000 * 5000
