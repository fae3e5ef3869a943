"""A model of a spec in float64 with weights away from their start, and inputs for it.

Letters: B rows, N positions of the sequence that the main stack reads, M of the other one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.model.model import Model, build
from anyformer.model.output import Output
from anyformer.spec.walk import looks_back


@dataclass
class Side:
    """One sequence of a model: its name among the arguments, its values, types and languages."""

    name: str
    mask: str
    x: Tensor
    beside: dict[str, Tensor] = field(default_factory=dict)  # (B, N), by argument

    def part(self, rows: slice, at: slice) -> dict[str, Any]:
        """The arguments for some rows and positions; an image is always whole."""
        given = {self.name: self.x[rows] if self.is_image else self.x[rows, at]}
        return given | {name: ids[rows, at] for name, ids in self.beside.items()}

    def cut(self, at: slice) -> Side:
        """The same at some positions only; an image is always whole."""
        if self.is_image:
            return self
        beside = {name: ids[:, at] for name, ids in self.beside.items()}
        return replace(self, x=self.x[:, at], beside=beside)

    @property
    def is_image(self) -> bool:
        """Whether it has positions only inside the model."""
        return self.x.dim() == 4


@dataclass
class Case:
    """A model with inputs."""

    spec: S.Model
    model: Model
    main: Side
    other: Side | None
    rng: random.Random = field(repr=False)
    known: dict[str, Any] = field(default_factory=dict, repr=False)  # of this model and these rows

    @property
    def length(self) -> int:
        """Positions of the main sequence."""
        return self.main.x.shape[1]

    def __call__(self, rows: Any = slice(None), at: Any = slice(None), **more: Any) -> Any:
        """The Output for some rows and positions (slices) of the main sequence."""
        given = self.main.part(rows, at)
        if self.other is not None and more.get("past_key_values") is None:
            given |= self.other.part(rows, slice(None))
        return self.model(**{**given, **more})

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives; of the same model and rows it is asked for once."""
        if name not in self.known:
            self.known[name] = make()
        return self.known[name]

    def plain(self) -> list[Tensor]:
        """All answers to the whole rows as they were drawn, without gradients, computed once."""
        return self.once("plain", lambda: answers(self))


@dataclass
class Kept:
    """What laws share of one spec."""

    models: dict[Any, tuple[Model, Tensor]] = field(default_factory=dict)  # and the state of torch
    known: dict[Any, dict[str, Any]] = field(default_factory=dict)


