"""Making token shards against the bare tokenizers library, and the memory that it takes.

The library alone encodes texts that are in memory, in batches, on one thread, and the ids are
taken out; what we do besides is reading, decoding, sending texts to workers, writing and checksums.
Each measurement is a process of its own. Speeds per core are of CPU time (of all processes): other
work on the machine doesn't count; those by the clock stand beside them.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile

from benchmarks.runner import Settings, Table, interval

MEGABYTES = (8, 32)
VOCAB = 32_000
PROBE = """
import json, os, resource, sys, time
work, text, folder, out, workers = sys.argv[1:6]
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from anyformer.data.prepare import prepare
from anyformer.data.sources import source
from anyformer.data.tokenizer import Tokenizer
WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
cpu = lambda: sum(sum(resource.getrusage(who)[:2]) for who in WHO)
tokenizer = Tokenizer.load(folder)
encode = tokenizer._pipeline.encode_batch_fast
if work == "library":
    texts = list(source(text, split="block").texts())
    start, begun = time.perf_counter(), cpu()
    for i in range(0, len(texts), 256):
        for one in encode(texts[i : i + 256], add_special_tokens=False):
            one.ids
else:
    start, begun = time.perf_counter(), cpu()
    prepare(text, tokenizer, out, workers=int(workers), split="block")
seconds, spent = time.perf_counter() - start, cpu() - begun
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
peak = (int(own.split()[1]) + child * int(workers)) / 1024
print(json.dumps({"seconds": seconds, "cpu": spent, "peak": peak}))
"""
CASES = {
    "tokenizers alone, 1 thread": ("library", 0),
    "prepare, no workers": ("prepare", 0),
    "prepare, 1 worker": ("prepare", 1),
    "prepare, 2 workers": ("prepare", 2),
}


def corpus(folder: pathlib.Path) -> list[pathlib.Path]:
    """The sources of Python's library as text, several times over, in files of given sizes."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in library.rglob("*.py") if "site-packages" not in p.parts)
    text = "\n".join(p.read_text(encoding="utf-8", errors="ignore") for p in files)
    text = text.replace("\0", "").replace("\r", "")
    made = []
    for size in MEGABYTES:
        need = size * 10**6
        path = folder / f"{size}.txt"
        path.write_text((text * (need // len(text) + 1))[:need], encoding="utf-8")
        made.append(path)
    return made


def measured(case: str, text: pathlib.Path, folder: pathlib.Path, turn: int) -> dict[str, float]:
    """One run in a process of its own."""
    work, workers = CASES[case]
    out = folder / f"{text.stem}-{workers}-{turn}"
    command = [sys.executable, "-c", PROBE, work, text, folder / "tokenizer", out, workers]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def prepare(settings: Settings) -> None:
    """Speed with 0, 1 and 2 workers beside the library's own, and peak memory for two sizes."""
    from anyformer.data.train_tokenizer import train

    table = Table(
        f"Token shards from text, BPE of {VOCAB} tokens, CPU",
        ["", "MB", "MB/s", "MB/s and core", "share of the library's, per core", "peak MiB"],
    )
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        small, large = corpus(folder)
        lines = small.read_text(encoding="utf-8").splitlines(keepends=True)
        train("bpe", lines, VOCAB).save(folder / "tokenizer")
        runs: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
        for turn in range(settings.rounds):
            for case in CASES:
                runs[case].append(measured(case, small, folder, turn))
                print(case, runs[case][-1], flush=True)
        alone = [run["cpu"] for run in runs["tokenizers alone, 1 thread"]]
        for case, found in runs.items():
            table.rows.append(row_of(case, MEGABYTES[0], found, alone))
        big = measured("prepare, 2 workers", large, folder, settings.rounds)
        runs["prepare, 2 workers, large"] = [big]
        table.rows.append(row_of("prepare, 2 workers", MEGABYTES[1], [big], None))
    table.raw.update(runs)
    table.notes += [
        "Python's own library as text, a document per block between empty lines; the library alone "
        "gets the same documents from memory, and its ids are taken out",
        "per core: of the CPU time of all processes, start of the workers included; medians, and "
        "the 95 % interval of the ratio by rounds",
        "peak: of the process, and the largest of a worker for each worker",
    ]
    table.show(settings, "cpu_prepare")


def row_of(
    case: str, size: int, found: list[dict[str, float]], alone: list[float] | None
) -> list[str]:
    """A line of the table."""
    middle = lambda key: statistics.median(run[key] for run in found)
    share = "-"
    if alone:
        a, b, c = interval([x / run["cpu"] for x, run in zip(alone, found, strict=True)])
        share = f"{a:.2f} ({b:.2f} to {c:.2f})"
    speeds = [f"{size / middle('seconds'):.2f}", f"{size / middle('cpu'):.2f}"]
    return [case, str(size), *speeds, share, f"{middle('peak'):.0f}"]
