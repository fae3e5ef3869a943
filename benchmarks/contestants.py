"""The attentions that `switches` measures: plain ones, our own, and peers, made one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from anyformer.ops import weigh
from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.mask import Causal, Window
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative, alibi_slopes, t5_bucket

SIZE, CLIP, REACH, BUCKETS, FAR = 64, 64, 512, 32, 128
BELOW = (3, 11)  # layers whose scores a residual attention adds
NAMED = (
    "far",
    "lead",
    "shelves",
    "tiles",
    "sparse",
    "talking",
    "layered",
)  # kernels of ours, measured wherever they run
PLAIN, OURS, KERNELS, PEERS = "plain", "ours", "kernels", "peers"  # families of contestants
FLEX, X, DENSE = "FlexAttention", "x-transformers", "written out"  # of peers
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


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


class Contestant(NamedTuple):
    """A row of the table, by names alone, so that another process can make it too."""

    name: str
    family: str
    switch: str = ""  # of ours
    backend: str = "-"

    def asked(self, only: Iterable[str]) -> bool:
        """Whether a list names it: itself, its switch, its backend or its family; empty: all."""
        wider = {KERNELS} if self.backend in NAMED else set()
        wider |= {PEERS} if self.family not in (PLAIN, OURS) else set()
        known = ({self.name, self.switch, self.backend, self.family} | wider) - {"", "-"}
        return self.family == PLAIN or not only or not known.isdisjoint(only)


def tables(p: Place) -> dict[str, Callable[[], Relative]]:
    """The relative terms, made anew in each step from what they learn."""
    n, heads = p.length, p.heads
    buckets, slopes = p.learned(BUCKETS, heads), alibi_slopes(heads).to(p.device).requires_grad_()
    away = torch.arange(-FAR, 1, device=p.device)
    bucket = t5_bucket(away, BUCKETS, FAR, bidirectional=False)
    shaw, waves, bias = p.learned(1, CLIP + 1, SIZE), p.learned(heads, n, SIZE), p.learned(heads, n)
    keys, queries = p.learned(heads, 2 * REACH, SIZE), p.learned(heads, 2 * REACH, SIZE)
    return {
        "T5 bias": lambda: Relative(-FAR, 0, buckets[bucket].T),
        "learned ALiBi": lambda: Relative(0, 0, slope=slopes),
        "Shaw": lambda: Relative(-CLIP, 0, query=shaw * 1.0),
        "Transformer-XL": lambda: Relative(1 - n, 0, bias * 1.0, waves * 1.0),
        "DeBERTa": lambda: Relative(1 - REACH, REACH, query=keys * 1.0, key=queries * 1.0),
    }


def switches(p: Place) -> dict[str, Callable[[], tuple[Callable[[], Plan], int]]]:
    """By name what makes a switch: its plans, one for each step, and how many memory keys."""
    scale, causal = SIZE**-0.5, Causal()

    def relative(name: str, mask: Causal | None) -> tuple[Callable[[], Plan], int]:
        make = tables(p)[name]
        return lambda: Plan(scale, mask, make()), 0

    def carried(count: int) -> tuple[Callable[[], Plan], int]:
        pairs = tuple((x[0], x[1]) for x in (p.inputs() for _ in range(count)))
        return lambda: Plan(scale, causal, carry=pairs), 0

    def mixed() -> tuple[Callable[[], Plan], int]:
        mix = p.learned(p.heads, p.heads)
        return lambda: Plan(scale, causal, mix=mix, remix=mix), 0

    fixed = lambda lead=0, **given: (lambda: Plan(scale, lead=lead, **given), lead)
    terms = ("T5 bias", "learned ALiBi", "Shaw", "Transformer-XL", "DeBERTa")
    return {
        **{name: partial(relative, name, causal) for name in terms},
        "DeBERTa, both ways": lambda: relative("DeBERTa", None),
        "top-k": lambda: fixed(mask=causal, weigh=partial(weigh.top_k, k=64)),
        "entmax": lambda: fixed(mask=causal, weigh=weigh.entmax15),
        "talking heads": mixed,
        **{f"{count} layers below": partial(carried, count) for count in BELOW},
        "memory keys": lambda: fixed(lead=16, mask=causal),
        "window 256": lambda: fixed(mask=causal & Window(256)),
    }


def contestants(p: Place, only: tuple[str, ...] = ()) -> list[Contestant]:
    """All that runs here and is asked for, plain attention first."""
    kernels = ("cuDNN", "flash") if p.device == "cuda" else ("flash",)
    found = [Contestant(f"{PLAIN}, {name}", PLAIN) for name in kernels]
    for switch, make in switches(p).items():
        plan, lead = make()
        (q, k, v), made = p.inputs(lead), plan()
        best = choose(q, k, v, made)
        found.append(Contestant(switch, OURS, switch, best))
        others = [b for b in NAMED if b != best and refusal(b, q, k, v, made) is None]
        found += [Contestant(f"{switch}, {b}", OURS, switch, b) for b in others]
    found += [Contestant(name, family) for name, (family, _) in peers(p.device).items()]
    known(only, found)
    return [one for one in found if one.asked(only)]


def known(only: tuple[str, ...], found: list[Contestant]) -> None:
    """Refuse names that name nothing here."""
    wrong = [name for name in only if not any(c.asked([name]) for c in found if c.family != PLAIN)]
    if wrong:
        rows = [c for c in found if c.family != PLAIN]
        names = {n for c in rows for n in (c.name, c.family)} | {KERNELS, PEERS}
        raise SystemExit(f"--only: {', '.join(wrong)} isn't one of {', '.join(sorted(names))}")


def attention(p: Place, one: Contestant) -> tuple[Attention, int]:
    """What a contestant runs, and how many memory keys it takes."""
    if one.family == PLAIN:
        return partial(_plain, kernel=one.name.removeprefix(f"{PLAIN}, "), device=p.device), 0
    if one.family != OURS:
        return peers(p.device)[one.name][1](p), 0
    plan, lead = switches(p)[one.switch]()

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, plan(), one.backend)

    return run, lead


def _plain(q: Tensor, k: Tensor, v: Tensor, kernel: str, device: str) -> Tensor:
    """Torch's own causal attention, by one of its kernels."""
    kernels = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    with sdpa_kernel([kernels[kernel]]) if device == "cuda" else nullcontext():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def peers(device: str) -> dict[str, tuple[str, Callable[[Place], Attention]]]:
    """By name a family and what makes the attention: FlexAttention, x-transformers, plain torch."""
    found: dict[str, tuple[str, Callable[[Place], Attention]]] = {
        "T5 bias written out": (DENSE, _dense)
    }
    if device == "cpu":
        return found
    found["FlexAttention, bias by distance"] = (FLEX, _flex)
    kinds: dict[str, dict[str, Any]] = {
        "T5 bias": {},
        "top-k": {"sparse_topk": 64},
        "talking heads": {"pre_talking_heads": True, "post_talking_heads": True},
    }
    for name, options in kinds.items():
        make = partial(_x_transformers, options=options, biased=name == "T5 bias")
        found[f"{X}, {name}"] = (X, make)
    return found


