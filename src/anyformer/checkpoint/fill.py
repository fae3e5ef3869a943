"""From tensors on disk to a model: everything is checked by shapes first, then read row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from anyformer import spec as S
from anyformer.checkpoint import keymap
from anyformer.checkpoint.reader import Place, Stored
from anyformer.errors import CheckpointError
from anyformer.model.model import Model, build
from anyformer.parts import build as build_part
from anyformer.parts.init import Fresh, initialise
from anyformer.spec.walk import as_read

SHOWN = 8  # problems that an error lists
Watch = Callable[[int], object]  # told the bytes of each row that was read


def nothing(count: int) -> None:
    """Nobody watches."""


class _Undrawn(TorchFunctionMode):
    """Passes over the drawing of weights, which for shapes alone does nothing but load much."""

    DRAWS = (
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.kaiming_uniform_,
        Tensor.normal_,
        Tensor.uniform_,
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func in self.DRAWS:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)


def empty(spec: S.Model) -> Model:
    """The model with shapes alone, so that nothing is drawn that a file replaces."""
    with torch.device("meta"), _Undrawn():
        return build(spec)


def check(model: Model, rows: list[keymap.Row], found: Stored, where: str) -> None:
    """Raise unless every row that is on disk has the shapes that the model asks for."""
    ours, theirs = model.state_dict(), found.metas()
    problems: list[str] = []
    for item in rows:
        if all(key in theirs for key in item.theirs):
            problems += _unlike(item, ours, theirs, found)
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        listed = "; ".join(problems[:SHOWN])
        raise CheckpointError(
            f"{listed}{more}. The weights don't fit {where}: take both of one model"
        )


def _unlike(
    item: keymap.Row, ours: dict[str, Tensor], theirs: dict[str, Tensor], found: Stored
) -> list[str]:
    """The tensors of a row that have another shape than the model asks for."""
    wanted = {key: ours[key].shape for key in item.ours}
    try:
        if {k: t.shape for k, t in keymap.forwards(item, theirs).items()} == wanted:
            return []
    except (RuntimeError, ValueError, IndexError):
        pass  # a step that can't be taken from these shapes
    asked = keymap.backwards(item, {key: ours[key] for key in item.ours})
    return [
        f"{found.source(key)} of shape {tuple(theirs[key].shape)}, not {tuple(asked[key].shape)}"
        for key in item.theirs
        if theirs[key].shape != asked[key].shape
    ] or [f"{found.source(item.theirs[0])} can't be brought to the shapes of {item.ours}"]


def fill(
    model: Model,
    rows: list[keymap.Row],
    found: Stored,
    place: Place,
    fresh: set[str] = frozenset(),  # type: ignore[assignment]
    watch: Watch = nothing,
) -> None:
    """Put the tensors of all rows into a model of shapes alone; what starts fresh is drawn."""
    weights: dict[str, Tensor] = {}
    for item in rows:
        if all(key in found for key in item.theirs):
            for key, tensor in keymap.forwards(item, found).items():  # type: ignore[arg-type]
                weights[key] = place.put(tensor, found.source(item.theirs[0]))
            watch(sum(found.entries[key].size for key in item.theirs))
    dtypes = {tensor.dtype for tensor in weights.values()}
    for key, tensor in _drawn_head(model.spec).items() if fresh else ():
        if key in fresh:
            dtype = place.dtype or (next(iter(dtypes)) if len(dtypes) == 1 else tensor.dtype)
            weights[key] = tensor.to(place.device, dtype)
    dtypes = {t.dtype for t in weights.values()}
    restore_constants(model, place.device, dtypes.pop() if len(dtypes) == 1 else None)
    model.load_state_dict(weights, assign=True)


def _drawn_head(spec: S.Model) -> dict[str, Tensor]:
    """A head of its own, with fresh weights."""
    assert spec.head is not None
    head = build_part(spec.head, as_read(spec))
    initialise(head, spec.init, spec.dim)
    return {f"head.{key}": tensor for key, tensor in head.state_dict().items()}


def restore_constants(model: Model, device: torch.device, dtype: torch.dtype | None) -> None:
    """Fill what no file holds, such as ALiBi's slopes; without a dtype as they are made."""
    for module in model.modules():
        if isinstance(module, Fresh) and any(b.is_meta for b in module.buffers(recurse=False)):
            module.to_empty(device=device, recurse=False)
            module.fresh(model.spec.init.std)
            for buffer in module.buffers(recurse=False) if dtype is not None else ():
                buffer.data = buffer.data.to(dtype)
