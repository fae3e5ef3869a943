"""Texts of mixed length through a classifier: our task against transformers' pipeline.

A MiniLM-sized encoder (6 layers of width 384, 12 heads) with random weights and one tokenizer;
texts of 8 to 256 tokens in random order; the pipeline reads batches of 32. Both give the same
labels, which is checked. Every round runs both, in a new order, after some texts that aren't
counted. Processor time is what counts on a machine that others use too. `--texts` says how many
texts there are. Before the race all texts are answered in batches and line by line: labels must be
the same and scores within 1e-5, or it fails; and the peak of memory must hardly grow on the way.
"""

from __future__ import annotations

import pathlib
import random
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import torch

import anyformer
from benchmarks.runner import Settings, Table, interval

OURS, THEIRS = "anyformer.task", "transformers.pipeline(batch_size=32)"
LOW, HIGH = 8, 256  # tokens of a text, special ones included
NEAR = 1e-5  # between the scores of a line in a batch and of the line alone
WARM = 1500  # texts, of which the last are in a window of full size
GROWN = 64  # MiB that the peak may grow by afterwards


def folder_of(home: pathlib.Path) -> list[str]:
    """The classifier and its tokenizer in a folder; words that are one token each."""
    from pydoc_data.topics import topics

    import transformers

    from anyformer.data.train_tokenizer import train

    lines = [line for key in sorted(topics) for line in topics[key].split("\n")]
    words = train("wordpiece", lines, 4000, "bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        num_labels=3,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(home)
    words.save(home)
    found = {word for line in lines for word in line.lower().split() if word.isalpha()}
    return sorted(word for word in found if len(words.encode(word)) == 1)


def texts_of(words: list[str], count: int) -> list[str]:
    """Texts of LOW to HIGH tokens, all lengths alike."""
    rng = random.Random(0)
    sizes = [rng.randint(LOW, HIGH) - 2 for _ in range(count)]  # [CLS] and [SEP] beside
    return [" ".join(rng.choices(words, k=size)) for size in sizes]


def contestants(home: pathlib.Path) -> dict[str, Callable[[list[str]], list[str]]]:
    """What turns texts into labels."""
    import transformers

    ours = anyformer.task("classify", home, progress=False)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(home).eval()
    words = transformers.AutoTokenizer.from_pretrained(home)
    theirs = transformers.pipeline("text-classification", model, tokenizer=words, device="cpu")
    return {
        OURS: lambda texts: [found["label"] for found in ours(iter(texts))],
        THEIRS: lambda texts: [found["label"] for found in theirs(texts, batch_size=32)],
    }


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(home: pathlib.Path, texts: list[str]) -> str:
    """Batched results beside line-by-line ones, of all texts; what was found, or an error."""
    batched = anyformer.task("classify", home, progress=False)
    alone = anyformer.task("classify", home, progress=False, batch=1)
    for _ in batched(iter(texts[:WARM])):  # memory that every later window uses again
        pass
    before, largest, count = peak(), 0.0, 0
    for one, other in zip(batched(iter(texts)), alone(iter(texts)), strict=True):
        if one["label"] != other["label"]:
            raise AssertionError(f"line {count + 1}: {one} in a batch, {other} alone")
        largest, count = max(largest, abs(one["score"] - other["score"])), count + 1
    if count != len(texts) or largest > NEAR:
        raise AssertionError(f"{count} of {len(texts)} compared, scores off by {largest:.1e}")
    grown = peak() - before
    if grown > GROWN:
        raise AssertionError(f"the peak of memory grew by {grown:.0f} MiB over {count} texts")
    return (
        f"{count:,} lines in batches equal the lines one by one: same labels, scores within "
        f"{largest:.1e}; peak memory grew by {grown:.1f} MiB"
    )


def predict(settings: Settings) -> None:
    """Both in turn; ratios of processor time and of wall time."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    times: dict[str, list[tuple[float, float]]] = {OURS: [], THEIRS: []}
    with tempfile.TemporaryDirectory() as scratch:
        home = pathlib.Path(scratch)
        texts = texts_of(folder_of(home), settings.texts)
        found = compare(home, texts)
        print(found, flush=True)
        runs = contestants(home)
        labels = {name: run(texts[:64]) for name, run in runs.items()}
        assert labels[OURS] == labels[THEIRS], "the labels differ"
        order, dice = list(runs), random.Random(0)
        for _ in range(settings.rounds):
            dice.shuffle(order)
            for name in order:
                wall, cpu = time.perf_counter(), time.process_time()
                labels[name] = runs[name](texts)
                times[name].append((time.process_time() - cpu, time.perf_counter() - wall))
                print(name, *(f"{x:.1f} s" for x in times[name][-1]), flush=True)
            same = sum(a == b for a, b in zip(labels[OURS], labels[THEIRS], strict=True))
            assert same >= 0.999 * len(texts), f"{len(texts) - same} labels differ"
    table = Table(
        f"{len(texts):,} texts of {LOW} to {HIGH} tokens through a classifier, CPU, float32",
        ["", "processor s", "wall s", "ratio of processor time", "ratio of wall time"],
    )
    for name, spent in times.items():
        cells = [name]
        cells += [f"{statistics.median(one[at] for one in spent):.1f}" for at in (0, 1)]
        for at in (0, 1):
            pairs = zip(spent, times[OURS], strict=True)
            middle, low, high = interval([a[at] / b[at] for a, b in pairs])
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        table.rows.append(cells)
    table.raw.update(times)
    table.notes += [found, "medians; a ratio is of the other's time to ours in the same round"]
    table.show(settings, "cpu_predict")