KEPT: ContextVar[Kept | None] = ContextVar("KEPT", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Within it, laws that ask for the same spec and seed have one model, and say a pass once.

    Weights and rows are those that each law would have drawn alone.
    """
    before = KEPT.set(Kept())
    try:
        yield
    finally:
        KEPT.reset(before)


NUDGE = 1e-14  # of a weight: some fifty times what float64 rounds by
NUDGED: ContextVar[int | None] = ContextVar("NUDGED", default=None)
CALMER = 0.1  # of a weight as it is drawn
CALM: ContextVar[bool] = ContextVar("CALM", default=False)


def nudged(which: int | None) -> AbstractContextManager[None]:
    """Within it, weights differ in their last digits from what was drawn, `which` says how."""
    return _otherwise(NUDGED, which)


def calmed() -> AbstractContextManager[None]:
    """Within it, weights are small, so that nothing grows beyond what float64 holds."""
    return _otherwise(CALM, True)


@contextmanager
def _otherwise(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Within it, models are drawn in another way, and not shared with those around it."""
    before = variable.set(value)
    try:
        with sharing():
            yield
    finally:
        variable.reset(before)


NAMES = {S.Tokens: "input_ids", S.Patches: "pixel_values", S.Values: "input_values"}


def perturbed(spec: S.Model, seed: int) -> Model:
    """The model of a spec, in evaluation and float64, no weight at its start."""
    kept = KEPT.get()
    if kept is None:
        return _drawn(spec, seed)
    if (spec, seed) not in kept.models:
        kept.models[spec, seed] = _drawn(spec, seed), torch.get_rng_state()
    model, state = kept.models[spec, seed]
    torch.set_rng_state(state)
    return model.eval() if model.training else model


@torch.inference_mode(False)
def _drawn(spec: S.Model, seed: int) -> Model:
    torch.manual_seed(seed)
    model = build(spec).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    _nudge(model, NUDGED.get())
    with torch.no_grad():
        for weight in model.parameters() if CALM.get() else ():
            weight.mul_(CALMER)
    return model


def _nudge(model: Model, which: int | None) -> None:
    """Move each weight by a few of its last digits; what torch draws afterwards stays the same."""
    if which is None:
        return
    draw = torch.Generator().manual_seed(which)
    with torch.no_grad():
        for weight in model.parameters():
            by = torch.randn(weight.shape, generator=draw, dtype=weight.dtype)
            weight.mul_(1 + NUDGE * by)


def case(spec: S.Model, seed: int, rows: int = 2, length: int | None = None) -> Case:
    """A model and random inputs; a row never has the same token twice, so that scores differ."""
    kept, rng = KEPT.get(), random.Random(seed)
    known = {} if kept is None else kept.known.setdefault((spec, seed, rows, length), {})
    length = length or rng.choice((9, 6, 12))
    model = perturbed(spec, seed)
    return Case(spec, model, *sides(spec, rows, length, rng.choice((5, 8))), rng, known)


def twin(model: Model, spec: S.Model) -> Model:
    """A model of another spec with the same weights, in evaluation."""
    other = Model(spec).double().eval()
    other.load_state_dict(model.state_dict())
    return other


def sides(spec: S.Model, rows: int, length: int, beside: int) -> tuple[Side, Side | None]:
    """Random inputs of a model: what its main stack reads, and what that reads beside it."""
    if spec.encoder is None:
        main = _side(spec, rows, length)
        return main, _context(spec, rows, beside)
    other = _side(spec.encoder, rows, beside)
    main = _side(spec, rows, length)
    main.name, main.mask, main.beside = "decoder_input_ids", "decoder_attention_mask", {}
    return main, other


def _side(spec: S.Model, rows: int, length: int) -> Side:
    source = spec.embed.source
    counts = {"token_type_ids": spec.embed.types, "langs": spec.embed.langs}
    beside = {n: torch.randint(0, size, (rows, length)) for n, size in counts.items() if size}
    if isinstance(source, S.Tokens):
        x = torch.stack([torch.randperm(source.vocab)[:length] for _ in range(rows)])
    elif isinstance(source, S.Patches):
        x = torch.randn(rows, source.channels, source.image, source.image).double()
    else:
        x = torch.randn(rows, length, source.size or spec.embed.dim or spec.dim).double()
    return Side(NAMES[type(source)], "attention_mask", x, beside)


def _context(spec: S.Model, rows: int, length: int) -> Side | None:
    """What cross-attention reads where there is no encoder."""
    width = context_width(spec)
    if width is None:
        return None
    x = torch.randn(rows, length, width).double()
    return Side("encoder_hidden_states", "encoder_attention_mask", x)


def context_width(spec: S.Model) -> int | None:
    """The width that cross-attentions read, None without any."""
    for block in (spec.stack.block, *spec.stack.others):
        for sub in block:
            for leaf in sub.leaves:
                if isinstance(leaf, S.Attention) and leaf.cross:
                    return leaf.context or spec.dim
    return None


def is_causal(spec: S.Model) -> bool:
    """Whether no position of the main stack sees a later one."""
    return looks_back(spec.stack)


def each(out: Output) -> list[Tensor]:
    """The answers that have a row for every position, (B, N, …)."""
    found = [out.last_hidden_state, out.prediction_logits, *(out.hidden_states or ())]
    if out.logits is not None and out.logits.dim() == 3:
        found.append(out.logits)
    return [t for t in found if t is not None]


def pooled(out: Output) -> list[Tensor]:
    """The answers that have one row for a whole sequence, (B, …)."""
    found = [out.pooler_output, out.logits, out.seq_relationship_logits, out.sop_logits]
    return [t for t in found if t is not None and t.dim() == 2]


@torch.inference_mode()
def answers(c: Case, model: Model | None = None) -> list[Tensor]:
    """All answers to the whole rows of a case, those of each block too where there are any."""
    hidden = not c.spec.stack.reversible
    out = (c if model is None else replace(c, model=model))(output_hidden_states=hidden)
    return [*each(out), *pooled(out)]


def splits(rng: random.Random, length: int) -> list[slice]:
    """A row cut at random places."""
    cuts = sorted(rng.sample(range(1, length), rng.randint(1, min(4, length - 1))))
    return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
