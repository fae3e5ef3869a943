"""A Plan: everything that happens between q·kᵀ and the weighted sum of the values.

The order is fixed: add the scores of layers below, scale, mix heads, relative terms, mods, mask,
weigh, dropout, mix heads again.
Query i stands at position start + i and key j at position j - lead; keys before position 0 are
the persistent ones, which every query sees and which have no distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from anyformer.ops.mask import Mask
from anyformer.ops.relative import Relative, leaf
from anyformer.ops.weigh import Weigh

Chosen = dict[tuple[object, ...], str]


@dataclass(frozen=True, eq=False)
class Mod:
    """A pointwise change of the scores, (s, b, h, q, k) -> s, and the tensors that it learns."""

    function: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    tensors: tuple[Tensor, ...] = ()

    def __call__(self, s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The changed scores."""
        return self.function(s, b, h, q, k)


@dataclass(frozen=True, eq=False)
class Plan:
    """What one attention does with its scores."""

    scale: float
    mask: Mask | None = None
    relative: Relative | None = None
    mods: tuple[Mod, ...] = ()
    mix: Tensor | None = None  # (H, H): head g gets the sum over h of mix[h, g] · scores of h
    weigh: Weigh | None = None  # None: softmax
    remix: Tensor | None = None  # (H, H), of the weights
    dropout: float = 0.0
    start: int | Tensor = 0  # (1,) where only the device knows where its one query stands
    lead: int = 0
    carry: tuple[tuple[Tensor, Tensor], ...] = ()  # q and k of layers whose scores are added
    chosen: Chosen | None = None  # what runs it, by what it was asked with; None: asked each time

    def needs(self) -> dict[str, str]:
        """What this plan asks of a kernel, and which fields ask it."""
        asked = {
            "mask": self.mask is not None,
            "relative": self.relative is not None,
            "mods": bool(self.mods),
            "mix": self.mix is not None,
            "weigh": self.weigh is not None,
            "remix": self.remix is not None,
            "dropout": self.dropout > 0,
            "carry": len(self.carry) > 0,
        }
        rows = [f for f in ("mix", "weigh", "remix") if asked.pop(f)]  # need whole rows of scores
        needs = {field: field for field, wanted in asked.items() if wanted}
        return {**needs, "rows": ", ".join(rows)} if rows else needs

    def span(self, first: int, last: int, keys: int) -> tuple[int, int]:
        """The keys [low, high), counted with persistent ones, that queries [first, last) can see.

        Never empty: queries that see nothing get the first key, and their mask.
        """
        if self.mask is None:
            return 0, keys
        assert isinstance(self.start, int), "spans are the host's"
        low, high = self.mask.span(self.start + first, self.start + last - 1, keys - self.lead)
        low, high = (0 if self.lead else low), high + self.lead
        return (low, high) if high > low else (0, 1)

    def apart(self) -> Plan:
        """The same plan with tables and mixes that no longer know what they were made from.

        Tables can be made from one another; a backend that asks for the gradient of each needs
        them apart.
        """
        relative = None if self.relative is None else self.relative.apart()
        return replace(self, relative=relative, mix=leaf(self.mix), remix=leaf(self.remix))

    def tensors(self) -> list[Tensor]:
        """Every tensor of the plan that may learn."""
        tables = self.relative.tensors() if self.relative is not None else []
        mixes = [t for t in (self.mix, self.remix) if t is not None]
        below = [t for pair in self.carry for t in pair]
        return [*tables, *mixes, *(t for mod in self.mods for t in mod.tensors), *below]
