"""What has been written so far, and a look at whether it can be trusted.

Letters: B rows, N positions so far, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyformer.errors import InputError
from anyformer.generate.prompt import Prompt


class Text:
    """Ids of prompts and new tokens in one table, each prompt several times; padding is -1."""

    def __init__(self, prompt: Prompt, copies: int, room: int):
        rows, self.start = prompt.ids.shape
        self.length = self.start
        self.table = prompt.ids.new_full((rows * copies, self.start + room), -1)
        ids = prompt.ids if prompt.keep is None else prompt.ids.masked_fill(~prompt.keep, -1)
        self.table[:, : self.start] = ids.repeat_interleave(copies, 0)

    @property
    def ids(self) -> Tensor:
        """Prompts and new tokens, (B, N)."""
        return self.table[:, : self.length]

    @property
    def new(self) -> Tensor:
        """New tokens."""
        return self.table[:, self.start : self.length]

    @property
    def last(self) -> Tensor:
        """The last token of each row, (B,), in a tensor of its own."""
        return self.table[:, self.length - 1].clone()

    def add(self, token: Tensor) -> None:
        """One more token of each row, (B,)."""
        self.table[:, self.length] = token
        self.length += 1


def wide(logits: Tensor) -> Tensor:
    """Logits in float32 at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Watch:
    """Keeps whether logits were numbers, and raises when it looks, which waits for a GPU."""

    def __init__(self) -> None:
        self.broken: list[Tensor] = []  # (B,) of each step: NaN or infinite logits
        self.empty: list[Tensor] = []  # (B,): options left no token
        self.looked = 0

    def see(self, logits: Tensor, scores: Tensor) -> None:
        """Remember one step: logits (B, V), and what options made of them."""
        self.broken.append(~logits.amax(-1).isfinite())
        self.empty.append(~scores.amax(-1).isfinite())

    def look(self) -> None:
        """Raise for the first step that is not to be trusted."""
        seen = torch.stack([torch.stack(self.broken), torch.stack(self.empty)])  # (2, steps, B)
        if bool(seen.any()):
            step, row = seen.any(0).nonzero()[0].tolist()
            where = f"row {row}, new token {self.looked + step}"
            if bool(seen[0, step, row]):
                raise InputError(
                    f"the model's logits for {where} hold NaN or infinity: look at its weights"
                )
            raise InputError(f"the options leave no token for {where}: ban fewer")
        self.looked += len(self.broken)
        self.broken, self.empty = [], []
