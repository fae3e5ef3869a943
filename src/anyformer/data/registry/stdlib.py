"""Readers of what ships with Python: reference, code, docstrings, and sets derived from them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

from anyformer.data.registry import library
from anyformer.data.registry.entry import Entry
from anyformer.data.registry.split import Key, split_of

Keyed = Iterator[tuple[Key, dict[str, Any]]]

SHORT = 60  # characters of a paragraph that may stand twice, such as a heading
SHORTEST = 20  # words of a body worth a summary
SECTION = re.compile(r"\n\n(?=\S[^\n]*\n(?:\*{4,}|={4,}|-{4,})\n)")
COMMON = 40  # docstrings of a package that is a class of its own
CHOICES = 4
TERM = re.compile(
    r"^([ \t]*)(?:[-*][ ]+)?[`'\"*]*([A-Za-z_]\w*)[`'\"*]*(?:[ ]+--?|[ ]*:)[ ]+(\S.*)$"
)
LONGEST = 6000  # characters of a context


def reference(entry: Entry, task: str) -> Keyed:
    """Sections of Python's language reference; what stands in several topics is in one only."""
    found, seen = {}, set()
    for name, text in sorted(library.topics().items(), key=lambda topic: (-len(topic[1]), topic)):
        paragraphs = [(part, " ".join(part.split())) for part in text.strip().split("\n\n")]
        fresh = [part for part, plain in paragraphs if plain not in seen or len(plain) < SHORT]
        seen.update(plain for _, plain in paragraphs)
        whole = "\n\n".join(fresh).strip() + "\n"
        if len(whole) > len(text) / 2:
            found[name] = whole
    for name in sorted(found):
        for number, part in enumerate(SECTION.split(found[name])):
            label = f"{name} {number}" if number else name
            yield label, {"name": label, "text": part.strip() + "\n"}


def code(entry: Entry, task: str) -> Keyed:
    """Modules of the standard library as they stand."""
    seen: set[str] = set()
    for name, text in library.codes():
        if text.strip() and text not in seen:
            seen.add(text)
            yield name, {"name": name, "text": text}


def docstrings(entry: Entry, task: str) -> Keyed:
    """Docstrings: as documents, as bodies with their first lines, or with their package."""
    return {"text": _texts, "summarisation": _summaries, "classification": _packages}[task]()


def _texts() -> Keyed:
    for doc in library.docstrings():
        yield doc.text, {"name": doc.name, "text": doc.text + "\n"}


def summarised(text: str) -> tuple[str, str] | None:
    """Body and first line of a docstring, None where either is too little to say something."""
    first, _, body = text.partition("\n\n")
    first, body = " ".join(first.split()), body.strip()
    telling = 3 <= len(first.split()) and len(first) <= 200 and not first.endswith(":")
    if not telling or body.startswith(first) or len(body.split()) < SHORTEST:
        return None
    return body[:LONGEST], first


def _summaries() -> Keyed:
    seen: set[str] = set()
    for doc in library.docstrings():
        parts = summarised(doc.text)
        if parts and parts[0] not in seen:
            seen.add(parts[0])
            yield parts[0], {"source": parts[0], "target": parts[1], "name": doc.name}


def _packages() -> Keyed:
    docs = [doc for doc in library.docstrings() if len(doc.text.split()) > 3]
    counts: dict[str, int] = {}
    for doc in docs:
        counts[doc.package] = counts.get(doc.package, 0) + 1
    for doc in docs:
        if counts[doc.package] >= COMMON:
            yield doc.text, {"text": doc.text, "label": doc.package, "name": doc.name}


def choices(entry: Entry, task: str) -> Keyed:
    """The first line that belongs to a docstring's body, among others of its split and package."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for key, record in _summaries():
        package = record["name"].partition(".")[0]
        groups.setdefault((split_of(key), package), []).append(record)
    pools: dict[str, list[str]] = {}
    for (split, _), group in groups.items():
        pools.setdefault(split, []).extend(record["target"] for record in group)
    for (split, _), group in groups.items():
        near = sorted({record["target"] for record in group})
        for record in group:
            right = record["target"]
            draw = random.Random(record["source"])  # the same for the same text, everywhere
            wrong = draw.sample([t for t in near if t != right], min(CHOICES, len(near)) - 1)
            far = sorted({t for t in pools[split] if t != right and t not in wrong})
            wrong += draw.sample(far, CHOICES - 1 - len(wrong))
            options = draw.sample([right, *wrong], CHOICES)
            columns = {"context": record["source"], "choices": options}
            yield record["source"], {**columns, "label": options.index(right)}


def questions(entry: Entry, task: str) -> Keyed:
    """What a docstring says of each term that it lists, as questions with exact spans."""
    for doc in library.docstrings():
        terms = list(_terms(doc.text))
        named = [name for name, _, _ in terms]
        if len(terms) < 2 or len(doc.text) > LONGEST:  # one term alone gives itself away
            continue
        for name, start, stop in terms:
            if named.count(name) == 1:
                yield (
                    doc.text,
                    {
                        "id": f"{doc.name}:{name}",
                        "question": f"What does {doc.name} say about {name}?",
                        "context": doc.text,
                        "answers": {"text": [doc.text[start:stop]], "answer_start": [start]},
                    },
                )


def _terms(text: str) -> Iterator[tuple[str, int, int]]:
    """Terms with the places of their descriptions: the line's rest and what is indented below."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for at, line in enumerate(lines):
        found = TERM.match(line.rstrip("\n"))
        if not found or ">>>" in line or found[2].lower() in {"note", "example", "examples"}:
            continue
        depth, last = len(found[1].expandtabs()), at
        while last + 1 < len(lines) and _deeper(lines[last + 1], depth):
            last += 1
        start = starts[at] + found.start(3)
        answer = text[start : starts[last + 1]].rstrip()
        if len(answer.split()) >= 3:
            yield found[2], start, start + len(answer)


def _deeper(line: str, depth: int) -> bool:
    plain = line.expandtabs()
    return bool(plain.strip()) and len(plain) - len(plain.lstrip()) > depth
