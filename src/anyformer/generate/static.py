"""Decoding over a cache of a set size.

On a CPU a step attends to the live part of the cache. On a GPU the position is a number on the
device: steps up to each power of two are one CUDA graph, captured when first met and replayed from
then on, and the host waits for nothing.
Letters: B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from anyformer.errors import InputError
from anyformer.generate.decoder import Growing
from anyformer.generate.fused import fused as fused_twin
from anyformer.generate.held import Held, Kinds, hold, laid
from anyformer.generate.int8 import Int8
from anyformer.generate.lean import lean
from anyformer.generate.opening import Openings
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import check_room
from anyformer.generate.stepping import ending_of
from anyformer.model.model import Model
from anyformer.ops.capture import capture
from anyformer.ops.rows import lacks
from anyformer.parts.fixed import Fixed
from anyformer.parts.state import Call
from anyformer.spec.walk import customs

EVEN = 16  # live keys are a multiple of it, as kernels of a GPU like them
SMALLEST, COMPILED = 64, 512  # live keys of the smallest graph, and of the smallest compiled one
KINDS = 64  # of compiled steps that are kept
TUNED: Any = {"coordinate_descent_tuning": True}  # products with one row are sums, in best blocks
WARM = 2  # steps before a capture, in which libraries make what they keep

Work = Callable[[Held, int, "Pick | None"], Tensor]
Pick = Callable[[Tensor], Tensor]  # logits (B, V) -> tokens (B,)


def kept_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of keys and values: on a CPU float32 in place of bfloat16.

    Attention of one query to bfloat16 takes several times as long, even with products of it.
    """
    slow = device.type == "cpu" and dtype == torch.bfloat16
    return torch.float32 if slow else dtype


def greedy(logits: Tensor) -> Tensor:
    """The likeliest tokens (B,)."""
    return logits.argmax(-1)


def unserved(model: Model, prompt: Prompt) -> str | None:
    """Why a cache of a set size can't serve a prompt, if so."""
    if prompt.given.get("mem_len") is not None or model.spec.stack.primed:
        return "a segment memory has a set size already"
    if customs(model.spec.stack):
        return "a branch of one's own may keep what grows"
    return None


