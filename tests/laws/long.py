"""Many specs under every law: `python -m tests.laws.long --examples 2000 --seed 0`.

Prints a table of law, specs tried and specs that break it; the seeds of those make them again
with `tests.laws.specs.sample(seed)`. Exit status 1 if any law is broken.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import defaultdict

import torch

from tests.laws.specs import sample
from tests.laws.table import LAWS


def main(words: list[str] | None = None) -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=2000, help="specs to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the first spec")
    parser.add_argument("--law", action="append", choices=LAWS, help="this law only; may repeat")
    asked = parser.parse_args(words)
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    names = asked.law or list(LAWS)
    tried, broken = run(names, asked.seed, asked.examples)
    print(f"{'law':28}{'specs':>8}{'broken':>8}")
    for name in names:
        print(f"{name:28}{tried[name]:8}{len(broken[name]):8}  {broken[name][:10] or ''}")
    print(f"{'all':28}{sum(tried.values()):8}{sum(map(len, broken.values())):8}")
    return int(any(broken.values()))


def run(
    names: list[str], first: int, count: int
) -> tuple[dict[str, int], defaultdict[str, list[int]]]:
    """How many specs each law was tried on, and the seeds of those that break it."""
    tried, broken, began = dict.fromkeys(names, 0), defaultdict[str, list[int]](list), time.time()
    for seed in range(first, first + count):
        spec = sample(seed)
        for name in names:
            law = LAWS[name]
            if seed % law.share or not law.applies(spec):
                continue
            tried[name] += 1
            try:
                law.check(spec, seed)
            except Exception:
                broken[name].append(seed)
                print(f"{name}, seed {seed}: {traceback.format_exc(limit=-1).splitlines()[-1]}")
        done = seed - first + 1
        if done % 100 == 0 or done == count:
            print(f"{done} of {count} specs, {time.time() - began:.0f} s", flush=True)
    return tried, broken


if __name__ == "__main__":
    sys.exit(main())
