"""Changes of logits before a token is chosen: what is there already, bans and forced tokens.

Letters: B batch, N positions so far, V vocabulary. Ids below 0 are padding, which is no token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.generate.options import Sampling

NONE = float("-inf")


def penalised(logits: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Logits (B, V) of tokens in ids (B, N) divided, or multiplied below 0, by a penalty."""
    less = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(among(ids, logits.shape[1]), less, logits)


def among(ids: Tensor, vocab: int) -> Tensor:
    """Which tokens are in ids (B, N), as booleans (B, V)."""
    found = torch.zeros(ids.shape[0], vocab + 1, dtype=torch.bool, device=ids.device)
    return found.scatter_(1, torch.where(ids < 0, vocab, ids).long(), True)[:, :vocab]


def repeating(ids: Tensor, size: int, vocab: int) -> Tensor:
    """Which tokens would end a row of `size` tokens that is in ids (B, N) already, (B, V)."""
    if size == 1:
        return among(ids, vocab)
    if ids.shape[1] < size:
        return torch.zeros(ids.shape[0], vocab, dtype=torch.bool, device=ids.device)
    rows = ids.unfold(1, size, 1)  # (B, N - size + 1, size)
    tail = ids[:, None, 1 - size :]
    same = ((rows[..., :-1] == tail) & (tail >= 0)).all(-1)
    return among(torch.where(same, rows[..., -1], -1), vocab)


def only(logits: Tensor, token: Tensor) -> Tensor:
    """Logits (B, V) that leave one token, a tensor of one id."""
    return torch.full_like(logits, NONE).index_fill_(1, token, 0.0)


class Process:
    """All changes that options ask for, in Hugging Face's order, ready on a device."""

    def __init__(self, sampling: Sampling, device: torch.device):
        on = lambda ids: torch.tensor(ids, dtype=torch.long, device=device)
        self.sampling = sampling
        self.ends = on(sampling.ends)
        self.forced = [on([token]) for token in sampling.forced]
        last, ends = sampling.forced_eos_token_id, {(end,) for end in sampling.ends}
        self.last = None if last is None else on([last])
        words = [word for word in map(tuple, sampling.bad_words_ids) if word not in ends]
        self.banned = on([w[0] for w in words if len(w) == 1])
        self.words = [(on(w[:-1]), on(w[-1:])) for w in words if len(w) > 1]

    def __call__(self, logits: Tensor, ids: Tensor, step: int) -> Tensor:
        """Logits (B, V) for the new token `step` after ids (B, N)."""
        asked = self.sampling
        if self.last is not None and step == asked.max_new_tokens - 1:
            return only(logits, self.last)
        if step < len(self.forced):
            return only(logits, self.forced[step])
        if asked.repetition_penalty != 1.0:
            logits = penalised(logits, ids, asked.repetition_penalty)
        if asked.no_repeat_ngram_size:
            again = repeating(ids, asked.no_repeat_ngram_size, logits.shape[1])
            logits = logits.masked_fill(again, NONE)
        if len(self.banned):
            logits = logits.index_fill(1, self.banned, NONE)
        for front, last in self.words:
            logits = without(logits, ids, front, last)
        if len(self.ends) and step < asked.min_new_tokens:
            logits = logits.index_fill(1, self.ends, NONE)
        return logits


def without(logits: Tensor, ids: Tensor, front: Tensor, last: Tensor) -> Tensor:
    """Logits (B, V) with none for `last` (1,) in rows that end with `front` (n,)."""
    if ids.shape[1] < len(front):
        return logits
    there = (ids[:, -len(front) :] == front).all(1)
    return torch.where(there[:, None], logits.index_fill(1, last, NONE), logits)
