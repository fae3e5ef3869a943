"""Several tokens ahead at once: a block of its own for each, one head for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.data.samples import Samples
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError
from anyformer.model.heads import Adaptive
from anyformer.model.model import Model, build
from anyformer.objectives.base import IGNORED, Batch, Example, Objective, Result, Trainee, inputs
from anyformer.objectives.causal import Causal, NextToken
from anyformer.objectives.common import Plan, whole
from anyformer.objectives.losses import asked, hits, token_sum
from anyformer.spec.node import Positive, node

KEPT = ("attention_mask", "document_ids", "prefix_lengths")


@node
class MultiToken(Plan):
    """The next n tokens from each position (arXiv:2404.19737).

    The first is the model's own answer. Each further one has a block like the model's last, which
    reads what that one reads; the last norm and the head are shared. After training the model is
    used as it is.
    """

    ahead: Positive = 4
    cross: bool = False  # documents of a row see each other

    def fit(self, spec: S.Model) -> S.Model:
        """The spec with a head over its vocabulary."""
        return Causal().fit(spec)

    def bind(self, tokenizer: Tokenizer, spec: S.Model) -> Objective:
        """The objective at work."""
        rows = Causal(cross=self.cross).bind(tokenizer, spec)
        assert isinstance(rows, NextToken)
        if spec.stack.reversible:
            raise InputError(
                "several tokens ahead are read before the last block, and a reversible stack "
                "doesn't keep that state: set stack.reversible=False"
            )
        return TokensAhead(rows, self.ahead, S.check(block_of(spec)))


def block_of(spec: S.Model) -> S.Model:
    """The spec of one more block like the last, from vectors to vectors, without a norm behind."""
    plan = S.layout(spec.stack)
    stack = replace(
        spec.stack,
        block=plan.blocks[plan.schedule[-1]],
        depth=1,
        schedule=S.Plain(),
        own=(),
        lora=None,
        loop=None,
        others=(),
        kinds=(),
        final_norm=None,
        out=None,
        convolution=None,
        recurrence=0,
        primed=False,
        layer_dropout=0.0,
    )
    embed = S.Embed(source=S.Values())
    return S.Model(dim=spec.dim, embed=embed, stack=stack, init=spec.init)


@dataclass
class TokensAhead(Objective):
    """Packed rows of n tokens more than the context; term i is for the i-th token ahead."""

    rows: NextToken
    ahead: int
    block: S.Model

    def __post_init__(self) -> None:
        self.pad = self.rows.pad
        self.weights: Mapping[str, float] = {name: 1.0 for name in self.names}

    @property
    def names(self) -> list[str]:
        """The terms: `ahead 1` is the next token."""
        return [f"ahead {i}" for i in range(1, self.ahead + 1)]

    def length(self, context: int) -> int:
        """The context and the answers behind it."""
        return context + self.ahead

    def example(self, samples: Samples, index: int, rng: np.random.Generator) -> Example:
        """A packed row, with labels (N, n); tokens of another document aren't asked for."""
        sample, n = samples[index], self.ahead
        ids, documents = whole(sample["ids"]), whole(sample["documents"])
        size = len(ids) - n
        labels = np.stack([ids[i : i + size] for i in range(1, n + 1)], -1)
        if self.rows.cross:
            return {"input_ids": ids[:size], "labels": labels}
        apart = [documents[i : i + size] != documents[:size] for i in range(1, n + 1)]
        labels[np.stack(apart, -1)] = IGNORED
        return {"input_ids": ids[:size], "labels": labels, "document_ids": documents[:size]}

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows as tensors."""
        return self.rows.collate(examples)

    def beside(self, model: Model) -> nn.Module | None:
        """A block for each token but the next."""
        return nn.ModuleList(build(self.block) for _ in range(self.ahead - 1))

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The labels of each distance."""
        each = zip(self.names, batch["labels"].unbind(-1), strict=True)
        return {name: asked(labels) for name, labels in each}

    def terms(self, trainee: Trainee, batch: Batch) -> Result:
        """The sums of cross-entropies by distance."""
        model, blocks = trainee.model, trainee.beside
        assert isinstance(blocks, nn.ModuleList)
        given = inputs(batch)
        out = model(**given, output_hidden_states=True)
        assert out.hidden_states is not None and out.logits is not None
        trunk = out.hidden_states[-2]  # what the last block reads
        beside = {name: given[name] for name in KEPT if name in given}
        found = [out.logits]
        for block in blocks:
            found.append(logits_of(model, block(input_values=trunk, **beside).last_hidden_state))
        result = Result({})
        each = zip(self.names, found, batch["labels"].unbind(-1), strict=True)
        for name, logits, labels in each:
            result.losses[name] = token_sum(logits, labels)
            result.metrics[f"accuracy {name}"] = hits(logits, labels)
        return result


def logits_of(model: Model, x: Tensor) -> Tensor:
    """Logits (B, N, V) of a state (B, N, d) behind the last block: norm, map and head."""
    stack, head = model.stack, model.head
    x = x if stack.norm is None else stack.norm(x)
    x = x if stack.out is None else stack.out(x)
    assert head is not None
    return head(x, model.embed if isinstance(head, Adaptive) else model.token_table())
