"""The one place where a kernel is chosen.

A plan says what it needs, a backend what it can; `choose` takes the first backend, fastest
first, that covers the plan where q lives. A backend asked by name runs or says why it can't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer.errors import BackendError, known_or_raise
from anyformer.ops import band as band_
from anyformer.ops import far as far_
from anyformer.ops import flex as flex_
from anyformer.ops import layered as layered_
from anyformer.ops import lead as lead_
from anyformer.ops import one as one_
from anyformer.ops import sdpa as sdpa_
from anyformer.ops import shelves as shelves_
from anyformer.ops import sparse as sparse_
from anyformer.ops import talking as talking_
from anyformer.ops import tiles as tiles_
from anyformer.ops.carry import joined, outlined
from anyformer.ops.chunked import chunked
from anyformer.ops.eager import eager
from anyformer.ops.halved import halved, saves
from anyformer.ops.mask import Causal, Padding, parts
from anyformer.ops.plan import Plan

SMALL = 1 << 20  # scores that may be written out: 4 MiB in float32
SHORT = 512  # keys up to which they may be however many queries there are
LONG, FAR = 4096, 1536  # keys, and keys beyond a reach, from which on the library has most work

Test = Callable[[Tensor, Tensor, Tensor, Plan], bool]
Join = Callable[[Tensor, Tensor, Plan], tuple[Tensor, Tensor, Plan]]


@dataclass(frozen=True)
class Backend:
    """A way to run plans: what it can do, why it can't run one here, when it is the fast choice."""

    run: Callable[[Tensor, Tensor, Tensor, Plan], Tensor]
    can: frozenset[str]
    lacks: Callable[[Tensor, Tensor, Tensor, Plan], str | None] = lambda q, k, v, plan: None
    wanted: Test = lambda q, k, v, plan: True
    apart: bool = False  # takes the layers below as they are; others get all channels side by side


# Asked once, here: a call while compiling would break the graph at every attention.
FAST_BFLOAT16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # by this CPU itself


