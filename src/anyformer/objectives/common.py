"""What objectives of tokens share: what they ask of a tokenizer and a spec, and their sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch.nn.functional as F

from anyformer import spec as S
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.extra import expected_sum
from anyformer.model.inputs import position_limit
from anyformer.objectives.base import IGNORED, Batch, Objective, Result, Trainee, inputs
from anyformer.objectives.losses import asked, hits, token_sum
from anyformer.spec.walk import looks_back, selves

FEWEST = 64  # places that are asked, at least
CONTEXT = 512  # tokens of a row where neither the model nor the user sets a limit


class Plan(ABC):
    """The base of objectives as data: what they need of a spec can be put into one."""

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head that this objective trains, where its own isn't one."""
        return spec

    @abstractmethod
    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work; raises where the tokenizer or the model lacks what it needs."""


class WordPlan(Plan):
    """The base of those that train a head over the vocabulary."""

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head over its vocabulary."""
        return fit_words(spec)


class OfTokens(Objective):
    """One cross-entropy over tokens: `labels` (B, N) with the model's logits (B, N, V)."""

    weights: Mapping[str, float] = {"tokens": 1.0}
    exits = True
    smoothing: float = 0.0
    alpha: float = 1.0

    def counts(self, batch: Batch) -> dict[str, Any]:
        """The number of labels."""
        return {"tokens": asked(batch["labels"])}

    def placed(self, batch: Batch) -> Batch:
        """With where labels are, `targets_at` (K,), if they are few; filled up to even sizes."""
        labels = batch["labels"].flatten()
        real = labels != IGNORED
        at = real.nonzero()[:, 0]
        if 2 * len(at) > len(labels):
            return batch
        step = max(FEWEST, len(labels) // 64)  # so that shapes seldom change
        spare = int((~real).nonzero()[0])  # one that counts for nothing
        return {**batch, "targets_at": F.pad(at, (0, -len(at) % step), value=spare)}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sum of cross-entropies, and how many tokens were the likeliest."""
        out = trainee.model(**inputs(batch), **self._asked(trainee.model.spec, batch))
        if out.target_loss is not None:
            told = {"accuracy": (out.target_hits, asked(batch["labels"]))}
            return Result({"tokens": out.target_loss}, told if trainee.metrics else {})
        assert out.logits is not None
        if out.exits is None:
            loss = token_sum(out.logits, batch["labels"], self.smoothing, self.alpha)
        else:  # in training, the answers of all rounds
            if self.alpha != 1.0:
                raise InputError("loop.halt=Exit weighs cross-entropies: set alpha=1.0")
            answers, shares = out.exits
            loss = expected_sum(answers, shares, batch["labels"], self.smoothing)
        told = {"accuracy": hits(out.logits, batch["labels"])} if trainee.metrics else {}
        return Result({"tokens": loss}, told)

    def _asked(self, spec: S.Model, batch: Batch) -> dict[str, Any]:
        """Targets, where the head can sum plain cross-entropies without all logits."""
        loop = spec.stack.loop
        rounds = loop is not None and isinstance(loop.halt, S.Exit)  # each has logits of its own
        plain = self.alpha == 1.0 and not self.smoothing and not rounds
        if not plain or not isinstance(spec.head, S.Vocabulary):
            return {}
        return {"targets": batch["labels"], "targets_at": batch.get("targets_at")}


# -------------------------------------------------------------------------- the model


def check_tokens(spec: S.Model, tokenizer: Tokenizer) -> None:
    """Raise unless a model reads tokens and has a row for each of the tokenizer's."""
    for side in (spec, spec.encoder):
        source = None if side is None else side.embed.source
        if source is None:
            continue
        if not isinstance(source, S.Tokens):
            raise InputError("this objective is about text, and the model doesn't read tokens")
        if source.vocab < len(tokenizer):
            raise InputError(
                f"the tokenizer has {len(tokenizer)} tokens and the model {source.vocab}: build "
                f"the model with vocab={len(tokenizer)} or more"
            )


def check_head(spec: S.Model, plan: Plan, *heads: type) -> None:
    """Raise unless the model's head is one of these kinds."""
    if not isinstance(spec.head, heads):
        names = " or ".join(kind.__name__ for kind in heads)
        has = type(spec.head).__name__ if spec.head is not None else "none"
        raise InputError(
            f"{type(plan).__name__} needs a model with the head {names}, and this one has {has}: "
            f"take {type(plan).__name__}(…).fit(spec), or set head"
        )


def causal(spec: S.Model) -> bool:
    """Whether each position of the (last) stack sees those before it only."""
    return looks_back(spec.stack)


def check_encoder(spec: S.Model, plan: Plan) -> None:
    """Raise unless a model is one stack in which every position sees all."""
    if spec.encoder is not None or any(a.causal for a in selves(spec.stack)):
        kind = "a decoder" if spec.encoder is None else "an encoder-decoder"
        raise InputError(
            f"{type(plan).__name__} is for encoders, and this is {kind}: it would see the answers "
            "or nothing of what follows; take the objective 'causal', 'prefix' or "
            "'span-corruption', or set causal=False in the attention"
        )


def check_decoder(spec: S.Model, plan: Plan) -> None:
    """Raise unless a model is one causal stack."""
    if spec.encoder is not None or not causal(spec):
        kind = "an encoder" if spec.encoder is None else "an encoder-decoder"
        other = "'masked'" if spec.encoder is None else "'span-corruption' or 'denoising'"
        raise InputError(
            f"{type(plan).__name__} is for decoders, and this is {kind}: take the objective "
            f"{other}, or set causal=True in the attention"
        )


def check_pair(spec: S.Model, plan: Plan) -> None:
    """Raise unless a model is an encoder-decoder that says what its decoder begins with."""
    if spec.encoder is None:
        raise InputError(
            f"{type(plan).__name__} is for encoder-decoders, and this model has one stack: take "
            "the objective 'causal' or 'masked', or a recipe such as t5 or bart"
        )
    if spec.start is None:
        raise InputError(
            "the decoder's first id is not set: give the spec start=…, as 0 in T5 (pad), 2 in BART"
        )


def words_of(spec: S.Model) -> S.Vocabulary:
    """A head over the vocabulary as the model's kind has it: behind a dense layer in encoders."""
    if isinstance(spec.head, S.Pretraining):
        return spec.head.tokens
    if spec.encoder is not None or causal(spec):
        return S.Vocabulary()
    norm = spec.embed.norm or spec.stack.final_norm or spec.stack.block[0].norm
    return S.Vocabulary(tied=True, bias=True, dense=True, norm=norm)


def fit_words(spec: S.Model) -> S.Model:
    """The spec with a head over its vocabulary."""
    if isinstance(spec.head, S.Vocabulary | S.Adaptive):
        return spec
    return S.override(spec, "head", words_of(spec))


def context_of(spec: S.Model, asked_for: int | None) -> int:
    """The tokens that a row may have: what is asked for, else the model's limit, else 512."""
    limit = position_limit(spec)
    if asked_for is not None and limit is not None and asked_for > limit:
        raise InputError(f"context={asked_for}: the model has {limit} positions; take no more")
    return asked_for or limit or CONTEXT


# ---------------------------------------------------------------------- the tokenizer


@dataclass(frozen=True)
class Ends:
    """The ids that a tokenizer puts in front of a text and behind it."""

    front: np.ndarray
    back: np.ndarray

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.front) + len(self.back)

    def around(self, ids: np.ndarray) -> np.ndarray:
        """A text with them."""
        return np.concatenate([self.front, ids, self.back])


