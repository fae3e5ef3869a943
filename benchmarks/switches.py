"""What each switch of attention costs beside plain causal attention, forward and backward.

`python -m benchmarks switches --device cuda` at 1,024 and 8,192 tokens in bfloat16, and
`python -m benchmarks band` on a CPU at 1,024 and 4,096 in float32. A ratio is a switch's time over
that of plain attention, the fastest of torch's kernels, in the same run.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from anyformer.ops import weigh
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.mask import Causal, Window
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative, alibi_slopes, t5_bucket
from benchmarks.runner import Settings, Table, race

SIZE, CLIP, REACH, BUCKETS, FAR = 64, 64, 512, 32, 128
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
PLAIN = "plain"
BELOW = (3, 11)  # layers whose scores a residual attention adds
NAMED = ("tiles", "sparse", "talking", "layered")  # kernels of ours, measured wherever they run


@dataclass
class Place:
    """Where and how large: heads of 64 channels, tokens of a row, rows."""

    device: str
    dtype: torch.dtype
    heads: int
    length: int
    rows: int

    def learned(self, *shape: int, scale: float = 0.1) -> Tensor:
        """A parameter."""
        return (scale * torch.randn(shape, device=self.device)).requires_grad_()

    def inputs(self, lead: int = 0) -> list[Tensor]:
        """q, k and v; memory keys are in front."""
        shape = lambda n: (self.rows, self.heads, n, SIZE)
        made = [torch.randn(shape(self.length + x), device=self.device) for x in (0, lead, lead)]
        return [x.to(self.dtype).requires_grad_() for x in made]


def tables(p: Place) -> dict[str, Callable[[], Relative]]:
    """The relative terms, made anew in each step from what they learn."""
    n, heads = p.length, p.heads
    buckets, slopes = p.learned(BUCKETS, heads), alibi_slopes(heads).to(p.device).requires_grad_()
    away = torch.arange(-FAR, 1, device=p.device)
    bucket = t5_bucket(away, BUCKETS, FAR, bidirectional=False)
    far = torch.arange(1 - n, 1, device=p.device, dtype=torch.float32)
    shaw, waves, bias = p.learned(1, CLIP + 1, SIZE), p.learned(heads, n, SIZE), p.learned(heads, n)
    keys, queries = p.learned(heads, 2 * REACH, SIZE), p.learned(heads, 2 * REACH, SIZE)
    return {
        "T5 bias": lambda: Relative(-FAR, 0, buckets[bucket].T),
        "learned ALiBi": lambda: Relative(1 - n, 0, slopes[:, None] * far),
        "Shaw": lambda: Relative(-CLIP, 0, query=shaw * 1.0),
        "Transformer-XL": lambda: Relative(1 - n, 0, bias * 1.0, waves * 1.0),
        "DeBERTa": lambda: Relative(1 - REACH, REACH, query=keys * 1.0, key=queries * 1.0),
    }


def switches(p: Place) -> dict[str, tuple[Callable[[], Plan], int]]:
    """A plan for each switch, and how many memory keys it has."""
    scale, causal, mix = SIZE**-0.5, Causal(), p.learned(p.heads, p.heads)
    terms = tables(p)
    layers = [tuple((x[0], x[1]) for x in (p.inputs() for _ in range(n))) for n in BELOW]
    carried = lambda pairs: (lambda: Plan(scale, causal, carry=pairs), 0)
    plans: dict[str, tuple[Callable[[], Plan], int]] = {
        name: (lambda make=make: Plan(scale, causal, make()), 0) for name, make in terms.items()
    }
    return plans | {
        "DeBERTa, both ways": (lambda: Plan(scale, None, terms["DeBERTa"]()), 0),
        "top-k": (lambda: Plan(scale, causal, weigh=partial(weigh.top_k, k=64)), 0),
        "entmax": (lambda: Plan(scale, causal, weigh=weigh.entmax15), 0),
        "talking heads": (lambda: Plan(scale, causal, mix=mix, remix=mix), 0),
        **{f"{len(pairs)} layers below": carried(pairs) for pairs in layers},
        "memory keys": (lambda: Plan(scale, causal, lead=16), 16),
        "window 256": (lambda: Plan(scale, causal & Window(256)), 0),
    }


def plain(p: Place) -> dict[str, Callable[[], None]]:
    """Torch's own causal attention, by kernel."""
    kernels = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    if p.device == "cpu":
        kernels = {"flash": None}

    def run(q: Tensor, k: Tensor, v: Tensor, kernel: SDPBackend | None) -> Tensor:
        with sdpa_kernel([kernel]) if kernel is not None else nullcontext():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {
        f"{PLAIN}, {name}": stepper(p, partial(run, kernel=kernel))
        for name, kernel in kernels.items()
    }


