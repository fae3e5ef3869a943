"""Making token shards against the bare tokenizers library, and the memory that it takes.

The library alone is `encode_batch_fast` over texts that are in memory, in the batches that
`prepare` makes, on one thread of each of one or two processes, and every document's ids are taken
out as its list; it neither reads nor writes, and neither its imports nor the loading of its
tokenizer are counted. What we do besides is reading, decoding, starting workers and sending them
texts, joining ids, writing and checksums. Each measurement is a process of its own, and the cases
of a round run in a new order each time. Speeds per core are of CPU time (of all processes): other
work on the machine counts little there; those by the clock stand beside them.
"""

from __future__ import annotations

import json
import pathlib
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from typing import NamedTuple

from benchmarks.runner import Settings, Table, interval

SMALL, LARGE = 8, 32  # MB
VOCAB = 32_000
TIMED = """
import time
from anyformer.data import worker
class Timed:
    def __init__(self, pipeline):
        self.pipeline, self.no_truncation = pipeline, pipeline.no_truncation
    def encode_batch_fast(self, *given, **options):
        before = time.process_time()
        found = self.pipeline.encode_batch_fast(*given, **options)
        with open(NOTED, "a") as file:
            file.write(f"{time.process_time() - before}\\n")
        return found
real = worker.Job
worker.Job = lambda pipeline, *rest: real(Timed(pipeline), *rest)
"""
PROBE = """
import json, os, resource, sys, time
work, text, folder, out, workers, turn, turns = sys.argv[1:8]
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from anyformer.data import crew
from anyformer.data.prepare import _batches, prepare
from anyformer.data.sources import source
from anyformer.data.tokenizer import Tokenizer
NOTED = f"{out}.inside{turn}"
open(NOTED, "w").close()
if int(workers):
    crew.START = f"NOTED = {NOTED!r}\\n{TIMED}\\nworker.work()"
else:
    exec(TIMED)
WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
cpu = lambda: sum(sum(resource.getrusage(who)[:2]) for who in WHO)
tokenizer = Tokenizer.load(folder)
if work == "library":
    batches = _batches(source(text, split="block").pieces())
    batches = [[piece.text for piece in batch] for batch in batches][int(turn) :: int(turns)]
    encode = Timed(tokenizer._pipeline).encode_batch_fast
    start, begun = time.perf_counter(), cpu()
    for batch in batches:
        for one in encode(batch, add_special_tokens=False):
            one.ids
else:
    start, begun = time.perf_counter(), cpu()
    prepare(text, tokenizer, out, workers=int(workers), split="block")
seconds, spent = time.perf_counter() - start, cpu() - begun
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
peak = (int(own.split()[1]) + child * int(workers)) / 1024
inside = sum(map(float, open(NOTED)))
print(json.dumps({"seconds": seconds, "cpu": spent, "inside": inside, "peak": peak}))
"""


class Case(NamedTuple):
    """What is measured: how many processes of the library, or how many workers of ours."""

    name: str
    size: int  # MB; 0: next to nothing
    library: int = 0
    workers: int = 0


ALONE = Case("tokenizers alone, 1 process", LARGE, library=1)
PAIR = Case("tokenizers alone, 2 processes at once", LARGE, library=2)
ALONE_SMALL = ALONE._replace(size=SMALL)
TWO = Case("prepare, 2 workers", LARGE, workers=2)
PEERS = {  # of each case: the library in one process, and in as many as cores are busy
    ALONE: (ALONE, ALONE),
    PAIR: (ALONE, PAIR),
    Case("prepare, no workers", LARGE): (ALONE, ALONE),
    Case("prepare, 1 worker", LARGE, workers=1): (ALONE, ALONE),
    TWO: (ALONE, PAIR),
    ALONE_SMALL: (ALONE_SMALL, ALONE_SMALL),
    TWO._replace(size=SMALL): (ALONE_SMALL, None),
}
NOTHING = Case("next to nothing, no workers", 0), Case("next to nothing, 2 workers", 0, workers=2)


