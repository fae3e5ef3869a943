"""Optimisers and their groups: which parameter decays, at which rate it learns, by whom.

Names are those of the trainee: `model.stack.blocks.0.1.branch.up.weight`, `beside.…`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from anyformer.errors import SpecError
from anyformer.train.settings import AdamW, Muon, Settings

BLOCK = re.compile(r"(?P<encoder>.*\bencoder\.)?.*?\bstack\.blocks\.(?P<block>\d+)\.")
PREFIX = "model."
Named = dict[str, nn.Parameter]


def freeze(trainee: nn.Module, patterns: tuple[str, ...]) -> list[str]:
    """Stop parameters from learning whose names match a pattern, with or without `model.`."""
    names = dict(trainee.named_parameters())
    frozen: list[str] = []
    for pattern in patterns:
        found = [n for n in names if any(fnmatchcase(n, p) for p in (pattern, PREFIX + pattern))]
        if not found:
            short = [n.removeprefix(PREFIX) for n in names]
            near = difflib.get_close_matches(pattern, short, 1, 0.0)
            raise SpecError(f"frozen={pattern!r} matches no parameter; one is {near[0]!r}")
        frozen += found
    for name in frozen:
        names[name].requires_grad_(False)
    if not any(p.requires_grad for p in names.values()):
        raise SpecError("every parameter is frozen: nothing is left to train")
    return frozen


def embeddings(trainee: nn.Module) -> set[int]:
    """The ids of parameters that are tables which are looked up."""
    tables = (m for m in trainee.modules() if isinstance(m, nn.Embedding))
    return {id(table.weight) for table in tables}


def kind_of(name: str, parameter: Tensor, tables: set[int]) -> str:
    """norms, biases, embeddings or weights."""
    if name.endswith("bias"):
        return "biases"
    if id(parameter) in tables:
        return "embeddings"
    return "norms" if parameter.ndim < 2 else "weights"


def heights(names: list[str]) -> dict[str, int]:
    """How far below the top each parameter lies: 0 for the head, one more for each block."""
    found = {name: _block(name) for name in names}
    blocks = sorted({at for at in found.values() if at is not None})  # encoder's blocks first
    top = len(blocks) + 1
    place = {at: i + 1 for i, at in enumerate(blocks)}
    below = lambda name: 0 if ".embed." in f".{name}" else top
    return {n: top - (below(n) if at is None else place[at]) for n, at in found.items()}


def mesh_of(tensor: Tensor) -> DeviceMesh | None:
    """The ranks that a tensor lies over; None: it is whole."""
    return tensor.device_mesh if isinstance(tensor, DTensor) else None


def _block(name: str) -> tuple[int, int] | None:
    found = BLOCK.match(name)
    return (0 if found["encoder"] else 1, int(found["block"])) if found else None


def groups(trainee: nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """Parameters that learn alike, with their names, decay, share of the rate and matrix or not."""
    named: Named = {n: p for n, p in trainee.named_parameters() if p.requires_grad}
    tables, height = embeddings(trainee), heights(list(named))
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, parameter in named.items():
        kind = kind_of(name, parameter, tables)
        decay = 0.0 if kind in settings.undecayed else settings.weight_decay
        scale = settings.layer_decay ** height[name]
        matrix = kind == "weights" and parameter.ndim == 2 and _block(name) is not None
        muon = matrix and isinstance(settings.optimiser, Muon)
        key = (decay, scale, muon, mesh_of(parameter))  # one kernel updates what lies alike
        group = made.setdefault(
            key, {"params": [], "names": [], "weight_decay": decay, "scale": scale, "muon": muon}
        )
        group["params"].append(parameter)
        group["names"].append(name)
    return list(made.values())


class Optimisers:
    """One or two of torch's optimisers as one, with state by the names of parameters."""

    def __init__(self, trainee: nn.Module, settings: Settings):
        self.lr = settings.lr
        made = groups(trainee, settings)
        self.names = {id(p): n for g in made for p, n in zip(g["params"], g["names"], strict=True)}
        self.parameters: list[nn.Parameter] = [p for g in made for p in g["params"]]
        plain = [_bare(g) for g in made if not g["muon"]]
        matrices = [_bare(g) for g in made if g["muon"]]
        self.all = [_make(settings, plain)] if plain else []
        self.all += [_muon(settings, matrices)] if matrices else []
        self.device = self.parameters[0].device

    def set(self, factor: float) -> float:
        """Set the rates of a step to the settings' times a factor; returns the rate."""
        rate = self.lr * factor
        for optimiser in self.all:
            for group in optimiser.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate * group["scale"])
                else:
                    group["lr"] = rate * group["scale"]
        return rate

    def zero(self) -> None:
        """Forget the gradients."""
        for optimiser in self.all:
            optimiser.zero_grad(set_to_none=True)

    def _each(self) -> Iterator[tuple[str, nn.Parameter, torch.optim.Optimizer, bool]]:
        for optimiser in self.all:
            for group in optimiser.param_groups:
                for parameter in group["params"]:
                    fused = bool(group.get("fused"))
                    yield self.names[id(parameter)], parameter, optimiser, fused

    def tensors(self) -> dict[str, Tensor]:
        """The state by parameter and entry: `model.head.weight/exp_avg`."""
        return {
            f"{name}/{key}": value
            for name, parameter, optimiser, _ in self._each()
            for key, value in optimiser.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }

    def prepare(self, stored: dict[str, tuple[torch.Size, torch.dtype]]) -> dict[str, Tensor]:
        """Make empty state as stored keys, shapes and dtypes have it; it is to be filled."""
        entries: dict[str, list[str]] = {}
        for key in stored:
            name, _, entry = key.rpartition("/")
            entries.setdefault(name, []).append(entry)
        for name, parameter, optimiser, fused in self._each():
            optimiser.state.pop(parameter, None)
            for entry in entries.get(name, ()):
                shape, dtype = stored[f"{name}/{entry}"]
                like = shape == parameter.shape and len(shape) > 0
                where = parameter.device if fused or len(shape) else torch.device("cpu")
                optimiser.state[parameter][entry] = (
                    torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
                    if like
                    else torch.zeros(shape, dtype=dtype, device=where)
                )
        return self.tensors()


def _bare(group: dict[str, Any]) -> dict[str, Any]:
    return {k: group[k] for k in ("params", "weight_decay", "scale")}


def _make(settings: Settings, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """AdamW, beside Muon too, or Adafactor."""
    found, device = settings.optimiser, groups[0]["params"][0].device.type
    if isinstance(found, AdamW | Muon):
        betas = (found.betas[0], found.betas[1])
        fused = device in ("cpu", "cuda")
        if settings.graph:  # what is captured reads the rate where it lies
            for group in groups:
                group["lr"] = torch.tensor(settings.lr, device=device)
        return torch.optim.AdamW(
            groups, settings.lr, betas, found.eps, fused=fused, capturable=settings.graph
        )
    return torch.optim.Adafactor(
        groups,
        settings.lr,
        beta2_decay=found.beta2_decay,
        eps=(None, found.eps),
        d=found.threshold,
    )


def _muon(settings: Settings, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    found = settings.optimiser
    assert isinstance(found, Muon)
    return torch.optim.Muon(
        groups,
        settings.lr,
        momentum=found.momentum,
        nesterov=found.nesterov,
        ns_steps=found.iterations,
        adjust_lr_fn=found.adjust,
    )