def _fuses(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Where plain products beat the fused kernel: compiled ones.

    Few bfloat16 keys on a CPU, and one query on a GPU, which becomes one pass over the keys.
    """
    if not torch.compiler.is_compiling():
        return False
    if q.is_cuda:
        return q.shape[2] == 1
    here = q.device.type == "cpu" and q.dtype == torch.bfloat16 and k.shape[2] <= SHORT
    return here and q.shape[2] > 1 and FAST_BFLOAT16


def _small(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Where writing the scores out is fastest and still takes memory linear in the length."""
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    return q.shape[2] == 1 or scores <= SMALL or k.shape[2] <= SHORT


def _many(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Where a GPU's kernels of our own pay: scores of 16 bits, too many to be written out."""
    narrow = q.dtype in (torch.bfloat16, torch.float16)  # wider products have no fast units
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    return q.is_cuda and narrow and q.shape[2] > 1 and scores > SMALL


def _beside(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Where the library's kernel beside ours was measured: on a Hopper GPU, not while compiling."""
    if not _many(q, k, v, plan) or torch.compiler.is_compiling():
        return False
    return torch.cuda.get_device_capability(q.device) >= (9, 0)


def _by_sdpa(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Where the library's kernel is the fastest; persistent keys are faster by tiles on a GPU."""
    ours = plan.lead > 0 and _many(q, k, v, plan) and refusal("tiles", q, k, v, plan) is None
    return not ours and not _fuses(q, k, v, plan)


def _by_far(q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> bool:
    """Where most keys lie beyond vectors by distance: tiles read those for all, the library not."""
    terms = plan.relative
    if terms is None or (terms.query is None and terms.key is None):
        return False
    return q.shape[2] + terms.low >= FAR and _beside(q, k, v, plan)


ALL = frozenset({"mask", "relative", "mods", "rows", "dropout", "carry"})

BACKENDS = {  # fastest first
    "sdpa": Backend(
        sdpa_.sdpa,
        frozenset({"mask", "dropout", "carry"}),
        sdpa_.lacks,
        _by_sdpa,
    ),
    "one": Backend(
        one_.one,
        frozenset({"mask", "carry"}),
        one_.lacks,
        lambda q, k, v, plan: False,  # asked for by name, until a GPU has measured it
    ),
    "far": Backend(
        far_.far,
        frozenset({"mask", "relative", "carry"}),
        far_.lacks,
        _by_far,
    ),
    "lead": Backend(
        lead_.lead,
        frozenset({"mask", "carry"}),
        lead_.lacks,
        lambda *a: a[1].shape[2] >= LONG and _beside(*a),  # with fewer keys tiles are faster
    ),
    "shelves": Backend(
        shelves_.shelves,
        frozenset({"mask", "relative", "carry"}),
        shelves_.lacks,
        _many,
    ),
    "tiles": Backend(
        tiles_.tiles,
        frozenset({"mask", "relative", "carry"}),
        tiles_.lacks,
        _many,
    ),
    "sparse": Backend(
        sparse_.sparse,
        frozenset({"mask", "relative", "rows", "carry"}),
        sparse_.lacks,
        _many,
    ),
    "talking": Backend(
        talking_.talking,
        frozenset({"mask", "rows", "carry"}),
        talking_.lacks,
        _many,
    ),
    "layered": Backend(
        layered_.layered,
        frozenset({"mask", "carry"}),
        layered_.lacks,
        lambda q, k, v, plan: (
            False
        ),  # asked for by name, until models were trained with it on a GPU
        apart=True,
    ),
    "flex": Backend(
        flex_.flex,
        frozenset({"mask", "relative", "mods", "carry"}),
        flex_.lacks,
        lambda q, k, v, plan: q.is_cuda and not any(t.requires_grad for t in plan.tensors()),
    ),
    "band": Backend(band_.band, frozenset({"mask", "relative", "carry"}), band_.lacks, band_.pays),
    "halved": Backend(halved, ALL, wanted=lambda *a: _small(*a) and saves(a[0], a[1], a[3])),
    "eager": Backend(eager, ALL, wanted=_small, apart=True),
    "chunked": Backend(chunked, ALL, apart=True),
}


Hear = Callable[[str, Tensor, Tensor, Tensor, Plan], None]  # the backend's name, and its work
_listeners: list[Hear] = []


@contextmanager
def heard_by(hear: Hear) -> Iterator[None]:
    """Within it every attention is told to `hear` and not computed: its answers are zeros."""
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.pop()


def attend(q: Tensor, k: Tensor, v: Tensor, plan: Plan, backend: str = "auto") -> Tensor:
    """q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E) -> (B, H, Q, E); padded queries: 0."""
    name = _chosen(q, k, v, plan, backend)
    if _listeners:
        _listeners[-1](name, q, k, v, plan)
        return q.new_zeros(*q.shape[:3], v.shape[-1])
    q, k, plan = _seen(name, q, k, plan, joined)
    out = BACKENDS[name].run(q, k, v, plan)
    for mask in () if type(plan.mask) is Causal else parts(plan.mask):
        if isinstance(mask, Padding) and mask.queries:
            real = mask.keep[:, plan.start : plan.start + q.shape[2]]
            out = out * real[:, None, :, None]
    return out


def _chosen(q: Tensor, k: Tensor, v: Tensor, plan: Plan, backend: str) -> str:
    """The backend that runs a plan; layers that share one ask once."""
    if plan.chosen is None:
        return choose(q, k, v, plan, backend)
    key = (backend, q.shape, k.shape, v.shape, q.dtype, *(below.shape for below, _ in plan.carry))
    if key not in plan.chosen:
        plan.chosen[key] = choose(q, k, v, plan, backend)
    return plan.chosen[key]


def choose(q: Tensor, k: Tensor, v: Tensor, plan: Plan, backend: str = "auto") -> str:
    """The name of the backend that runs a plan."""
    if backend != "auto":
        known_or_raise(backend, ["auto", *BACKENDS], "backend", BackendError)
        reason = refusal(backend, q, k, v, plan)
        if reason:
            raise BackendError(f"backend {backend!r} {reason}; use backend='auto'")
        return backend
    for name, b in BACKENDS.items():
        wide_q, wide_k, seen = _seen(name, q, k, plan, outlined)
        if b.wanted(wide_q, wide_k, v, seen) and refusal(name, q, k, v, plan) is None:
            return name
    raise BackendError("no backend runs this plan")


def refusal(name: str, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> str | None:
    """Why a backend can't run a plan here, with the field that asks too much; None if it can."""
    needs = plan.needs()
    fields = sorted(field for need, field in needs.items() if need not in BACKENDS[name].can)
    if fields:
        return f"can't run the plan's {', '.join(fields)}"
    q, k, plan = _seen(name, q, k, plan, outlined)
    return BACKENDS[name].lacks(q, k, v, plan)


def _seen(name: str, q: Tensor, k: Tensor, plan: Plan, join: Join) -> tuple[Tensor, Tensor, Plan]:
    """q, k and plan as a backend takes them: layers below apart, or their channels beside ours."""
    return (q, k, plan) if BACKENDS[name].apart else join(q, k, plan)
