"""Which backend runs each attention of a model on this machine, and why not a faster one.

The model is built with few layers, or with all where scores are carried from one to the next, and
reads one batch in which attentions are heard and not computed: an answer takes moments and little
memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.laws.cases import is_causal, sides
from anyformer.laws.crossed import nodes
from anyformer.laws.reduce import lower
from anyformer.model.model import build
from anyformer.ops.attend import BACKENDS, Hear, heard_by, refusal
from anyformer.ops.plan import Plan
from anyformer.spec.position import Learned

SLOWER = "is not known to be faster here"
LENGTH = 512  # where a model has no length of its own


@dataclass(frozen=True)
class Way:
    """How some attentions of a model are run."""

    work: str  # train, read, or one more token
    asks: str  # what their plans ask for
    queries: int
    keys: int
    backend: str
    reasons: tuple[tuple[str, str], ...]  # backends before it, and why they don't run it


def ways(
    spec: S.Model,
    length: int | None = None,
    batch: int = 1,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[Way]:
    """The ways of all attentions, each once, in the order in which they are met."""
    small = spec if carries(spec) else lower(spec)
    small = spec if S.problems(small) else small
    model = build(small).to(device, dtype)
    many = length or length_of(spec)
    main, other = sides(small, batch, many, many)
    fit = lambda x: x.to(device, dtype if x.is_floating_point() else None)
    given = {main.name: main.x, **main.beside}
    given |= {} if other is None else {other.name: other.x, **other.beside}
    given = {name: fit(x) for name, x in given.items()}
    met: dict[Way, None] = {}  # in order
    for work in ("train", "read"):
        model.train(work == "train")
        with torch.set_grad_enabled(work == "train"), heard_by(_into(met, work)):
            model(**given)
    if is_causal(spec) and spec.encoder is None and isinstance(spec.embed.source, S.Tokens):
        _one_more(model, given, met)
    return [*met]


def carries(spec: S.Model) -> bool:
    """Whether attentions add the scores of those below: then each has another number of them."""
    return any(isinstance(node, S.Attention) and node.carry for _, node in nodes(spec))


def length_of(spec: S.Model) -> int:
    """The positions that a model has, or some."""
    position = spec.embed.position
    return position.length if isinstance(position, Learned) else LENGTH


def _into(met: dict[Way, None], work: str) -> Hear:
    """A listener that notes the ways of some work."""

    def hear(name: str, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> None:
        before = [*BACKENDS][: [*BACKENDS].index(name)]
        told = tuple((other, refusal(other, q, k, v, plan) or SLOWER) for other in before)
        asks = ", ".join(sorted(plan.needs().values())) or "nothing"
        met[Way(work, asks, q.shape[2], k.shape[2], name, told)] = None

    return hear


@torch.no_grad()
def _one_more(model: torch.nn.Module, given: dict[str, Tensor], met: dict[Way, None]) -> None:
    """One more token after all but the last, which a cache keeps."""
    most = {name: x[:, :-1] for name, x in given.items()}
    last = {name: x[:, -1:] for name, x in given.items()}
    with heard_by(lambda *a: None):
        past = model(**most, use_cache=True).past_key_values
    with heard_by(_into(met, "one more token")):
        model(**last, past_key_values=past, use_cache=True)
