"""BLEU of a corpus (Papineni et al. 2002), 0 to 100, with the words that WMT's scorer sees.

It gives what sacreBLEU's defaults give (13a words, runs of up to 4, exponential smoothing); for a
number to publish, take that package's own, which tells its version.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from anyformer.objectives.metrics.labels import check_pairs

ORDER = 4
ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
SPACED = (  # in this order
    (re.compile(r"([ -&(-+/:-@\[-`{-~])"), r" \1 "),  # marks, but ' , - .
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),  # , and . behind no digit
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),  # and before none
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),  # a dash behind a digit
)


def words13a(text: str) -> list[str]:
    """The words of a text as mteval-v13a parts them."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, mark in ENTITIES:
        text = text.replace(entity, mark)
    text = f" {text} "
    for pattern, spaced in SPACED:
        text = pattern.sub(spaced, text)
    return text.split()


def bleu(found: Sequence[str], right: Sequence[str | Sequence[str]]) -> float:
    """BLEU of texts, each with one right text or several."""
    check_pairs(found, right)
    hits, said, length, wanted = [0] * ORDER, [0] * ORDER, 0, 0
    for text, answers in zip(found, right, strict=True):
        ours = words13a(text)
        golds = [words13a(a) for a in ([answers] if isinstance(answers, str) else answers)]
        length += len(ours)
        wanted += min((abs(len(g) - len(ours)), len(g)) for g in golds)[1]
        best = Counter[tuple[str, ...]]()
        for gold in golds:
            best |= _runs(gold)
        counted = _runs(ours)
        for run, count in counted.items():
            said[len(run) - 1] += count
            hits[len(run) - 1] += min(count, best[run])
    return _score(hits, said, length, wanted)


def _runs(words: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[i : i + n]) for n in range(1, ORDER + 1) for i in range(len(words) - n + 1)
    )


def _score(hits: list[int], said: list[int], length: int, wanted: int) -> float:
    """The geometric mean of precisions, less where texts are too short; no hits: halved shares."""
    if not any(hits) or not all(said):
        return 0.0
    half, logs = 1.0, 0.0
    for right, total in zip(hits, said, strict=True):
        half = half if right else half * 2
        logs += math.log((right or 1 / half) / total)
    short = min(0.0, 1 - wanted / length)
    return 100 * math.exp(short + logs / ORDER)
