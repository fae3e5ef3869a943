"""Does one layer, run again and again, do what several layers do? After TSBpt's recursiveLayers.

The model is the source's: RoBERTa with norms behind the sums, masked or causal, with vectors by
distance or with a table of positions. Beside its variants stand those that it lacks: equal
parameters outside the embeddings, and six layers trained with the compute of the wide model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anyformer.study.nodes import Match, Study, Variant
from anyformer.study.shipped.tier import Tier, common, words_of
from anyformer.train.settings import Cosine

STUDY = "recursive-layers"
PLAIN, SHARED, ONE = "6 layers", "1 layer × 6", "1 layer"
WIDE, LONG = "1 layer × 6, wide", "6 layers, compute of the wide"
WIDTH = Match(on="parameters", within=0.05)
BLOCKS = Match(on="non_embedding", within=0.05)

CORE = (
    Variant(name=PLAIN, words=("unique=6",)),
    Variant(name=SHARED, words=("unique=1",)),
    Variant(name=ONE, words=("depth=1",)),
    Variant(name=WIDE, words=("unique=1",), match=WIDTH),
    Variant(name=LONG, words=("unique=6",), spends=WIDE),
)
MORE = (
    Variant(name="1 layer × 6, wide outside embeddings", words=("unique=1",), match=BLOCKS),
    Variant(name="1 layer, wide", words=("depth=1",), match=WIDTH),
    Variant(name="1 layer × 6, own norms", words=("unique=1", "own_norms=true")),
    Variant(name="1 layer × 6, step vectors", words=("stack.loop=Loop(step='learned')",)),
    Variant(name="2 layers × 3", words=("unique=2",)),
    Variant(
        name="first and last apart, 1 layer × 4",
        words=("stack.schedule=Shared(unique=3, order='middle_cycle')",),
    ),
)
DEPTHS = (
    Variant(name=PLAIN, words=("depth=6", "unique=6")),
    Variant(name=ONE, words=("depth=1",)),
    *(Variant(name=f"{n} layers", words=(f"depth={n}", f"unique={n}")) for n in (2, 3)),
    *(Variant(name=f"1 layer × {n}", words=(f"depth={n}",)) for n in (2, 3, 6, 12)),
)


@dataclass(frozen=True)
class Large:
    """What a panel of the larger tier takes: steps, rows of a batch, tokens of a row, rates."""

    steps: int
    batch: int = 64
    length: int = 64
    rates: tuple[float, ...] = (3e-4, 8e-4, 2e-3, 5e-3)


# Masked tokens are learned more slowly, with a table of positions only after a long plateau, which
# more rows of fewer tokens make shorter; norms behind the sums bear less of a rate the longer it
# lasts.
CAUSAL = Large(1500, rates=(5e-4, 1.25e-3, 3e-3, 8e-3))
LARGE = {
    ("masked", "relative"): Large(2400),
    ("masked", "absolute"): Large(5000, batch=256, length=32),
}


def panels(tier: Tier) -> tuple[Study, ...]:
    """Does one layer run six times do what six layers do: masked, causal; relative, absolute?"""
    made = [
        _panel(tier, task, relative, CORE)
        for task in ("masked", "causal")
        for relative in (True, False)
    ]
    ways = _panel(tier, "causal", True, CORE[:3] + MORE)
    depths = _panel(tier, "masked", False, DEPTHS)
    many = 8 if tier == "gpu" else 6
    both = (
        Variant(name=f"{SHARED}, several heads", words=(f"heads={many}",)),
        Variant(name=f"{SHARED}, one head", words=("heads=1",)),
    )
    sole = _panel(tier, "masked", True, both)
    other = {"name": f"{STUDY}/ways", "title": "Other ways to share layers: causal, relative"}
    named = {"name": f"{STUDY}/layers", "title": "How many layers, how often: masked, absolute"}
    alone = {"name": f"{STUDY}/heads", "title": "One head or several, one layer × 6: masked"}
    sole = replace(sole, anchors=(), retests=(), **alone)
    return (*made, replace(depths, **named), replace(ways, **other), sole)


def _panel(tier: Tier, task: str, relative: bool, variants: tuple[Variant, ...]) -> Study:
    place = "relative" if relative else "absolute"
    small = tier == "cpu"
    sizes = ("dim=48", "heads=2") if small else ("dim=256", "heads=8")
    large = LARGE.get((task, place), CAUSAL)
    if small:
        how = common(tier, 400, 16, 2e-3)
    else:  # norms behind the sums ask for a slow start
        how = common(tier, large.steps, large.batch, 1e-3)
        slow = Cosine(warmup=large.steps // 10, final=0.1)
        how["settings"] = replace(how["settings"], schedule=slow)
    if task == "causal":
        variants = tuple(replace(v, words=(*v.words, "causal")) for v in variants)
    return Study(
        name=f"{STUDY}/{task}-{place}",
        title=f"Recursive layers: {task}, {place} positions",
        variants=variants,
        base="recursive-roberta",
        options=(*sizes, "depth=6", f"relative={str(relative).lower()}"),
        objective=task,
        asks=("cross=true",),
        tokenizer=words_of(tier, "wordpiece" if task == "masked" else "bpe"),
        length=32 if small else large.length,
        anchors=(ONE, PLAIN),
        rates=() if small else large.rates,
        tune="first",
        retests=tuple(f"rounds={n}" for n in (3, 9, 12)),
        **how,
    )
