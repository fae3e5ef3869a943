"""Which decoder a call of generate gets, and why; twins that stay with a model as long as it does.

`Static` writes faster than `Growing`, but its lean twin must be made first, which costs about as
much as the twin saves in some thirty tokens. So a twin is made where one call, or several with the
same weights, ask for so many, and stays with its model. It is never used for other weights: some
optimisers, and all that write to `.data`, leave no trace in a tensor's version, so what the weights
are is looked at in every call, which reads each of them once, as one step of decoding does.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anyformer.errors import InputError
from anyformer.generate.decoder import Decoder, Growing
from anyformer.generate.lean import lean
from anyformer.generate.options import Sampling
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import cache_bytes, check_room, free_bytes, readable
from anyformer.generate.static import Static, unserved
from anyformer.model.model import Model

LEAST = 16  # new tokens; for fewer, to look at the weights costs what a twin saves
WORTH = 32  # new tokens, of one call or of several, that pay for making a twin
ROOM = 256  # new positions that a cache has room for at first
SHARE = 2  # a twin and a cache may take one part in so many of the memory that is free
WORDS = 8  # bytes that are looked at together
MANY = 4096  # words, or sums of words, that are told apart in a tensor

Kind = Literal["auto", "static", "growing"]
KINDS = ("auto", "static", "growing")


@dataclass(frozen=True)
class Choice:
    """Which decoder it is, and why."""

    kind: Literal["static", "growing"]
    reason: str


@dataclass
class Kept:
    """What stays with a model: what its weights were, tokens asked of them, and their twin."""

    stamp: Stamp
    asked: int = 0
    twin: Model | None = None


@dataclass(frozen=True, eq=False)
class Stamp:
    """A model's parts and weights at one time; holds all of them but the model itself."""

    parts: tuple[Any, ...]  # compared as objects
    marks: tuple[Any, ...]  # compared by value

    def same(self, other: Stamp) -> bool:
        """Whether nothing has changed."""
        alike = len(self.parts) == len(other.parts) and self.marks == other.marks
        return alike and all(a is b for a, b in zip(self.parts, other.parts, strict=True))


_KEPT: weakref.WeakKeyDictionary[Model, Kept] = weakref.WeakKeyDictionary()


def choose(model: Model, prompt: Prompt, sampling: Sampling) -> Choice:
    """The decoder that generate would take now for a prompt and options, and why."""
    return _decided(model, prompt, sampling)[0]


def _decided(model: Model, prompt: Prompt, sampling: Sampling) -> tuple[Choice, Stamp | None]:
    """The choice, and what the model is now where that was looked at."""
    asked, reason = sampling.max_new_tokens, unserved(model, prompt)
    if reason is None and asked < LEAST:
        reason = f"{asked} new tokens are over before a twin pays: {LEAST} do"
    reason = reason or _unlike(model) or _dear(model, prompt, sampling)
    if reason is not None:
        return Choice("growing", reason), None
    stamp = None if model.training else stamp_of(model)
    kept = None if stamp is None else _known(model, stamp)
    if kept is not None and kept.twin is not None:
        return Choice("static", "the model's twin is there, and its weights are the same"), stamp
    asked += 0 if kept is None else kept.asked
    if asked < WORTH:
        reason = f"{asked} new tokens of these weights don't pay for a twin: {WORTH} do"
        return Choice("growing", reason), stamp
    return Choice("static", f"{asked} new tokens pay for a twin"), stamp


def decoder_of(
    model: Model, prompt: Prompt, sampling: Sampling, asked: Kind | None = None
) -> Decoder:
    """The decoder of a call: as asked, else as `choose` says; a twin is made or used again."""
    if asked not in (None, *KINDS):
        raise InputError(f"decoder must be one of {', '.join(KINDS)}, or a decoder, not {asked!r}")
    if asked == "growing":
        return Growing(model)
    if asked == "static":
        reason = unserved(model, prompt)
        if reason is not None:
            raise InputError(f"decoder='static': {reason}; leave it out")
        alike = not model.training and _unlike(model) is None
        return _static(model, prompt, sampling, stamp_of(model) if alike else None)
    choice, stamp = _decided(model, prompt, sampling)
    if choice.kind == "static":
        return _static(model, prompt, sampling, stamp)
    if stamp is not None:
        _count(model, stamp, sampling.max_new_tokens)
    return Growing(model)


def forget(model: Model) -> None:
    """Free the twin that stays with a model, if there is one."""
    _KEPT.pop(model, None)


