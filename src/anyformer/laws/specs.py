"""Tiny specs over the whole vocabulary, drawn so that they keep the rules.

`draw_model(pick)` makes every choice through `pick(*options)`; the first option is the plain one.
`sample` gives one of random.Random; tests give one of hypothesis, which shrinks towards it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anyformer import spec as S
from anyformer.laws.draw_loop import with_loop
from anyformer.laws.draw_stack import Shape, draw_stack
from anyformer.spec.walk import attentions, selves

Pick = Callable[..., Any]
KINDS = (
    "decoder",
    "encoder",
    "encoder_decoder",
    "cross_attender",
    "vision",
    "captioner",
    "values",
    "values_decoder",
)
VOCAB, LENGTH = 29, 40  # LENGTH: rows of position tables, beyond every sequence of the laws


@dataclass(frozen=True)
class Kind:
    """What a kind of model reads and does."""

    source: str
    causal: bool
    cross: bool
    encoder: str | None = None  # what the encoder reads


KIND = {
    "decoder": Kind("tokens", True, False),
    "encoder": Kind("tokens", False, False),
    "encoder_decoder": Kind("tokens", True, True, "tokens"),
    "cross_attender": Kind("tokens", True, True),
    "vision": Kind("patches", False, False),
    "captioner": Kind("tokens", True, True, "patches"),
    "values": Kind("values", False, False),
    "values_decoder": Kind("values", True, False),
}


def draw_norm(pick: Pick, none: bool = True) -> S.Norm | None:
    """A norm; with `none` perhaps none."""
    options = [S.LayerNorm(), S.RMSNorm(), S.ScaleNorm(), S.LayerNorm(bias=False)]
    options.append(S.RMSNorm(offset=True))
    return pick(*options, *([None] if none else []))


def draw_position(pick: Pick, kind: str) -> S.Absolute | None:
    """Absolute positions, or none."""
    return pick(
        None,
        S.Learned(length=LENGTH),
        S.Learned(length=LENGTH, offset=2, scale=0.5),
        S.Sinusoidal(),
        S.Sinusoidal(layout="pairs", scale=0.5, theta=100.0),
        S.Sinusoidal(closed=True, offset=2, skip=1 if kind == "tokens" else None),
    )


def draw_source(pick: Pick, kind: str) -> S.Source:
    """What a model reads."""
    if kind == "tokens":
        bands = S.Tokens(vocab=VOCAB, cutoffs=(5, 11), shrink=2)
        return pick(*[S.Tokens(vocab=VOCAB)] * 4, bands)
    if kind == "patches":
        return S.Patches(
            image=4, patch=2, channels=pick(1, 3), cls=pick(True, False), bias=pick(True, False)
        )
    return S.Values(size=pick(None, 5), bias=pick(True, False))


def draw_embed(pick: Pick, kind: str) -> S.Embed:
    """From inputs to the stream."""
    source, dim = draw_source(pick, kind), pick(None, None, 4, 7)
    return S.Embed(
        source=source,
        dim=None if isinstance(source, S.Tokens) and source.cutoffs else dim,
        position=draw_position(pick, kind),
        types=pick(0, 0, 2) if kind == "tokens" else 0,
        langs=pick(0, 0, 3) if kind == "tokens" else 0,
        wide=pick(False, False, True),
        scale=pick(1.0, 3.0),
        norm=pick(None, draw_norm(pick)),
        bias=pick(True, False),
        wide_norm=pick(False, False, True),
        dropout=pick(0.0, 0.1),
        memory=pick(0, 0, 1, 3),
    )


def tells_apart(spec: S.Model) -> bool:
    """Whether tokens are more than a number each.

    Behind a norm a single channel is only a sign: keys of different tokens are equal then, and
    rounding alone says which of them are the top k.
    """
    both = (spec, spec.encoder) if spec.encoder is not None else (spec,)
    return all(_narrowest(one.embed, one.dim) > 1 for one in both)


def _narrowest(embed: S.Embed, dim: int) -> int:
    source, wide = embed.source, embed.dim or dim
    if not isinstance(source, S.Tokens):
        return wide
    return wide // source.shrink ** len(source.cutoffs)


def draw_head(pick: Pick, kind: str) -> S.Head | None:
    """From the stream to answers."""
    act = pick("gelu", "tanh", "relu2")
    block = {"hidden": pick(None, 5), "dropout": pick(0.0, 0.1)}
    dense = S.Transform(act=act, norm=draw_norm(pick), bias=pick(True, False), **block)
    first = pick(None, None, dense)
    options: list[S.Head | None] = [
        None,
        S.Project(size=3, transform=first, bias=pick(True, False), dropout=pick(0.0, 0.1)),
        S.Span(transform=first, dropout=pick(0.0, 0.1)),
        S.Pooler(act=act),
        S.Classes(count=3, pool=pick("first", "mean", "last"), hidden=pick(None, 5), act=act),
    ]
    if kind == "tokens":
        head = S.Vocabulary(
            tied=pick(True, False),
            bias=pick(False, True),
            scale=pick(1.0, 0.5),
            cap=pick(None, None, 2.0),
            dense=pick(False, True),
            wide=pick(False, False, True),
            dense_bias=pick(True, False),
            shift=pick(True, True, False),
            act=act,
            norm=pick(None, draw_norm(pick)),
        )
        both = S.Pretraining(
            tokens=head, asks=pick("next", "order"), act=act, dropout=pick(0.0, 0.1)
        )
        pads = S.Classes(count=3, pool="last", token=pick(1, 4), bias=False)
        options = [head, head, head, both, pads, *options]
    if kind == "patches":
        options.append(S.Pixels(stride=pick(None, None, 3)))
    return pick(*options)


def fitting(pick: Pick, head: S.Head | None, embed: S.Embed, stack: S.Stack) -> S.Head | None:
    """The head, or one in its place that can use the token tables as they are."""
    source = embed.source
    if not isinstance(source, S.Tokens) or not isinstance(head, S.Vocabulary | S.Pretraining):
        return head
    cutoffs = source.cutoffs or pick((), (7,), (3, 20))
    adaptive = isinstance(head, S.Vocabulary) and stack.out is None
    if not source.cutoffs:
        return pick(head, head, head, S.Adaptive(cutoffs=cutoffs)) if adaptive else head
    path = "tied" if isinstance(head, S.Vocabulary) else "tokens.tied"
    untied = S.override(head, path, False)
    return pick(S.Adaptive(cutoffs=cutoffs), untied) if adaptive else untied


def draw_encoder(pick: Pick, kind: str) -> S.Model:
    """A model that is read by another one."""
    dim = pick(8, 12)
    shape = Shape(dim=dim, causal=pick(False, False, True), short=pick(True, True, False))
    stack = draw_stack(pick, shape, draw_norm)
    return S.Model(dim=dim, embed=draw_embed(pick, kind), stack=stack)


def with_optional(stack: S.Stack) -> S.Stack:
    """Cross-attentions that are a whole branch can be left out."""
    crosses = [j for j, sub in enumerate(stack.block) if sub.kind == "cross"]
    for j in crosses:
        stack = S.override(stack, f"block.{j}.branch.optional", True)
    return stack


def draw_model(pick: Pick, causal: bool | None = None, writes: bool = False) -> S.Model:
    """A model of any kind; `causal` asks for one of that sort, `writes` for one of words."""
    names = [n for n in KINDS if causal is None or KIND[n].causal == causal]
    names = [n for n in names if not writes or KIND[n].source == "tokens"]
    kind, dim = KIND[pick(*names)], pick(8, 12)
    encoder = draw_encoder(pick, kind.encoder) if kind.encoder else None
    bridge = encoder is not None and pick(False, False, True)
    context = encoder.dim if encoder and not bridge else dim if bridge else pick(dim, 10)
    short = pick(True, False)  # one half of all stacks; in the other one blocks run again
    shape = Shape(dim=dim, causal=kind.causal, cross=kind.cross, context=context, short=short)
    embed, share = draw_embed(pick, kind.source), False
    if encoder is not None and isinstance(encoder.embed.source, S.Tokens):
        plain = embed.source == encoder.embed.source == S.Tokens(vocab=VOCAB)
        alike = plain and (embed.dim or dim) == (encoder.embed.dim or encoder.dim)
        share = alike and pick(False, True)
    stack = draw_stack(pick, shape, draw_norm)
    stack = S.override(stack, "out", pick(None, None, None, 5))
    if kind.cross and encoder is None and not stack.reversible and pick(False, True):
        stack = with_optional(stack)
    head = draw_head(pick, kind.source)
    head = head if not writes or isinstance(head, S.Vocabulary) else S.Vocabulary()
    model = S.Model(
        dim=dim,
        embed=embed,
        stack=stack,
        head=fitting(pick, head, embed, stack),
        encoder=encoder,
        share_tokens=share,
        bridge=bridge,
        init=S.Init(
            std=pick(0.02, 0.1), depth_scaled=pick(False, True), fan=pick(False, False, True)
        ),
    )
    model = with_loop(pick, model)
    model = with_question(model) if pick(False, True) else model
    return with_mask_decoder(model) if pick(False, True) else model


def with_question(model: S.Model) -> S.Model:
    """The model with a token that ends a question, where its head looks for an answer."""
    asked = S.override(model, "head.token", 3) if isinstance(model.head, S.Span) else model
    return model if S.problems(asked) else asked


def with_mask_decoder(model: S.Model) -> S.Model:
    """The model with a last block that positions ask, where it can have one."""
    tokens = isinstance(model.embed.source, S.Tokens)
    if not tokens or all(a.causal for a in selves(model.stack)):
        return model
    head = model.head if isinstance(model.head, S.Vocabulary) else S.Vocabulary(dense=True)
    changed = S.override(model, "head", replace(head, enhanced=LENGTH))
    changed = S.override(changed, "embed.memory", 0)
    changed = S.override(changed, "stack.reversible", False)
    for path, *_, attention in attentions(model):
        changed = S.override(changed, f"{path}.causal", False) if attention.causal else changed
    for name in ("block", *(f"others.{i}" for i in range(len(model.stack.others)))):
        changed = S.override(changed, f"stack.{name}.*.place", "post")
    return model if S.problems(changed) else changed


def sample(seed: int, causal: bool | None = None) -> S.Model:
    """The spec of a seed."""
    rng = random.Random(seed)
    return draw_model(lambda *options: rng.choice(options), causal)
