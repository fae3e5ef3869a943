"""A model that goes on token by token: what generation asks of it, and the plain way to do it.

Letters: B batch, N new positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from anyformer.errors import InputError
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import at_a_time
from anyformer.model.begin import primed
from anyformer.model.model import Model
from anyformer.parts.state import Past


class Decoder(Protocol):
    """A model and what it remembers of the rows that it continues."""

    def start(self, prompt: Prompt) -> Tensor:
        """Read a prompt, forgetting all before -> logits (B, V) after its last ids."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each row, (B,) -> logits (B, V) after it."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows (B',) of the present ones, some left out, some several times."""
        ...


class Growing:
    """A model with a cache that grows, or with the segment memory of Transformer-XL."""

    def __init__(self, model: Model):
        self.model = model
        self.past: Past | None = None
        self._name = "input_ids"
        self._memory: dict[str, Any] = {}  # arguments that keep a segment memory going
        self._still: frozenset[str] = frozenset()  # attentions whose keys don't grow

    def start(self, prompt: Prompt) -> Tensor:
        """Read a prompt, forgetting all before -> logits (B, V) after its last ids."""
        spec, given = self.model.spec, dict(prompt.given)
        limit = given.pop("mem_len", None)
        segments = limit is not None or spec.stack.primed
        self._memory = {"return_mems": True, "mem_len": limit} if segments else {}
        self._name, self.past = prompt.name, None
        size = self._size(prompt, segments and limit == 0)
        if size >= prompt.ids.shape[1]:
            given[prompt.name] = prompt.ids
            return self._run(given | (self._memory or {"use_cache": True}), 1)[:, -1]
        parts = replace(prompt, given=given).parts(size, spec.embed.memory)
        if not segments:
            return self._first({"use_cache": True}, parts)
        limit = spec.stack.recurrence if limit is None else limit
        kept, whole = self._memory, limit + prompt.ids.shape[1]
        self._memory = {"return_mems": True, "mem_len": whole}  # all of it until it is read
        begun = primed(spec.stack, limit, given.get(prompt.mask_name), prompt.ids.device)
        logits = self._first({"mems": begun, **self._memory}, parts)
        assert self.past is not None
        self.past, self._memory = recalled(self.past, limit), kept
        return logits

    def _size(self, prompt: Prompt, nothing: bool) -> int:
        """Positions that are read at a time; all where a memory of zeros is one of nothing."""
        rows, length = prompt.ids.shape
        if nothing and self.model.spec.stack.primed:
            if prompt.prefill is not None and prompt.prefill < length:
                raise InputError("prefill: with mem_len=0 this model reads a prompt at once")
            return length
        return prompt.prefill or at_a_time(self.model, rows, length) or length

    def _first(self, more: dict[str, Any], parts: list[Prompt]) -> Tensor:
        """Read a prompt part by part, one position's logits of each (B, V), those of the last."""
        logits = self._run({**parts[0].first, **more}, 1)
        for part in parts[1:]:
            mask = part.given.get(part.mask_name)
            logits = self.read(part.ids, 1, None if mask is None else {part.mask_name: mask})
        return logits[:, -1]

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each row, (B,) -> logits (B, V) after it."""
        return self.read(tokens[:, None])[:, -1]

    def read(self, ids: Tensor, last: int = 0, more: dict[str, Any] | None = None) -> Tensor:
        """Read more ids (B, N) -> logits (B, N, V), or those after the last positions only."""
        if self.past is None:
            raise InputError("a decoder goes on after a prompt: call start first")
        given = {self._name: ids, **(more or {})}
        if not self._memory:
            return self._run({**given, "past_key_values": self.past}, last)
        known = {"mems": self.past, "encoder_hidden_states": self.past.context}
        keep = {"encoder_attention_mask": self.past.context_keep}
        return self._run({**given, **known, **keep, **self._memory}, last)

    def _run(self, given: dict[str, Any], last: int) -> Tensor:
        old = given.get("past_key_values")
        out = self.model(**given, logits_to_keep=last)
        self.past = out.mems if self._memory else out.past_key_values
        if old is not None:
            pairs = out.past_key_values.kv.items()
            self._still = frozenset(path for path, (k, _) in pairs if k is old.kv[path][0])
        return out.logits

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows (B',) of the present ones, some left out, some several times."""
        if self.past is not None:
            self.past = chosen(self.past, rows)

    def forget(self, count: int) -> None:
        """Go back to before the last `count` positions; only a cache can."""
        if self.past is None or count == 0:
            return
        if self._memory:
            raise InputError("a segment memory can't go back: leave mem_len out")
        self.past = shortened(self.past, count, self._still)


def recalled(past: Past, limit: int) -> Past:
    """A segment memory of everything, cut to a limit."""
    short = replace(past, limit=limit)
    cut = lambda x: None if x is None else short.kept(x)
    return replace(
        short,
        length=min(past.length, past.pinned + limit),
        positions=cut(past.positions),
        keep=cut(past.keep),
        hidden={path: short.kept(x) for path, x in past.hidden.items()},
    )


def chosen(past: Past, rows: Tensor) -> Past:
    """What is remembered of some rows."""

    def pick(x: Tensor | None) -> Tensor | None:
        return x if x is None or (x.shape[0] == 1 and batch != 1) else x.index_select(0, rows)

    batch = _batch(past)
    pairs = {p: (k.index_select(0, rows), v.index_select(0, rows)) for p, (k, v) in past.kv.items()}
    return replace(
        past,
        positions=pick(past.positions),
        keep=pick(past.keep),
        placed=pick(past.placed),
        hidden={path: x.index_select(0, rows) for path, x in past.hidden.items()},
        kv=pairs,
        context=pick(past.context),
        context_keep=pick(past.context_keep),
    )


def _batch(past: Past) -> int:
    """The number of rows that are remembered."""
    kept = [*past.hidden.values(), *(k for k, _ in past.kv.values())]
    return kept[0].shape[0] if kept else 1


def shortened(past: Past, count: int, whole: frozenset[str] = frozenset()) -> Past:
    """A cache without its last positions; attentions to an encoder's output stay whole."""
    length = past.length - count
    if past.placed is not None:
        raise InputError("this model counts tokens without a place: its cache can't go back")
    cut = lambda path, x: x if path in whole else x[:, :, :length]
    return replace(
        past,
        length=length,
        seen=past.seen - count,
        positions=None if past.positions is None else past.positions[:, :length],
        keep=None if past.keep is None else past.keep[:, :length],
        kv={path: (cut(path, k), cut(path, v)) for path, (k, v) in past.kv.items()},
    )


def expanded(decoder: Decoder, logits: Tensor, copies: int) -> Tensor:
    """Each row several times, one after the other: in a decoder, and in its logits (B, V)."""
    if copies == 1:
        return logits
    rows = torch.arange(logits.shape[0], device=logits.device).repeat_interleave(copies)
    decoder.reorder(rows)
    return logits.index_select(0, rows)