def peers(p: Place) -> dict[str, Callable[[], None]]:
    """FlexAttention with a learned bias, x-transformers, and a bias written out."""
    made: dict[str, Callable[[], None]] = {}
    terms = tables(p)

    def dense(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = terms["T5 bias"]().bias
        assert found is not None
        at = torch.arange(p.length, device=p.device)
        rows = (at[None] - at[:, None]).clamp(-FAR, 0) + FAR
        hidden = torch.ones_like(rows, dtype=torch.bool).triu(1)
        bias = found[:, rows].masked_fill(hidden, float("-inf")).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])

    made["T5 bias written out"] = stepper(p, dense)
    if p.device == "cpu":
        return made
    return made | _flex(p) | _x_transformers(p)


def _flex(p: Place) -> dict[str, Callable[[], None]]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    table, n = p.learned(p.heads, p.length), p.length
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device=p.device)
    compiled = torch.compile(flex_attention, dynamic=False)
    options = {"BLOCK_M": 64, "BLOCK_N": 64, "num_stages": 2}

    def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        added = lambda s, b, h, i, j: s + table[h, i - j]
        return compiled(q, k, v, score_mod=added, block_mask=causal, kernel_options=options)

    return {"FlexAttention, bias by distance": stepper(p, flex)}


def _x_transformers(p: Place) -> dict[str, Callable[[], None]]:
    try:
        from x_transformers.attend import Attend
        from x_transformers.x_transformers import RelativePositionBias
    except ImportError:
        return {}
    bias = RelativePositionBias(8.0, causal=True, heads=p.heads).to(p.device)
    kinds = {
        "T5 bias": {},
        "top-k": {"sparse_topk": 64},
        "talking heads": {"pre_talking_heads": True, "post_talking_heads": True},
    }
    made = {}
    for name, options in kinds.items():
        layer = torch.compile(Attend(causal=True, heads=p.heads, **options).to(p.device, p.dtype))

        def run(q, k, v, layer=layer, biased=name == "T5 bias"):
            extra = bias(p.length, p.length).to(q.dtype) if biased else None
            return layer(q, k, v, attn_bias=extra)[0]

        made[f"x-transformers, {name}"] = stepper(p, run)
    return made


def stepper(p: Place, run: Attention, lead: int = 0, repeats: int = 0) -> Callable[[], None]:
    """Forward and backward, several times on a GPU, which is waited for at the end."""
    given = p.inputs(lead)
    weight = torch.randn_like(given[0])

    def step() -> None:
        for _ in range(repeats or (10 if p.device == "cuda" else 1)):
            run(*given).backward(weight)
            for x in given:
                x.grad = None
        if p.device == "cuda":
            torch.cuda.synchronize()

    return step


def ours(p: Place, only: tuple[str, ...]) -> tuple[dict[str, Callable[[], None]], dict[str, str]]:
    """A step of each switch, and the backend that it takes."""
    steps, names = {}, {}
    for name, (plan, lead) in switches(p).items():
        if only and name not in only:
            continue
        given = p.inputs(lead)
        names[name] = choose(*given, plan())
        steps[name] = stepper(p, lambda q, k, v, plan=plan: attend(q, k, v, plan()), lead)
        for other in NAMED:
            if other != names[name] and refusal(other, *given, plan()) is None:
                names[f"{name}, {other}"] = other
                run = lambda q, k, v, plan=plan, other=other: attend(q, k, v, plan(), other)
                steps[f"{name}, {other}"] = stepper(p, run, lead)
    return steps, names


