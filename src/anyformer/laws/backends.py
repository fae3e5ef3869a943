"""Law 5: every backend that takes a plan gives what eager gives, gradients too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.laws.broken import all_same, same_each
from anyformer.laws.cases import Case, case, each, pooled
from anyformer.laws.padding import gradients, packs, weighed
from anyformer.ops import attend as attend_ops
from anyformer.ops import chunked as chunked_ops
from anyformer.ops import relative as relative_ops

FEW_SCORES = 40  # of one block: rows and queries are split
FEW_QUERIES = 3
OTHERS = ("sdpa", "chunked")  # beside eager


@contextmanager
def replaced(module: ModuleType, **values: Any) -> Iterator[None]:
    """Within it, names of a module mean something else."""
    before = {name: vars(module)[name] for name in values}
    vars(module).update(values)
    try:
        yield
    finally:
        vars(module).update(before)


@dataclass
class Ran:
    """Which backends ran, in order, and which of OTHERS would have taken some of the work."""

    names: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


@contextmanager
def preferring(name: str) -> Iterator[Ran]:
    """Within it, every attention that a backend takes runs on it, every other one on eager.

    Yields what ran. Blocks of `chunked` are tiny, so that there are many.
    """
    ran = Ran()

    def choose(q: Tensor, k: Tensor, v: Tensor, plan: attend_ops.Plan, backend: str) -> str:
        takes = lambda other: attend_ops.refusal(other, q, k, v, plan) is None
        ran.others += [other for other in OTHERS if other not in ran.others and takes(other)]
        ran.names.append(name if takes(name) else "eager")
        return ran.names[-1]

    small = {"SCORES": FEW_SCORES, "QUERIES": FEW_QUERIES, "FEWEST": FEW_QUERIES}
    with (
        replaced(attend_ops, choose=choose),
        replaced(chunked_ops, **small),
        replaced(relative_ops, TILE=FEW_QUERIES),
    ):
        yield ran


def law_backends(spec: S.Model, seed: int) -> None:
    """5: sdpa and chunked give the outputs and all gradients of eager, with padding or without."""
    c = case(spec, seed)
    masks = _masks(c)
    with preferring("eager") as ran:
        outputs, wanted = _run(c, masks)
    for name in ran.others:
        with preferring(name):
            found, grads = _run(c, masks)
        all_same(found, outputs, name)
        same_each(grads, wanted, f"gradient of {{}} by {name}")


@torch.inference_mode()
def law_backends_cached(spec: S.Model, seed: int) -> None:
    """5: every backend continues from a cache as eager does."""
    c = case(spec, seed)
    at = c.rng.randrange(1, c.length)
    with preferring("eager") as ran:
        wanted = _continued(c, at)
    for name in ran.others:
        with preferring(name):
            all_same(_continued(c, at), wanted, f"{name} after a cache")


def _continued(c: Case, at: int) -> list[Tensor]:
    """Answers from a position on, what is before it in a cache."""
    past = c(at=slice(0, at), use_cache=True).past_key_values
    return each(c(at=slice(at, None), past_key_values=past))


@torch.no_grad()
def law_flex(spec: S.Model, seed: int) -> None:
    """5: FlexAttention, forwards, gives the outputs of eager."""
    c = case(spec, seed, length=6)
    masks = _masks(c)
    with preferring("eager"):
        wanted = _outputs(c, masks)
    with preferring("flex"):
        all_same(_outputs(c, masks), wanted, "flex")


def _masks(c: Case) -> dict[str, Tensor]:
    """Padding on one side of a row, or none; documents where the model takes them."""
    found: dict[str, Tensor] = {}
    for side in (c.main, c.other):
        if side is None or side.is_image or c.rng.random() < 0.4:
            continue
        mask = torch.ones(side.x.shape[:2], dtype=torch.long)
        hidden = c.rng.randrange(1, mask.shape[1] + 1)
        mask[0, slice(0, hidden) if c.rng.random() < 0.5 else slice(-hidden, None)] = 0
        found[side.mask] = mask
    if packs(c.spec) and not found and c.rng.random() < 0.5:
        found["document_ids"] = torch.arange(c.length).expand(2, -1) // 4
    return found


def _outputs(c: Case, masks: dict[str, Tensor]) -> list[Tensor]:
    out = c(**masks)
    return [*each(out), *pooled(out)]


def _run(c: Case, masks: dict[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Outputs and gradients."""
    outputs = _outputs(c, masks)
    return [t.detach() for t in outputs], gradients(c, weighed(outputs))
