"""Laws 2 to 4 of texts: a cache, a memory and rows beside a row leave every token as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from anyformer import spec as S
from anyformer.generate import generate
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import Prompt, apart
from anyformer.laws.broken import holds, same
from anyformer.laws.cases import Case, case
from anyformer.laws.order import causal_with_positions

NEW = 6
NEAR = 1e-7  # two logits that rounding may swap


def writes(spec: S.Model) -> bool:
    """Whether a spec's model can continue a text."""
    tokens = isinstance(spec.embed.source, S.Tokens)
    head = isinstance(spec.head, S.Vocabulary | S.Adaptive)
    return tokens and head and causal_with_positions(spec)


def _vocab(spec: S.Model) -> int:
    assert isinstance(spec.embed.source, S.Tokens)
    return spec.embed.source.vocab


def given(c: Case, rows: slice = slice(None)) -> dict[str, Any]:
    """What a model reads beside the text that it continues."""
    found = {} if c.other is None else c.other.part(rows, slice(None))
    return {name: value for name, value in found.items() if name not in ("token_type_ids", "langs")}


def forgetful(c: Case, ids: Tensor, new: int = NEW) -> Tensor:
    """The likeliest tokens, everything read again for each."""
    for _ in range(new):
        logits = c.model(**{c.main.name: ids, **given(c)}).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
    return ids


def same_text(c: Case, found: Tensor, wanted: Tensor, rows: slice = slice(None)) -> None:
    """Raise unless rows are equal up to the first token that rounding may have chosen."""
    for row, (a, b) in enumerate(zip(found.tolist(), wanted.tolist(), strict=True)):
        if a == b:
            continue
        at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        one = slice(row, row + 1) if rows == slice(None) else rows
        beside = {c.main.name: wanted[row : row + 1, :at], **given(c, one)}
        logits = c.model(**beside).logits[0, -1]
        apart = abs(logits[a[at]] - logits[b[at]]).item()
        told = f"row {row}, position {at}: token {a[at]}, not {b[at]}"
        holds(apart < NEAR, f"{told}, whose logit is greater by {apart:.2e}")


@torch.inference_mode()
def law_cached(spec: S.Model, seed: int) -> None:
    """2: a text written with a cache is the one written with none."""
    c = case(spec, seed)
    ids = c.main.x[:, : c.rng.randrange(1, c.length)]
    found = generate(c.model, max_new_tokens=NEW, **{c.main.name: ids, **given(c)})
    same_text(c, found, c.once("text", lambda: forgetful(c, ids)))


@torch.inference_mode()
def law_memory(spec: S.Model, seed: int) -> None:
    """3: so is a text written with a segment memory that keeps everything."""
    c = case(spec, seed)
    ids = c.main.x[:, : c.rng.randrange(1, c.length)]
    found = generate(c.model, max_new_tokens=NEW, mem_len=64, **{c.main.name: ids, **given(c)})
    same_text(c, found, c.once("text", lambda: forgetful(c, ids)))


@torch.inference_mode()
def law_ragged(spec: S.Model, seed: int) -> None:
    """4: prompts of unequal length in one batch are continued as each alone."""
    c = case(spec, seed, rows=3)
    rows = [row[: c.rng.randrange(1, c.length)].tolist() for row in c.main.x]
    found = generate(c.model, max_new_tokens=NEW, **{c.main.name: rows, **given(c)})
    for i, row in enumerate(rows):
        one = slice(i, i + 1)
        alone = generate(c.model, max_new_tokens=NEW, **{c.main.name: [row], **given(c, one)})
        same_text(c, found[one, -alone.shape[1] :], alone, one)


@torch.inference_mode()
def law_prefill(spec: S.Model, seed: int) -> None:
    """3: a prompt read in parts is the prompt read at once, with a cache and with any memory."""
    c = case(spec, seed)
    beside = given(c)
    if c.rng.random() < 0.5:
        mask = torch.ones(c.main.x.shape, dtype=torch.long)
        mask[1, : c.rng.randrange(c.length)] = 0
        beside[c.main.mask] = mask
    if c.rng.random() < 0.5:
        beside["mem_len"] = c.rng.choice((0, 3, 64))
    prompt = Prompt(ids=c.main.x, name=c.main.name, given=beside)
    size, after = c.rng.randrange(1, c.length), torch.randint(2, _vocab(spec), (2, 3))
    for one in apart(spec, prompt):
        rows = slice(0, len(one.ids))
        found, wanted = (
            _read(c, replace(one, prefill=prefill), after[rows]) for prefill in (size, c.length)
        )
        same(found, wanted, f"read by {size}")


def _read(c: Case, prompt: Prompt, after: Tensor) -> Tensor:
    """Logits (B, 4, V) behind a prompt and three more tokens."""
    decoder = Growing(c.model)
    return torch.stack([decoder.start(prompt), *(decoder.step(t) for t in after.unbind(1))], 1)


@torch.no_grad()  # in inference mode, maps are not yet products where they are counted
def law_work(spec: S.Model, seed: int) -> None:
    """2: linear maps of a step cost the same however long the text is.

    Positions and distances that are mapped stay in the cache; a step makes more of them once in a
    power of two. Untied positions with a first token apart are mapped again, once for all rows.
    """
    c = case(spec, seed)
    grown = _cost(c, 2, 20) - _cost(c, 2, 4)
    if grown and spec.stack.untied is not None and spec.stack.untied.cls:
        grown -= _cost(c, 1, 20) - _cost(c, 1, 4)
    holds(not grown, f"the multiplications of a step grow by {grown}")


def _cost(c: Case, rows: int, length: int) -> int:
    """Multiplications of the linear maps of a step behind a text, the lesser of two."""
    decoder = Growing(c.model)
    ids = torch.randint(2, _vocab(c.spec), (rows, length))
    decoder.start(Prompt(ids=ids, name=c.main.name, given=given(c, slice(rows))))
    decoder.step(ids[:, 0])
    return min(_linear(decoder, ids[:, 0]) for _ in range(2))


def _linear(decoder: Growing, tokens: Tensor) -> int:
    with Products() as counter:
        decoder.step(tokens)
    return counter.total


class Products(TorchDispatchMode):
    """Counts the multiplications of linear maps, (N, k) by (k, n)."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it where it is one of them."""
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            left, right = args[-2:]
            self.total += left.shape[0] * left.shape[1] * right.shape[1]
        return func(*args, **(kwargs or {}))
