"""Where numbers leave the range of a dtype: the first module whose answer is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LARGEST = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class Overflow:
    """A module whose answer is not finite, though what it was given is."""

    path: str
    kind: str

    def __str__(self) -> str:
        return (
            f"{self.path} ({self.kind}) gives numbers that are not finite: float16 ends at "
            f"{LARGEST:,.0f}. Take bfloat16, which has the range of float32, or float32"
        )


def overflow(model: nn.Module, run: Callable[[], Any]) -> Overflow | None:
    """Call `run`, which calls the model, and name the first module at which numbers are lost.

    Where a module is given such numbers, those that were computed between modules are to blame,
    and the module around it is named.
    """
    found: list[Overflow] = []
    paths = {module: path for path, module in model.named_modules()}

    def look(module: nn.Module, given: Any, named: Any, answer: Any) -> None:
        if found or _finite(answer):
            return
        inside = not _finite((given, named))
        path = paths[module].rpartition(".")[0] if inside else paths[module]
        path, blamed = _real(model, path)
        found.append(Overflow(path or "the model", type(blamed).__name__))

    handles = [m.register_forward_hook(look, with_kwargs=True) for m in paths]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _real(model: nn.Module, path: str) -> tuple[str, nn.Module]:
    """The module at a path, or the next one around it that is more than a list."""
    module = model.get_submodule(path)
    while isinstance(module, nn.ModuleList | nn.ModuleDict) and path:
        path = path.rpartition(".")[0]
        module = model.get_submodule(path)
    return path, module


def _finite(value: Any) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in _tensors(value))


def _tensors(value: Any) -> Iterator[Tensor]:
    """The floating-point tensors in an answer."""
    if isinstance(value, Tensor):
        yield from (value,) if value.is_floating_point() else ()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