def _static(model: Model, prompt: Prompt, sampling: Sampling, stamp: Stamp | None) -> Static:
    """A static decoder, for which there is room; its twin is kept by the stamp, if there is one."""
    twin, room = None, max(1, min(sampling.max_new_tokens - 1, ROOM))
    if stamp is not None:
        kept = _count(model, stamp, sampling.max_new_tokens)
        twin = kept.twin = lean(model) if kept.twin is None else kept.twin
    fixed = Static(model, room=room, twin=twin)
    check_room(model, _rows(prompt, sampling), prompt.ids.shape[1] + room, fixed.dtype)
    return fixed


def _known(model: Model, stamp: Stamp) -> Kept | None:
    """What is kept of a model, if it is still the same."""
    kept = _KEPT.get(model)
    return kept if kept is not None and kept.stamp.same(stamp) else None


def _count(model: Model, stamp: Stamp, new: int) -> Kept:
    """Count tokens that are asked of weights, from 0 where those are new."""
    kept = _known(model, stamp)
    if kept is None:
        kept = _KEPT[model] = Kept(stamp)
    kept.asked += new
    return kept


def _rows(prompt: Prompt, sampling: Sampling) -> int:
    return len(prompt.ids) * max(sampling.num_beams, sampling.num_return_sequences)


def _unlike(model: Model) -> str | None:
    """Why a twin would not write exactly what the model does, if so."""
    weights = list(model.parameters())
    if {w.device.type for w in weights} != {"cpu"}:
        return "on a GPU graphs are captured first: keep a Static(model) and give it as decoder"
    if len(kinds := {w.dtype for w in weights}) > 1 or not kinds <= {torch.float32, torch.float64}:
        return "below float32 a twin rounds otherwise: give decoder='static' if that is all right"
    if any(type(w) is not nn.Parameter for w in weights):
        return "weights are of a kind of their own, as sharded ones are"
    if torch.is_autocast_enabled("cpu"):
        return "autocast rounds otherwise in a twin"
    if _listeners(model) != (0, 0, None) or torch.nn.modules.module._has_any_global_hook():
        return "hooks listen to calls of the whole model, which a twin has none of"
    return None


def _dear(model: Model, prompt: Prompt, sampling: Sampling) -> str | None:
    """Why a twin and its cache take too much memory, if so."""
    first = next(model.parameters())
    room = prompt.ids.shape[1] + min(sampling.max_new_tokens, ROOM)
    needs = 2 * sum(w.numel() * w.element_size() for w in model.parameters())
    needs += cache_bytes(model.spec, _rows(prompt, sampling), room, first.dtype)
    there = free_bytes(first.device)
    if SHARE * needs <= there:
        return None
    return f"a twin and its cache take {readable(needs)}, too much where {readable(there)} are free"


# ------------------------------------------------------------------------------------ stamps


def stamp_of(model: Model) -> Stamp:
    """What a model is now: its parts, what listens to them, and its weights, each read once."""
    parts = [part for part in model.modules() if part is not model]
    weights = [*model.parameters(), *model.buffers()]
    marks = [*map(_listeners, parts), *map(type, parts), *map(_mark, weights), contents(weights)]
    return Stamp((model.spec, *parts, *weights), tuple(marks))


def _listeners(part: nn.Module) -> tuple[int, int, object]:
    """How many hooks a part has, and what stands in for its forward."""
    own = part.__dict__.get("forward")
    return len(part._forward_hooks), len(part._forward_pre_hooks), own


def _mark(weight: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, its version, and its form."""
    version = None if weight.is_inference() else weight._version
    return weight.data_ptr(), version, weight.dtype, weight.shape


@torch.no_grad()
def contents(weights: Sequence[Tensor]) -> tuple[int, ...]:
    """A number for each tensor, which any other value changes, and an exchange of far ones."""
    odd = torch.arange(1, 2 * MANY, 2)
    return tuple(torch.stack([_content(weight, odd) for weight in weights]).tolist())


def _content(weight: Tensor, odd: Tensor) -> Tensor:
    """The words of a tensor, or sums of some beside each other, each times an odd number."""
    words = _words(weight.detach().contiguous().view(-1))
    rest = words[len(words) // MANY * MANY :]
    if len(words) > MANY:
        words = words[: len(words) - len(rest)].view(MANY, -1).sum(1)
        words[: len(rest)].add_(rest)
    return torch.dot(words, odd[: len(words)])


def _words(flat: Tensor) -> Tensor:
    """The bytes of a tensor as integers, eight at a time where that goes."""
    raw = flat.view(torch.uint8)
    whole = len(raw) % WORDS == 0 and raw.data_ptr() % WORDS == 0
    return raw.view(torch.int64) if whole else raw.long()
