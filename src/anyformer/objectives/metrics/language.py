"""How well a model foretells text, from the sum of its cross-entropies in nats."""

from __future__ import annotations

import math


def perplexity(nats: float, tokens: float) -> float:
    """exp of the mean of the cross-entropy over tokens; infinite where it can't be told."""
    mean = nats / tokens
    return math.exp(mean) if mean < 700 else math.inf


def bits_per_byte(nats: float, size: float) -> float:
    """Bits for each byte of the text in UTF-8: the same unit whatever the tokenizer."""
    return nats / math.log(2) / size
