"""Weights against the entmax package and against sums by hand, gradients too."""

import entmax as peer
import pytest
import torch

from anyformer.ops.weigh import entmax15, sigmoid, softmax, sparsemax, top_k

LOW = torch.finfo(torch.float32).min
PAIRS = {"entmax15": (entmax15, peer.entmax15), "sparsemax": (sparsemax, peer.sparsemax)}


def both(name, scores, hidden=None):
    """Our weights and theirs with their gradients; hidden scores are very low for both."""
    ours, theirs = PAIRS[name]
    found = []
    for function, low in ((ours, LOW), (theirs, -1e6)):
        leaf = scores.clone().requires_grad_()
        x = leaf if hidden is None else leaf.masked_fill(hidden, low)
        out = function(x)
        (out * torch.linspace(-1, 1, scores.shape[-1])).sum().backward()
        found.append((out.detach(), leaf.grad))
    return found


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("keys", [1, 2, 7, 200])
def test_sparse_weights_equal_the_package(name, spread, keys):
    (ours, grad), (theirs, their_grad) = both(name, torch.randn(3, 4, keys) * spread)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(grad, their_grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.sum(-1), torch.ones(3, 4))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("left", [1, 2, 8])
def test_hidden_scores_get_nothing(name, left):
    scores = torch.randn(5, 9)
    hidden = torch.stack([torch.randperm(9) >= left for _ in range(5)])
    (ours, grad), (theirs, their_grad) = both(name, scores, hidden)
    assert (ours[hidden] == 0).all()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(grad, their_grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("function", [softmax, entmax15, sparsemax, lambda s: top_k(s, 2)])
def test_a_row_that_is_hidden_whole_stays_finite(function):
    scores = torch.full((2, 5), LOW, requires_grad=True)
    out = function(scores)
    torch.testing.assert_close(out, torch.full((2, 5), 0.2))
    out.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("function", [entmax15, sparsemax, sigmoid, lambda s: top_k(s, 3)])
def test_gradients(function):
    scores = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, scores)


@pytest.mark.parametrize("function", [softmax, entmax15, sparsemax, sigmoid, lambda s: top_k(s, 2)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_are_at_least_float32(function, dtype):
    scores = torch.randn(3, 5).to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert function(scores).dtype == wide
    torch.testing.assert_close(function(scores), function(scores.to(wide)), atol=1e-6, rtol=1e-5)


def test_top_k_is_a_softmax_over_the_largest():
    scores = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    kept = torch.tensor([3.0, 2.0]).softmax(0)
    torch.testing.assert_close(top_k(scores, 2), torch.tensor([[0.0, kept[0], kept[1], 0.0]]))
    assert top_k(scores, 1).tolist() == [[0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("k", [4, 5, 100])
def test_top_k_of_all_keys_is_softmax(k):
    scores = torch.randn(2, 4)
    assert torch.equal(top_k(scores, k), softmax(scores))


def test_ties_at_the_threshold_stay():
    out = top_k(torch.tensor([[2.0, 1.0, 1.0, 0.0]]), 2)
    kept = torch.tensor([2.0, 1.0, 1.0]).softmax(0)
    torch.testing.assert_close(out, torch.tensor([[*kept.tolist(), 0.0]]))


def test_top_k_beyond_the_keys_that_are_seen():
    scores = torch.tensor([[1.0, 2.0, LOW, LOW, LOW]])
    out = top_k(scores, 3)
    torch.testing.assert_close(out[0, :2], torch.tensor([1.0, 2.0]).softmax(0))
    assert (out[0, 2:] == 0).all()


def test_sigmoid():
    scores = torch.tensor([[0.0, 2.0, LOW]])
    want = torch.tensor([[1 / (1 + 2.718281828), 1 / (1 + 2.718281828**-1), 0.0]])
    torch.testing.assert_close(sigmoid(scores, -1.0), want)
