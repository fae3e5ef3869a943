"""Twins of modules: the same parts, weights and code, at less cost a call.

Small models spend much of their time on a CPU in how torch calls modules. A twin holds the same
parts, each of a class that differs from its part's in one thing: calling it is its forward. What
listens to modules (hooks) stays heard, and what was replaced (a compiled or recomputed forward)
stays replaced: such a module is kept as it is.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor, nn


@functools.cache
def called(kind: type[nn.Module]) -> type[nn.Module]:
    """The class of modules that are called without ceremony."""
    return type(f"Lean{kind.__name__}", (kind,), {"__call__": kind.forward})


LEAN = called(nn.Linear)


def hooked(module: nn.Module) -> bool:
    """Whether somebody listens to a module."""
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    return any(hooks) or any((module._backward_hooks, module._backward_pre_hooks))


def heard(module: nn.Module) -> bool:
    """Whether calling a module does more than its class's forward."""
    own = "forward" in module.__dict__ or module._compiled_call_impl is not None
    return own or hooked(module) or type(module).__call__ is not nn.Module.__call__


def bare(map: nn.Module) -> bool:
    """Whether a linear map is nothing but its weights: not wrapped, and nobody listens to it."""
    return type(map) is LEAN or (type(map) is nn.Linear and not heard(map))


class Twin:
    """One pass through a module; what is met twice is made once.

    Modes of training and weights are those of the moment: tensors that are changed in place stay
    shared, and ones that are replaced later do not.
    """

    def __init__(self, formal: tuple[type[nn.Module], ...] = ()) -> None:
        self.made: dict[int, Any] = {}
        self.formal = formal  # kinds that are called with all ceremony, as some listen for a while

    def of(self, module: nn.Module) -> Any:
        """The twin of a module."""
        if id(module) not in self.made:
            self.made[id(module)] = module if heard(module) else self._lean(module)
        return self.made[id(module)]

    def held(self, tensor: Tensor | None) -> Tensor | None:
        """A weight or buffer as the twin holds it."""
        return tensor

    def kind(self, module: nn.Module) -> type[nn.Module]:
        """The class of a module's twin."""
        kind = type(module)
        return kind if issubclass(kind, self.formal) else called(kind)

    def dress(self, module: nn.Module, own: dict[str, Any]) -> None:
        """Changes to what a twin has of its own, when its parts are in place."""

    def _lean(self, module: nn.Module) -> nn.Module:
        twin = object.__new__(self.kind(module))
        self.made[id(module)] = twin
        own = twin.__dict__
        own.update(module.__dict__)
        own["_parameters"] = {n: self.held(p) for n, p in module._parameters.items()}
        own["_buffers"] = {n: self.held(b) for n, b in module._buffers.items()}
        own["_modules"] = {n: m and self.of(m) for n, m in module._modules.items()}
        for kept in ("_parameters", "_buffers", "_modules"):
            own.update(own[kept])  # found at once, without nn.Module's search
        for name, value in module.__dict__.items():
            if isinstance(value, tuple) and any(isinstance(v, nn.Module) for v in value):
                own[name] = tuple(self.of(v) for v in value)
        self.dress(module, own)
        return twin
