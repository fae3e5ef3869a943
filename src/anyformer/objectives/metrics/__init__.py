"""The scores of each field, from predictions and what is right, as its own scorer counts them."""

from anyformer.objectives.metrics.bleu import bleu
from anyformer.objectives.metrics.labels import accuracy, f1, matthews, pearson, spearman
from anyformer.objectives.metrics.language import bits_per_byte, perplexity
from anyformer.objectives.metrics.rouge import rouge
from anyformer.objectives.metrics.spans import span_scores, spans
from anyformer.objectives.metrics.squad import squad, squad2

__all__ = [
    "accuracy",
    "bits_per_byte",
    "bleu",
    "f1",
    "matthews",
    "pearson",
    "perplexity",
    "rouge",
    "span_scores",
    "spans",
    "spearman",
    "squad",
    "squad2",
]
