"""From logits to the probabilities that tokens are drawn by.

Letters: B batch, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.generate.options import Sampling
from anyformer.ops.weigh import entmax15, sparsemax

NONE = float("-inf")
HALVINGS = 60  # of the interval that holds an entmax's threshold


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities (B, V) for logits (B, V): each option narrows what the one before has left."""
    left = logits if sampling.temperature == 1.0 else logits / sampling.temperature
    if sampling.top_k is not None:
        left = top_k(left, sampling.top_k)
    if sampling.top_p is not None:
        left = top_p(left, sampling.top_p)
    if sampling.min_p is not None:
        left = min_p(left, sampling.min_p)
    if sampling.typical_p is not None:
        left = typical(left, sampling.typical_p)
    return (
        left.softmax(-1) if sampling.entmax_alpha is None else entmax(left, sampling.entmax_alpha)
    )


def top_k(logits: Tensor, k: int) -> Tensor:
    """Logits of the k likeliest tokens, and of those as likely as the last of them."""
    if k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits < logits.topk(k, -1).values[..., -1:], NONE)


def top_p(logits: Tensor, share: float) -> Tensor:
    """Logits of the fewest likeliest tokens that together reach a share (arXiv:1904.09751)."""
    return logits if share == 1.0 else _reaching(logits, -logits, share)


def min_p(logits: Tensor, share: float) -> Tensor:
    """Logits of tokens that have a share of the likeliest one's probability (2407.01082)."""
    chance = logits.softmax(-1)
    return logits.masked_fill(chance < share * chance.amax(-1, keepdim=True), NONE)


def typical(logits: Tensor, share: float) -> Tensor:
    """Logits of tokens whose information is nearest to the entropy (arXiv:2202.00666)."""
    if share == 1.0:
        return logits
    told = -logits.log_softmax(-1)
    entropy = (told * torch.exp(-told)).nan_to_num(0.0).sum(-1, keepdim=True)  # 0 · inf is 0
    return _reaching(logits, (told - entropy).abs(), share)


def _reaching(logits: Tensor, cost: Tensor, share: float) -> Tensor:
    """Logits of the tokens of least cost, as many as together reach a share."""
    order = cost.argsort(dim=-1, stable=True)
    chance = logits.softmax(-1).gather(-1, order)
    beyond = chance.cumsum(-1) - chance >= share  # the tokens before it reach it already
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), NONE)


def entmax(logits: Tensor, alpha: float) -> Tensor:
    """α-entmax, sparse for α above 1: p = max(0, (α-1)s - τ)^(1/(α-1)) (2004.02644)."""
    far = 2.0 / (alpha - 1.0)  # what lies lower than half of that has no probability
    top = logits.amax(-1, keepdim=True)
    near = torch.maximum(logits - top, torch.full_like(top, -far))
    if alpha == 1.5:
        return entmax15(near)
    return sparsemax(near) if alpha == 2.0 else _halved((alpha - 1.0) * near, 1.0 / (alpha - 1.0))


def _halved(x: Tensor, power: float) -> Tensor:
    """max(0, x - τ)^power with τ between max x - 1 and max x, found by halving."""
    low = x.amax(-1, keepdim=True) - 1.0
    width = torch.ones_like(low)
    for _ in range(HALVINGS):
        width = width / 2
        total = (x - low - width).clamp(min=0).pow(power).sum(-1, keepdim=True)
        low = torch.where(total >= 1.0, low + width, low)
    found = (x - low).clamp(min=0).pow(power)
    return found / found.sum(-1, keepdim=True)
