"""Many specs under every law: `python -m tests.laws.long --examples 2000 --seed 0 --jobs 2`.

Prints a table of law, specs tried and specs that break it; `spec_of(seed)` makes such a spec
again. Every second spec is drawn, every other one crossed out of several drawn ones. Exit status
1 if any law is broken.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import torch

from anyformer import spec as S
from tests.laws.crossed import crossed
from tests.laws.specs import sample
from tests.laws.table import LAWS

CHUNK = 25  # specs that a process takes at a time
Found = tuple[Counter[str], list[tuple[str, int, str]]]  # tries by law; law, seed, what broke


def main(words: list[str] | None = None) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="specs to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the first spec")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--law", action="append", choices=LAWS, help="this law only; may repeat")
    asked = parser.parse_args(words)
    names = asked.law or list(LAWS)
    tried, broken = run(names, range(asked.seed, asked.seed + asked.examples), asked.jobs)
    print(f"{'law':32}{'specs':>8}{'broken':>8}")
    for name in names:
        seeds = sorted(seed for law, seed, _ in broken if law == name)
        print(f"{name:32}{tried[name]:8}{len(seeds):8}  {seeds[:10] or ''}")
    print(f"{'all':32}{sum(tried.values()):8}{len(broken):8}")
    return int(bool(broken))


def run(names: list[str], seeds: range, jobs: int) -> Found:
    """Try the laws on the specs of all seeds, and say how far it is now and then."""
    tried, broken, done, began = Counter[str](), [], 0, time.time()
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare) as pool:
        for work in as_completed([pool.submit(try_laws, names, chunk) for chunk in chunks]):
            some, wrong = work.result()
            tried, broken, done = tried + some, broken + wrong, done + CHUNK
            for law, seed, what in wrong:
                print(f"{law}, seed {seed}: {what}", flush=True)
            if done % (CHUNK * 8) == 0 or done >= len(seeds):
                print(f"{min(done, len(seeds))} specs, {time.time() - began:.0f} s", flush=True)
    return tried, broken


def _prepare() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)


def spec_of(seed: int) -> S.Model:
    """The spec of a seed."""
    spec = sample(seed)
    return (crossed(spec, seed) or spec) if seed % 2 else spec


def try_laws(names: list[str], seeds: range) -> Found:
    """Try each law on each spec that it speaks of."""
    tried, broken = Counter[str](), []
    for seed in seeds:
        spec = spec_of(seed)
        for name in names:
            law = LAWS[name]
            if (seed % law.share) > 1 or not law.applies(spec):
                continue
            tried[name] += 1
            try:
                law.check(spec, seed)
            except Exception:
                last = traceback.format_exc(limit=-1).splitlines()[-1]
                broken.append((name, seed, last))
    return tried, broken


if __name__ == "__main__":
    sys.exit(main())
