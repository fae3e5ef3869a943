"""The laws on one model: what is broken, in words."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from anyformer import spec as S
from anyformer.errors import SpecError, known_or_raise
from anyformer.laws.broken import BrokenError
from anyformer.laws.cases import sharing
from anyformer.laws.noise import is_noise
from anyformer.laws.reduce import reduced
from anyformer.laws.table import LAWS
from anyformer.model.model import Model

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Finding:
    """A law that a model breaks: what was looked at, by how much it is off, on which input."""

    law: str
    what: str
    seed: int  # weights and inputs were drawn from it
    spec: S.Model  # that was tried
    off: float | None = None
    limit: float | None = None

    @property
    def expected(self) -> str:
        """The law in words."""
        return LAWS[self.law].says

    @property
    def hint(self) -> str:
        """Where to look."""
        return LAWS[self.law].hint

    def __str__(self) -> str:
        measured = (
            "" if self.off is None else f": off by {self.off:.2e}, more than {self.limit:.2e}"
        )
        return (
            f"law {self.law} is broken\n"
            f"  expected  {self.expected}\n"
            f"  found     {self.what}{measured}\n"
            f"  input     weights and rows drawn from seed {self.seed}\n"
            f"  hint      {self.hint}"
        )


def check(
    model: S.Model | Model, laws: Iterable[str] = (), seeds: Sequence[int] = SEEDS
) -> list[Finding]:
    """What laws a spec, or the spec of a model, breaks; nothing where they all hold.

    Large models are made smaller first (see anyformer.laws.reduce). Weights are drawn anew, so
    that a law holds of the structure, not of what was learned. `laws` names some of LAWS.
    """
    spec = spec_of(model)
    names = [known_or_raise(name, LAWS, "law") for name in laws] or list(LAWS)
    small = reduced(S.check(spec)).spec
    with sharing():
        found = [broken(name, small, seeds) for name in names if LAWS[name].of_one]
    return [finding for finding in found if finding is not None]


def spec_of(model: S.Model | Model) -> S.Model:
    """The spec to try; raise for a model that is not what its spec says."""
    if isinstance(model, S.Model):
        return model
    with torch.device("meta"):
        plain = Model(model.spec)
    kinds = {path: type(module) for path, module in plain.named_modules()}
    other = [path for path, m in model.named_modules() if kinds.get(path) is not type(m)]
    if other:
        raise SpecError(
            f"{other[0] or 'the model'} was replaced by hand, and the laws build models from "
            "specs: describe the part by a node and register it (docs/laws.md)"
        )
    return model.spec


def broken(
    name: str, spec: S.Model, seeds: Iterable[int], unsure: list[int] | None = None
) -> Finding | None:
    """What the first seed at which a law is broken shows; None where the law holds.

    Seeds at which numbers were off that no float64 determines (see noise) are added to `unsure`.
    """
    law = LAWS[name]
    for seed in seeds if law.applies(spec) else ():
        with torch.random.fork_rng(devices=()):
            try:
                law.check(spec, seed)
            except BrokenError as error:
                if is_noise(law, spec, seed, error):
                    if unsure is not None:
                        unsure.append(seed)
                    continue
                return Finding(name, error.what, seed, spec, error.off, error.limit)
            except Exception as error:  # a part that raises breaks the law as well
                return Finding(name, _raised(error), seed, spec)
    return None


def _raised(error: Exception) -> str:
    """An error in one line, with the place that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.rpartition('anyformer/')[2]}:{last.lineno}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})"
