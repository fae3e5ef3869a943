"""What a token of training costs, with the memory of earlier segments where there is one."""

from __future__ import annotations

from typing import Any

from anyformer import spec as S
from anyformer.model.count import Count, count
from anyformer.model.flops import applications
from anyformer.objectives.segments import Segments
from anyformer.spec.walk import head_dim, qk_dim


def rows_of(plan: Any) -> int:
    """Contexts of a row: segments are read in turn."""
    return plan.segments if isinstance(plan, Segments) else 1


def flops_of(spec: S.Model, plan: Any, context: int | None, told: Count | None = None) -> float:
    """FLOPs of a forward pass for each token that is read."""
    told = told or count(spec, context)
    return (told.flops + _remembered(spec, plan, told.length)) / told.length


def _remembered(spec: S.Model, plan: Any, length: int) -> float:
    """What a segment takes beside itself: keys, values and scores of the memory, on average."""
    if not isinstance(plan, Segments):
        return 0.0
    most = spec.stack.recurrence if plan.memory is None else plan.memory
    kept = [min(most, i * length) for i in range(plan.segments)]
    rows, total = sum(kept) / len(kept), 0.0
    for sub, _ in applications(spec.stack):
        for a in sub.leaves:
            if isinstance(a, S.Attention) and not a.cross:
                keys, values = qk_dim(a, spec.dim), head_dim(a, spec.dim)
                groups = a.kv_heads or a.heads
                total += 2 * rows * spec.dim * groups * (keys + values)
                total += 2 * rows * length * a.heads * (keys + values)
                for place in a.relative:
                    total += 2 * rows * length * a.heads * keys
                    total += 2 * rows * spec.dim * a.heads * keys * isinstance(place, S.XL)
    return total
