"""What fine-tuning has to beat: bags of words, tags by word and window, neighbours, pixels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer.objectives import metrics

Rows = Sequence[dict[str, Any]]
BUCKETS = 1 << 18  # of hashed features


def words(text: str) -> list[str]:
    """Lower-case words of a text; names in camel case fall apart."""
    return re.findall(r"[a-z']+|\d+|[^\sa-z\d]", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())


class Bag:
    """Texts as sparse rows of tf-idf over words and pairs of neighbours."""

    def __init__(self, texts: Sequence[str], least: int = 2, pairs: bool = True):
        self.pairs = pairs
        counts = Counter(term for text in texts for term in set(self.terms(text)))
        kept = [term for term, count in counts.items() if count >= least]
        self.vocab = {term: i for i, term in enumerate(kept)}
        self.idf = [math.log((1 + len(texts)) / (1 + counts[t])) + 1 for t in kept]

    def terms(self, text: str) -> list[str]:
        """The terms of a text."""
        found = words(text)
        return found + [" ".join(p) for p in pairwise(found)] * self.pairs

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Rows (B, V) of length one, sparse."""
        places: list[tuple[int, int]] = []
        values: list[float] = []
        for i, text in enumerate(texts):
            counts = Counter(self.vocab[t] for t in self.terms(text) if t in self.vocab)
            row = {at: (1 + math.log(n)) * self.idf[at] for at, n in counts.items()}
            size = math.sqrt(sum(v * v for v in row.values())) or 1.0
            places += [(i, at) for at in row]
            values += [v / size for v in row.values()]
        index = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
        shape = (len(texts), len(self.vocab))
        return torch.sparse_coo_tensor(
            index, values, shape, dtype=torch.float32, check_invariants=False
        ).coalesce()


Line = Callable[[Tensor], Tensor]


def logistic(x: Tensor, labels: Tensor, penalty: float) -> Line:
    """A softmax regression over rows (B, V), dense or sparse."""
    weight = torch.zeros(int(labels.max()) + 1, x.shape[1], requires_grad=True)
    bias = torch.zeros(len(weight), requires_grad=True)
    line = lambda x: (torch.sparse.mm(x, weight.T) if x.is_sparse else x @ weight.T) + bias
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(line(x), labels) + penalty * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    return line


@torch.no_grad()
def share(line: Line, x: Tensor, labels: Tensor) -> float:
    """The share of labels that are the likeliest."""
    return (line(x).argmax(1) == labels).float().mean().item()


def chosen(sides: Sequence[tuple[Tensor, Tensor]], penalties: Sequence[float]) -> dict[str, float]:
    """The accuracy on test of the regression whose penalty is best on validation."""
    learn, check, test = sides
    lines = [logistic(*learn, penalty) for penalty in penalties]
    return {"accuracy": share(max(lines, key=lambda line: share(line, *check)), *test)}


def bag_of_words(learn: Rows, check: Rows, test: Rows) -> dict[str, float]:
    """Logistic regression over tf-idf."""
    labels = sorted({r["label"] for r in learn})
    bag = Bag([r["text"] for r in learn])
    sides = [
        (bag([r["text"] for r in rows]), torch.tensor([labels.index(r["label"]) for r in rows]))
        for rows in (learn, check, test)
    ]
    return chosen(sides, (1e-6, 3e-6, 1e-5, 3e-5))


def pixels(learn: Rows, check: Rows, test: Rows) -> dict[str, float]:
    """A linear softmax over pixels."""
    flat = lambda rows: torch.tensor(np.stack([np.ravel(r["image"]) for r in rows])).float() / 255
    side = lambda rows: (flat(rows), torch.tensor([int(r["label"]) for r in rows]))
    return chosen([side(rows) for rows in (learn, check, test)], (1e-4, 1e-3, 1e-2))


# ------------------------------------------------------------------------- tags


def usual_tags(learn: Rows, check: Rows, test: Rows) -> dict[str, float]:
    """The most frequent tag of each word."""
    counts: dict[str, Counter[str]] = {}
    for row in learn:
        for word, tag in zip(row["words"], row["tags"], strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    usual = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    said = [[usual.get(word, "O") for word in row["words"]] for row in test]
    return metrics.span_scores(said, [row["tags"] for row in test], None)


def window_tags(learn: Rows, check: Rows, test: Rows, epochs: int = 5) -> dict[str, float]:
    """A linear softmax over hashed features of a word, its shape and two neighbours each side."""
    labels = sorted({tag for row in learn for tag in row["tags"]})
    ids = torch.tensor([at for row in learn for at in _features(row["words"])])
    tags = torch.tensor([labels.index(tag) for row in learn for tag in row["tags"]])
    torch.manual_seed(0)
    model = nn.EmbeddingBag(BUCKETS, len(labels), mode="sum", sparse=True)
    nn.init.zeros_(model.weight)
    optimiser = torch.optim.Adagrad(model.parameters(), lr=0.3)
    for _ in range(epochs):
        for some in torch.randperm(len(tags)).split(512):
            optimiser.zero_grad()
            F.cross_entropy(model(ids[some]), tags[some]).backward()
            optimiser.step()
    said = []
    with torch.no_grad():
        for row in test:
            found = model(torch.tensor(_features(row["words"]))).argmax(1)
            said.append([labels[i] for i in found.tolist()])
    return metrics.span_scores(said, [row["tags"] for row in test], None)


def _features(row: Sequence[str]) -> list[list[int]]:
    """The features (N, F) of each word of a sentence."""
    around = ["", "", *row, "", ""]
    shape = lambda w: re.sub(r"\d+", "0", re.sub("[a-z]+", "a", re.sub("[A-Z]+", "A", w)))[:6]
    found = []
    for at in range(2, len(around) - 2):
        near = around[at - 2 : at + 3]
        named = [f"{i}={w}" for i, w in enumerate(near)]
        named += [f"s{i}={shape(w)}" for i, w in enumerate(near)]
        named += [f"p{near[1]} {near[2]}", f"n{near[2]} {near[3]}", f"b{near[1]} {near[3]}"]
        named += [f"e={near[2][-3:]}", f"f={near[2][:3]}"]
        found.append([crc32(name.encode()) % BUCKETS for name in named])
    return found


# -------------------------------------------------------------------- summaries


def lead(learn: Rows, check: Rows, test: Rows) -> dict[str, float]:
    """The first words of the source, as many as are best on validation."""
    first = lambda rows, k: [" ".join(r["body"].split()[:k]) for r in rows]
    best = max(range(3, 20), key=lambda k: _rouge(first(check, k), check)["rougeL"])
    return _rouge(first(test, best), test)


def neighbour(learn: Rows, check: Rows, test: Rows) -> dict[str, float]:
    """The target of the training record whose source is nearest by tf-idf."""
    bag = Bag([r["source"] for r in learn], least=1, pairs=False)
    near = torch.sparse.mm(
        bag([r["source"] for r in learn]), bag([r["source"] for r in test]).to_dense().T
    )
    return _rouge([learn[i]["target"] for i in near.argmax(0).tolist()], test)


def _rouge(said: Sequence[str], rows: Rows) -> dict[str, float]:
    return metrics.rouge(said, [r["target"] for r in rows])


Baseline = Callable[[Rows, Rows, Rows], dict[str, float]]
