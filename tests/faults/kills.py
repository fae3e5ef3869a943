"""`python -m tests.faults.kills --count 200 [--ranks 4] [--seed 0]`: SIGKILLs, and what they cost.

A tiny run is killed at a random moment, or before or behind a random one of its file operations,
with one process or with ranks (one of them, or all). It is gone on with, is sometimes killed once
more, and in the end its log, its weights and all the tensors of its last checkpoint must have the
bits of the run that nobody touched. Prints a table; ends with 1 where one bit differs, where what
goes on fails or hangs, or where a save that was cut short left anything behind.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from anyformer.train import log, save
from tests.faults.victim import TIME, BrokenError, Point, attempt

TWICE = 0.25  # of the runs that go on are killed as well
MOMENTS = 1 / 3  # of the kills come at any time
ALL = 0.5  # of the kills under ranks hit all of them
ENOUGH = 10  # runs that went wrong, to stop


@dataclass
class Whole:
    """The run that nobody touched: its bits, its seconds, and its operations by rank and name."""

    bits: dict[str, bytes]
    seconds: float
    calls: list[tuple[int, str, int]]


@dataclass
class Tally:
    """What came of the kills, by the point they hit at."""

    kills: Counter[str] = field(default_factory=Counter[str])
    resumed: Counter[str] = field(default_factory=Counter[str])  # that hit a run which went on
    resumes: Counter[str] = field(default_factory=Counter[str])
    equal: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])


def bits_of(run: Path) -> dict[str, bytes]:
    """All that must be equal: the log, the exported weights, the last checkpoint's tensors."""
    found = {name: (run / name).read_bytes() for name in (log.METRICS, "model/model.safetensors")}
    home = run / "checkpoints"
    last = home / save.name(save.steps(home)[0])
    tensors = {k: torch.zeros(s, dtype=d) for k, (s, d) in save.stored(last).items()}
    save.fill(last, tensors, together=False)
    found |= {k: bytes(t.reshape(-1).view(torch.uint8).tolist()) for k, t in tensors.items()}
    return found | {f"{path.name}, half written or removed,": b"" for path in home.glob(".*")}


def whole(home: Path, world: int) -> Whole:
    """Train without a kill, twice: the second one tells how long it takes, warmed up."""
    for name in ("first", "whole"):
        begun = time.monotonic()
        attempt(home / name, world, None)
        seconds = time.monotonic() - begun
    told = [json.loads((home / f"whole.calls.{rank}").read_text()) for rank in range(world)]
    calls = [(rank, name, n) for rank, met in enumerate(told) for name, n in met.items()]
    bits = bits_of(home / "whole")
    if bits != bits_of(home / "first"):
        raise SystemExit("two runs without a kill differ: nothing can be compared with them")
    return Whole(bits, seconds, sorted(calls))


def point_of(dice: random.Random, of: Whole, world: int) -> Point:
    """Where the next kill hits."""
    everyone = world > 1 and dice.random() < ALL
    if dice.random() < MOMENTS:
        moment = dice.random() * of.seconds
        return Point(TIME, seconds=moment, rank=dice.randrange(world), all=everyone)
    name = dice.choice(sorted({name for _, name, _ in of.calls}))
    rank, _, most = dice.choice([call for call in of.calls if call[1] == name])
    return Point(name, dice.randrange(most), dice.random() < 0.5, rank=rank, all=everyone)


def trial(run: Path, of: Whole, points: list[Point], world: int, hit: list[str]) -> list[str]:
    """Kill a new run at points in turn and go on to its end; what differs then."""
    for point in points:
        if not attempt(run, world, point):
            break
        hit.append(label_of(point, world))
    else:
        attempt(run, world, None)
    found = bits_of(run)
    return sorted(k for k in of.bits.keys() | found.keys() if of.bits.get(k) != found.get(k))


def judged(run: Path, of: Whole, points: list[Point], world: int, tally: Tally) -> None:
    """Try, and enter what came of it; a run that no kill hit in time counts nowhere."""
    hit: list[str] = []
    try:
        differ = trial(run, of, points, world, hit)
        tally.resumes.update(hit)
        wrong = f"{', '.join(differ)} differ" if differ else None
    except BrokenError as error:
        wrong = str(error)
    tally.kills.update(hit)
    tally.resumed.update(hit[1:])
    if wrong is None:
        tally.equal.update(hit)
        shutil.rmtree(run)
    else:
        asked = ", ".join(label_of(point, world) for point in points)
        tally.wrong.append(f"{run}, {len(hit)} kills of {asked}: {wrong}")


def label_of(point: Point, world: int) -> str:
    """What the table calls a point."""
    who = "" if world == 1 else ", all ranks" if point.all else ", one rank"
    return point.label + who


def kills(home: Path, number: int, world: int, seed: int) -> Tally:
    """Kill until so many have hit."""
    dice, tally, runs = random.Random(seed), Tally(), 0
    of = whole(home, world)
    while tally.kills.total() < number and len(tally.wrong) < ENOUGH:
        run, runs = home / f"run {runs}", runs + 1
        often = min(number - tally.kills.total(), 2 if dice.random() < TWICE else 1)
        points = [point_of(dice, of, world) for _ in range(often)]
        judged(run, of, points, world, tally)
    return tally


def table(tally: Tally) -> str:
    """A row for each kind of point, and the sums."""
    rows = [("killed", "kills", "of a resumed run", "resumes", "bit-equal")]
    columns = (tally.kills, tally.resumed, tally.resumes, tally.equal)
    rows += [(name, *(str(c[name]) for c in columns)) for name in sorted(tally.kills)]
    rows += [("**all**", *(f"**{c.total()}**" for c in columns))]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---|---:|---:|---:|---:|", *lines[1:]])


def main(words: list[str] | None = None) -> int:
    """Kill, tell, and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="kills that hit (default: 200)")
    parser.add_argument("--ranks", type=int, default=1, help="processes of the run (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of where they hit (default: 0)")
    asked, begun = parser.parse_args(words), time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="kills "))
    tally = kills(home, asked.count, asked.ranks, asked.seed)
    print(table(tally))
    print(f"\n{asked.ranks} process(es), seed {asked.seed}, {time.monotonic() - begun:.0f} s")
    if tally.wrong:
        print("\n".join(tally.wrong))
        return 1
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
