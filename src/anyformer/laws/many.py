"""Many specs under every law, in several processes; what breaks one is shrunk."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

import torch

from anyformer import spec as S
from anyformer.laws.cases import sharing
from anyformer.laws.check import Finding, broken
from anyformer.laws.crossed import crossed
from anyformer.laws.shrink import shrunk
from anyformer.laws.specs import sample
from anyformer.laws.table import LAWS

CHUNK = 25  # specs that a process takes at a time
Say = Callable[[str], None]


@dataclass
class Tally:
    """How many specs each law was tried on, and what was found."""

    tried: Counter[str] = field(default_factory=Counter)
    found: list[Finding] = field(default_factory=list)  # with the seeds of their specs
    specs: Counter[str] = field(default_factory=Counter)  # by how they came about, see SORTS
    unsure: list[int] = field(default_factory=list)  # seeds of specs, one for each such try

    def add(self, other: Tally) -> None:
        """Take over what another one has."""
        self.tried += other.tried
        self.found += other.found
        self.specs += other.specs
        self.unsure += other.unsure

    def table(self, names: Sequence[str]) -> list[str]:
        """The lines of a table by law, with the seeds of specs that break it."""
        lines = [f"{'law':32}{'specs':>8}{'broken':>8}"]
        for name in names:
            seeds = sorted(finding.seed for finding in self.found if finding.law == name)
            lines.append(
                f"{name:32}{self.tried[name]:8}{len(seeds):8}  {seeds[:10] or ''}".rstrip()
            )
        total = sum(self.tried[name] for name in names)
        sorts = ", ".join(f"{self.specs[sort]} {says}" for sort, says in SORTS.items())
        count = f"{self.specs.total()} specs ({sorts}), {total} tries of {len(names)} laws"
        return [*lines, f"{'all':32}{total:8}{len(self.found):8}", count, *self._said_of_unsure()]

    def _said_of_unsure(self) -> list[str]:
        """A line about tries that say nothing, where there were any."""
        if not self.unsure:
            return []
        seeds = sorted(set(self.unsure))
        return [
            f"{len(self.unsure)} tries compared numbers that float64 does not determine, "
            f"which says nothing (seeds {', '.join(map(str, seeds[:20]))})"
        ]


SORTS = {
    "drawn": "drawn",
    "crossed": "crossed",
    "refused": "drawn since the rules refused every crossing",
}


def spec_of(seed: int) -> tuple[S.Model, str]:
    """The spec of a seed and its sort: every second drawn, others crossed out of several."""
    spec = sample(seed)
    if seed % 2 == 0:
        return spec, "drawn"
    other = crossed(spec, seed)
    return (spec, "refused") if other is None else (other, "crossed")


def run(names: Sequence[str], seeds: range, jobs: int, say: Say) -> Tally:
    """Try the laws on the specs of all seeds, and say how far it is now and then."""
    tally, done, began = Tally(), 0, time.time()
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare) as pool:
        for work in as_completed([pool.submit(try_laws, names, chunk) for chunk in chunks]):
            some = work.result()
            tally.add(some)
            done += CHUNK
            for finding in some.found:
                say(f"{finding}\n  spec      (shrunk)\n{S.to_json(finding.spec, None)}")
            if done % (CHUNK * 8) == 0 or done >= len(seeds):
                say(f"{min(done, len(seeds))} specs, {time.time() - began:.0f} s")
    return tally


def _prepare() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)


def try_laws(names: Sequence[str], seeds: Sequence[int]) -> Tally:
    """Try each law on each spec that it speaks of; what breaks one is shrunk."""
    tally = Tally()
    for seed in seeds:
        spec, sort = spec_of(seed)
        tally.specs[sort] += 1
        said = [name for name in names if seed % LAWS[name].share < 2 and LAWS[name].applies(spec)]
        with sharing():
            found = [broken(name, spec, (seed,), tally.unsure) for name in said]
        tally.tried.update(said)
        tally.found += [plainest(finding) for finding in found if finding is not None]
    return tally


def plainest(finding: Finding) -> Finding:
    """The same finding on a spec that is as plain as can be."""
    kind = _kind(finding)

    def breaks(spec: S.Model) -> bool:
        other = broken(finding.law, spec, (finding.seed,))
        return other is not None and _kind(other) == kind

    spec = shrunk(finding.spec, breaks) if LAWS[finding.law].of_one else finding.spec
    return broken(finding.law, spec, (finding.seed,)) or replace(finding, spec=spec)


def _kind(finding: Finding) -> str:
    """What a finding is alike in: numbers that are off, or the kind of error that was raised."""
    return "off" if finding.off is not None else finding.what.partition(":")[0]
