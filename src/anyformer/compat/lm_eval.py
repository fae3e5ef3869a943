"""An adapter that lets lm-eval (EleutherAI's harness) evaluate a causal model.

    lm_eval.simple_evaluate(model=AnyformerLM(model, tokenizer), tasks=[...])

Without the package the class works all the same, on any requests that have `args`; with it, the
class is one of its models, and known to it as "anyformer". Letters: B batch, N positions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from anyformer.checkpoint import load
from anyformer.checkpoint.hub import folder_of
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError, known_or_raise
from anyformer.model.checks import predicts_next
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model

try:
    from lm_eval.api.model import LM  # type: ignore[import-not-found]
    from lm_eval.api.registry import register_model  # type: ignore[import-not-found]
except ImportError:
    LM, register_model = object, lambda _: lambda made: made

LENGTH = 2048  # positions that are read of a model that can tell any number apart
Pair = tuple[list[int], list[int]]  # ids that are given, ids that are scored
Score = tuple[float, bool]  # the log-probability, and whether each id was the likeliest


@dataclass(frozen=True)
class Wish:
    """What a request to generate asks for, under lm-eval's names."""

    until: tuple[str, ...] = ()
    max_gen_toks: int = 256
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Wish:
        """The wish of a request's options; a temperature of 0 means the likeliest token."""
        asked = dict(given)
        until = asked.pop("until", None) or ()
        for other in ("max_new_tokens", "max_tokens"):
            if other in asked:
                asked["max_gen_toks"] = asked.pop(other)
        for name in asked:
            known_or_raise(name, [f.name for f in fields(cls)], "option of a request", InputError)
        if not asked.get("do_sample") or not asked.get("temperature", 1.0):
            for name in ("do_sample", "temperature", "top_k", "top_p"):
                asked.pop(name, None)
        return cls(until=(until,) if isinstance(until, str) else tuple(until), **asked)

    def cut(self, text: str) -> str:
        """A text up to the first of the strings that end it."""
        return min((text.split(end)[0] for end in self.until if end), key=len, default=text)


