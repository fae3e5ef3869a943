"""Characters of Shakespeare: nanoGPT's two published configurations, trained by the library.

`cpu` races whole runs against a GPT and a loop written as nanoGPT's are; `h200` trains the
larger one, plain and with switches, over several seeds. The corpus is not ours to ship: name it.

    python -m benchmarks.shakespeare cpu --data tinyshakespeare.txt
    python -m benchmarks.shakespeare h200 --data tinyshakespeare.txt --seeds 3
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import anyformer
from anyformer import spec as S
from anyformer.compat.words import switch
from anyformer.data.part import held_out
from anyformer.data.rows import Rows
from anyformer.objectives.causal import NextToken
from anyformer.train import Settings, train
from anyformer.train.settings import AdamW, Cosine, Evaluation, Saving
from benchmarks.runner import Settings as Shown
from benchmarks.runner import Table


@dataclass(frozen=True)
class Setup:
    """One of nanoGPT's configurations for this corpus."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    steps: int
    dropout: float
    target: float  # the validation loss that its README states
    rate: float = 1e-3  # of learning, nanoGPT's


SETUPS = {
    "cpu": Setup(4, 4, 128, 64, 12, 2000, 0.0, 1.88),
    "h200": Setup(6, 6, 384, 256, 64, 5000, 0.2, 1.4697),
}
FASTER = 4e-3  # a better rate for the small configuration; see NOTES.md
SWITCHES = {
    "plain": {},
    "rotary, squared ReLU, sandwich norm": dict(
        rotary_pos_emb=True, ff_relu_squared=True, sandwich_norm=True
    ),
}


class Characters:
    """A text as one document of characters."""

    documents, segmented = 1, None

    def __init__(self, text: str):
        self.letters = sorted(set(text))
        codes = {letter: code for code, letter in enumerate(self.letters)}
        self.ids = np.array([codes[letter] for letter in text], np.int64)
        self.tokens, self.lengths = len(self.ids), np.array([len(self.ids)])
        self.fingerprint = str(hash(text))

    def document(self, k: int) -> np.ndarray:
        return self.ids

    def segments(self, k: int) -> list[np.ndarray]:
        return [self.ids]

    def names(self, k: int) -> None:
        return None

    def slice(self, start: int, stop: int) -> np.ndarray:
        return self.ids[start:stop]


def spec_of(setup: Setup, vocab: int, switches: dict[str, bool]) -> S.Model:
    """GPT-2 as nanoGPT has it, without biases and with the exact GELU, with switches."""
    spec = anyformer.recipe(
        "gpt2", dim=setup.width, depth=setup.layers, heads=setup.heads, vocab=vocab,
        length=setup.context, dropout=setup.dropout,
    )  # fmt: skip
    for place in ("0.branch.bias", "0.branch.out_bias", "1.branch.bias"):
        spec = anyformer.override(spec, f"stack.block.{place}", False)
    spec = anyformer.override(spec, "stack.block.1.branch.act", "gelu")
    return switch(spec, **switches) if switches else spec


def settings_of(setup: Setup, seed: int, device: str) -> Settings:
    """How nanoGPT trains: AdamW, cosine to a tenth, clipped; bfloat16 on a GPU."""
    gpu = device == "cuda"
    return Settings(
        steps=setup.steps,
        batch=setup.batch,
        lr=setup.rate,
        optimiser=AdamW(betas=(0.9, 0.99)),
        undecayed=("norms", "biases"),
        schedule=Cosine(warmup=100, final=0.1),
        evaluation=Evaluation(every=250 if gpu else 0, patience=6 if gpu else None),
        saving=Saving(every=0, best=gpu, take="best" if gpu else "last"),
        precision="bfloat16" if gpu else "float32",
        compile=gpu,
        seed=seed,
        device=device,
        workers=2 if gpu else 0,
    )


def ours(setup: Setup, text: Characters, name: str, seed: int, device: str) -> dict[str, float]:
    """Train by the library; the best validation loss and the seconds."""
    learn, held = held_out(text, 0.1)
    rows = Rows(learn, setup.context + 1, seed), Rows(held, setup.context + 1, shuffle=False)
    spec = spec_of(setup, len(text.letters), SWITCHES[name])
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run = train(
            spec,
            rows,
            NextToken(cross=True),
            Path(folder) / "run",
            settings_of(setup, seed, device),
        )
        seconds = time.perf_counter() - start
        lines = (Path(folder) / "run" / "speed.jsonl").read_text().splitlines()
    losses = [r["validation/loss"] for r in run.history if "validation/loss" in r]
    speed = [json.loads(line) for line in lines][2:]  # without compilation
    middle = lambda name: statistics.median(x[name] for x in speed)
    return {"loss": min(losses), "seconds": seconds, "steps": run.steps,
            "parameters": anyformer.count(spec, length=setup.context).parameters,
            "waiting_share": middle("waiting_share"), "share_of_peak": middle("share_of_peak"),
            "tokens_per_second": middle("tokens_per_second")}  # fmt: skip


