"""Where a text ends: ids that end it, strings that end it.

Letters: B rows, N new tokens so far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.generate.options import Sampling

MARGIN = 4  # tokens before a string's own, since the first of some decodes otherwise


class Stop:
    """Says which rows end, ready on a device."""

    def __init__(self, sampling: Sampling, device: torch.device):
        self.sampling = sampling
        self.ends = torch.tensor(sampling.ends, dtype=torch.long, device=device)
        longest = max((len(text.encode()) for text in sampling.stops), default=0)
        self.reach = longest + MARGIN  # a token is one byte at least

    @property
    def can(self) -> bool:
        """Whether any row can end before the last step."""
        return bool(len(self.ends) or self.sampling.stops)

    def __call__(self, new: Tensor) -> Tensor:
        """Which rows end with the last of their new tokens (B, N) -> (B,)."""
        found = torch.isin(new[:, -1], self.ends)
        if not self.sampling.stops:
            return found
        decode = self.sampling.decode
        assert decode is not None
        texts = [decode(row) for row in new[:, -self.reach :].tolist()]
        told = [any(stop in text for stop in self.sampling.stops) for text in texts]
        return found | torch.tensor(told, device=new.device)
