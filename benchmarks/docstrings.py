"""Docstrings to be summarised: the registry's records, more of them to learn from, and hints."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from anyformer.data import registry
from anyformer.data.registry import library
from benchmarks.baselines import Bag

DATA = "python-docstrings"
PACKAGES = ("torch", "sympy", "networkx")  # torch, and what it needs, is there wherever we are
LONGEST = 200  # characters of a first line, as in the set
KEPT = 1000  # characters of a body

Row = dict[str, Any]


def records(split: str) -> list[Row]:
    """Records of the set, whose source begins with the name of what is documented."""
    rows = registry.load(DATA, split, "summarisation")
    return [_row(r["name"], r["source"], r["target"]) for r in rows]


def _row(name: str, body: str, target: str) -> Row:
    return {"source": f"{name}: {body}", "body": body, "target": target, "name": name}


def more(held: Sequence[Row]) -> list[Row]:
    """All docstrings of the set as records, those of one line too, none that is held out."""
    return _open(((name, text) for name, text in registry.texts(DATA)), held)


def packages(held: Sequence[Row]) -> list[Row]:
    """Docstrings of some packages as records, none that is held out."""
    there = [name for name in PACKAGES if importlib.util.find_spec(name) is not None]
    with ProcessPoolExecutor(len(there) or 1) as pool:
        found = pool.map(_documented, there)
    return _open((pair for pairs in found for pair in pairs), held)


def _documented(package: str) -> list[tuple[str, str]]:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    docs = library.docstrings(Path(spec.origin).parent)
    return [(f"{package}.{doc.name}", doc.text) for doc in docs]


def _open(texts: Any, held: Sequence[Row]) -> list[Row]:
    """Texts as records, without those that hold a body that is held out."""
    plain = lambda text: " ".join(text.split()).lower()
    names, bodies = {r["name"] for r in held}, [plain(r["body"]) for r in held]
    found = []
    for name, text in texts:
        first, _, body = text.strip().partition("\n\n")
        first, whole = " ".join(first.split()), plain(text)
        fits = 0 < len(first) <= LONGEST and name not in names
        if fits and not any(part in whole for part in bodies):
            found.append(_row(name, body.strip(), first))
    return found


# ------------------------------------------------------------------- as a model reads


def read(row: Row, hints: Sequence[str] = ()) -> Row:
    """A record whose source is hints, the name in words and the body, cut."""
    told = "".join(f"{hint} ; " for hint in hints)
    return {
        "source": f"{told}{spoken(row['name'])} : {row['body'][:KEPT]}",
        "target": row["target"],
    }


def spoken(name: str) -> str:
    """The words of a dotted name: `ast.NodeVisitor.generic_visit` has five."""
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)).lower()


def hints(
    rows: Sequence[Row], pool: Sequence[Row], count: int = 3, device: str = "cpu"
) -> list[list[str]]:
    """The targets of the records of a pool that are nearest to each row by tf-idf, not its own."""
    cut = lambda some: [f"{r['name']}: {r['body'][:KEPT]}" for r in some]
    bag = Bag(cut(pool), least=1, pairs=False)
    base, found = bag(cut(pool)).to(device), []
    places: dict[str, list[int]] = {}
    for i, row in enumerate(pool):
        places.setdefault(row["name"], []).append(i)
    for at in range(0, len(rows), 512):
        some = rows[at : at + 512]
        near = torch.sparse.mm(base, bag(cut(some)).to(device).to_dense().T)  # (P, 512)
        own = [(i, k) for k, row in enumerate(some) for i in places.get(row["name"], ())]
        if own:
            near[tuple(torch.tensor(own, device=device).T)] = -1.0
        best = near.topk(count, 0).indices.T.tolist()
        found += [[pool[i]["target"] for i in line] for line in best]
    return found