# ------------------------------------------------------------------------------ the peer


class PeerBlock(nn.Module):
    """A pre-norm block with one matrix for queries, keys and values, without biases."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        split = lambda t: t.view(b, n, self.heads, d // self.heads).transpose(1, 2)
        q, k, v = (split(t) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Peer(nn.Module):
    """A GPT with learned positions and a tied head."""

    def __init__(self, setup: Setup, vocab: int):
        super().__init__()
        self.token = nn.Embedding(vocab, setup.width)
        self.place = nn.Embedding(setup.context, setup.width)
        blocks = [PeerBlock(setup.width, setup.heads) for _ in range(setup.layers)]
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(setup.width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * setup.layers if last else 1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


def theirs(setup: Setup, text: Characters, seed: int, fused: bool = False) -> dict[str, float]:
    """Train the peer by a plain loop; the last validation loss and the seconds.

    nanoGPT asks for a fused AdamW on a GPU alone; `fused` is a faster loop than its own.
    """
    torch.manual_seed(seed)
    limit = int(0.9 * text.tokens)
    ids, held = torch.from_numpy(text.ids[:limit]), torch.from_numpy(text.ids[limit:])
    start = time.perf_counter()
    model = Peer(setup, len(text.letters))
    sides = (
        [p for p in model.parameters() if p.ndim > 1],
        [p for p in model.parameters() if p.ndim < 2],
    )
    groups = [{"params": p, "weight_decay": w} for p, w in zip(sides, (0.1, 0.0), strict=True)]
    optimiser = torch.optim.AdamW(groups, setup.rate, betas=(0.9, 0.99), fused=fused or None)
    for step in range(setup.steps):
        wave = 0.5 * (1 + math.cos(math.pi * max(step - 100, 0) / (setup.steps - 100)))
        rate = setup.rate * min((step + 1) / 100, 1) * (0.1 + 0.9 * wave)
        for group in optimiser.param_groups:
            group["lr"] = rate
        at = torch.randint(len(ids) - setup.context, (setup.batch,))
        read, asked = (
            torch.stack([ids[i + k : i + k + setup.context] for i in at]) for k in (0, 1)
        )
        F.cross_entropy(model(read).flatten(0, 1), asked.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    rows = held[: len(held) // (setup.context + 1) * (setup.context + 1)].view(
        -1, setup.context + 1
    )
    with torch.no_grad():
        sums = [
            F.cross_entropy(model(r[:, :-1]).flatten(0, 1), r[:, 1:].flatten(), reduction="sum")
            for r in rows.split(setup.batch)
        ]
    seconds = time.perf_counter() - start
    return {"loss": float(sum(sums)) / rows[:, 1:].numel(), "seconds": seconds}


# ------------------------------------------------------------------------------ the works


def cpu(data: Path, seeds: int, out: str | None) -> None:
    """Whole runs in turn on two cores, another seed on two others where there are so many."""
    command = [sys.executable, "-m", "benchmarks.shakespeare", "pair", "--data", str(data)]
    cores = sorted(os.sched_getaffinity(0))
    at_once = max(1, min(seeds, len(cores) // 4))  # half of the cores stay free
    told: list[dict[str, dict[str, float]]] = []
    for first in range(0, seeds, at_once):
        running = [
            subprocess.Popen(
                [*command, "--seed", str(s), "--cores", *map(str, cores[2 * i : 2 * i + 2])],
                stdout=subprocess.PIPE,
            )
            for i, s in enumerate(range(first, min(first + at_once, seeds)))
        ]
        told += [json.loads(p.communicate()[0].splitlines()[-1]) for p in running]
    head = ["contestant", "validation loss by seed", "mean", "seconds by seed", "best of ours"]
    table = Table("Characters of Shakespeare, nanoGPT's CPU configuration", head)
    setup = SETUPS["cpu"]
    best = min(run["seconds"] for found in told for n, run in found.items() if n in OURS)
    for name in told[0]:
        losses, seconds = [f[name]["loss"] for f in told], [f[name]["seconds"] for f in told]
        table.rows.append([
            name, " ".join(f"{x:.4f}" for x in losses), f"{statistics.mean(losses):.4f}",
            " ".join(f"{x:.0f}" for x in seconds), f"{min(seconds) / best:.2f}"])  # fmt: skip
        table.raw[name] = [found[name] for found in told]
    table.notes.append(
        f"its README states {setup.target}; {setup}; whole validation tenth, at the end"
    )
    table.notes.append("seconds: everything from the first weight to the last validation row")
    table.show(Shown(out=out), "cpu_shakespeare")


OURS = ("anyformer, rate 0.004",)


def pair(text: Characters, seed: int, cores: list[int]) -> dict[str, dict[str, float]]:
    """Ours, the peer, and the peer at our rate, one after another on the same cores."""
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    setup = SETUPS["cpu"]
    faster = replace(setup, rate=FASTER)
    warm = replace(setup, steps=120)
    ours(warm, text, "plain", seed, "cpu")
    theirs(warm, text, seed)
    return {
        OURS[0]: ours(faster, text, "plain", seed, "cpu"),
        "nanoGPT's model and loop, its rate 0.001": theirs(setup, text, seed),
        f"the same, rate {FASTER}": theirs(faster, text, seed),
    }


def _ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(x / y for x, y in zip(theirs, ours, strict=True))


def race(text: Characters, rounds: int, steps: int, out: str | None) -> None:
    """Whole short runs in turn, each way first as often: seconds, and how they compare."""
    torch.set_num_threads(2)
    setup = replace(SETUPS["cpu"], steps=steps)
    kinds = {"anyformer": lambda s: ours(setup, text, "plain", s, "cpu"),
             "nanoGPT's model and loop": lambda s: theirs(setup, text, s),
             "the same, AdamW fused": lambda s: theirs(setup, text, s, fused=True)}  # fmt: skip
    for run in kinds.values():
        run(rounds)
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    busy: dict[str, list[float]] = {name: [] for name in kinds}
    for i in range(rounds):
        for name in [*kinds, *kinds][i % 3 : i % 3 + 3]:
            start = time.process_time()
            seconds[name].append(kinds[name](i)["seconds"])
            busy[name].append(time.process_time() - start)
    table = Table(
        f"Whole runs of {steps} steps in turn", ["contestant", "seconds", "of ours", "cpu"]
    )
    for name in kinds:
        told = " ".join(f"{x:.1f}" for x in seconds[name])
        ratios = [_ratio(found[name], found["anyformer"]) for found in (seconds, busy)]
        table.rows.append([name, told, *(f"{x:.3f}" for x in ratios)])
    table.notes.append("of ours: the median ratio of runs beside each other, by the clock; cpu: of")
    table.notes.append(
        "processor time. Each has its start, its steps and the whole validation tenth"
    )
    table.raw = {"seconds": seconds, "cpu": busy}
    table.show(Shown(out=out), "cpu_shakespeare_race")


def h200(data: Path, seeds: int, out: str | None) -> None:
    """Plain and switched, several seeds, each run in its own process, all at once."""
    setup, jobs = SETUPS["h200"], [(n, s) for n in SWITCHES for s in range(seeds)]
    command = [sys.executable, "-m", "benchmarks.shakespeare", "one", "--data", str(data)]
    running = [
        subprocess.Popen([*command, "--name", n, "--seed", str(s)], stdout=subprocess.PIPE)
        for n, s in jobs
    ]
    told = [json.loads(p.communicate()[0].splitlines()[-1]) for p in running]
    head = ["model", "parameters", "best validation loss by seed", "mean", "steps", "seconds"]
    table = Table("Characters of Shakespeare, nanoGPT's 10.7M configuration, one H200", head)
    for name in SWITCHES:
        runs = [r for (n, _), r in zip(jobs, told, strict=True) if n == name]
        losses = [r["loss"] for r in runs]
        table.rows.append([
            name, f"{runs[0]['parameters'] / 1e6:.2f}M", " ".join(f"{x:.4f}" for x in losses),
            f"{statistics.mean(losses):.4f}", " ".join(str(r["steps"]) for r in runs),
            " ".join(f"{r['seconds']:.0f}" for r in runs)])  # fmt: skip
        table.raw[name] = runs
    stopped = "stopped after 6 evaluations, each of 250 steps, without a better one"
    table.notes.append(f"its README states {setup.target}; {setup}; {stopped}; {len(jobs)} at once")
    table.show(Shown(out=out), "h200_shakespeare")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("work", choices=["cpu", "h200", "race", "one", "pair"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", default=None)
    parser.add_argument("--name", default="plain", choices=SWITCHES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=None, help="one and race: fewer than nanoGPT's"
    )
    parser.add_argument("--rounds", type=int, default=5, help="race: how often")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1], help="pair: where to run")
    given = parser.parse_args()
    if given.work in ("cpu", "h200"):
        return {"cpu": cpu, "h200": h200}[given.work](given.data, given.seeds, given.out)
    text = Characters(given.data.read_text(encoding="utf-8"))
    if given.work == "race":
        return race(text, given.rounds, given.steps or 400, given.out)
    if given.work == "pair":
        return print(json.dumps(pair(text, given.seed, given.cores)))
    setup = SETUPS["h200"]
    setup = replace(setup, steps=given.steps) if given.steps else setup
    print(json.dumps(ours(setup, text, given.name, given.seed, "cuda")))


if __name__ == "__main__":
    main()
