"""A text that goes on over several turns, of which nothing is read twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from anyformer.errors import InputError
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import at_a_time
from anyformer.generate.sample import stream
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model


class Resumed:
    """A decoder whose prompts, after the first one, go on where the last text ended."""

    def __init__(self, model: Model):
        self.growing = Growing(model)

    def start(self, prompt: Prompt) -> Tensor:
        """Read a prompt behind all that was read before -> logits (B, V)."""
        if self.growing.past is None:
            return self.growing.start(prompt)
        size = prompt.prefill or at_a_time(self.growing.model, *prompt.ids.shape)
        pieces = prompt.ids.split(size or prompt.ids.shape[1], 1)
        return [self.growing.read(piece, 1)[:, -1] for piece in pieces][-1]

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each row, (B,) -> logits (B, V) after it."""
        return self.growing.step(tokens)

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows (B',)."""
        self.growing.reorder(rows)


class Chat:
    """A model and a text that grows by turns; its cache or memory stays between them."""

    def __init__(self, model: Model, **options: Any):
        if model.encoder is not None:
            raise InputError("a chat goes on with one text: an encoder-decoder reads each anew")
        self.model, self.options, self.decoder = model, options, Resumed(model)
        self.unread: list[int] = []  # the last token of a turn was written, not read

    @property
    def seen(self) -> int:
        """Positions that were read."""
        past = self.decoder.growing.past
        return 0 if past is None else past.seen

    def say(self, ids: list[int], max_new_tokens: int) -> Iterator[int]:
        """Tokens of the answer to ids, as they come."""
        prompt = [*self.unread, *ids]
        limit = position_limit(self.model.spec)
        room = max_new_tokens if limit is None else limit + 1 - self.seen - len(prompt)
        if room < 1:
            raise InputError(f"the chat has used the model's {limit} positions: begin a new one")
        asked = self.options | {"max_new_tokens": min(max_new_tokens, room)}
        for step in stream(self.model, [prompt], decoder=self.decoder, **asked):
            self.unread = [int(step.tokens[0])]
            yield self.unread[0]


def fits(model: Model, ids: list[int], max_new_tokens: int) -> int:
    """New tokens that a model has positions for behind ids, `max_new_tokens` at most."""
    limit = position_limit(model.spec)
    begun = len(ids) if model.encoder is None else 1
    return max_new_tokens if limit is None else max(1, min(max_new_tokens, limit + 1 - begun))
