"""The likeliest tokens with nothing asked of them: whole stretches without a look at each.

Letters: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.errors import InputError
from anyformer.generate.options import Sampling
from anyformer.generate.prompt import Prompt
from anyformer.generate.static import Static, greedy

STRETCH = 32  # tokens between looks at whether all rows are done


def plain(sampling: Sampling) -> bool:
    """Whether nothing but ends, their filling and a number of tokens is asked for."""
    asked = {"max_new_tokens": sampling.max_new_tokens, "eos_token_id": sampling.eos_token_id}
    return sampling == Sampling(**asked, pad_token_id=sampling.pad_token_id, seed=sampling.seed)


def written(decoder: Static, prompt: Prompt, sampling: Sampling) -> Tensor:
    """New tokens (B, new) of prompts; a row that is done is filled up."""
    most = sampling.max_new_tokens
    logits = decoder.start(prompt)
    _check(~logits.amax(-1).isfinite(), 0, 0)
    found = greedy(logits)[:, None]
    ends = torch.tensor(sampling.ends, dtype=torch.long, device=found.device)
    while found.shape[1] < most and not (len(ends) and bool(_done(found, ends)[:, -1].all())):
        count = min(STRETCH if len(ends) else most, most - found.shape[1])
        more = decoder.write(found[:, -1], count)
        _check(decoder.broken, found.shape[1], found.shape[1] + count - 1)
        found = torch.cat([found, more], 1)
    done = _done(found, ends)
    before = torch.cat([torch.zeros_like(done[:, :1]), done[:, :-1]], 1)
    length = min(most, int((~done.all(0)).sum()) + 1)
    return found.masked_fill(before, sampling.fill)[:, :length]


def _done(tokens: Tensor, ends: Tensor) -> Tensor:
    """Whether a row has ended, at each of its tokens (B, N)."""
    return torch.isin(tokens, ends).cumsum(1) > 0


def _check(broken: Tensor, first: int, last: int) -> None:
    """Raise where logits of some rows (B,) were no numbers."""
    if bool(broken.any()):
        where = f"new token {first}" if first == last else f"new tokens {first} to {last}"
        row = int(broken.nonzero()[0])
        raise InputError(
            f"the model's logits for row {row}, {where} hold NaN or infinity: look at its weights"
        )