def _dense(p: Place) -> Attention:
    make = tables(p)["T5 bias"]

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        found = make().bias
        assert found is not None
        at = torch.arange(p.length, device=p.device)
        rows = (at[None] - at[:, None]).clamp(-FAR, 0) + FAR
        hidden = torch.ones_like(rows, dtype=torch.bool).triu(1)
        bias = found[:, rows].masked_fill(hidden, float("-inf")).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])

    return run


def _flex(p: Place) -> Attention:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    table, n = p.learned(p.heads, p.length), p.length
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device=p.device)
    compiled = torch.compile(flex_attention, dynamic=False)
    options: Any = {"BLOCK_M": 64, "BLOCK_N": 64, "num_stages": 2}

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        added = lambda s, b, h, i, j: s + table[h, i - j]
        return compiled(q, k, v, score_mod=added, block_mask=causal, kernel_options=options)

    return run


def _x_transformers(p: Place, options: dict[str, Any], biased: bool) -> Attention:
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import RelativePositionBias

    bias = RelativePositionBias(8.0, causal=True, heads=p.heads).to(p.device)
    layer = torch.compile(Attend(causal=True, heads=p.heads, **options).to(p.device, p.dtype))

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        extra = bias(p.length, p.length).to(q.dtype) if biased else None
        return layer(q, k, v, attn_bias=extra)[0]

    return run
