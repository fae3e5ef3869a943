"""Sums of losses against torch and the entmax package."""

import entmax
import pytest
import torch
import torch.nn.functional as F

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.causal import Causal
from anyformer.objectives.losses import (
    IGNORED,
    asked,
    cosine_sum,
    hits,
    soft_sum,
    sure_sum,
    token_sum,
)
from anyformer.objectives.text_to_text import TextToText
from anyformer.objectives.translation import Translation
from anyformer.recipes import recipe
from tests.objectives.samples import tokenizer


def drawn(rows: int = 6, count: int = 11, scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels, two of them ignored."""
    torch.manual_seed(rows * count)
    labels = torch.randint(count, (2, rows))
    labels[0, 1] = labels[1, 4] = IGNORED
    return (torch.randn(2, rows, count) * scale).requires_grad_(), labels


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_entmax_losses_and_their_gradients_are_those_of_the_package(alpha):
    logits, labels = drawn()
    real = labels != IGNORED
    theirs = {1.5: entmax.entmax15_loss, 2.0: entmax.sparsemax_loss}[alpha]
    want = theirs(logits[real], labels[real]).sum()
    (wanted,) = torch.autograd.grad(want, logits)
    found = token_sum(logits, labels, alpha=alpha)
    (grad,) = torch.autograd.grad(found, logits)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(grad, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_gradients_are_weights_minus_targets_and_vanish_where_ignored(alpha):
    logits, labels = drawn()
    token_sum(logits, labels, alpha=alpha).backward()
    grad, real = logits.grad, labels != IGNORED
    assert not grad[~real].any()
    torch.testing.assert_close(grad.sum(-1), torch.zeros_like(grad[..., 0]), atol=1e-6, rtol=0)
    at = grad[real].gather(1, labels[real][:, None])
    assert (at <= 1e-6).all() and (at >= -1).all()


def test_a_sparse_loss_is_zero_once_the_margin_is_wide():
    logits = torch.tensor([[5.0, 1.0, 0.0]], requires_grad=True)
    for alpha in (1.5, 2.0):
        loss = token_sum(logits, torch.tensor([0]), alpha=alpha)
        assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert float(token_sum(logits, torch.tensor([0])).detach()) > 0


def test_smoothing_is_as_torch_has_it_and_goes_into_entmax_losses_alike():
    logits, labels = drawn()
    want = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    found = token_sum(logits, labels, smoothing=0.1) / asked(labels)
    torch.testing.assert_close(found, want)
    grad = torch.autograd.grad(token_sum(logits, labels, 0.1, 2.0), logits)[0]
    plain = torch.autograd.grad(token_sum(logits, labels, 0.0, 2.0), logits)[0]
    y = F.one_hot(labels.clamp(min=0), 11) * (labels != IGNORED)[..., None]
    even = torch.full_like(grad, 1 / 11) * (labels != IGNORED)[..., None]
    torch.testing.assert_close(grad, plain + 0.1 * (y - even))


def test_half_precision_is_summed_in_float32():
    logits, labels = drawn()
    assert token_sum(logits.bfloat16(), labels).dtype == torch.float32
    assert token_sum(logits.double(), labels).dtype == torch.float64


def test_nothing_to_count_gives_zero_with_a_gradient():
    logits, labels = drawn()
    none = torch.full_like(labels, IGNORED)
    for alpha in (1.0, 1.5):
        loss = token_sum(logits, none, alpha=alpha)
        assert float(loss.detach()) == 0.0 and loss.requires_grad


def test_bad_shapes_and_alphas_are_refused():
    logits, labels = drawn()
    with pytest.raises(InputError, match="don't go with labels"):
        token_sum(logits, labels[:, :-1])
    with pytest.raises(InputError, match=r"1\.0, 1\.5 and 2\.0"):
        token_sum(logits, labels, alpha=1.7)


def test_soft_targets_cosines_and_counts():
    logits, labels = drawn()
    real = labels != IGNORED
    zero = soft_sum(logits, logits.detach(), 2.0, real)
    assert float(zero.detach()) == pytest.approx(0.0, abs=1e-5)
    other = torch.randn_like(logits)
    p = (other[real] / 2).softmax(-1)
    want = 4 * (p * (p.log() - (logits[real] / 2).log_softmax(-1))).sum()
    torch.testing.assert_close(soft_sum(logits, other, 2.0, real), want)
    assert float(cosine_sum(other, 3 * other, real)) == pytest.approx(0.0, abs=1e-5)
    assert float(cosine_sum(other, -other, real)) == pytest.approx(2.0 * int(real.sum()), rel=1e-5)
    assert [int(x) for x in hits(F.one_hot(labels.clamp(min=0), 11), labels)] == [10, 10]


def test_yes_or_no_sums_leave_out_what_is_ignored():
    logits = torch.tensor([[0.3, -2.0, 5.0]])
    labels = torch.tensor([[1, 0, IGNORED]])
    want = F.binary_cross_entropy_with_logits(logits[:, :2], labels[:, :2].float(), reduction="sum")
    torch.testing.assert_close(sure_sum(logits, labels), want)


@pytest.mark.parametrize(
    ("plan", "family", "kind"),
    [
        (Causal(alpha=1.5), "gpt2", "gpt2"),
        (TextToText(alpha=1.5), "t5", "t5"),
        (Translation(alpha=2.0), "m2m-100", "m2m_100"),
    ],
)
def test_objectives_have_the_loss_of_their_alpha(plan, family, kind):
    tok = tokenizer(kind)
    spec = recipe(family, dim=16, depth=1, heads=2, vocab=len(tok))
    assert plan.bind(tok, spec).alpha == plan.alpha
    with pytest.raises(InputError, match=r"1\.0, 1\.5 and 2\.0"):
        S.override(plan, "alpha", 1.7).bind(tok, spec)
