"""The readers of the registry by name; each gives every record of a data set with its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anyformer.data.registry import packages, roles, stdlib
from anyformer.data.registry.entry import Entry
from anyformer.data.registry.split import Key

Reader = Callable[[Entry, str], Iterator[tuple[Key, dict[str, Any]]]]

READERS: dict[str, Reader] = {
    "reference": stdlib.reference,
    "code": stdlib.code,
    "docstrings": stdlib.docstrings,
    "choices": stdlib.choices,
    "questions": stdlib.questions,
    "kinds": roles.kinds,
    "spans": roles.spans,
    "shakespeare": packages.shakespeare,
    "bibles": packages.bibles,
    "sentiment": packages.sentiment,
    "first_names": packages.first_names,
    "digits": packages.digits,
    "entities": packages.entities,
    "wikitext": packages.wikitext,
    "tatoeba": packages.tatoeba,
}