def ends_of(tokenizer: Tokenizer) -> Ends:
    """What the tokenizer's template has around one text; without one [CLS] and [SEP] or alike."""
    bare = tokenizer.encode("a") or tokenizer.encode("0")
    full = tokenizer.encode("a", special=True) if tokenizer.encode("a") else bare
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare and len(full) > len(bare):
            return Ends(whole(full[:at]), whole(full[at + len(bare) :]))
    ids = tokenizer.role_ids
    first = [ids[role] for role in ("cls", "bos") if role in ids][:1]
    last = [ids[role] for role in ("sep", "eos") if role in ids][:1]
    return Ends(whole(first), whole(last)) if first and last else Ends(whole([]), whole([]))


def whole(ids: Any) -> np.ndarray:
    """Ids as an array of int64."""
    return np.asarray(ids, dtype=np.int64)


def special_table(tokenizer: Tokenizer) -> np.ndarray:
    """Which ids (V,) are special tokens; the unknown one, which stands for text, is not."""
    table = np.zeros(len(tokenizer), bool)
    table[[id for role, id in tokenizer.role_ids.items() if role != "unk"]] = True
    unknown = tokenizer.role_ids.get("unk")
    for id in range(tokenizer.vocab_size, len(tokenizer)):
        silent = not tokenizer.decode([id]) and bool(tokenizer.decode([id], skip_special=False))
        table[id] |= silent and id != unknown
    return table


