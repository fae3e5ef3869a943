"""A cache of a set size, for decoding one token of each row at a time.

Letters: B batch, G key heads, L room, D channels of a head.
Keys and values are written in place. Where the host knows the position, attentions get the live
part alone; where only the device knows it, as in a captured graph, they get `live` keys of which
the mask hides those to come. An attention whose buffer is shorter than the room has a window of
that size and no sense of distance: its buffer is a ring, which holds the window in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anyformer.ops.mask import Mask, Padding

Pair = tuple[Tensor, Tensor]


class Tables(dict[tuple, Any]):
    """What depends on weights alone, by whose it is; a copy begins anew, and so does a file."""

    def __deepcopy__(self, memo: Any) -> Tables:
        return Tables()

    def __reduce__(self) -> tuple[type[Tables], tuple[()]]:
        return Tables, ()


@dataclass
class Fixed:
    """Keys and values of each attention, (B, G, L, D), and where the new position is."""

    kv: dict[str, Pair]  # path -> keys, values; of cross-attentions as they are
    length: int  # positions before the new one; with `at`, the most that there may be
    at: Tensor | None = None  # (1,): the new position, where the host doesn't know it
    windows: dict[str, int] = field(default_factory=dict)  # path -> keys that its queries see
    rings: frozenset[str] = frozenset()  # paths of those whose buffers are rings
    tables: Tables = field(default_factory=Tables)  # by distance or position, of all steps
    is_cache = True

    def write(self, path: str, k: Tensor, v: Tensor) -> Pair:
        """Put the new position (B, G, 1, D) in its place -> the keys and values that are seen."""
        keys, values = self.kv[path]
        end = self.length + 1
        if self.at is not None:
            at, live = self.at, end
            if path in self.rings:
                live = min(end, keys.shape[2])
                at = at % keys.shape[2] if live < end else at
            keys.index_copy_(2, at, k.to(keys.dtype))
            values.index_copy_(2, at, v.to(values.dtype))
            return keys.narrow(2, 0, live), values.narrow(2, 0, live)
        at, first = self.length, 0
        if path in self.windows:
            size = self.windows[path]
            if path in self.rings:
                at, end = at % size, min(end, size)
            else:
                first = max(0, end - size)
        keys.narrow(2, at, 1).copy_(k)
        values.narrow(2, at, 1).copy_(v)
        return keys.narrow(2, first, end - first), values.narrow(2, first, end - first)

    def mask(self, keep: Tensor | None, window: int | None, keys: int) -> Mask | None:
        """Which of `keys` keys the new position sees; None: all that there are.

        keep is (B, K) and True for what is to come. The position always sees itself.
        """
        full = self.length + 1 if self.at is not None else keys
        far = window is not None and window < keys
        if self.at is None and keep is None and not far:
            return None
        like = next(iter(self.kv.values()))[0]
        index = torch.arange(keys, device=like.device)[None]
        last = keys - 1 if self.at is None else self.at
        seen = index <= last  # (1, K)
        if window is not None and keys == full:  # not a ring
            seen = seen & (last - index < window)
        return Padding(seen if keep is None else seen & keep[:, -keys:], sure=True)
