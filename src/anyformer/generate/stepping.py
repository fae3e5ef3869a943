"""What a fused twin does besides its sublayers: its entry, an attention's step, and its end.

Each is one kernel, or two (ops/entry.py, ops/step.py, ops/rows.py), where the spec has nothing that
those don't know; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from anyformer.model.embed import Embed
from anyformer.model.heads import Vocabulary
from anyformer.model.model import Model
from anyformer.ops.entry import run_entry
from anyformer.ops.rows import MOST, Rows, lacks
from anyformer.ops.step import Slots, Step
from anyformer.ops.tiles import WIDEST
from anyformer.parts.attention import Attention
from anyformer.parts.fixed import Fixed
from anyformer.parts.rotary import wave_of
from anyformer.parts.state import Call
from anyformer.parts.twin import heard
from anyformer.spec import Learned

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


class Entering(Embed):
    """An embedding that sums tokens and places by one kernel where a step has one token a row.

    Made by `fused` alone, of an embedding that `enters_plainly` knows.
    """

    def vectors(self, x: Tensor, table: Tensor | None) -> Tensor:
        """Ids (B, 1) as they are: `forward` looks them up with their places."""
        return x if self._serves(x) else super().vectors(x, table)

    def forward(
        self, x: Tensor, positions: Tensor, types: Tensor | None, langs: Tensor | None = None
    ) -> Tensor:
        """Ids (B, 1) or vectors (B, N, d) at positions (1 or B, N) -> the stream (B, N, d)."""
        if x.is_floating_point():
            return super().forward(x, positions, types, langs)
        place = self.spec.position
        assert isinstance(place, Learned) and self.token is not None and self.position is not None
        tables = [self.token.weight, self.position.weight]
        return run_entry(x, positions, tables, place.offset)

    def _serves(self, ids: Tensor) -> bool:
        return ids.dim() == 2 and ids.shape[1] == 1 and ids.shape[0] <= MOST


def enters_plainly(embed: nn.Module) -> bool:
    """Whether an embedding is a sum of tokens and learned places, and nobody listens to it."""
    if type(embed) is not Embed or any(heard(part) for part in embed.modules()):
        return False
    place, more = embed.spec.position, (embed.segment, embed.language, embed.norm, embed.project)
    if not isinstance(place, Learned) or place.skip is not None or place.scale != 1.0:
        return False
    if embed.token is None or embed.position is None or any(part is not None for part in more):
        return False
    tables = [embed.token.weight, embed.position.weight]
    alike = len({t.dtype for t in tables}) == 1 and all(t.is_contiguous() for t in tables)
    return embed.spec.scale == 1.0 and alike and lacks(tables[0]) is None


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
