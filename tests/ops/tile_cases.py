"""What tests of Triton kernels share: a plan and its shapes, and how far it is from eager."""

import os
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch

from anyformer.ops.attend import attend
from anyformer.ops.eager import eager
from anyformer.ops.mask import Causal, Mask, Padding, Window, both
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from anyformer.ops.weigh import Weigh, softmax

SUMMED = ("bias", "query", "key", "mix", "remix")  # what all rows of a batch share
ROUNDINGS = 8  # in float32 of what is summed
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = WHERE == "cuda" or os.environ.get("ANYFORMER_EMULATED") == "1"  # kernels as a GPU has them


def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter a tile of 16 x 16 is enough to have several; a GPU has its own."""
    if GPU:
        return
    from anyformer.ops.kernels import launch, launch_slants, launch_tables

    small = {256: launch.Size(16, 16, 4, 1)}
    for name in ("PLAIN", "VECTORS", "LEANING"):
        monkeypatch.setattr(launch, name, dict.fromkeys(launch.PLAIN, small))
    monkeypatch.setattr(launch, "EXACT", (small[256],) * 2)
    for shared in (launch_slants, launch_tables):
        monkeypatch.setattr(shared, "PROGRAMS", 9)


def buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors go through buffers in strips however few there are, in the interpreter."""
    if GPU:
        return
    from anyformer.ops.kernels import launch, launch_room, launch_slants

    monkeypatch.setattr(launch_room, "ROOM", 1 << 17)
    monkeypatch.setattr(launch_room, "SHARE", 1 << 20)
    for limit in ("LEAST", "BUSY"):
        monkeypatch.setattr(launch_room, limit, 16)
    monkeypatch.setattr(launch_slants, "EXACT", launch.Size(16, 64, 4, 1))


@dataclass(frozen=True)
class Case:
    """Shapes and options of one comparison."""

    heads: tuple[int, int] = (1, 1)
    queries: int = 21
    start: int = 0
    after: int = 0  # keys behind the last query
    lead: int = 0
    size: tuple[int, int] = (12, 12)  # of q and k, and of v
    width: int | None = None  # of the tables
    reach: tuple[int, int] = (-5, 3)
    terms: str = "bias"
    shared: bool = False
    causal: bool = False
    window: int = 0
    pads: str = ""
    dtype: torch.dtype = torch.float32
    weigh: Weigh | None = None
    talks: str = ""  # which of mix and remix there are
    whole: bool = False  # q and k of small whole numbers, among whose scores there are ties
    gain: float = 1.0  # of q
    below: int = 0  # layers whose scores are added

    @property
    def batch(self) -> int:
        return 2 if self.pads or GPU else 1

    def mask(self) -> Mask | None:
        keep = torch.ones(self.batch, self.queries + self.start + self.after, dtype=torch.bool)
        keep[-1, -7:] = False
        keep = keep.flip(1) if self.pads == "left" else keep
        masks = [Causal()] * self.causal + [Window(self.window)] * bool(self.window)
        return both([*masks, *([Padding(keep.to(WHERE))] if self.pads else [])])

    def tensors(self) -> dict[str, torch.Tensor]:
        (h, g), (d, e), rows = self.heads, self.size, self.reach[1] - self.reach[0] + 1
        b, keys = self.batch, self.queries + self.start + self.after + self.lead
        shapes = {"q": (b, h, self.queries, d), "k": (b, g, keys, d), "v": (b, g, keys, e)}
        own, wide = 1 if self.shared else h, self.width or d
        tables = {"bias": (h, rows), "query": (own, rows, wide), "key": (own, rows, wide)}
        tables["slope"] = (h,)
        shapes |= {name: tables[name] for name in self.terms.split()}
        shapes |= {name: (h, h) for name in self.talks.split()}
        for i in range(self.below):
            shapes |= {f"q{i}": shapes["q"], f"k{i}": shapes["k"]}
        scale = {"query": 0.4, "key": 0.4, "slope": 0.3, "q": self.gain}
        made = {n: torch.randn(s, device=WHERE) * scale.get(n, 1.0) for n, s in shapes.items()}
        for name in self.talks.split():  # heads keep most to themselves
            made[name] = made[name] * 0.4 + torch.eye(h, device=WHERE)
        return made | {n: made[n].round() for n in ("q", "k") if self.whole}

    def plan(self, given: dict[str, torch.Tensor]) -> Plan:
        tables = {n: given[n] for n in ("bias", "query", "key", "slope") if n in given}
        relative = Relative(*self.reach, **tables) if tables else None
        return Plan(
            self.size[0] ** -0.5,
            self.mask(),
            relative,
            weigh=self.weigh,
            start=self.start,
            lead=self.lead,
            mix=given.get("mix"),
            remix=given.get("remix"),
            carry=tuple((given[f"q{i}"], given[f"k{i}"]) for i in range(self.below)),
        )

    def results(self, run, given: dict[str, torch.Tensor], dtype: torch.dtype):
        leaves = {n: t.to(dtype).requires_grad_() for n, t in given.items()}
        out = run(leaves["q"], leaves["k"], leaves["v"], self.plan(leaves))
        weight = torch.cos(torch.arange(out.numel(), device=WHERE)).view_as(out)
        weight = weight.to(self.dtype)  # in all types the same loss
        found = torch.autograd.grad((out * weight.to(dtype)).sum(), list(leaves.values()))
        return {"out": out.detach(), **dict(zip(leaves, found, strict=True))}


