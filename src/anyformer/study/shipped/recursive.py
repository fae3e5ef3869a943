"""Does one layer, run again and again, do what several layers do? After TSBpt's recursiveLayers.

The model is the source's: RoBERTa with norms behind the sums, masked or causal, with vectors by
distance or with a table of positions. Beside its variants stand those that it lacks: equal
parameters outside the embeddings, and six layers trained with the compute of the wide model.
"""

from __future__ import annotations

from dataclasses import replace

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
# Steps and learning rates of the larger tier that are not those of the others: masked tokens are
# learned more slowly, and norms behind the sums bear less of a rate the longer it lasts.
LARGE = {("masked", "relative"): (2400, (3e-4, 8e-4, 2e-3, 5e-3))}


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
    steps, rates = LARGE.get((task, place), (1500, (5e-4, 1.25e-3, 3e-3, 8e-3)))
    how = common(tier, 400 if small else steps, 16 if small else 64, 2e-3 if small else 1e-3)
    if not small:  # norms behind the sums ask for a slow start
        how["settings"] = replace(how["settings"], schedule=Cosine(warmup=steps // 10, final=0.1))
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
        length=32 if small else 64,
        anchors=(ONE, PLAIN),
        rates=() if small else rates,
        tune="first",
        retests=tuple(f"rounds={n}" for n in (3, 9, 12)),
        **how,
    )
