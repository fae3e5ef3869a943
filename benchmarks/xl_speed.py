"""Evaluation of Transformer-XL against a window that slides: `python -m benchmarks.xl_speed`.

For each token to see `length` tokens before it, a decoder without memory reads a whole window anew
for every token; with memory a segment is read once and its inputs are kept. The ratio of the times
per token grows linearly with the length (table 9 of arXiv:1901.02860: 0.43 to 0.50 times it).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from anyformer import spec as S
from anyformer.model.model import Model, build
from anyformer.recipes import recipe
from benchmarks.runner import Settings, Table

LENGTHS = (64, 128, 256, 512)
SEGMENT = 64


@dataclass(frozen=True)
class Speed:
    """Seconds per token at one attention length."""

    length: int
    sliding: float  # a window for every token
    reuse: float  # segments with memory

    @property
    def ratio(self) -> float:
        """How many times faster memory is."""
        return self.sliding / self.reuse

    @property
    def share(self) -> float:
        """The ratio over the length."""
        return self.ratio / self.length


def small(dim: int = 128, depth: int = 6, heads: int = 4) -> S.Model:
    """A Transformer-XL of the reference's size."""
    sizes = {"dim": dim, "depth": depth, "heads": heads, "hidden": 4 * dim}
    return recipe("transformer-xl", vocab=65, memory=SEGMENT, dropout=0.0, **sizes)


def measured(
    spec: S.Model | None = None,
    lengths: Sequence[int] = LENGTHS,
    segment: int = SEGMENT,
    rounds: int = 3,
    device: str = "cpu",
) -> list[Speed]:
    """The speeds of a spec, a row at a time; the best of some rounds."""
    torch.manual_seed(0)
    model = build(spec or small()).eval().to(device)
    return [speed(model, length, segment, rounds) for length in lengths]


@torch.inference_mode()
def speed(model: Model, length: int, segment: int, rounds: int) -> Speed:
    """Both ways at one attention length."""
    source = model.spec.embed.source
    assert isinstance(source, S.Tokens)
    where = next(model.parameters()).device
    ids = torch.randint(0, source.vocab, (1, length + segment), device=where)
    mems = model(ids[:, :length], return_mems=True, mem_len=length).mems
    again = lambda: model(ids[:, length:], mems=mems, return_mems=True, mem_len=length)
    sliding = lambda: model(ids[:, -length:])
    times = {again: float("inf"), sliding: float("inf")}
    for turn in range(rounds + 1):
        for work in times:
            spent = clocked(work, where)
            times[work] = min(times[work], spent) if turn else times[work]
    return Speed(length, times[sliding], times[again] / segment)


def clocked(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call: of this process on a CPU, which others may share, else by the clock."""
    if device.type == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


def table(found: Sequence[Speed], segment: int = SEGMENT) -> Table:
    """The speeds as a table."""
    head = ["attention length", "sliding ms", "memory ms", "times faster", "per length"]
    made = Table(f"Transformer-XL: a token of evaluation, segments of {segment}", head)
    for one in found:
        ms = [f"{1e3 * t:.3f}" for t in (one.sliding, one.reuse)]
        made.rows.append([str(one.length), *ms, f"{one.ratio:.0f}", f"{one.share:.2f}"])
    made.raw["speeds"] = [asdict(one) | {"ratio": one.ratio} for one in found]
    return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.xl_speed", description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--segment", type=int, default=SEGMENT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", help="folder for the table (Markdown and JSON)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = measured(None, given.lengths, given.segment, given.rounds, given.device)
    out = None if given.out is None else str(Path(given.out))
    table(found, given.segment).show(Settings(out=out), "xl_speed")


if __name__ == "__main__":
    main()