def gaps(
    case: Case, backend: str, given: dict[str, torch.Tensor] | None = None
) -> dict[str, float]:
    """How far kernels are from eager in float64, relative, for the output and each gradient."""
    given = given or {n: t.to(case.dtype) for n, t in case.tensors().items()}
    exact = case.results(eager, given, torch.float64)
    ours = case.results(lambda q, k, v, p: attend(q, k, v, p, backend), given, case.dtype)
    assert all(t.isfinite().all() for t in ours.values())
    sizes = sizes_of(exact)
    return {n: (ours[n].double() - exact[n]).norm().item() / sizes[n] for n in exact}


def sizes_of(exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """What gaps are relative to.

    Some gradients are sums that cancel, of top-1 down to nothing: what is summed is of the size of
    the gradient of v.
    """
    least = 0.03 * exact["v"].norm().item()
    return {name: max(t.norm().item(), least) for name, t in exact.items()}


def rounded(case: Case, given: dict[str, torch.Tensor]) -> dict[str, float]:
    """As gaps, what a few roundings in float32 make of what is summed."""

    def run(q, k, v, plan):
        return eager(q, k, v, replace(plan, weigh=partial(apart, weigh=plan.weigh or softmax)))

    sizes = sizes_of(case.results(eager, given, torch.float64))
    summed = case.results(run, given, torch.float64)
    return {n: ROUNDINGS * 2**-24 * summed[n].norm().item() / sizes[n] for n in sizes}


def apart(scores: torch.Tensor, weigh: Weigh) -> torch.Tensor:
    """Weights whose gradients lack what a row's have in common, which is taken off them."""
    return weigh(scores).detach() * (1 + scores - scores.detach())


def assert_as_exact_as_can_be(
    case: Case, backend: str, given: dict[str, torch.Tensor] | None = None
) -> None:
    """A relative error of 1e-5 in float32 and 1e-2 in 16 bits, or what eager has in those.

    What all rows share has gradients of both signs: by row the gradients of scores sum to 0, so the
    ends of a table with few rows nearly cancel, and so do the matrices that mix heads. Their errors
    are of the size of what is summed, in eager as in kernels, whose weights come from a rounded
    log-sum-exp in float32, and their gradients of scores from a rounded output in 16 bits: up to
    twice the error of eager. In float32 that is rounding alone, of scores that may be large, and
    up to 4 times as much is ours, which count in units of log 2; 8 times where sums cancel, as a
    row's weights are all off by what its log-sum-exp is. Of top-1 eager has gradients of scores
    that are 0 to the last bit, and kernels what two sums in another order leave: a few roundings.
    """
    given = given or {n: t.to(case.dtype) for n, t in case.tensors().items()}
    exact = case.dtype == torch.float32
    found, limit = gaps(case, backend, given), 1e-5 if exact else 1e-2
    if max(found.values()) < limit:
        return
    plain = gaps(case, "eager", given)
    share = lambda n: (8 if n in SUMMED else 4) if exact else 2 if n in SUMMED else 1
    least = rounded(case, given) if exact else dict.fromkeys(found, 0.0)
    most = {n: max(limit, plain[n] * share(n), least[n]) for n in found}
    assert all(found[n] < most[n] for n in found), (case, found, plain, most)
