"""What a fused twin does besides its sublayers: an attention's step, and the end of a model.

Both are one kernel each, or two (ops/step.py, ops/rows.py), where the spec has nothing that those
don't know; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from anyformer.model.heads import Vocabulary
from anyformer.model.model import Model
from anyformer.ops.rows import MOST, Rows
from anyformer.ops.step import Slots, Step
from anyformer.ops.tiles import WIDEST
from anyformer.parts.attention import Attention
from anyformer.parts.fixed import Fixed
from anyformer.parts.rotary import wave_of
from anyformer.parts.state import Call

Map = Callable[[Tensor], Tensor]


def plain(attention: Attention) -> bool:
    """Whether nothing but rotary positions and a window stands between the maps."""
    spec = attention.spec
    more = (spec.collaborate, spec.qk_norm, spec.memory, spec.carry, attention.weigh)
    known = attention.bare and not any(more) and not spec.cross and spec.backend == "auto"
    return known and max(attention.size, attention.value_size) <= WIDEST


class Stepping:
    """The attention of one position of each row by one kernel, for a plain attention."""

    def __init__(self, attention: Attention):
        spec, like = attention.spec, attention.q.weight
        self.attention = attention
        self.step = Step(
            (spec.heads, spec.kv_heads or spec.heads),
            (attention.size, attention.value_size),
            attention.scale(Call(length=1, positions=like)),
            spec.window,
            spec.rotary is not None and spec.rotary.layout == "pairs",
            like,
            MOST,
        )

    def serves(self, x: Tensor, call: Call, path: str) -> bool:
        """Whether a call asks for nothing else, and its cache can be written by the kernel."""
        past = call.past
        if not isinstance(past, Fixed) or past.at is None or x.shape[1] != 1:
            return False
        told = (call.untied, call.weights, call.kept, call.source, call.maps, call.prefix)
        if any(t is not None for t in told) or call.relative or call.lora or call.reads:
            return False
        return all(t.dtype == x.dtype and t.stride(-1) == 1 for t in past.kv[path])

    def __call__(self, y: Tensor, call: Call, path: str) -> Tensor:
        """q, k and v (B, 1, …) side by side -> what the map out reads, (B, 1, H·E)."""
        past, rotary = call.past, self.attention.spec.rotary
        assert isinstance(past, Fixed) and past.at is not None
        keys, values = past.kv[path]
        live = min(past.length + 1, keys.shape[2])
        slots = Slots(keys, values, past.at, live, path in past.rings, call.keep)
        wave = None
        if rotary is not None:
            wave = wave_of(rotary, self.attention.size, call.newest(1), call.waves)
        return self.step(y[:, 0], slots, wave)[:, None]


def ends_plainly(model: Model) -> bool:
    """Whether a model ends in a norm that kernels know and one map to its vocabulary."""
    head, stack = model.head, model.stack
    if type(head) is not Vocabulary or stack.loop is not None or stack.out is not None:
        return False
    before = (head.dense, head.norm, head.project, head.place)
    return all(part is None for part in before) and head.spec.scale == 1.0


class Ending:
    """The last norm and the map to the vocabulary, in place of both.

    More rows than the kernels are meant for go through the norm and the map themselves.
    """

    def __init__(self, rows: Rows, norm: nn.Module | None, map: Map, cap: float | None):
        self.rows, self.norm, self.map, self.bare = rows, norm, map, cap is None

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, N, d) -> (B, N, V)."""
        if x.shape[0] * x.shape[1] <= self.rows.most:
            return self.rows(x)
        return self.map(x if self.norm is None else self.norm(x))

    def chooses(self, rows: int) -> bool:
        """Whether it can say the likeliest tokens of so many rows without their logits."""
        return self.bare and rows <= self.rows.most

    def choose(self, x: Tensor, tokens: Tensor, broken: Tensor) -> None:
        """Write the likeliest tokens after x (B, 1, d), and which rows (B,) hold no numbers."""
        self.rows.choose(x, tokens, broken)


def ending_of(twin: Model) -> Ending | None:
    """The ending of a twin that has one."""
    head = twin.head
    found = head.map if isinstance(head, Vocabulary) else None
    return found if isinstance(found, Ending) else None
