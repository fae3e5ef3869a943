"""Beam search: the likeliest texts, looked for among a few that go on at a time.

Letters: B prompts, k beams, c candidates, L room for ids, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer.generate.decoder import Decoder, expanded
from anyformer.generate.options import Sampling
from anyformer.generate.process import Process
from anyformer.generate.prompt import Prompt
from anyformer.generate.stop import Stop
from anyformer.generate.text import Text, Watch, wide

LOW = -1e9  # the score of what must not be chosen


@dataclass
class Texts:
    """Texts of each prompt, best first: ids (B, k, L), scores (B, k), how many tokens are new."""

    ids: Tensor
    scores: Tensor
    new: Tensor  # (B, k)
    done: Tensor  # (B, k): whether there is a text

    def best(self, scores: Tensor, count: int) -> Texts:
        """The best texts by some scores (B, c)."""
        top, at = scores.topk(count, 1)
        ids = self.ids.gather(1, at[..., None].expand(-1, -1, self.ids.shape[2]))
        return Texts(ids, top, self.new.gather(1, at), self.done.gather(1, at))

    def and_those(self, other: Texts) -> Texts:
        """These and others."""
        pairs = ("ids", "scores", "new", "done")
        return Texts(*(torch.cat([getattr(self, n), getattr(other, n)], 1) for n in pairs))


def search(decoder: Decoder, prompt: Prompt, sampling: Sampling) -> Tensor:
    """New tokens (B·sequences, new) of the best texts of each prompt."""
    beams, device, start = sampling.num_beams, prompt.ids.device, prompt.ids.shape[1]
    logits = expanded(decoder, decoder.start(prompt), beams)
    text = Text(prompt, beams, sampling.max_new_tokens)
    process, stop, watch = Process(sampling, device), Stop(sampling, device), Watch()
    live = _begun(text.table.view(len(prompt.ids), beams, -1))
    kept = Texts(live.ids, torch.full_like(live.scores, LOW), live.new, live.done)
    hope = torch.ones(len(prompt.ids), 1, dtype=torch.bool, device=device)
    for step in range(sampling.max_new_tokens):
        if step:
            logits = decoder.step(live.ids[:, :, start + step - 1].flatten())
        chance = wide(logits).log_softmax(-1)
        scores = process(chance, live.ids[:, :, : start + step].flatten(0, 1), step)
        watch.see(logits, scores)
        watch.look()
        found, parents = _candidates(live, scores, start + step, sampling)
        found.done = _ended(found, stop, start, step, sampling)
        chosen = (found.scores + found.done * LOW).topk(beams, 1)
        kept = _kept(kept, found, hope, sampling)
        live = found.best(found.scores + found.done * LOW, beams)
        rows = parents.gather(1, chosen.indices)
        rows = rows + beams * torch.arange(len(rows), device=device)[:, None]
        if _over(hope := hope & _hopes(live, kept, step + 1, sampling), kept, found, sampling):
            break
        decoder.reorder(rows.flatten())
    return _told(kept, prompt, sampling)


def _begun(ids: Tensor) -> Texts:
    """Equal beams of each prompt, of which only the first counts."""
    scores = torch.zeros(ids.shape[:2], device=ids.device)
    scores[:, 1:] = LOW
    none = torch.zeros(ids.shape[:2], dtype=torch.long, device=ids.device)
    return Texts(ids, scores, none, none.bool())


def _candidates(live: Texts, scores: Tensor, at: int, sampling: Sampling) -> tuple[Texts, Tensor]:
    """The best texts one token longer, and the beams (B, c) that they go on from.

    There are enough of them that k are left when every beam's ids that end a text are away.
    """
    rows, beams, _ = live.ids.shape
    total = (scores.view(rows, beams, -1) + live.scores[..., None]).flatten(1)  # (B, k·V)
    count = max(2, 1 + len(sampling.ends)) * beams
    top, where = total.topk(min(count, total.shape[1]), 1)
    parents, tokens = where // scores.shape[1], where % scores.shape[1]
    ids = live.ids.gather(1, parents[..., None].expand(-1, -1, live.ids.shape[2]))
    ids[:, :, at] = tokens.to(ids.dtype)
    new = live.new.gather(1, parents) + 1
    return Texts(ids, top, new, torch.zeros_like(new, dtype=torch.bool)), parents


def _ended(found: Texts, stop: Stop, start: int, step: int, sampling: Sampling) -> Tensor:
    """Which candidates are whole texts, (B, c)."""
    if step + 1 == sampling.max_new_tokens:
        return torch.ones_like(found.done)
    return stop(found.ids[:, :, start : start + step + 1].flatten(0, 1)).view_as(found.done)


def _kept(kept: Texts, found: Texts, hope: Tensor, sampling: Sampling) -> Texts:
    """The best whole texts, those that just ended among them where they may still come in."""
    beams, first = sampling.num_beams, torch.arange(found.done.shape[1], device=hope.device)
    ended = found.done & (first < sampling.num_beams)
    full = kept.done.all(1, keepdim=True) & (sampling.early_stopping is True)
    scores = found.scores / found.new**sampling.length_penalty
    for shut in (full, ~hope, ~ended):
        scores = scores + shut * LOW
    both = kept.and_those(Texts(found.ids, scores, found.new, ended))
    return both.best(both.scores, beams)


def _hopes(live: Texts, kept: Texts, new: int, sampling: Sampling) -> Tensor:
    """Whether the best beam of a prompt may yet beat the worst text that is kept, (B, 1)."""
    length = new
    if sampling.early_stopping == "never" and sampling.length_penalty > 0.0:
        length = sampling.max_new_tokens
    best = live.scores[:, :1] / length**sampling.length_penalty
    worst = torch.where(kept.done, kept.scores.amin(1, keepdim=True), LOW)
    return (best > worst).any(1, keepdim=True)


def _over(hope: Tensor, kept: Texts, found: Texts, sampling: Sampling) -> bool:
    """Whether nothing can change any more."""
    full = sampling.early_stopping is True and bool(kept.done.all())
    return full or not bool(hope.any()) or bool(found.done.all())


def _told(kept: Texts, prompt: Prompt, sampling: Sampling) -> Tensor:
    """The first texts of each prompt, filled up to the length of the longest."""
    count, start = sampling.num_return_sequences, prompt.ids.shape[1]
    ids, new = kept.ids[:, :count].flatten(0, 1), kept.new[:, :count].flatten()
    length = int(new.max())
    beyond = torch.arange(length, device=ids.device) >= new[:, None]
    return ids[:, start : start + length].masked_fill(beyond, sampling.fill)
