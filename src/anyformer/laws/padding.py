"""Laws 4 and 6: a row says the same alone, beside longer rows, and packed behind others."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.laws.broken import all_same, same, same_each
from anyformer.laws.cases import Case, Side, case, each, is_causal, pooled
from anyformer.laws.order import paths_of_attentions
from anyformer.model.checks import predicts_next
from anyformer.model.output import Output


def law_padded(spec: S.Model, seed: int) -> None:
    """4: rows padded on the left, or on the right, equal rows alone."""
    c = case(spec, seed, rows=3)
    for left in (True, False):
        lengths = _lengths(c, c.main, left)
        others = _lengths(c, c.other, c.rng.random() < 0.5) if c.other is not None else None
        more = _prefixes(c, lengths)
        with torch.inference_mode():
            batch = c(**_masks(c, lengths, others), **more, **_hidden(spec))
            for row, at in enumerate(lengths):
                own = {k: v[row : row + 1] for k, v in more.items()} | _hidden(spec)
                one = _alone(c, row, at, others, own)
                found = [t[row : row + 1, at] for t in each(batch)]
                all_same(found, each(one), f"row {row} padded on the {'left' if left else 'right'}")
                for found_one, wanted in zip(pooled(batch), pooled(one), strict=True):
                    same(found_one[row : row + 1], wanted, f"pooled row {row}")


def law_padded_gradients(spec: S.Model, seed: int) -> None:
    """6: a batch with padding has the gradients of its rows alone."""
    c = case(spec, seed, rows=2)
    lengths = _lengths(c, c.main, c.rng.random() < 0.5)
    others = _lengths(c, c.other, c.rng.random() < 0.5) if c.other is not None else None
    batch = c(**_masks(c, lengths, others))
    rows = [[t[row : row + 1, at] for t in each(batch)] for row, at in enumerate(lengths)]
    heads = [[t[row : row + 1] for t in pooled(batch)] for row in range(len(lengths))]
    found = gradients(c, sum(weighed(r) + weighed(h) for r, h in zip(rows, heads, strict=True)))
    alone = [_alone(c, row, at, others, {}) for row, at in enumerate(lengths)]
    wanted = gradients(c, sum(weighed(each(one)) + weighed(pooled(one)) for one in alone))
    same_each(found, wanted, "gradient of {} with padding")


def law_loss(spec: S.Model, seed: int) -> None:
    """6: the loss of a padded batch is the mean over the tokens of its rows."""
    if not isinstance(spec.head, S.Vocabulary):
        return
    c = case(spec, seed, rows=2)
    lengths, shift = _lengths(c, c.main, False), int(predicts_next(spec))
    lengths = [slice(0, max(2, at.stop)) for at in lengths]  # one position has no next token
    labels = c.main.x.clone()
    for row, at in enumerate(lengths):
        labels[row, at.stop :] = -100
    with torch.inference_mode():
        found = c(**_masks(c, lengths, None), labels=labels).loss
        total = torch.zeros(()).double()
        for row, at in enumerate(lengths):
            own = c(slice(row, row + 1), at, labels=labels[row : row + 1, at]).loss
            total += own * (at.stop - shift)
    same(found, total / sum(at.stop - shift for at in lengths), "loss with padding")


def packs(spec: S.Model) -> bool:
    """Whether a model takes documents: not with memory tokens, an encoder or a question a row."""
    asks = isinstance(spec.head, S.Span) and spec.head.token is not None
    other = spec.encoder is not None or isinstance(spec.embed.source, S.Patches)
    return not (asks or other or spec.embed.memory)


def law_packed(spec: S.Model, seed: int) -> None:
    """6: documents packed into one row equal documents alone, and so do their gradients."""
    if not packs(spec):
        return
    c = case(spec, seed, rows=1, length=12)
    cut = c.rng.randrange(1, 11)
    parts = [slice(0, cut), slice(cut, c.rng.choice((12, 11)))]
    ids = torch.zeros(1, 12, dtype=torch.long)
    ids[:, cut:], ids[:, parts[1].stop :] = 7, 3
    packed = each(c(document_ids=ids))
    alone = [each(c(at=at)) for at in parts]
    for at, wanted in zip(parts, alone, strict=True):
        all_same([t[:, at] for t in packed], wanted, f"document {at.start} to {at.stop}")
    found = gradients(c, sum(weighed([t[:, at] for t in packed]) for at in parts))
    wanted = gradients(c, sum(weighed(a) for a in alone))
    same_each(found, wanted, "gradient of {} of packed documents")


def weighed(answers: list[Tensor]) -> Tensor:
    """One number of some answers, different for each channel and bent, so gradients differ."""
    total = torch.zeros(()).double()
    for t in answers:
        total = total + (torch.sin(t) * torch.linspace(0.5, 2, t.shape[-1]).double()).sum()
    return total


def gradients(c: Case, loss: Tensor | int) -> dict[str, Tensor]:
    """The gradient of every parameter, zeros where the loss does not depend on it."""
    assert isinstance(loss, Tensor)
    names, weights = zip(*c.model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return {
        name: torch.zeros_like(w) if g is None else g
        for name, w, g in zip(names, weights, found, strict=True)
    }


def _lengths(c: Case, side: Side | None, left: bool) -> list[slice]:
    """The real positions of every row, one of them whole; an image is whole always."""
    assert side is not None
    rows, length = side.x.shape[0], side.x.shape[1]
    if side.is_image:
        return [slice(0, None)] * rows
    counts = [length, *(c.rng.randrange(1, length + 1) for _ in range(rows - 1))]
    c.rng.shuffle(counts)
    return [slice(length - n, length) if left else slice(0, n) for n in counts]


def _masks(c: Case, main: list[slice], other: list[slice] | None) -> dict[str, Tensor]:
    """The masks of both sides, where there are positions to hide."""
    found = {}
    for side, lengths in ((c.main, main), (c.other, other)):
        if side is None or lengths is None or side.is_image:
            continue
        mask = torch.zeros(side.x.shape[:2], dtype=torch.long)
        for row, at in enumerate(lengths):
            mask[row, at] = 1
        found[side.mask] = mask
    return found


def _alone(c: Case, row: int, at: slice, others: list[slice] | None, more: dict) -> Output:
    """One row without its padding, of the other sequence neither."""
    other, rows = c.other, slice(row, row + 1)
    other = other.cut(others[row]) if other is not None and others is not None else other
    return dataclasses.replace(c, other=other)(rows, at, **more)


def _hidden(spec: S.Model) -> dict[str, bool]:
    return {} if spec.stack.reversible else {"output_hidden_states": True}


def _prefixes(c: Case, lengths: list[slice]) -> dict[str, Tensor]:
    """At times prefixes, where the model takes any."""
    takes = c.spec.encoder is None and paths_of_attentions(c.spec, cross=False)
    if not takes or not is_causal(c.spec) or c.main.is_image or c.rng.random() < 0.5:
        return {}
    counts = [c.rng.randint(0, at.stop - at.start) for at in lengths]
    return {"prefix_lengths": torch.tensor(counts)}
