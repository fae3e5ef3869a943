"""Tiny specs over the whole vocabulary, drawn so that they keep the rules.

`draw_model(pick)` makes every choice through `pick(*options)`; the first option is the plain one.
Hypothesis gives a pick that shrinks towards it (`specs`), `sample` one of random.Random.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from anyformer import spec as S
from tests.laws.draw_stack import Shape, draw_stack

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
        return S.Tokens(vocab=VOCAB)
    if kind == "patches":
        return S.Patches(
            image=4, patch=2, channels=pick(1, 3), cls=pick(True, False), bias=pick(True, False)
        )
    return S.Values(size=pick(None, 5), bias=pick(True, False))


def draw_embed(pick: Pick, kind: str) -> S.Embed:
    """From inputs to the stream."""
    return S.Embed(
        source=draw_source(pick, kind),
        dim=pick(None, None, 4, 7),
        position=draw_position(pick, kind),
        types=pick(0, 0, 2) if kind == "tokens" else 0,
        scale=pick(1.0, 3.0),
        norm=pick(None, draw_norm(pick)),
        dropout=pick(0.0, 0.1),
        memory=pick(0, 0, 1, 3),
    )


def draw_head(pick: Pick, kind: str) -> S.Head | None:
    """From the stream to answers."""
    act = pick("gelu", "tanh", "relu2")
    options: list[S.Head | None] = [
        None,
        S.Project(size=3, bias=pick(True, False), dropout=pick(0.0, 0.1)),
        S.Span(dropout=pick(0.0, 0.1)),
        S.Pooler(act=act),
        S.Classes(count=3, pool=pick("first", "mean"), hidden=pick(None, 5), act=act),
    ]
    if kind == "tokens":
        head = S.Vocabulary(
            tied=pick(True, False),
            bias=pick(False, True),
            scale=pick(1.0, 0.5),
            cap=pick(None, None, 2.0),
            dense=pick(False, True),
            act=act,
            norm=pick(None, draw_norm(pick)),
        )
        options = [head, head, head, *options]
    return pick(*options)


def draw_encoder(pick: Pick, kind: str) -> S.Model:
    """A model that is read by another one."""
    dim = pick(8, 12)
    stack = draw_stack(pick, Shape(dim=dim, causal=pick(False, False, True)), draw_norm)
    return S.Model(dim=dim, embed=draw_embed(pick, kind), stack=stack)


def draw_model(pick: Pick, causal: bool | None = None) -> S.Model:
    """A model of any kind; `causal` asks for one of that sort."""
    names = [n for n in KINDS if causal is None or KIND[n].causal == causal]
    kind, dim = KIND[pick(*names)], pick(8, 12)
    encoder = draw_encoder(pick, kind.encoder) if kind.encoder else None
    context = encoder.dim if encoder else pick(dim, 10)
    shape = Shape(dim=dim, causal=kind.causal, cross=kind.cross, context=context)
    embed, share = draw_embed(pick, kind.source), False
    if encoder is not None and isinstance(encoder.embed.source, S.Tokens):
        share = (embed.dim or dim) == (encoder.embed.dim or encoder.dim) and pick(False, True)
    return S.Model(
        dim=dim,
        embed=embed,
        stack=draw_stack(pick, shape, draw_norm),
        head=draw_head(pick, kind.source),
        encoder=encoder,
        share_tokens=share,
        init=S.Init(std=pick(0.02, 0.1), depth_scaled=pick(False, True)),
    )


def sample(seed: int, causal: bool | None = None) -> S.Model:
    """The spec of a seed."""
    rng = random.Random(seed)
    return draw_model(lambda *options: rng.choice(options), causal)


@st.composite
def specs(draw: st.DrawFn, causal: bool | None = None) -> S.Model:
    """Specs that shrink towards plain ones."""
    return draw_model(lambda *options: draw(st.sampled_from(options)), causal)
