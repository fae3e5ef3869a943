"""Scores of spans that tags mark, as seqeval counts them: equal type, start and end.

By default a span is what the tags can be read as, whatever their scheme (as conlleval did). By a
scheme it is only what the scheme allows. Letters before the type: B begins, I inside, E ends, S
alone, O outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from anyformer.errors import InputError
from anyformer.objectives.metrics.labels import check_pairs, harmonic

Span = tuple[str, int, int]  # type, first, end
Tag = tuple[str, str]  # letter, type
Scheme = Literal["IOB1", "IOB2", "IOBES"]
Rule = Callable[[Tag, Tag], bool]  # of a tag and the one before
LETTERS = {"IOB1": "IOB", "IOB2": "IOB", "IOBES": "IOBES"}
OUTSIDE = ("O", "_")


def _pair(before: Tag, now: Tag) -> str:
    return before[0] + now[0]


def _starts_iob1(before: Tag, now: Tag) -> bool:
    """I begins a span, but inside one of its type; B only parts neighbours of one type."""
    pair, same = _pair(before, now), before[1] == now[1]
    return pair in ("OI", "BI") or (pair == "II" and not same) or (pair in ("IB", "BB") and same)


def _ends_iob1(before: Tag, now: Tag) -> bool:
    pair, same = _pair(before, now), before[1] == now[1]
    return pair in ("IO", "IB", "BO") or (pair == "BB" and same) or (now[0] == "I" and not same)


def _inside(before: Tag, now: Tag) -> bool:
    return before[0] in "BI" and now[0] in "IE" and before[1] == now[1]


RULES: dict[str, tuple[Rule, Rule]] = {  # what starts a span; what ends one that goes on no more
    "IOB1": (_starts_iob1, _ends_iob1),
    "IOB2": (lambda _, now: now[0] == "B", lambda *_: True),
    "IOBES": (lambda _, now: now[0] in "BS", lambda before, _: before[0] in "SE"),
}


def spans(tags: Sequence[str], scheme: Scheme | None = None) -> list[Span]:
    """The spans of a sentence's tags, (type, first, end); strictly by a scheme, or as they read."""
    parted = [_parted(tag, scheme) for tag in tags]
    return _loose(parted) if scheme is None else _strict(parted, *RULES[scheme])


def _parted(tag: str, scheme: str | None) -> Tag:
    letter, kind = tag[:1], tag[1:].removeprefix("-") or "_"
    allowed = "IOBES." if scheme is None else LETTERS[scheme]
    if not letter or letter not in allowed:
        raise InputError(
            f"the tag {tag!r} doesn't begin with one of {', '.join(allowed)}: tags look like B-PER"
        )
    return letter, kind


def _strict(tags: list[Tag], starts: Rule, ends: Rule) -> list[Span]:
    found, before, at, extended = [], OUTSIDE, 0, [*tags, OUTSIDE]
    while at < len(tags):
        end = at + 1
        if starts(before, extended[at]):
            while _inside(extended[end - 1], extended[end]):
                end += 1
            if ends(extended[end - 1], extended[end]):
                found.append((extended[at][1], at, end))
        before, at = extended[end - 1], end
    return found


def _loose(tags: list[Tag]) -> list[Span]:
    """B and S begin, so does what follows O, E or S, or another type."""
    found: list[Span] = []
    first, before = 0, OUTSIDE
    for at, now in enumerate([*tags, OUTSIDE]):
        changed = before[1] != now[1]
        if before[0] not in "O." and (before[0] in "ES" or now[0] in "BSO" or changed):
            found.append((before[1], first, at))
        if now[0] not in "O." and (now[0] in "BS" or before[0] in "OES" or changed):
            first = at
        before = now
    return found


def span_scores(
    found: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
    scheme: Scheme | None = None,
) -> dict[str, float]:
    """Precision, recall, F1 over all spans, and macro F1 and F1 of each type, of tags by sentence.

    `accuracy` is the share of tags that are right.
    """
    check_pairs(found, right)
    hits, said, true = Counter[str](), Counter[str](), Counter[str]()
    same = total = 0
    for at, (a, b) in enumerate(zip(found, right, strict=True)):
        if len(a) != len(b):
            raise InputError(f"sentence {at}: {len(a)} tags for {len(b)} words")
        same, total = same + sum(x == y for x, y in zip(a, b, strict=True)), total + len(b)
        ours, theirs = set(spans(a, scheme)), set(spans(b, scheme))
        for counter, some in ((said, ours), (true, theirs), (hits, ours & theirs)):
            counter.update(kind for kind, _, _ in some)
    each = {f"f1 {k}": harmonic(hits[k], said[k], true[k]) for k in sorted({*said, *true})}
    return {
        "precision": hits.total() / max(said.total(), 1),
        "recall": hits.total() / max(true.total(), 1),
        "f1": harmonic(hits.total(), said.total(), true.total()),
        "f1 macro": sum(each.values()) / max(len(each), 1),
        "accuracy": same / max(total, 1),
        **each,
    }
