"""Attention: project, place, remember, plan, attend, project.

Letters: B batch, N new positions, K keys, H heads, G key heads, D size of q and k, E size of v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.ops import fusing, sides
from anyformer.ops import weigh as W
from anyformer.ops.attend import attend
from anyformer.ops.carry import beside
from anyformer.ops.eager import Place, weights, widen
from anyformer.ops.plan import Chosen, Mod, Plan
from anyformer.ops.relative import Relative, merge
from anyformer.ops.rotary import sinusoid
from anyformer.parts.base import build, part
from anyformer.parts.blocks import BlockSparse
from anyformer.parts.distance import Disentangled
from anyformer.parts.fixed import Fixed
from anyformer.parts.init import Fresh
from anyformer.parts.position import lead_zeros, shifted, tables_of
from anyformer.parts.rotary import stepped, turned
from anyformer.parts.state import Call, Pairs
from anyformer.parts.twin import bare
from anyformer.spec.walk import head_dim, qk_dim


@part(S.SoftCap)
class SoftCap(nn.Module):
    """value · tanh(s / value)."""

    def __init__(self, spec: S.SoftCap, heads: int):
        super().__init__()
        self.value = spec.value

    def mod(self) -> Mod:
        """The change of a score."""
        value = self.value
        return Mod(lambda s, b, h, q, k: torch.tanh(s / value) * value)


@part(S.Temperature)
class Temperature(nn.Module):
    """gain[h] · s."""

    def __init__(self, spec: S.Temperature, heads: int):
        super().__init__()
        self.gain = nn.Parameter(torch.full((heads,), spec.init))

    def mod(self) -> Mod:
        """The change of a score."""
        gain = self.gain
        return Mod(lambda s, b, h, q, k: s * gain[h].to(s.dtype), (gain,))


def weigh_of(spec: S.Weigh) -> W.Weigh | None:
    """The function from scores to weights; None for softmax."""
    if isinstance(spec, S.TopK):
        return partial(W.top_k, k=spec.k)
    if isinstance(spec, S.Sigmoid):
        return partial(W.sigmoid, bias=spec.bias)
    return {S.Entmax15: W.entmax15, S.Sparsemax: W.sparsemax}.get(type(spec))


Map = Callable[[Tensor], Tensor]
NARROW, MANY = 256, 256  # q, k and v are one product: the widest model, the fewest positions
JOINING: tuple[str, ...] = ("cuda",)  # the same in a compiled block: devices where it is faster
CROWD = 4096  # and the fewest positions


def _beside(y: Tensor) -> Tensor:
    """(B, H, N, E) -> (B, N, H·E)."""
    return y.reshape(y.shape[0], 1, -1) if y.shape[2] == 1 else y.transpose(1, 2).flatten(2)


@part(S.Attention)
class Attention(Fresh):
    """Multi-head attention with everything that its spec asks for."""

    def __init__(self, spec: S.Attention, dim: int):
        super().__init__()
        self.spec, self.dim = spec, dim
        self.size, self.value_size = qk_dim(spec, dim), head_dim(spec, dim)
        groups, source = spec.kv_heads or spec.heads, spec.context or dim
        shared = spec.collaborate is not None
        out_bias = spec.bias if spec.out_bias is None else spec.out_bias
        self.q = nn.Linear(dim, self.size * (1 if shared else spec.heads), spec.bias)
        k_bias = spec.bias if spec.k_bias is None else spec.k_bias
        self.k = nn.Linear(source, self.size * (1 if shared else groups), k_bias)
        self.v = nn.Linear(source, self.value_size * groups, spec.bias)
        self.out = nn.Linear(
            spec.heads * self.value_size, dim * (2 if spec.gate == "glu" else 1), out_bias
        )
        self.together: Map | None = None  # q, k and v by one map, in a decoder
        self.beside: Tensor | None = None  # their weights side by side, while an update keeps them
        self.collab = nn.Parameter(torch.empty(spec.heads, self.size)) if shared else None
        self._score_parts(groups)

    def _score_parts(self, groups: int) -> None:
        spec, heads, mem = self.spec, self.spec.heads, self.spec.memory
        key_heads = 1 if self.collab is not None else groups
        param = lambda *shape: nn.Parameter(torch.empty(shape))
        self.memory_k = param(key_heads, mem, self.size) if mem else None
        self.memory_v = param(groups, mem, self.value_size) if mem else None
        self.q_norm = build(spec.qk_norm, self.size) if spec.qk_norm else None
        self.k_norm = build(spec.qk_norm, self.size) if spec.qk_norm else None
        self.talk_pre = param(heads, heads) if spec.talking in ("pre", "both") else None
        self.talk_post = param(heads, heads) if spec.talking in ("post", "both") else None
        self.mods = nn.ModuleList(build(m, heads) for m in spec.mods)
        blocks = build(spec.blocks, heads) if spec.blocks is not None else None
        assert blocks is None or isinstance(blocks, BlockSparse)
        self.blocks = blocks
        self.relative = nn.ModuleList(build(r, heads, self.size, self.dim) for r in spec.relative)
        apart = spec.disentangled and build(spec.disentangled, heads, self.size, self.dim)
        assert apart is None or isinstance(apart, Disentangled)
        self.disentangled = apart
        self.weigh = weigh_of(spec.weigh)
        own = (spec.mods, spec.talking != "no", spec.blocks, spec.relative, spec.disentangled)
        self.bare = not any(own)  # nothing of its own goes into its plan

    def fresh(self, std: float) -> None:
        """Heads that don't talk yet, memories of the size of keys and values (1907.01470)."""
        for talk in (self.talk_pre, self.talk_post):
            if talk is not None:
                nn.init.eye_(talk)
        if self.memory_k is not None and self.memory_v is not None:
            nn.init.normal_(self.memory_k, std=self.size**-0.5)
            nn.init.normal_(self.memory_v, std=self.spec.memory**-0.5)
        if self.collab is not None:
            nn.init.normal_(self.collab)

    def gains(self) -> dict[nn.Module, float]:
        """Queries such that scores begin with a deviation of 1, whatever their scale."""
        scale = self.size**-0.5 if self.spec.scale is None else self.spec.scale
        return {self.q: self.size**-0.5 / scale}

    def forward(self, x: Tensor, call: Call, path: str) -> Tensor:
        """x (B, M, d), whose last N rows ask -> (B, N, d)."""
        q, k, v = self._remembered(x, call, path) if self.spec.cross else self._own(x, call, path)
        k, v = self._with_memory(k, v)
        q = q if q.dtype == k.dtype else q.to(k.dtype)  # a cache may be wider
        plan = self._plan(call, path, q.shape[2], k.shape[2])
        if self.spec.carry:
            plan = replace(plan, carry=self._below(q, k, call))
        if not self.bare or call.relative:
            q = self._shifted(q, call)
        if call.untied is not None and not self.spec.cross:
            q, k = self._untied(q, k, call.untied)
        if call.weights is not None:
            at = Place(0, plan.start, -plan.lead)
            call.weights.append(weights(q, widen(k, q.shape[1]), plan, at))
        y = attend(q, k, v, plan, self.spec.backend)  # (B, H, N, E)
        if y.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
            y = y.to(x.dtype)
        y = call.linear("out", self.out, _beside(y))
        return F.glu(y, -1) if self.spec.gate == "glu" else y

    def _own(self, x: Tensor, call: Call, path: str) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of the sequence itself and of what a cache remembers."""
        if (lent := call.lent(path)) is not None:
            return self._asked(x[:, -call.length :], call), *lent
        y = self._joined(x, call) or self._apart(x, call)
        q, k, v = self._queries(y[0]), self._keys(y[1]), self._split(y[2], self.value_size)
        if self.spec.rotary is not None:
            q, k = self._turned(self.spec.rotary, q, k, call)
        return q, *call.lend(path, *call.extend(path, k, v))

    def _turned(self, spec: S.Rotary, q: Tensor, k: Tensor, call: Call) -> tuple[Tensor, Tensor]:
        at = call.newest(k.shape[2])
        if isinstance(call.past, Fixed):
            return stepped(spec, q, k, at, call.waves)
        return turned(spec, q, k, at)

    def _apart(self, x: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v (B, M, width of each) by a product each."""
        at = call.newest(x.shape[1])
        read = x if call.source is None else call.source
        placed = self._placed(read, at)
        asks = placed if read is x else self._placed(x, at)
        asks = asks if call.length == asks.shape[1] else asks[:, -call.length :]
        q, k = call.linear("q", self.q, asks), call.linear("k", self.k, placed)
        return q, k, call.linear("v", self.v, read)

    def _joined(self, x: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor] | None:
        """The same by one product, where three would cost more than the joining."""
        maps = (self.q, self.k, self.v)
        widths = (self.q.out_features, self.k.out_features, self.v.out_features)
        if call.lora or (call.maps is not None and "q" in call.maps):
            return None
        if self.together is not None:
            q, k, v = self.together(x).split_with_sizes(widths, -1)
            return q, k, v
        if not self._pays(x, call) or not all(map(bare, maps)):
            return None
        biases = tuple(m.bias for m in maps if m.bias is not None)
        if biases and len(biases) < len(maps):
            return None
        weight = self.beside
        weight = torch.cat(tuple(m.weight for m in maps)) if weight is None else weight
        bias = torch.cat(biases) if biases else None
        if bias is not None and fusing.asked("sides", x):
            return sides.apart(F.linear(x, weight, bias.detach()), bias, widths)
        q, k, v = F.linear(x, weight, bias).split_with_sizes(widths, -1)
        return q, k, v

    def _pays(self, x: Tensor, call: Call) -> bool:
        """Whether joining is for inputs x: small ones on a CPU, plain ones in a compiled block."""
        many = x.shape[0] * x.shape[1]
        if call.source is not None or call.length != x.shape[1] or self.spec.infused is not None:
            return False
        if torch.compiler.is_compiling():
            plain = self.bare and len(call.relative) == 0
            return x.device.type in JOINING and many >= CROWD and plain
        return x.device.type == "cpu" and self.dim <= NARROW and many >= MANY

    def _asked(self, x: Tensor, call: Call) -> Tensor:
        """q of the new positions alone."""
        at = call.newest(x.shape[1])
        q = self._queries(call.linear("q", self.q, self._placed(x, at)))
        return q if self.spec.rotary is None else turned(self.spec.rotary, q, q, at)[0]

    def _placed(self, x: Tensor, at: Tensor) -> Tensor:
        """x (B, M, d) with its positions (1 or B, M), where they are added to what q and k see."""
        f = self.spec.infused
        if f is None:
            return x
        waves = sinusoid(at + f.offset, self.dim, f.theta, f.layout, f.closed)
        return x + f.scale * waves.to(x.dtype)

    def _remembered(self, x: Tensor, call: Call, path: str) -> tuple[Tensor, Tensor, Tensor]:
        """q of the sequence, k and v of the encoder's output, projected once where cached."""
        if (lent := call.lent(path)) is not None:
            return self._queries(call.linear("q", self.q, x)), *lent
        known = call.remembered(path)
        if known is None:
            if call.context is None:
                raise InputError("cross-attention has nothing to read: pass encoder_hidden_states")
            k = call.linear("k", self.k, call.context)
            v = call.linear("v", self.v, call.context)
            known = self._keys(k), self._split(v, self.value_size)
        if call.following is not None and call.following.is_cache:
            call.following.kv[path] = known
        return self._queries(call.linear("q", self.q, x)), *call.lend(path, *known)

    def _split(self, x: Tensor, size: int) -> Tensor:
        """(B, M, G·size) -> (B, G, M, size)."""
        if x.shape[1] == 1:  # as in every step of decoding
            return x.view(x.shape[0], -1, 1, size)
        return x.view(*x.shape[:-1], x.shape[-1] // size, size).transpose(1, 2)

    def _queries(self, q: Tensor) -> Tensor:
        q = self._split(q, self.size)  # (B, H or 1, N, D)
        q = q if self.collab is None else q * self.collab[:, None].to(q.dtype)
        return q if self.q_norm is None else self.q_norm(q)

    def _keys(self, k: Tensor) -> Tensor:
        k = self._split(k, self.size)
        return k if self.k_norm is None else self.k_norm(k)

    def _with_memory(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Persistent keys and values in front."""
        if self.memory_k is None or self.memory_v is None:
            return k, v
        rows = lambda m, x: m.to(x.dtype).expand(x.shape[0], -1, -1, -1)
        return torch.cat([rows(self.memory_k, k), k], 2), torch.cat([rows(self.memory_v, v), v], 2)

    def _shifted(self, q: Tensor, call: Call) -> Tensor:
        """q shifted by relative parts."""
        return shifted(q, self._relatives(call))

    def _below(self, q: Tensor, k: Tensor, call: Call) -> Pairs:
        """q and k of the layers below, whose scores are added; those above get ours as well.

        In a compiled block they are one pair of all channels, so that its graph serves all layers.
        """
        below = call.carried.get(self.spec.cross, ())
        pairs = ((q, k), *below)
        if torch.compiler.is_compiling() and below:
            pairs = ((beside([x for x, _ in pairs]), beside([x for _, x in pairs])),)
        call.carried[self.spec.cross] = pairs
        return below

    def _untied(
        self, q: Tensor, k: Tensor, channels: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """q and k with the channels of their positions beside them."""
        beside = lambda x, c: torch.cat([x, c.to(x.dtype).expand(x.shape[0], -1, -1, -1)], -1)
        k = widen(k, self.spec.heads)
        seen = channels[1][:, :, self.spec.memory - k.shape[2] :]  # a window of them perhaps
        return beside(q, channels[0]), beside(k, lead_zeros(seen, self.spec.memory))

    def _relatives(self, call: Call) -> list[nn.Module]:
        return [] if self.spec.cross else [*self.relative, *call.relative]

    def scale(self, call: Call) -> float:
        """What scores are multiplied by."""
        kinds = 1 + (call.untied is not None and not self.spec.cross)
        kinds += 0 if self.spec.disentangled is None else self.spec.disentangled.terms
        return self.spec.scale or (self.value_size * kinds) ** -0.5

    def _tables(self, call: Call, new: int, keys: int, scale: float) -> Relative | None:
        start = call.start
        ahead = 0 if self.spec.causal and call.prefix is None else keys - 1 - start
        found = self._terms(call, 1 - start - new, max(ahead, 0), scale)
        if self.disentangled is not None and call.distances is not None:
            keys_of = lambda x: widen(self._keys(call.linear("k", self.k, x)), self.spec.heads)
            queries_of = lambda x: self._queries(call.linear("q", self.q, x))
            near, apart = call.distances, self.disentangled
            make = lambda: apart.tables(near, keys_of, queries_of, scale)
            found.append(call.once((apart, near, call.maps, call.lora, scale), make))
        return merge(found)

    def _terms(self, call: Call, low: int, high: int, scale: float) -> list[Relative]:
        """The tables of relative parts, for distances low..high at least."""
        parts, low = self._relatives(call), call.far(low)
        if not parts:
            return []
        make = lambda: tables_of(parts, low, high, scale)
        return [*call.once((*parts, low, high, scale), make)]

    def _plan(self, call: Call, path: str, new: int, keys: int) -> Plan:
        """The plan of new queries and keys; layers alike that bring nothing to it share one."""
        if not self.bare or call.relative or torch.compiler.is_compiling():
            return self._made(call, path, new, keys)
        key = (id(self.spec), self.training, new, keys)
        if key not in call.plans:
            call.plans[key] = self._made(call, path, new, keys, {})
        return call.plans[key]

    def _made(
        self, call: Call, path: str, new: int, keys: int, chosen: Chosen | None = None
    ) -> Plan:
        spec, scale = self.spec, self.scale(call)
        mods = [m.mod() for m in self.mods if isinstance(m, (SoftCap, Temperature))]
        blocks, counts = None, ()
        if self.blocks is not None:
            layer, device = int(path.partition(".")[0]), self.q.weight.device
            blocks, counts = self.blocks.seen(keys - spec.memory, layer, device)
        return Plan(
            scale=scale,
            mask=call.mask(spec.causal, spec.window, spec.cross, blocks, keys - spec.memory),
            relative=self._tables(call, new, keys - spec.memory, scale),
            mods=(*mods, *counts),
            mix=self.talk_pre,
            weigh=self.weigh,
            remix=self.talk_post,
            dropout=spec.dropout if self.training and blocks is None else 0.0,
            start=0 if spec.cross else call.place(keys - spec.memory, new),
            lead=spec.memory,
            chosen=chosen,
        )
