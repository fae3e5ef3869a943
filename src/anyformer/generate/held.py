"""What a decoder over a cache of a set size holds between steps.

Letters: B batch, L room of the cache, G key heads, D channels, T positions read so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer import spec as S
from anyformer.generate.room import rings_of, seats, windows_of
from anyformer.parts.fixed import Fixed, Pair, Tables
from anyformer.parts.state import Past


@dataclass(frozen=True)
class Kinds:
    """Which attentions of a cache are of which kind, by path."""

    crossed: frozenset[str]  # those that read an encoder's output
    windows: dict[str, int]  # those that can do with the keys of their windows
    rings: frozenset[str]  # those of them whose buffers are no longer than that


def kinds_of(stack: S.Stack, room: int, padded: bool) -> Kinds:
    """The kinds for a room; a ring has no place for the mask of padded rows."""
    crossed = frozenset(path for path, leaf in seats(stack) if leaf.cross)
    rings: frozenset[str] = frozenset() if padded else rings_of(stack, room)
    return Kinds(crossed, windows_of(stack), rings)


@dataclass
class Held:
    """All that a step reads and changes, in tensors that stay where they are."""

    kv: dict[str, Pair]  # path -> keys and values, (B, G, L, D)
    positions: Tensor  # (1 or B, L)
    keep: Tensor | None  # (B, L), True for what is to come
    placed: Tensor | None  # (B, 1): tokens that have a place, where some have none
    context: Tensor | None  # the encoder's output
    context_keep: Tensor | None
    tokens: Tensor  # (B,): read by the next step
    at: Tensor  # (1,): its position in the cache
    broken: Tensor  # (B,): rows whose logits were no numbers
    tables: Tables = field(default_factory=Tables)  # by distance or position

    def others(self) -> dict[str, Tensor]:
        """The tensors beside keys and values that are there."""
        return {n: x for n, x in self.__dict__.items() if isinstance(x, Tensor)}

    def tensors(self) -> list[Tensor]:
        """Each of them."""
        return [*(x for pair in self.kv.values() for x in pair), *self.others().values()]

    def cache(self, kinds: Kinds, length: int, at: Tensor | None = None) -> Fixed:
        """The cache that attentions see."""
        return Fixed(self.kv, length, at, kinds.windows, kinds.rings, self.tables)

    def chosen(self, rows: Tensor) -> Held:
        """The same of some rows, in new tensors."""
        batch = self.tokens.shape[0]
        pick = lambda x: x.index_select(0, rows)
        kv = {path: (pick(k), pick(v)) for path, (k, v) in self.kv.items()}
        named = {n: pick(x) for n, x in self.others().items() if n != "at" and len(x) == batch}
        return replace(self, kv=kv, **named)

    def choose(self, rows: Tensor, kinds: Kinds, live: int) -> None:
        """The same number of rows, in the tensors that are here."""
        parts = [x for n, x in self.others().items() if n != "at" and len(x) == len(rows)]
        for path, pair in self.kv.items():
            whole = path in kinds.crossed
            parts += [x if whole else x.narrow(2, 0, min(live, x.shape[2])) for x in pair]
        for part in parts:
            part.copy_(part.index_select(0, rows))

    def wide(self, room: int, kinds: Kinds) -> Held:
        """The same with a room for more positions."""
        more = room - self.positions.shape[1]
        stay = kinds.crossed | kinds.rings
        pad = lambda x: F.pad(x, (0, 0, 0, more))
        kv = {p: pair if p in stay else (pad(pair[0]), pad(pair[1])) for p, pair in self.kv.items()}
        keep = None if self.keep is None else F.pad(self.keep, (0, more), value=True)
        return replace(self, kv=kv, positions=_onwards(self.positions, more), keep=keep)

    def fill(self, other: Held, kv: Mapping[str, Pair], kinds: Kinds) -> bool:
        """Take over what another holds, with keys and values (B, G, T, D), if it fits; whether so.

        What lies beyond T is 0 again: what an earlier text left there may be no numbers.
        """
        old, new, room = self.others(), other.others(), other.positions.shape[1]
        shape = lambda x: (x.shape, x.device)
        buffers = lambda pairs: {path: [shape(x) for x in pair] for path, pair in pairs.items()}
        fits = {n: shape(x) for n, x in old.items()} == {n: shape(x) for n, x in new.items()}
        if not fits or buffers(self.kv) != buffers(_outlined(kv, kinds, room)):
            return False
        for name, mine in old.items():
            mine.copy_(new[name])
        for x in (x for pair in self.kv.values() for x in pair):
            x.zero_()
        _put(self.kv, kv)
        return True


def hold(spec: S.Model, past: Past, rows: int, room: int) -> tuple[Held, Kinds]:
    """What a growing cache remembers beside keys and values, with room for L positions."""
    kinds = kinds_of(spec.stack, room, past.keep is not None)
    assert past.positions is not None
    device, place, placed = past.positions.device, spec.embed.position, None
    if place is not None and place.skip is not None:
        count = past.seen if past.placed is None else past.placed
        placed = torch.zeros(rows, 1, dtype=torch.long, device=device) + count
    more = room - past.length
    held = Held(
        kv={},
        positions=_onwards(past.positions, more),
        keep=None if past.keep is None else F.pad(past.keep, (0, more), value=True),
        placed=placed,
        context=past.context,
        context_keep=past.context_keep,
        tokens=torch.zeros(rows, dtype=torch.long, device=device),
        at=torch.full((1,), past.length, dtype=torch.long, device=device),
        broken=torch.zeros(rows, dtype=torch.bool, device=device),
    )
    return held, kinds


def laid(kv: Mapping[str, Pair], kinds: Kinds, room: int, dtype: torch.dtype) -> dict[str, Pair]:
    """Keys and values (B, G, T, D) by path, in buffers (B, G, L, D)."""
    made = {
        path: (k.new_zeros(k_like.shape, dtype=dtype), v.new_zeros(v_like.shape, dtype=dtype))
        for (path, (k, v)), (k_like, v_like) in zip(
            kv.items(), _outlined(kv, kinds, room).values(), strict=True
        )
    }
    _put(made, kv)
    return made


def _outlined(kv: Mapping[str, Pair], kinds: Kinds, room: int) -> dict[str, Pair]:
    """Tensors of the shapes of the buffers of keys and values, without memory of their own."""
    found: dict[str, Pair] = {}
    for path, (k, v) in kv.items():
        size = kinds.windows[path] if path in kinds.rings else room
        size = k.shape[2] if path in kinds.crossed else size
        wide = lambda x, size=size: x[:, :, :1].expand(-1, -1, size, -1)
        found[path] = wide(k), wide(v)
    return found


def _put(buffers: Mapping[str, Pair], kv: Mapping[str, Pair]) -> None:
    """Write keys and values into buffers, whose places go round where those are shorter."""
    for path, pair in kv.items():
        for held, x in zip(buffers[path], pair, strict=True):
            length, size = x.shape[2], held.shape[2]
            if length <= size:
                held.narrow(2, 0, length).copy_(x)
            else:
                at = torch.arange(length - size, length, device=x.device)
                held.index_copy_(2, at % size, x.index_select(2, at).to(held.dtype))


def _onwards(positions: Tensor, more: int) -> Tensor:
    """Positions (…, T) and those that follow."""
    after = torch.arange(1, more + 1, device=positions.device)
    return torch.cat([positions, positions[:, -1:] + after], 1)
