"""Sums of losses over tokens, in float32 at least, with what is ignored left out.

Letters: B rows, N positions, V vocabulary or classes, d width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.errors import InputError
from anyformer.model.checks import IGNORED
from anyformer.ops.weigh import entmax15, sparsemax

ENTMAX = {1.5: entmax15, 2.0: sparsemax}
Pair = tuple[Tensor, Tensor]


def token_sum(logits: Tensor, labels: Tensor, smoothing: float = 0.0, alpha: float = 1.0) -> Tensor:
    """The sum of the losses of logits (…, V) with labels (…); those that are IGNORED don't count.

    `smoothing` is the share of each target that all V classes get alike (arXiv:1512.00567).
    `alpha` is 1 for cross-entropy, 1.5 or 2 for the losses of 1.5-entmax and sparsemax
    (arXiv:1905.05702), whose gradient is p - y with a sparse p.
    """
    if tuple(logits.shape[:-1]) != tuple(labels.shape):
        raise InputError(f"logits {tuple(logits.shape)} don't go with labels {tuple(labels.shape)}")
    rows, asked = wide(logits).reshape(-1, logits.shape[-1]), labels.reshape(-1).long()
    if alpha == 1.0:
        return F.cross_entropy(
            rows, asked, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
        )
    return _entmax_sum(rows, asked, smoothing, alpha)


def check_alpha(alpha: float) -> float:
    """The alpha of a loss, or an error that names those there are."""
    if alpha != 1.0 and alpha not in ENTMAX:
        raise InputError(f"alpha={alpha}: the losses there are have 1.0, 1.5 and 2.0")
    return alpha


def _entmax_sum(rows: Tensor, asked: Tensor, smoothing: float, alpha: float) -> Tensor:
    """Ω(p) + p·s - y·s: with p at its best its own gradient is none, so it is held still."""
    check_alpha(alpha)
    real = asked != IGNORED
    rows, asked = rows[real], asked[real]
    rows = rows - rows.detach().amax(-1, keepdim=True)
    p = ENTMAX[alpha](rows.detach())
    entropy = (1 - p.pow(alpha).sum(-1)) / (alpha * (alpha - 1))
    found = rows.gather(1, asked[:, None])[:, 0]
    target = (1 - smoothing) * found + smoothing * rows.mean(-1) if smoothing else found
    return (entropy + (p * rows).sum(-1) - target).sum()


def sure_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of yes-or-no losses of logits (…) with labels 0 or 1; IGNORED ones don't count."""
    real = labels != IGNORED
    asked = labels.clamp(min=0).to(wide(logits).dtype)
    each = F.binary_cross_entropy_with_logits(wide(logits), asked, reduction="none")
    return (each * real).sum()


def soft_sum(logits: Tensor, targets: Tensor, temperature: float, real: Tensor) -> Tensor:
    """Σ T²·KL of softened targets (…, V) from softened logits, where `real` (…) (1503.02531)."""
    wanted = (wide(targets)[real] / temperature).log_softmax(-1)
    found = (wide(logits)[real] / temperature).log_softmax(-1)
    return F.kl_div(found, wanted, reduction="sum", log_target=True) * temperature**2


def cosine_sum(x: Tensor, y: Tensor, real: Tensor) -> Tensor:
    """Σ 1 - cos of the angle between vectors (…, d), where `real` (…)."""
    return (1 - F.cosine_similarity(wide(x)[real], wide(y)[real], dim=-1)).sum()


def hits(logits: Tensor, labels: Tensor) -> Pair:
    """How often the likeliest of V classes is the label, and how many labels there are."""
    return (logits.argmax(-1) == labels).sum(), asked(labels)  # IGNORED is no class


def asked(labels: Tensor) -> Tensor:
    """The number of labels that aren't IGNORED."""
    return (labels != IGNORED).sum()


def wide(x: Tensor) -> Tensor:
    """A tensor in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
