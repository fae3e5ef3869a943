"""A small model guesses several tokens, the model reads them at once and keeps the right ones.

The texts are those of the model alone: the same greedy ones, drawn ones of the same distribution
(arXiv:2211.17192). Rows go on at different paces, so each is written by itself. Letters: k
guesses, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.errors import InputError
from anyformer.generate.decoder import Growing
from anyformer.generate.draw import Numbers, draw
from anyformer.generate.narrow import probabilities
from anyformer.generate.options import Sampling
from anyformer.generate.process import Process
from anyformer.generate.prompt import Prompt, check_prompt
from anyformer.generate.stop import Stop
from anyformer.generate.text import Text, Watch, wide
from anyformer.model.model import Model
from anyformer.spec import Tokens


@dataclass(frozen=True)
class Draft:
    """A model that guesses for another one, and how many tokens at a time."""

    model: Model
    tokens: int = 4

    def check(self, model: Model, prompt: Prompt, sampling: Sampling) -> None:
        """Raise where it can't guess for a model."""
        if type(self.tokens) is not int or self.tokens < 1:
            raise InputError(f"draft_tokens must be an int of at least 1, not {self.tokens!r}")
        if sampling.num_beams > 1:
            raise InputError("a draft guesses one text: leave num_beams or draft out")
        sizes = [_vocab(one) for one in (model, self.model)]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"the draft has {sizes[1]} tokens, the model {sizes[0]}: use one of its vocabulary"
            )
        check_prompt(self.model, prompt, sampling.max_new_tokens)


def _vocab(model: Model) -> int | None:
    source = model.spec.embed.source
    return source.vocab if isinstance(source, Tokens) else None


class Luck:
    """Random numbers, of which none is used twice."""

    def __init__(self, numbers: Numbers, rows: slice = slice(None)):
        self.numbers, self.rows, self.used = numbers, rows, 0

    def next(self) -> Tensor:
        """A number for each row, (B,)."""
        self.used += 1
        return self.numbers.at(self.used - 1)[self.rows]


def judged(chance: Tensor, guessed: Tensor, token: Tensor, luck: Luck) -> tuple[Tensor, Tensor]:
    """Tokens (B,) of chances (B, V), by guesses (B,) that were drawn from others (B, V).

    A guess is kept as often as it is likely enough, else a token is drawn from what the guesses
    had too little of. Returned with the tokens: whether they are the guesses.
    """
    at = token[:, None]
    kept = luck.next() * guessed.gather(1, at)[:, 0] < chance.gather(1, at)[:, 0]
    own = draw((chance - guessed).clamp(min=0), luck.next())
    return torch.where(kept, token, own), kept


class Pair:
    """A model and its draft, both after the same text."""

    def __init__(self, model: Model, draft: Model, prompt: Prompt, sampling: Sampling, luck: Luck):
        device = prompt.ids.device
        self.sampling, self.luck, self.watch = sampling, luck, Watch()
        self.process = Process(sampling, device)
        self.text = Text(prompt, 1, sampling.max_new_tokens)
        self.model, self.draft = Growing(model), Growing(draft)
        logits = self.model.start(prompt)
        self.draft.start(prompt)
        token = draw(self.chances(logits), luck.next())
        self.watch.look()
        self.text.add(token)
        self.unread = [token]  # by the draft

    def chances(self, logits: Tensor) -> Tensor:
        """Probabilities (1, V) of the token after the text; greedy, that of one token is 1."""
        scores = self.process(wide(logits), self.text.ids, self.text.new.shape[1])
        self.watch.see(logits, scores)
        if self.sampling.do_sample:
            return probabilities(scores, self.sampling)
        return F.one_hot(scores.argmax(-1), scores.shape[-1]).double()

    def guess(self, count: int) -> list[tuple[Tensor, Tensor]]:
        """Tokens (1,) that the draft writes after the text, and the chances that it gave."""
        found = []
        for _ in range(count):
            logits = self.draft.read(torch.stack(self.unread, 1), 1)[:, -1]
            chance = self.chances(logits)
            token = draw(chance, self.luck.next())
            found.append((token, chance))
            self.unread = [token]
            self.text.add(token)
        return found

    def go_on(self, count: int) -> list[Tensor]:
        """One more token at least, of `count` guesses those that the model agrees with."""
        last = self.text.last
        guesses = self.guess(count)
        self.text.length -= count
        logits = self.model.read(torch.stack([last, *(token for token, _ in guesses)], 1))
        right: list[Tensor] = []
        for at, (token, guessed) in enumerate(guesses):
            own, kept = judged(self.chances(logits[:, at]), guessed, token, self.luck)
            if not bool(kept):
                break
            right.append(token)
            self.text.add(token)
        else:
            own = draw(self.chances(logits[:, count]), self.luck.next())
        self.watch.look()
        self.text.add(own)
        self._agree(count, right, own)
        return [*right, own]

    def _agree(self, count: int, right: list[Tensor], own: Tensor) -> None:
        """Both forget the guesses that were wrong; what the draft has to read next."""
        self.model.forget(count - len(right))
        if count and len(right) == count:  # the draft has not read its last guess
            self.unread = [right[-1], own]
        elif count:
            self.draft.forget(count - 1 - len(right))
            self.unread = [own]
        else:
            self.unread = [*self.unread, own]


def speculate(
    model: Model, draft: Draft, prompt: Prompt, sampling: Sampling, sequence: int = 0
) -> Iterator[tuple[Tensor, bool]]:
    """New tokens (1,) of one prompt, and whether the text ends with each."""
    copies = sampling.num_return_sequences
    seed = sampling.seed if sampling.do_sample else 0
    numbers = Numbers(seed, copies, copies, prompt.ids.device)
    luck = Luck(numbers, slice(sequence, sequence + 1))
    pair, stop = Pair(model, draft.model, prompt, sampling, luck), Stop(sampling, prompt.ids.device)
    new: list[Tensor] = [pair.text.last]
    written = 0
    while True:
        for token in new:
            written += 1
            seen = pair.text.new[:, :written]
            done = written == sampling.max_new_tokens or bool(stop(seen))
            yield token, done
            if done:
                return
        new = pair.go_on(min(draft.tokens, sampling.max_new_tokens - written - 1))


def speculated(model: Model, draft: Draft, prompt: Prompt, sampling: Sampling) -> Tensor:
    """The texts of all prompts (B·sequences, N + new), the prompts first."""
    copies, rows = sampling.num_return_sequences, []
    for row in range(len(prompt.ids)):
        alone = prompt.row(row)
        for sequence in range(copies):
            found = [token for token, _ in speculate(model, draft, alone, sampling, sequence)]
            rows.append(torch.cat(found))
    longest = max(map(len, rows))
    new = torch.stack([F.pad(row, (0, longest - len(row)), value=sampling.fill) for row in rows])
    return torch.cat([prompt.ids.repeat_interleave(copies, 0), new.to(prompt.ids.dtype)], 1)
