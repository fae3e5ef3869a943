"""Scores carried from layers below, as the q and k that they are made from (arXiv:2012.11747).

A sum of scores over layers is one product over their channels side by side: kernels that know of
one q and one k get those. What is kept for a later layer are pairs of q and k, never a matrix.

Letters: B batch, H heads, G key heads, Q queries, K keys, D channels of a layer, C of all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from anyformer.ops.plan import Plan


def beside(parts: Sequence[Tensor]) -> Tensor:
    """Rows (B, H, N, D) of several layers as one of all their channels, (B, H, N, C).

    Heads that some parts share are repeated for those that don't.
    """
    first, heads = parts[0], max(x.shape[1] for x in parts)
    if len(parts) == 1:
        return first
    wide = [
        x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1) for x in parts
    ]
    return torch.cat([x.to(first.dtype) for x in wide], -1)


def apart(grad: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of what `beside` gives, (B, H, N, C), for each of its parts."""
    found = grad.split_with_sizes([x.shape[-1] for x in parts], -1)
    shared = lambda g, x: g if g.shape[1] == x.shape[1] else g.unflatten(1, (x.shape[1], -1)).sum(2)
    return [shared(g, x) for g, x in zip(found, parts, strict=True)]


def joined(q: Tensor, k: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Plan]:
    """q and k with the channels of the layers below beside their own, and a plan without those."""
    if not plan.carry:
        return q, k, plan
    q = beside([q, *(below for below, _ in plan.carry)])
    k = beside([k, *(below for _, below in plan.carry)])
    return q, k, replace(plan, carry=())


def outlined(q: Tensor, k: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Plan]:
    """What `joined` gives, in shape, type and place alone: nothing is copied."""
    if not plan.carry:
        return q, k, plan
    wide = q.shape[-1] + sum(below.shape[-1] for below, _ in plan.carry)
    heads = max(k.shape[1], *(below.shape[1] for _, below in plan.carry))
    q = q[..., :1].expand(-1, -1, -1, wide)
    k = k[:, :1, :, :1].expand(-1, heads, -1, wide)
    return q, k, replace(plan, carry=())
