"""Attention: its heads, the layout of its rotary positions, what it remembers, its gate.

Letters: H heads, G key heads, D channels of a head, d width of the stream.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint.conversions.base import Part, mean, strongest
from anyformer.spec.walk import head_dim

PROJECTIONS = ("q.weight", "q.bias", "k.weight", "k.bias", "v.weight", "v.bias", "out.weight")
TURNED = tuple(f"{m}.{w}" for m in ("q", "k", "q_norm", "k_norm") for w in ("weight", "bias"))
TURNED = (*TURNED, "memory_k")
KEYED = ("k.weight", "k.bias", "v.weight", "v.bias", "memory_k", "memory_v")


def heads(part: Part) -> None:
    """Other numbers of heads and of key heads (grouped queries, arXiv:2305.13245)."""
    old, new = part.old, part.new
    sizes = [head_dim(a, m.dim) for a, m in zip((old, new), part.models, strict=True)]
    groups = [a.kv_heads or a.heads for a in (old, new)]
    shared = old.collaborate is not None or new.collaborate is not None
    if (old.heads, groups[0], sizes[0]) == (new.heads, groups[1], sizes[1]) or shared:
        return
    if sizes[0] != sizes[1]:
        _regroup(part, sizes, groups)
        return
    if old.memory != new.memory:
        part.drop(["memory_k", "memory_v"])
    kept = _chosen(part, sizes[0])
    if old.heads != new.heads:
        _queries(part, kept, sizes[0])
    for name in [n for n in KEYED if part.has(n) and n in part.shapes]:
        if part.pieces[name].tensor.shape[1:] == part.shapes[name][1:]:
            part.change(name, _keys(part, name, groups, kept), _why(old.heads, new.heads, *groups))


def _regroup(part: Part, sizes: list[int], groups: list[int]) -> None:
    """Heads of another size: the same channels cut at other places, or fresh ones."""
    old, new = part.old, part.new
    if groups == [old.heads, new.heads] and old.heads * sizes[0] == new.heads * sizes[1]:
        for name in PROJECTIONS:
            if part.has(name):
                why = f"the same channels, as {new.heads} heads of {sizes[1]}"
                part.change(name, part.pieces[name].tensor, why)
    else:
        part.drop([*PROJECTIONS, "memory_k", "memory_v"])


def _chosen(part: Part, size: int) -> Tensor:
    """The heads that stay: all, or those whose outputs have the largest weights."""
    count = min(part.old.heads, part.new.heads)
    if count == part.old.heads or not part.has("out.weight"):
        return torch.arange(count)
    columns = part.pieces["out.weight"].tensor.unflatten(1, (part.old.heads, size))
    return strongest(columns.float().transpose(0, 1).flatten(1).norm(dim=1), count).cpu()


def _queries(part: Part, kept: Tensor, size: int) -> None:
    """Fewer heads: those that stay. More: fresh queries whose outputs start at zero."""
    before, after = part.old.heads, part.new.heads
    why = _why(before, after, 0, 0)
    for name in [n for n in ("q.weight", "q.bias") if part.has(n) and n in part.shapes]:
        q = part.pieces[name].tensor.unflatten(0, (before, size))[kept]
        more = q[:0]
        if after > before:
            more = part.draw(name).to(q).unflatten(0, (after, size))[before:]
        part.change(name, torch.cat([q, more]).flatten(0, 1), why)
    if part.has("out.weight"):
        out = part.pieces["out.weight"].tensor.unflatten(1, (before, size))[:, kept]
        zeros = out.new_zeros(len(out), max(after - before, 0), size)
        part.change("out.weight", torch.cat([out, zeros], 1).flatten(1), why)


def _keys(part: Part, name: str, groups: list[int], kept: Tensor) -> Tensor:
    """Keys or values of G heads: written out for every head, chosen, pooled to the new groups."""
    before, after = part.old.heads, part.new.heads
    split = lambda x, count: x if name.startswith("memory") else x.unflatten(0, (count, -1))
    x = split(part.pieces[name].tensor, groups[0])
    x = x.repeat_interleave(before // groups[0], 0)[kept]  # (H, D, …)
    if after > before:
        fresh = split(part.draw(name).to(x), groups[1])
        x = torch.cat([x, fresh.repeat_interleave(after // groups[1], 0)[before:]])
    pooled = mean(list(x.unflatten(0, (groups[1], -1)).unbind(1)))
    return pooled if name.startswith("memory") else pooled.flatten(0, 1)


def _why(before: int, after: int, old_groups: int, new_groups: int) -> str:
    said: list[str] = []
    if after < before:
        said.append(f"the {after} of {before} heads with the largest outputs")
    if after > before:
        said.append(f"{after - before} heads more, whose outputs start at zero")
    if new_groups and before // old_groups < after // new_groups:
        said.append(f"key heads pooled by their mean, {old_groups} to {new_groups}")
    elif old_groups and before // old_groups > after // new_groups:
        said.append(f"key heads repeated, {old_groups} to {new_groups}")
    return ", ".join(said) or "key heads beside their heads"


def layout(part: Part) -> None:
    """Rotary pairs (i, i + n/2) or (2i, 2i + 1): channels change places, nothing else changes."""
    old, new = part.old.rotary, part.new.rotary
    if old is None or new is None or old.layout == new.layout:
        return
    size, before = (head_dim(a, part.models[0].dim) for a in (part.new, part.old))
    placed = any(isinstance(r, (S.Shaw, S.XL, S.XLTable)) for pair in part.relatives for r in pair)
    unlike = size != before or (old.dims or size) != (new.dims or size)
    if unlike or placed or part.old.collaborate:
        return
    turned = torch.arange(new.dims or size)
    pairs = turned.view(2, -1).T.flatten()  # channel of the halves at each place of the pairs
    order = pairs if new.layout == "pairs" else pairs.argsort()
    order = torch.cat([order, torch.arange(len(turned), size)])
    for name in [n for n in TURNED if part.has(n) and part.pieces[n].tensor.shape != (1,)]:
        x = part.pieces[name].tensor
        by_head = lambda x: x.unflatten(0, (-1, size))[:, order].flatten(0, 1)
        x = x[..., order] if name == "memory_k" else by_head(x)
        part.change(name, x, f"channels in the order of rotary {new.layout}: nothing changes")


def memory(part: Part) -> None:
    """Persistent keys and values: the first stay, more are fresh."""
    for name in ("memory_k", "memory_v"):
        x = part.pieces[name].tensor if part.has(name) and name in part.shapes else None
        if x is not None and part.shapes[name][::2] == x.shape[::2]:
            count = part.new.memory
            if count < x.shape[1]:
                part.change(name, x[:, :count], f"its first {count} of {x.shape[1]} places")
            elif count > x.shape[1]:
                more = part.draw(name).to(x)[:, x.shape[1] :]
                part.change(name, torch.cat([x, more], 1), f"{more.shape[1]} fresh places more")


def gate(part: Part) -> None:
    """y is 2y · sigmoid(0): a gate starts at zero beside outputs twice as large."""
    if part.old.gate == part.new.gate:
        return
    for name in [n for n in ("out.weight", "out.bias") if part.has(n)]:
        out = part.pieces[name].tensor
        if part.new.gate == "glu":
            new = torch.cat([2 * out, torch.zeros_like(out)])
            part.change(name, new, "a gate that starts half open, outputs doubled: nothing changes")
        else:
            part.change(name, out[: len(out) // 2] / 2, "outputs as with the gate half open")


def relatives(part: Part) -> None:
    """Each relative part from the first old one of its kind, in the stack or in its attention."""
    old, new = part.relatives
    found = {n: part.pieces.pop(n) for n in list(part.pieces) if n.startswith("relative.")}
    left = list(range(len(old)))
    for i, wanted in enumerate(new):
        at = next((j for j in left if type(old[j]) is type(wanted)), None)
        if at is None:
            continue
        left.remove(at)
        inside = {n: p for n, p in found.items() if n.startswith(f"relative.{at}.")}
        for name, piece in inside.items():
            part.pieces[f"relative.{i}.{name.split('.', 2)[2]}"] = piece
        before = old[at]
        if isinstance(before, S.Shaw) and isinstance(wanted, S.Shaw):
            clips = (before.clip, before.clip), (wanted.clip, wanted.clip)
            _clip(part, f"relative.{i}.table", *clips)
        if isinstance(before, S.XLTable) and isinstance(wanted, S.XLTable):
            for name in ("table", "scalars"):
                reach = (before.back, before.ahead), (wanted.back, wanted.ahead)
                _clip(part, f"relative.{i}.{name}", *reach)


def _clip(part: Part, name: str, old: tuple[int, int], new: tuple[int, int]) -> None:
    """Distances so far back and ahead; those beyond the old ends count as these, as they did."""
    if old != new and part.has(name):
        at = torch.arange(-new[0], new[1] + 1).clamp(-old[0], old[1]) + old[0]
        why = "longer, farther distances as the farthest: nothing changes"
        shorter = new[0] < old[0] or new[1] < old[1]
        why = f"distances up to {max(new)}" if shorter else why
        part.change(name, part.pieces[name].tensor[at], why)