def corpus(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """The sources of Python's library as text, several times over, in files of given sizes."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in library.rglob("*.py") if "site-packages" not in p.parts)
    text = "\n".join(p.read_text(encoding="utf-8", errors="ignore") for p in files)
    text = text.replace("\0", "").replace("\r", "")
    made = {}
    for size in (0, SMALL, LARGE):
        need = size * 10**6 or 1000
        made[size] = folder / f"{size}.txt"
        made[size].write_text((text * (need // len(text) + 1))[:need], encoding="utf-8")
    return made


def measured(case: Case, text: pathlib.Path, folder: pathlib.Path, turn: int) -> dict[str, float]:
    """One run in processes of its own: CPU time and memory are of all, the clock the longest."""
    out = folder / f"out-{case.size}-{case.library}-{case.workers}-{turn}"
    work, many = ("library", case.library) if case.library else ("prepare", 1)
    probe = f"TIMED = {TIMED!r}\n{PROBE}"
    given = [sys.executable, "-c", probe, work, text, folder / "tokenizer", out, case.workers]
    started = [
        subprocess.Popen(list(map(str, [*given, i, many])), stdout=subprocess.PIPE, text=True)
        for i in range(many)
    ]
    found = [json.loads(each.communicate()[0]) for each in started]
    total = {key: sum(one[key] for one in found) for key in ("cpu", "inside", "peak")}
    return {"seconds": max(one["seconds"] for one in found), **total}


def prepare(settings: Settings) -> None:
    """Speed with 0, 1 and 2 workers beside the library's own, and peak memory for two sizes."""
    from anyformer.data.train_tokenizer import train

    cases = [*PEERS, *NOTHING]
    runs: dict[Case, list[dict[str, float]]] = {case: [] for case in cases}
    order, dice = list(cases), random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = corpus(folder)
        lines = texts[SMALL].read_text(encoding="utf-8").splitlines(keepends=True)
        train("bpe", lines, VOCAB).save(folder / "tokenizer")
        for turn in range(settings.rounds):
            dice.shuffle(order)
            for case in order:
                runs[case].append(measured(case, texts[case.size], folder, turn))
                print(case.name, case.size, runs[case][-1], flush=True)
    table_of(runs).show(settings, "cpu_prepare")


def table_of(runs: dict[Case, list[dict[str, float]]]) -> Table:
    """The table of all runs."""
    table = Table(
        f"Token shards from text, BPE of {VOCAB} tokens, CPU",
        [
            "",
            "MB",
            "MB/s",
            "MB/s and core",
            "per core, of 1 process of the library",
            "of as many of its processes",
            "inside its call",
            "peak MiB",
        ],
    )
    for case, peers in PEERS.items():
        found = runs[case]
        middle = lambda key, found=found: statistics.median(run[key] for run in found)
        speeds = [f"{case.size / middle(key):.2f}" for key in ("seconds", "cpu")]
        shares = [ratio(runs[peer], found, "cpu") if peer else "-" for peer in peers]
        inside = statistics.median(run["inside"] / run["cpu"] for run in found)
        rest = [f"{inside:.1%}", f"{middle('peak'):.0f}"]
        table.rows.append([case.name, str(case.size), *speeds, *shares, *rest])
    none, two = ([run["cpu"] for run in runs[case]] for case in NOTHING)
    start = statistics.median((b - a) / 2 for a, b in zip(none, two, strict=True))
    table.raw.update({f"{case.name}, {case.size} MB": found for case, found in runs.items()})
    table.notes += [
        "Python's own library as text, a document per block between empty lines; the library alone "
        "gets the same documents from memory in the same batches, and takes each one's ids out",
        "inside its call: the share of the CPU time that went into encode_batch_fast in that very "
        "run, which other work on the machine sways little; taking the ids out is not in it, so "
        "ours stands beside that of the library alone",
        "per core: of the CPU time of all processes, the start of the workers included; medians, "
        "and the median ratio by rounds with its 95 % interval",
        f"the start of a worker is {start:.2f} s of CPU time for any input, so it weighs more at "
        f"{SMALL} MB than at {LARGE}; the digest of the tokenizer is such a constant too",
        "peak: of the process, and the largest of a worker for each worker",
    ]
    return table


def ratio(theirs: list[dict[str, float]], ours: list[dict[str, float]], key: str) -> str:
    """Their time over ours, by rounds."""
    a, b, c = interval([x[key] / y[key] for x, y in zip(theirs, ours, strict=True)])
    return f"{a:.2f} ({b:.2f} to {c:.2f})"
