"""What PEFT needs to know of a model: the names of the linear maps that an adapter may change."""

from __future__ import annotations

from typing import Literal

from torch import nn

from anyformer.errors import InputError, known_or_raise
from anyformer.model.model import Model
from anyformer.parts.attention import Attention
from anyformer.parts.feedforward import FeedForward

MAPS = {
    "attention": ((Attention, ("q", "k", "v", "out")),),
    "feedforward": ((FeedForward, ("up", "gate", "down")),),
}
MAPS["all"] = MAPS["attention"] + MAPS["feedforward"]


def target_modules(
    model: Model, which: Literal["attention", "feedforward", "all"] = "all"
) -> list[str]:
    """The dotted names of a model's maps of attention, of feed-forward layers or of both.

    Maps of which a model reads the weight alone (of relative positions, of adaptive tables) are
    not among them, since an adapter around them would change nothing.
    """
    known_or_raise(which, MAPS, "kind of linear maps", InputError)
    found: list[str] = []
    for path, module in model.named_modules():
        for kind, names in MAPS[which]:
            if isinstance(module, kind):
                children = dict(module.named_children())
                linear = [n for n in names if isinstance(children.get(n), nn.Linear)]
                found += [f"{path}.{name}" for name in linear]
    if not found:
        raise InputError(f"the model has no linear maps of the kind {which!r}")
    return found


def modules_to_save(model: Model) -> list[str]:
    """The dotted names of the maps and norms inside a head: what is trained whole beside adapters.

    The head itself can't be named: PEFT puts another module in its place.
    """
    if model.head is None:
        raise InputError("the model has no head")
    return [
        f"head.{n}" for n, m in model.head.named_children() if any(True for _ in m.parameters())
    ]
