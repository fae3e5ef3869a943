"""What a forward pass carries: the call, and what is remembered between calls.

Letters: B batch, N new positions, K all positions (remembered ones first), d width.
An attention asks two questions. Before projection: what are keys and values made from (`source`)?
After it: which keys and values are attended (`extend`)? A module never holds state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from anyformer.errors import InputError
from anyformer.ops.mask import Causal, Documents, Mask, Padding, Prefix, Window, both
from anyformer.ops.plan import Plan
from anyformer.parts.distance import Vectors
from anyformer.parts.fixed import Fixed, Tables
from anyformer.parts.lora import Lora

T = TypeVar("T")
Pairs = tuple[tuple[Tensor, Tensor], ...]


@dataclass
class Past:
    """What is remembered: keys and values of each attention (a cache), or its inputs (segments)."""

    limit: int | None = None  # segments keep this many positions; None: a cache, which keeps all
    pinned: int = 0  # first positions that stay, beside the limit
    seen: int = 0  # positions read so far, remembered or not
    length: int = 0  # positions remembered
    positions: Tensor | None = None  # (1 or B, length)
    keep: Tensor | None = None  # (B, length), None: all real
    placed: Tensor | None = None  # (B, 1): tokens so far that have a place, where some have none
    hidden: dict[str, Tensor] = field(default_factory=dict)  # segments: path -> (B, length, d)
    kv: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # path -> keys, values
    context: Tensor | None = None  # the encoder's output
    context_keep: Tensor | None = None
    tables: Tables = field(default_factory=Tables)  # a cache: by distance or position, of all calls

    @property
    def is_cache(self) -> bool:
        """Whether keys and values are remembered, not inputs."""
        return self.limit is None

    def kept(self, whole: Tensor, axis: int = 1) -> Tensor:
        """The positions of (B, K, …) that a segment memory keeps: pinned ones and the last ones."""
        limit = self.limit or 0
        total = whole.shape[axis]
        if total <= self.pinned + limit:
            return whole
        last = whole.narrow(axis, total - limit, limit)
        return torch.cat([whole.narrow(axis, 0, self.pinned), last], axis) if self.pinned else last


@dataclass
class Call:
    """One forward pass, handed whole to every branch."""

    length: int  # new positions N
    positions: Tensor  # (1 or B, K): of remembered and new positions
    here: Tensor | None = None  # (1 or B, N): of new ones, where those aren't the last of all
    keep: Tensor | None = None  # (B, K) True for real positions
    right: bool = False  # padding is on the right of every row
    documents: Tensor | None = None  # (B, K) ids of packed documents
    prefix: Tensor | None = None  # (B,) lengths of prefixes that all see
    context: Tensor | None = None  # (B, M, d)
    context_keep: Tensor | None = None  # (B, M)
    past: Past | Fixed | None = None
    following: Past | None = None  # what the next call remembers
    relative: tuple = ()  # the stack's relative parts
    lora: tuple[Lora, ...] = ()  # of each branch of the application that runs
    maps: nn.ModuleDict | None = None  # the application's own, in place of shared ones
    untied: tuple[Tensor, Tensor] | None = None  # channels of positions for q and k
    distances: Vectors | None = None  # the stack's vectors by distance
    window: int | None = None  # keys that each query sees at most, its own among them
    asking: Tensor | None = None  # (1 or B, N, d): positions that ask the last block, twice
    source: Tensor | None = None  # (B, N, d): what keys and values are made from; None: the stream
    carried: dict[bool, Pairs] = field(default_factory=dict)  # q and k of layers below, by cross
    kept: dict[str, tuple[Tensor, Tensor]] | None = None  # keys and values of a block's first turn
    reads: bool = False  # this turn reads them
    extra: dict[str, Tensor] = field(default_factory=dict)  # sums that a loop adds to the loss
    exits: tuple[list[Tensor], Tensor] | None = None  # states of all rounds, p (B, N, R)
    masks: dict[tuple, Mask | None] = field(default_factory=dict)
    plans: dict[tuple, Plan] = field(default_factory=dict)
    waves: dict[tuple, tuple[Tensor, Tensor]] = field(default_factory=dict)  # of decoding, too
    weights: list[Tensor] | None = None  # attention weights, where asked for
    hidden: list[Tensor] | None = None  # the stream before each block, where asked for
    hands: bool = False  # blocks hand on what they said last, and the next one adds it

    @property
    def start(self) -> int:
        """Positions remembered before the new ones."""
        return self.past.length if self.past is not None else 0

    def newest(self, count: int) -> Tensor:
        """The last positions (1 or B, count)."""
        return self.positions[:, -count:] if self.here is None else self.here

    def place(self, keys: int, new: int) -> int | Tensor:
        """Where new queries stand among the keys of a self-attention."""
        if isinstance(self.past, Fixed):
            return keys - new if self.past.at is None else self.past.at
        return self.start

    @property
    def keeps(self) -> bool:
        """Whether a cache is read without gradients: what depends on weights alone stays there."""
        cached = self.past is not None and self.past.is_cache
        return cached and not torch.is_grad_enabled() and not torch.compiler.is_compiling()

    def once(self, key: tuple, make: Callable[[], T]) -> T:
        """What `make` gives; of a cache that keeps such things, what it gave before."""
        if not self.keeps or self.past is None:
            return make()
        if key not in self.past.tables:
            self.past.tables[key] = make()
        return self.past.tables[key]

    def far(self, low: int) -> int:
        """A distance from which tables are made: `low`, or in decoding the power of two beyond.

        So the steps of decoding make them anew once in a power of two.
        """
        return -(1 << (-low).bit_length()) if self.keeps and low < 0 else low

    def linear(self, name: str, map: nn.Module, x: Tensor) -> Tensor:
        """A linear map of a branch, or the application's own, and what its LoRA adds to it."""
        y = self.maps[name](x) if self.maps is not None and name in self.maps else map(x)
        return y + self.lora[0][name](x) if self.lora and name in self.lora[0] else y

    def recall(self, path: str, x: Tensor) -> Tensor:
        """The inputs that a segment memory has for an attention, then x; x alone without one."""
        if not isinstance(self.past, Past) or self.past.is_cache:
            whole = x
        else:
            old = self.past.hidden.get(path)
            if not self.past.hidden:  # nothing was read yet: a memory of zeros
                old = x.new_zeros(x.shape[0], self.past.length, x.shape[2])
            whole = x if old is None else torch.cat([old.to(x.dtype), x], 1)
        if self.following is not None and not self.following.is_cache:
            if path not in self.following.hidden:  # a second pass, backwards, changes nothing
                self.following.hidden[path] = self.following.kept(whole).detach()
        return whole

    def extend(self, path: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, G, K, D) of a cache and the new ones; kept for the next call."""
        if isinstance(self.past, Fixed):
            return self.past.write(path, k, v)
        if self.past is not None and self.past.is_cache and path in self.past.kv:
            old_k, old_v = self.past.kv[path]
            k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
        if self.following is not None and self.following.is_cache:
            self.following.kv[path] = (k, v)
        return k, v

    def lend(self, path: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of this turn, for later ones of its block where they are asked for."""
        if self.kept is not None:
            self.kept.setdefault(path.partition(".")[2], (k, v))
        return k, v

    def lent(self, path: str) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the block's first turn, where this one reads those."""
        return self.kept.get(path.partition(".")[2]) if self.reads and self.kept else None

    def remembered(self, path: str) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, where a cache has them."""
        return self.past.kv.get(path) if self.past is not None and self.past.is_cache else None

    def mask(
        self,
        causal: bool,
        window: int | None,
        cross: bool,
        blocks: Mask | None = None,
        keys: int = 0,
    ) -> Mask | None:
        """The mask of an attention to `keys`; one object for all that ask for the same."""
        if isinstance(self.past, Fixed) and not cross:
            key = (window, keys)
            if key not in self.masks:
                self.masks[key] = self.past.mask(self.keep, window, keys)
            return self.masks[key]
        key = (causal, window, cross, blocks)
        if key not in self.masks:
            own = [] if blocks is None else [blocks]
            self.masks[key] = self._cross_mask() if cross else self._self_mask(causal, window, own)
        return self.masks[key]

    def _cross_mask(self) -> Mask | None:
        return None if self.context_keep is None else Padding(self.context_keep)

    def _self_mask(self, causal: bool, window: int | None, found: list[Mask]) -> Mask | None:
        if found and (self.documents is not None or self.start):
            raise InputError(
                "block-sparse attention lays its blocks over a whole row: document_ids and "
                "past_key_values have no place there; give rows of one document, or shorter ones"
            )
        if causal:
            found.append(Causal() if self.prefix is None else Causal() | Prefix(self.prefix))
        found += [Window(width) for width in {window, self.window} if width is not None]
        if self.documents is not None:
            found.append(Documents(self.documents))
        if self.keep is not None:
            found.append(Padding(self.keep, queries=True, right=self.right))
        return both(found)