class Static:
    """A model over a cache of a set size, which grows where a text is longer than was expected.

    `room` is how many new tokens are expected. `weights` may be "int8", on a CPU. `buckets` asks
    for live lengths of powers of two, as on a GPU; None: where the model is on one. `compile`
    compiles a step before it is captured, on a GPU: a minute once, for steps half again as fast.
    `fused` asks for sublayers of few Triton kernels (generate/fused.py), on a GPU; None: where
    Triton is and nothing is to be compiled.
    Weights are read when it is made: make another one after training. A lean `twin` may be there
    already.
    """

    def __init__(
        self,
        model: Model,
        room: int = 256,
        weights: Literal["own", "int8"] = "own",
        buckets: bool | None = None,
        compile: bool = False,
        twin: Model | None = None,
        fused: bool | None = None,
    ):
        if weights not in ("own", "int8"):
            raise InputError(f"weights must be 'own' or 'int8', not {weights!r}")
        if room < 1:
            raise InputError(f"room must be at least 1 new token, not {room}")
        small, first = weights == "int8", next(model.parameters())
        self.model, self.expected = model, room
        self.dtype = kept_dtype(torch.bfloat16 if small else first.dtype, first.device)
        if fused and (reason := "takes no int8 weights" if small else lacks(first)):
            raise InputError(f"fused=True {reason}: leave it out")
        if twin is not None and (fused or small):
            raise InputError("a twin is made already: leave fused and weights out, or the twin")
        if fused is None:
            fused = first.is_cuda and twin is None and not (small or compile or lacks(first))
        twin = fused_twin(model) if fused else twin
        self.twin = twin or (lean(model, Int8, torch.bfloat16) if small else lean(model))
        self.ending = ending_of(self.twin)  # of a fused twin
        self.on_gpu = first.device.type == "cuda"
        if compile and not self.on_gpu:
            raise InputError("compile=True is for a model on a GPU: move it there, or leave it out")
        self.compile, self.smallest = compile, COMPILED if compile else SMALLEST
        self.buckets = self.on_gpu if buckets is None else buckets
        self.length = self.room = 0  # positions read, and how many there is room for
        self.held: Held | None = None
        self.kinds = Kinds(frozenset(), {}, frozenset())
        self.cache = Fixed({}, 0)
        self.captured: dict[tuple[int, Pick | None], tuple[Any, Tensor]] = {}
        self.openings = Openings(model)

    @torch.inference_mode()
    def start(self, prompt: Prompt) -> Tensor:
        """Read a prompt, forgetting all before -> logits (B, V) after its last ids."""
        if self.on_gpu and self.buckets:
            logits, self.length = self.openings.read(prompt, self._open, self._check)
            return logits
        self._check(prompt)
        return self._open(prompt)[0]

    def _check(self, prompt: Prompt) -> None:
        """Raise where a prompt can't be served, or there is no memory for it."""
        reason = unserved(self.model, prompt)
        if reason is not None:
            raise InputError(f"{reason}: read it with Growing")
        rows, length = prompt.ids.shape
        check_room(self.model, rows, length + self.expected, self.dtype)

    def _open(self, prompt: Prompt) -> tuple[Tensor, int]:
        """Read a prompt with a growing cache and take over what that remembers.

        What comes back are logits (B, V) and how many positions were read.
        """
        rows, grown = len(prompt.ids), Growing(self.model)
        logits, past = grown.start(prompt), grown.past
        assert past is not None
        self.length, self.room = past.length, past.length + self.expected
        self.room += -self.room % EVEN if self.buckets else 0
        held, kinds = hold(self.model.spec, past, rows, self.room)
        if self.held is None or not self.held.fill(held, past.kv, kinds):
            kv = laid(past.kv, kinds, self.room, self.dtype)
            self._keep(replace(held, kv=kv), kinds)
        return logits, self.length

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each row, (B,) -> logits (B, V) after it."""
        held = self._ready()
        if self.buckets:
            held.tokens.copy_(tokens)
            return self._bucket(held, None).clone()
        self.cache.length = self.length
        self.length += 1
        return self._logits(held, tokens, self.cache)

    @torch.inference_mode()
    def write(self, tokens: Tensor, count: int, pick: Pick = greedy) -> Tensor:
        """Continue tokens (B,) by `count` more, each picked from logits -> (B, count).

        On a GPU the pick is part of the graph: no step waits for the host, nor the host for it.
        `broken` then says for which rows (B,) some logits were no numbers.
        """
        found: list[Tensor] = []
        self._ready().broken.zero_()
        for i in range(count):
            if self.buckets:
                held = self._ready()
                if not i:
                    held.tokens.copy_(tokens)
                self._bucket(held, pick)
                tokens = held.tokens.clone()
            else:
                tokens = self._picked(self._ready(), self.step(tokens), pick)
            found.append(tokens)
        return torch.stack(found, 1)

    @property
    def broken(self) -> Tensor:
        """Rows (B,) that `write` met numbers in that are none."""
        assert self.held is not None, "nothing was written yet"
        return self.held.broken

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows (B',) of the present ones, some left out, some several times."""
        held = self.held
        if held is not None and len(rows) == len(held.tokens):
            held.choose(rows, self.kinds, self.length)
        elif held is not None:
            self._keep(held.chosen(rows), self.kinds)

    def _keep(self, held: Held, kinds: Kinds) -> None:
        """Go on with other tensors."""
        self.held, self.kinds = held, kinds
        self.cache = held.cache(kinds, self.length)
        self.captured.clear()
        self.openings.graphs.clear()

    def _ready(self) -> Held:
        """What is held, with room for one more position."""
        if self.held is None:
            raise InputError("a decoder goes on after a prompt: call start first")
        if self.length == self.room:
            self.room += self.expected
            check_room(self.model, len(self.held.tokens), self.room, self.dtype)
            self._keep(self.held.wide(self.room, self.kinds), self.kinds)
        return self.held

    def _logits(self, held: Held, tokens: Tensor, cache: Fixed) -> Tensor:
        """One pass of the twin over a token of each row -> (B, V)."""
        return self.twin.decoded(*self._read(held, tokens, cache))[:, -1]

    def _read(self, held: Held, tokens: Tensor, cache: Fixed) -> tuple[Tensor, Tensor, Call]:
        """What a pass over a token of each row is given: ids and places (B, 1), and the call."""
        ids, live = tokens[:, None], cache.length + 1
        if cache.at is None:
            here = held.positions.narrow(1, cache.length, 1)
        else:
            here = held.positions.index_select(1, cache.at)
        call = Call(
            length=1,
            positions=held.positions.narrow(1, 0, live),
            here=here,
            keep=None if held.keep is None else held.keep.narrow(1, 0, live),
            context=held.context,
            context_keep=held.context_keep,
            past=cache,
        )
        return ids, self._places(held, ids, here), call

    def _places(self, held: Held, ids: Tensor, here: Tensor) -> Tensor:
        """The positions (1 or B, 1) that the embedding adds: -1 for a token without a place."""
        position = self.model.spec.embed.position
        if held.placed is None or position is None:
            return here
        there = ids != position.skip
        places = torch.where(there, held.placed, -1)
        held.placed.add_(there)
        return places

    def _bucket(self, held: Held, pick: Pick | None) -> Tensor:
        """A step over as many keys as the next power of two -> (B, V), which the next reuses."""
        self.length += 1
        live = min(self.room, max(self.smallest, 1 << (self.length - 1).bit_length()))
        if not self.on_gpu:
            return self._work(held, live, pick)
        if (live, pick) not in self.captured:
            self.captured[live, pick] = self._capture(held, live, pick)
        graph, result = self.captured[live, pick]
        graph.replay()
        return result

    def _work(self, held: Held, live: int, pick: Pick | None) -> Tensor:
        """What one graph does -> logits (B, V), or the tokens where those aren't written out."""
        cache = held.cache(self.kinds, live - 1, held.at)
        if pick is greedy and self.ending is not None and self.ending.chooses(len(held.tokens)):
            x = self.twin.carried(*self._read(held, held.tokens, cache))
            self.ending.choose(x, held.tokens, held.broken)
            held.at.add_(1)
            return held.tokens
        logits = self._logits(held, held.tokens, cache)
        if pick is not None:
            held.tokens.copy_(self._picked(held, logits, pick))
        held.at.add_(1)
        return logits

    def _compiled(self) -> Work:
        """The work compiled, for each number of keys anew."""
        from torch._dynamo import config  # a second that others need not wait

        compiled: Any = torch.compile(self._work, fullgraph=True, dynamic=False, options=TUNED)

        def work(held: Held, live: int, pick: Pick | None) -> Tensor:
            with config.patch(recompile_limit=KINDS):
                return compiled(held, live, pick)

        return work

    def _picked(self, held: Held, logits: Tensor, pick: Pick) -> Tensor:
        """Tokens (B,) picked from logits (B, V), whose faults are kept."""
        held.broken.logical_or_(~logits.amax(-1).isfinite())
        return pick(logits)

    def _capture(self, held: Held, live: int, pick: Pick | None) -> tuple[Any, Tensor]:
        """The work as a graph; steps before it, and the capture, leave nothing behind."""
        work = self._compiled() if self.compile else self._work
        changed = [x for x in (held.tokens, held.at, held.placed, held.broken) if x is not None]
        kept = [x.clone() for x in changed]
        stream: Any = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                work(held, live, pick)
                for x, old in zip(changed, kept, strict=True):
                    x.copy_(old)
        torch.cuda.current_stream().wait_stream(stream)
        try:
            return capture(lambda: work(held, live, pick), stream)
        except RuntimeError as error:
            raise InputError(
                f"this model's step can't be captured ({str(error).splitlines()[0]}): "
                "read it with Growing"
            ) from error
