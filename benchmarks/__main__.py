"""Run works by name: `python -m benchmarks train-step t5-step memory`."""

from __future__ import annotations

import argparse

import torch

from benchmarks import (
    compiled,
    decode,
    entropy,
    families,
    imports,
    kernels,
    lines,
    load,
    memory,
    numerics,
    parts,
    predict,
    prepare,
    rows,
    switches,
    train_loop,
    train_step,
    tune,
)
from benchmarks.runner import Settings

WORKS = {
    "train-step": train_step.plain,
    "t5-step": train_step.t5,
    "memory": memory.lengths,
    "load": load.cold,
    "import-time": imports.imports,
    "lines": lines.lines,
    "predict": predict.predict,
    "prepare": prepare.prepare,
    "compiled": compiled.compiled,
    "decode": decode.decode,
    "entropy": entropy.entropy,
    "families": families.families,
    "kernels": kernels.kernels,
    "train-loop": train_loop.overhead,
    "switches": switches.every,
    "band": switches.band,
    "parts": parts.parts,
    "rows": rows.rows,
    "numerics": numerics.numerics,
    "tune": tune.tune,
}
ON_GPU = {
    "decode",
    "entropy",
    "families",
    "kernels",
    "memory",
    "numerics",
    "parts",
    "rows",
    "switches",
    "tune",
}


def checked(works: list[str], device: str) -> None:
    """Refuse a GPU where there is none, and works that have nothing to do on one."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch sees no GPU on this machine; leave it out")
    wrong = [work for work in works if device == "cuda" and work not in ON_GPU]
    if wrong:
        said = f"{', '.join(wrong)} can't; {', '.join(sorted(ON_GPU))} can"
        raise SystemExit(f"--device cuda: {said}: run them apart")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("works", nargs="+", choices=sorted(WORKS))
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each contestant")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true", help="time compiled models too")
    parser.add_argument("--out", default=None, help="folder for the tables (Markdown and JSON)")
    parser.add_argument("--texts", type=int, default=10_000, help="predict: how many")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="memory: measure these anew; switches: these, by the name of a row, a switch or a "
        "backend, or ours, kernels, peers, FlexAttention, x-transformers; decode: cases such as "
        "float32-1, gpt-2-64; numerics: these backends; tune: these switches; "
        "rows: maps such as 'GPT-2 out'",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="switches, tune: seconds to compile one row in; what takes longer is left out",
    )
    parser.add_argument(
        "--lengths",
        nargs="+",
        type=int,
        default=[],
        help="switches: tokens of a row, such as 1024 8192 32768",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        choices=["cpu", "cuda"],
        help=f"where; {', '.join(sorted(ON_GPU))} run on a GPU too, or only there",
    )
    given = parser.parse_args()
    checked(given.works, given.device)
    settings = Settings(
        given.rounds,
        given.threads,
        tuple(given.dtypes),
        given.compile,
        given.out,
        tuple(given.only),
        given.texts,
        given.device,
        given.limit,
        tuple(given.lengths),
    )
    for work in given.works:
        WORKS[work](settings)


if __name__ == "__main__":
    main()
