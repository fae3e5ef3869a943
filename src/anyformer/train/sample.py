"""A few words of a trained model, for people to look at."""

from __future__ import annotations

import torch

from anyformer import spec as S
from anyformer.data.tokenizer import Tokenizer
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model
from anyformer.objectives.common import causal

PROMPT = "The "


def writes(spec: S.Model) -> bool:
    """Whether a model goes on with a text: a causal one with a vocabulary and no encoder."""
    return isinstance(spec.head, S.Vocabulary) and spec.encoder is None and causal(spec)


def sample(model: Model, words: Tokenizer, prompt: str = PROMPT, most: int = 200) -> str:
    """A prompt and what the model writes behind it, the same each time."""
    torch.manual_seed(0)
    ids = torch.tensor([words.encode(prompt) or [0]])
    room = (position_limit(model.spec) or most) - ids.shape[1]
    options = {"do_sample": True, "temperature": 0.8, "top_k": 40}
    found = model.generate(ids, max_new_tokens=min(most, room), **options)
    return words.decode(found[0].tolist())