@dataclass(frozen=True)
class Marks:
    """Where words begin: tokens (V,) that begin one, or that end one."""

    table: np.ndarray
    at: Literal["start", "end"]

    def starts(self, ids: np.ndarray) -> np.ndarray:
        """Which tokens (N,) begin a word; the first always does."""
        found = self.table[ids]
        if self.at == "end":
            found = np.concatenate([[True], found[:-1]])
        found[:1] = True
        return found


# How vocabularies mark words: a test of one token, whether it tells of a start or an end, and
# whether what passes it is such a place (else all the others are).
MARKS: tuple[tuple[str, Literal["start", "end"], bool], ...] = (
    ("##*", "start", False),
    ("Ġ*", "start", True),
    ("▁*", "start", True),
    ("*</w>", "end", True),
    ("*@@", "end", False),
)


def word_marks(tokenizer: Tokenizer) -> Marks:
    """How this tokenizer's vocabulary tells words apart."""
    tokens = [tokenizer.token(id) or "" for id in range(len(tokenizer))]
    best: tuple[int, Marks] | None = None
    for pattern, at, passes in MARKS:
        mark = pattern.strip("*")
        test = str.startswith if pattern.endswith("*") else str.endswith
        also = ("Ċ", "ĉ") if mark == "Ġ" else ()  # a new line or a tab begins a word as well
        found = np.array([test(token, (mark, *also)) for token in tokens], bool)
        if found.any() and (best is None or found.sum() > best[0]):
            best = int(found.sum()), Marks(found == passes, at)
    if best is None:
        raise InputError(
            "this tokenizer doesn't mark words (##, Ġ, ▁, </w> or @@), so whole words can't be "
            'told: take unit="token"'
        )
    return best[1]


def pad_of(tokenizer: Tokenizer, spec: S.Model) -> int:
    """The id that fills shorter rows: the tokenizer's, else the model's, else 0."""
    return tokenizer.role_ids.get("pad", spec.pad or 0)


def shifted(labels: np.ndarray, start: int | str | None) -> np.ndarray:
    """What a decoder reads to answer labels (N,): `start` or the last label, then the others."""
    first = start if isinstance(start, int) else labels[-1]
    return np.concatenate([[first], labels[:-1]])


def answered(source: np.ndarray, labels: np.ndarray, start: int | str | None) -> dict[str, Any]:
    """An example of an encoder-decoder; a label that the decoder begins with is not asked again."""
    labels = labels[1:] if len(labels) > 1 and labels[0] == start else labels
    return {"input_ids": source, "decoder_input_ids": shifted(labels, start), "labels": labels}


def ignored(count: int) -> np.ndarray:
    """Labels that nothing is asked at."""
    return np.full(count, IGNORED, np.int64)
