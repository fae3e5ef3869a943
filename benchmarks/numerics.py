"""How far every attention backend is from float64, by dtype, with a bound that it must keep.

`python -m benchmarks numerics` runs plans of many kinds forward and backward; `--compile` runs them
compiled too. The reference is eager in float64 on the same numbers, those of the dtype. An error is
the largest difference over the largest number of the reference. Exit status 1 beyond a bound.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from anyformer.ops import weigh
from anyformer.ops.attend import BACKENDS, attend, refusal
from anyformer.ops.mask import Causal, Padding, Window
from anyformer.ops.plan import Mod, Plan
from anyformer.ops.relative import Relative
from benchmarks.runner import Settings, Table

B, H, N, D = 2, 4, 96, 32
FORWARD = {"float32": 2e-6, "bfloat16": 2e-2, "float16": 3e-3}
BACKWARD = {"float32": 5e-6, "bfloat16": 5e-2, "float16": 8e-3}
JUMPS = ("sparsemax",)  # its gradient jumps where a key leaves the support, as rounding decides
Make = Callable[[torch.dtype, str], Plan]


def cap(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Scores within (-2, 2)."""
    return 2 * torch.tanh(s / 2)


def table(dtype: torch.dtype, device: str, *shape: int) -> Tensor:
    """Numbers that are the same in every dtype, up to its rounding."""
    dice = torch.Generator().manual_seed(5)
    return (0.3 * torch.randn(shape, generator=dice)).to(device, dtype)


def plans() -> dict[str, Make]:
    """What is run, made for the dtype and the place of its tables."""
    scale, far = D**-0.5, N - 1
    keep = torch.arange(N)[None] < torch.tensor([[N], [N - 17]])
    term = lambda dtype, device, **kinds: Relative(
        -far, 0, **{name: table(dtype, device, *shape) for name, shape in kinds.items()}
    )
    return {
        "plain": lambda dtype, device: Plan(scale),
        "causal": lambda dtype, device: Plan(scale, Causal()),
        "one query": lambda dtype, device: Plan(scale, Causal(), start=far),
        "window": lambda dtype, device: Plan(scale, Causal() & Window(16)),
        "padding": lambda dtype, device: Plan(scale, Padding(keep.to(device), right=True)),
        "soft cap": lambda dtype, device: Plan(scale, Causal(), mods=(Mod(cap),)),
        "bias": lambda dtype, device: Plan(scale, Causal(), term(dtype, device, bias=(H, N))),
        "ALiBi": lambda dtype, device: Plan(
            scale, Causal(), Relative(0, 0, slope=table(dtype, device, H).abs())
        ),
        "Shaw": lambda dtype, device: Plan(scale, Causal(), term(dtype, device, query=(1, N, D))),
        "entmax": lambda dtype, device: Plan(scale, Causal(), weigh=weigh.entmax15),
        "sparsemax": lambda dtype, device: Plan(scale, Causal(), weigh=weigh.sparsemax),
        "top-k": lambda dtype, device: Plan(scale, Causal(), weigh=partial(weigh.top_k, k=N)),
    }


def errors(
    name: str, make: Make, dtype: torch.dtype, settings: Settings, compiled: bool
) -> tuple[float, float | None] | None:
    """The errors of outputs and gradients; None where the backend takes no plan, or has none."""
    device, dice = settings.device, torch.Generator().manual_seed(0)
    plan, learned = make(dtype, device), True
    sizes = N - plan.start, N, N  # the last queries ask
    made = [torch.randn(B, H, n, D, generator=dice).to(device, dtype) for n in sizes]
    weights = torch.randn(B, H, sizes[0], D, generator=dice).to(device)
    inputs = [x.clone().requires_grad_() for x in made]
    if refusal(name, *inputs, plan) is not None:
        inputs, learned = made, False
    if refusal(name, *inputs, plan) is not None:
        return None
    run = partial(attend, plan=plan, backend=name)
    if compiled:
        torch.compiler.reset()  # else after a few plans the rest would run as they are
        run = torch.compile(run, dynamic=False)
    out = run(*inputs)
    exact = [x.double().requires_grad_() for x in made]
    wanted = attend(*exact, Plan(**_wide(plan)), "eager")
    if not learned:
        return far(out, wanted), None
    found = torch.autograd.grad((out.float() * weights).sum(), inputs)
    grads = torch.autograd.grad((wanted * weights.double()).sum(), exact)
    return far(out, wanted), max(far(a, b) for a, b in zip(found, grads, strict=True))


def _wide(plan: Plan) -> dict[str, object]:
    """The fields of a plan, its tables in float64."""
    found, term = dict(vars(plan)), plan.relative
    if term is not None:
        wide = lambda t: None if t is None else t.double()
        parts = wide(term.bias), wide(term.query), wide(term.key), wide(term.slope)
        found["relative"] = Relative(term.low, term.high, *parts)
    return found


def far(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, over the largest number that is wanted; infinite where one is not."""
    if not torch.isfinite(found).all():
        return float("inf")
    return ((found.double() - wanted).abs().max() / wanted.abs().max()).item()


def numerics(settings: Settings) -> None:
    """Print the table, and end with 1 where a bound is passed."""
    torch.set_num_threads(settings.threads)
    head = ["backend", "dtype", "compiled", "plans", "outputs", "bound", "gradients", "bound"]
    shown = Table("Errors against eager in float64", [*head, "worst plan", ""])
    passed = []
    for name in settings.only or BACKENDS:
        for kind in FORWARD:
            for compiled in (False, True) if settings.compile else (False,):
                row = _row(name, kind, settings, compiled)
                shown.rows.append(row)
                shown.raw[f"{name} {kind} {compiled}"] = row
                passed += [row] if row[-1] == "beyond" else []
    shown.notes += [
        f"{B} rows, {H} heads, {N} positions, {D} channels; the largest error of all plans",
        "an error is the largest difference over the largest number in float64",
        "—: the backend takes none of the plans in that dtype here, or has no gradients",
        "gradients of sparsemax are not compared: rounding decides who is in its support, and with "
        "each key that leaves it they jump",
    ]
    shown.show(settings, f"{settings.device}_numerics")
    if passed:
        sys.exit(1)


def _row(name: str, kind: str, settings: Settings, compiled: bool) -> list[str]:
    """One line of the table: the largest errors of all plans that a backend takes."""
    dtype, found = getattr(torch, kind), dict[str, tuple[float, float]]()
    for plan, make in plans().items():
        one = errors(name, make, dtype, settings, compiled)
        if one is not None:
            found[plan] = one[0], math.nan if one[1] is None or plan in JUMPS else one[1]
    bounds, cells, well = (FORWARD[kind], BACKWARD[kind]), list[str](), True
    for i, bound in enumerate(bounds):
        worst = max((e[i] for e in found.values() if not math.isnan(e[i])), default=None)
        cells += ["—" if worst is None else f"{worst:.1e}", f"{bound:.0e}"]
        well = well and (worst is None or worst <= bound)
    share = lambda plan: max(e / b for e, b in zip(found[plan], bounds, strict=True) if e == e)
    plan = max(found, key=share, default="")
    start = [name, kind, "yes" if compiled else "no", str(len(found))]
    return [*start, *cells, plan, "" if well else "beyond"]