@register_model("anyformer")
class AnyformerLM(LM):  # type: ignore[misc, valid-type]
    """A causal model and its tokenizer as a model of lm-eval.

    `pretrained` is a Model, or a folder or hub name with a tokenizer beside the weights.
    max_length: positions that are read at once, of longer requests the last. add_bos: whether
    texts begin with the tokenizer's bos token; None: where its own template says so.
    """

    def __init__(
        self,
        pretrained: Model | str | os.PathLike[str],
        tokenizer: Tokenizer | None = None,
        batch_size: int | str = 8,
        max_length: int | None = None,
        add_bos: bool | None = None,
        device: str | None = None,
        max_batch_size: int | None = None,
    ):
        super().__init__()
        if isinstance(pretrained, Model):
            model = pretrained
        else:
            model = load(pretrained)
            tokenizer = tokenizer or Tokenizer.load(folder_of(pretrained))
        if tokenizer is None:
            raise InputError("AnyformerLM needs the model's tokenizer beside the model")
        if not predicts_next(model.spec):
            raise InputError("lm-eval scores next tokens: it needs a causal model with a head")
        self.model = model if device is None else model.to(device)
        self.tokenizer = tokenizer
        self.batch_size = int(batch_size) if str(batch_size).isdigit() else max_batch_size or 8
        limit = position_limit(model.spec)
        self.max_length = min(max_length or limit or LENGTH, limit or max_length or LENGTH)
        roles = tokenizer.role_ids
        self.end = roles.get("eos")
        prefix = roles.get("bos", self.end)
        if prefix is None:
            tokenizer.need("bos")
        self.prefix = int(prefix or 0)
        begins = tokenizer.encode("", special=True)[:1] == [self.prefix] and "bos" in roles
        self.lead = [self.prefix] if (begins if add_bos is None else add_bos) else []

    def loglikelihood(self, requests: Sequence[Any]) -> list[Score]:
        """For each (context, continuation): the continuation's log-probability, and if greedy."""
        return self.scores([self._pair(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """For each (text,): its log-probability, each token after as many as can be read."""
        windows = [list(self._windows(self.tokenizer.encode(r.args[0]))) for r in requests]
        scored = iter(self.scores([pair for pairs in windows for pair in pairs]))
        return [sum(next(scored)[0] for _ in pairs) for pairs in windows]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """For each (context, options): what the model writes, up to the strings that end it."""
        texts = [""] * len(requests)
        wishes = [Wish.of(request.args[1]) for request in requests]
        for wish in dict.fromkeys(wishes):
            rows = {
                i: self._context(r.args[0], wish)
                for i, r in enumerate(requests)
                if wishes[i] == wish
            }
            for batch in self._batches(rows):
                written = self._write([rows[i] for i in batch], wish)
                for i, text in zip(batch, written, strict=True):
                    texts[i] = text
        return texts

    @torch.no_grad()
    def scores(self, pairs: Sequence[Pair]) -> list[Score]:
        """The score of each pair of ids; longer rows are cut on the left."""
        found: dict[int, Score] = {}
        rows: dict[int, list[int]] = {}
        for i, (given, asked) in enumerate(pairs):
            if len(asked) > self.max_length:
                raise InputError(
                    f"a continuation of {len(asked)} tokens, but the model reads {self.max_length}"
                )
            rows[i] = [*given, *asked][-self.max_length - 1 :]
        for batch in self._batches(rows):
            logits = self._logits([rows[i][:-1] for i in batch])
            for row, i in zip(logits, batch, strict=True):
                asked = torch.tensor(pairs[i][1], dtype=torch.long, device=row.device)
                last = len(rows[i]) - 1
                found[i] = _score(row[last - len(asked) : last], asked)
        return [found[i] for i in range(len(pairs))]

    def _logits(self, rows: list[list[int]]) -> Tensor:
        """The logits (B, N, V) of rows that are padded on the right."""
        ids, mask = self._padded(rows, left=False)
        modes = [(module, module.training) for module in self.model.modules()]
        out = self.model.eval()(input_ids=ids, attention_mask=mask)
        for module, mode in modes:
            module.training = mode
        return out.logits

    def _write(self, rows: list[list[int]], wish: Wish) -> list[str]:
        ids, mask = self._padded(rows, left=True)
        room = min(wish.max_gen_toks, self.max_length - 1)
        chosen = {"do_sample": wish.do_sample, "temperature": wish.temperature}
        chosen |= {"top_k": wish.top_k, "top_p": wish.top_p, "eos_token_id": self.end}
        made = self.model.generate(ids, attention_mask=mask, max_new_tokens=room, **chosen)
        return [self._text(row, wish) for row in made[:, ids.shape[1] :].tolist()]

    def _text(self, ids: list[int], wish: Wish) -> str:
        if self.end in ids:
            ids = ids[: ids.index(self.end)]
        return wish.cut(self.tokenizer.decode(ids))

    def _padded(self, rows: list[list[int]], left: bool) -> tuple[Tensor, Tensor]:
        """Ids (B, N) and their mask."""
        device, longest = next(self.model.parameters()).device, max(map(len, rows))
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            place = slice(longest - len(row), None) if left else slice(len(row))
            ids[i, place], mask[i, place] = torch.tensor(row), 1
        return ids.to(device), mask.to(device)

    def _batches(self, rows: dict[int, list[int]]) -> Iterator[list[int]]:
        """Numbers of rows of like lengths, the longest first."""
        order = sorted(rows, key=lambda i: -len(rows[i]))
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]

    def _context(self, text: str, wish: Wish) -> list[int]:
        """The ids of a prompt, the last that leave room for what is to be written."""
        room = self.max_length - min(wish.max_gen_toks, self.max_length - 1)
        return (self._ids(text) or [self.prefix])[-room:]

    def _ids(self, text: str) -> list[int]:
        bos = self.tokenizer.roles.get("bos")
        lead = [] if bos and text.startswith(bos) else self.lead
        return [*lead, *self.tokenizer.encode(text)]

    def _pair(self, context: str, continuation: str) -> Pair:
        """Ids of a context and of what follows; spaces between them belong to what follows."""
        bare = context.rstrip()
        continuation, context = context[len(bare) :] + continuation, bare
        if not context:
            return [self.prefix], self.tokenizer.encode(continuation)
        given = self._ids(context)
        return given, self._ids(context + continuation)[len(given) :]

    def _windows(self, ids: list[int]) -> Iterator[Pair]:
        """Pairs that score each id once; the last has as many before it as can be read."""
        whole, most = [self.prefix, *ids], self.max_length
        for start in range(1, len(whole), most):
            stop = min(start + most, len(whole))
            yield whole[max(0, stop - most - 1) : start], whole[start:stop]


def _score(logits: Tensor, ids: Tensor) -> Score:
    """The log-probability of ids (N,) by logits (N, V), and whether each is the likeliest."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    told = wide.log_softmax(-1).gather(1, ids[:, None]).sum()
    return float(told), bool((wide.argmax(-1) == ids).all())
