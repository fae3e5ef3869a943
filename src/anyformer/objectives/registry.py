"""Objectives by name, and which one each family was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from anyformer import spec as S
from anyformer.errors import InputError, known_or_raise
from anyformer.objectives.causal import Causal
from anyformer.objectives.common import Plan, causal
from anyformer.objectives.control import ControlCodes
from anyformer.objectives.denoise import Denoising
from anyformer.objectives.masked import Masked
from anyformer.objectives.segments import Segments
from anyformer.objectives.sentences import NextSentence, SentenceOrder
from anyformer.objectives.spans import SpanCorruption
from anyformer.objectives.translation import Translation, TranslationLM
from anyformer.recipes.sizes import SIZES
from anyformer.recipes.tree import lines
from anyformer.spec.node import from_dict

# Name -> the module in this folder and the class of its node.
PLACES = {
    "causal": ("causal", "Causal"),
    "segments": ("segments", "Segments"),
    "prefix": ("causal", "PrefixLM"),
    "masked": ("masked", "Masked"),
    "span-corruption": ("spans", "SpanCorruption"),
    "denoising": ("denoise", "Denoising"),
    "next-sentence": ("sentences", "NextSentence"),
    "sentence-order": ("sentences", "SentenceOrder"),
    "translation-lm": ("translation", "TranslationLM"),
    "translation": ("translation", "Translation"),
    "text-to-text": ("text_to_text", "TextToText"),
    "control-codes": ("control", "ControlCodes"),
    "replaced-token": ("replaced", "ReplacedToken"),
    "distillation": ("distill", "Distillation"),
    "multi-token": ("multi_token", "MultiToken"),
    "classification": ("classify", "Classification"),
    "token-classification": ("tag", "TokenClassification"),
    "question-answering": ("answer", "QuestionAnswering"),
    "multiple-choice": ("choose", "MultipleChoice"),
    "summarisation": ("to_text", "ToText"),
    "image-classification": ("image", "ImageClassification"),
    "captioning": ("image", "Captioning"),
}


OBJECTIVES: dict[str, Any] = {
    name: vars(import_module(f"anyformer.objectives.{module}"))[kind]
    for name, (module, kind) in PLACES.items()
}


def objective(name: str, **options: Any) -> Any:
    """The objective of a name, with some of its settings changed."""
    return OBJECTIVES[known_or_raise(name, OBJECTIVES, "objective", InputError)](**options)


def name_of(plan: Any) -> str:
    """The name under which an objective is listed."""
    found = [name for name, (_, kind) in PLACES.items() if kind == type(plan).__name__]
    if not found:
        raise InputError(f"{type(plan).__name__} is no objective; those are {', '.join(PLACES)}")
    return found[0]


def read(data: Mapping[str, Any]) -> Any:
    """The objective that `anyformer.spec.to_dict` wrote."""
    kinds = [kind for _, kind in PLACES.values()]
    known_or_raise(str(data.get("is")), kinds, "objective", InputError)
    return from_dict(dict(data))


# ------------------------------------------------------------------ each family's own

# Recipe -> what its paper trained it with: a node, or a name whose defaults are the paper's. Those
# that aren't here take what the recipe above them in the family tree has.
OWN: dict[str, Any] = {
    "encoder": Masked(),
    "decoder": Causal(),
    "encoder-decoder": SpanCorruption(),
    "bert": NextSentence(),
    "distilbert": "distillation",
    "roberta": Masked(),
    "albert": SentenceOrder(),
    "electra": "replaced-token",
    "big-bird": Masked(),
    "xlm": TranslationLM(),
    "deberta": Masked(unit="word", spans="ngram", longest=3),
    "deberta-v3": "replaced-token",
    "modernbert": Masked(rate=0.3),
    "gpt": Causal(),
    "gpt2": Causal(cross=True),
    "ctrl": ControlCodes(),
    "gpt3": Causal(cross=True),
    "llama": Causal(),
    "transformer-xl": Segments(),
    "bert2bert": "text-to-text",
    "bart": Denoising(),
    "mbart": Denoising(infill=0.35, mean=3.5),
    "m2m-100": Translation(),
    "bigbird-pegasus": "text-to-text",
    "t5": SpanCorruption(),
    "vit": "image-classification",
    "recursive-roberta": Masked(),
    "recursive-gpt2": Causal(cross=True),
}


def default_for(of: str | S.Model, spec: S.Model | None = None) -> Any:
    """The objective that a recipe's paper had, or one that goes with a spec's shape.

    `of` is a recipe's or a published size's name, or a spec. With a name, `spec` is what was made
    of it: where its head can't take the paper's objective, one that it can is chosen.
    """
    if isinstance(of, S.Model):
        return _by_shape(of)
    found = OWN[_lineage(SIZES.get(of, (of, {}))[0])]
    plan = objective(found) if isinstance(found, str) else found
    if spec is None:
        return plan
    if isinstance(plan, NextSentence | SentenceOrder) and isinstance(spec.head, S.Vocabulary):
        return plan.masking
    if isinstance(plan, TranslationLM) and not spec.embed.langs:
        return plan.masking  # one language: masked tokens alone
    if isinstance(plan, Segments) and not spec.stack.recurrence:
        return Causal(cross=True)  # nothing is remembered
    both_ways = isinstance(plan, Masked | NextSentence | SentenceOrder | TranslationLM)
    one_way = isinstance(plan, Causal | ControlCodes | Segments)
    turned = (both_ways and causal(spec)) or (one_way and not causal(spec))
    return _by_shape(spec) if turned else plan


def _lineage(name: str) -> str:
    """The nearest recipe, itself or above it in the tree, that has an objective of its own."""
    above: list[str] = []
    for level, recipe in lines():
        above[level:] = [recipe]
        if recipe == name and level:
            found = next((n for n in reversed(above[1:]) if n in OWN), None)
            if found is not None:
                return found
    known_or_raise(name, [n for level, n in lines() if level], "recipe", InputError)
    raise InputError(f"{name} has no objective of its own: name one of {', '.join(PLACES)}")


def _by_shape(spec: S.Model) -> Any:
    """An objective that goes with a head and the direction of attention."""
    head = spec.head
    if isinstance(spec.embed.source, S.Patches):
        return objective("image-classification")
    if isinstance(head, S.Pretraining):
        return NextSentence() if head.asks == "next" else SentenceOrder()
    if isinstance(head, S.Detect):
        return objective("replaced-token")
    for kind, name in BY_HEAD.items():
        if isinstance(head, kind):
            return objective(name)
    if spec.encoder is not None:
        return SpanCorruption()
    return Causal() if causal(spec) else Masked()


BY_HEAD: dict[type, str] = {
    S.Classes: "classification",
    S.Project: "token-classification",
    S.Span: "question-answering",
    S.Choices: "multiple-choice",
}


def fit(plan: Any, spec: S.Model) -> S.Model:
    """The spec with what an objective needs, where it says so: a head that it can train."""
    return plan.fit(spec) if isinstance(plan, Plan) else spec