def peak(p: Place, step: Callable[[], None]) -> float:
    """MiB that one step takes beside what was there."""
    if p.device != "cuda":
        return 0.0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def able(steps: dict[str, Callable[[], None]]) -> dict[str, Callable[[], None]]:
    """The steps that run here; what failed, and why, is printed."""
    found = {}
    for name, step in steps.items():
        try:
            step()
            found[name] = step
        except (RuntimeError, ImportError) as error:  # too little memory, or no such kernel here
            print(f"{name}: left out, {str(error).splitlines()[0][:120]}", flush=True)
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return found


def _once(p: Place, name: str, only: tuple[str, ...]) -> None:
    """Run one of the steps, so that what is compiled for it is kept on disk."""
    torch.set_num_threads(1)
    try:
        (ours(p, only)[0] | peers(p))[name]()
    except RuntimeError:  # told where it is measured
        return


def compiled(p: Place, names: list[str], only: tuple[str, ...]) -> None:
    """Compile the kernels of all steps in other processes, since that takes far longer."""
    with ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool:
        list(pool.map(_once, [p] * len(names), names, [only] * len(names)))


def measured(p: Place, settings: Settings, table: Table) -> None:
    """Add the rows of one length."""
    torch.manual_seed(0)
    switched, backends = ours(p, settings.only)
    others = peers(p)
    if p.device == "cuda":
        compiled(p, [*switched, *others], settings.only)
    steps = able(plain(p) | switched | others)
    memory = {name: peak(p, step) for name, step in steps.items()}
    times = race(steps, settings.rounds)
    middle = {name: statistics.median(t) for name, t in times.items()}
    base = min((n for n in middle if n.startswith(PLAIN)), key=lambda n: middle[n])
    inner = 10 if p.device == "cuda" else 1
    for name, spent in times.items():
        ratio = statistics.median(a / b for a, b in zip(spent, times[base], strict=True))
        table.rows.append(
            [
                str(p.length),
                name,
                backends.get(name, "-"),
                f"{middle[name] / inner * 1e3:.2f}",
                f"{min(spent) / min(times[base]):.2f}",
                f"{ratio:.2f}",
                f"{memory[name]:.0f}" if p.device == "cuda" else "-",
                f"{memory[name] / memory[base]:.2f}" if p.device == "cuda" else "-",
            ]
        )
    table.raw[str(p.length)] = {"times": times, "memory": memory, "base": base, "inner": inner}


HEAD = ["length", "attention", "backend", "median ms", "of best", "of plain", "MiB", "MiB of plain"]


def every(settings: Settings) -> None:
    """Each switch, on the device asked for."""
    torch.set_num_threads(settings.threads)
    gpu = settings.device == "cuda"
    table = Table(f"Switches, forward and backward, {settings.device}", HEAD)
    for length in (1024, 8192) if gpu else (1024,):
        dtype = torch.bfloat16 if gpu else torch.float32
        rows = 32768 // length if gpu else 1
        place = Place(settings.device, dtype, 12 if gpu else 6, length, rows)
        measured(place, settings, table)
        print(table.text(), flush=True)
    if gpu:
        table.notes.append(torch.cuda.get_device_name())
    table.show(settings, "h200_switches" if gpu else "cpu_switches")


def band(settings: Settings) -> None:
    """T5's bias on a CPU beside plain attention."""
    torch.set_num_threads(settings.threads)
    table = Table("T5 bias, forward and backward, CPU", HEAD)
    for length in (1024, 4096):
        place = Place("cpu", torch.float32, 6, length, 1)
        only = Settings(settings.rounds, settings.threads, only=("T5 bias",))
        measured(place, only, table)
    table.show(settings, "cpu_band")
