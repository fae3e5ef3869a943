"""`tiles` for vectors by distance that pass by a GPU's shared memory on their way to scores.

Products of queries, or keys, with a table's rows come out by distance, and scores want them by key.
`tiles` gathers them, or writes them down in buffers; here each program lays them on a shelf of its
own and takes them up a place further (kernels/shelf.py). What lies on a shelf has 16 bits, so
queries must have as many. Threads lay what they hold of a product, which differs by generation
of GPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.ops import tiles
from anyformer.ops.plan import Plan

WIDEST = 64
HOPPER = 9  # the generation of GPUs whose threads share products as shelves count on


def fits(device: torch.device) -> bool:
    """Whether a GPU's threads share products as shelves count on."""
    return torch.cuda.get_device_capability(device)[0] == HOPPER


fits._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in fastest.py


def lacks(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why the kernels can't run this plan here, or None."""
    terms = plan.relative
    if terms is None or (terms.query is None and terms.key is None):
        return "is for vectors by distance: of queries, of keys or both"
    if terms.bias is not None and terms.query is None:
        return "has a bias beside vectors of queries alone"
    if terms.slope is not None or plan.lead:
        return "has neither slopes nor memory keys"
    if max(q.shape[-1], v.shape[-1]) > WIDEST:
        return (
            f"is for heads of up to {WIDEST} channels: of wider ones too little stays in registers"
        )
    if q.dtype not in (torch.bfloat16, torch.float16):
        return "needs q, k and v of 16 bits"
    if q.is_cuda and not fits(q.device):
        return (
            "needs a GPU of Hopper's generation, whose threads share products as shelves count on"
        )
    if plan.scale <= 0:
        return "needs a scale above 0"
    if torch.are_deterministic_algorithms_enabled():
        return "adds gradients in any order, and torch is asked to be deterministic"
    return tiles.lacks(q, k, v, plan)


def shelves(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
    """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E)."""
    return tiles.tiles(q, k, v, plan, shelf=True)
