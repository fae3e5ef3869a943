"""The specs that x-transformers' classes stand for, before any keyword changes them.

They follow release 0.12: norms before the branches, heads of 64 channels, no biases in q, k
and v, a final LayerNorm that belongs to the wrapper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anyformer import spec as S
from anyformer.compat.words import NAMES, apply, known
from anyformer.errors import SpecError

HEAD_DIM = 64
SIZES = ("num_tokens", "max_seq_len", "depth", "heads")


def layers(dim: int, depth: int, heads: int, kinds: tuple[str, ...], causal: bool) -> S.Model:
    """A bare stack that reads vectors."""
    attention = S.Attention(heads=heads, head_dim=HEAD_DIM, bias=False, out_bias=True)
    branches: dict[str, S.Branch] = {
        "attention": replace(attention, causal=causal),
        "cross": replace(attention, cross=True),
        "feedforward": S.FeedForward(),
    }
    block = tuple(S.Sublayer(branch=branches[kind]) for kind in kinds)
    stack = S.Stack(block=block, depth=depth, final_norm=None)
    return S.Model(dim=dim, embed=S.Embed(source=S.Values()), stack=stack)


def wrapped(bare: S.Model, source: S.Source, length: int, head: S.Head | None) -> S.Model:
    """A bare stack with an embedding, `length` absolute positions, a final norm and a head."""
    embed = S.Embed(source=source, position=S.Learned(length=length))
    stack = replace(bare.stack, final_norm=None if ends_normed(bare.stack) else S.LayerNorm())
    return replace(bare, embed=embed, stack=stack, head=head)


def ends_normed(stack: S.Stack) -> bool:
    """Whether the last thing that a stack does is a norm: then no other one follows."""
    last = S.layout(stack).blocks[-1][-1]
    return last.place == "post" and last.norm is not None


def translator(dim: int, sizes: dict[str, Any]) -> S.Model:
    """An encoder-decoder; sizes are SIZES behind enc_ and dec_."""
    made: dict[str, S.Model] = {}
    for prefix in ("enc_", "dec_"):
        given = {name: sizes[prefix + name] for name in SIZES if prefix + name in sizes}
        missing = [prefix + n for n in SIZES if n not in given and n != "heads"]
        if missing:
            raise SpecError(f"XTransformer needs a value for {', '.join(missing)}")
        writes = prefix == "dec_"
        bare = layers(
            dim, given["depth"], given.get("heads", 8), ("attention", "feedforward"), writes
        )
        bare = apply(bare, {"cross_attend": writes})
        source, head = S.Tokens(vocab=given["num_tokens"]), S.Vocabulary(tied=False, bias=True)
        made[prefix] = wrapped(bare, source, given["max_seq_len"], head)
    return replace(made["dec_"], encoder=replace(made["enc_"], head=None))


def only_layers(keywords: dict[str, Any], name: str) -> None:
    """Raise where a keyword is not one of the layers."""
    own = [word for word in NAMES if not NAMES[word].wrapper]
    for word in keywords:
        if word in NAMES and NAMES[word].wrapper:
            raise SpecError(f"{word!r} belongs to the wrapper around the layers, not to {name}")
        if word == "causal":
            raise SpecError(f"{name} decides what is seen: Decoder is causal, Encoder is not")
        known(word, ["dim", "depth", "heads", *own], f"keyword of {name}")


def only_wrapper(keywords: dict[str, Any], name: str) -> None:
    """Raise where a keyword is not one of the wrapper."""
    own = [word for word in NAMES if NAMES[word].wrapper]
    for word in keywords:
        if word in NAMES and not NAMES[word].wrapper:
            raise SpecError(f"{word!r} belongs to attn_layers, not to {name}")
        known(word, own, f"keyword of {name}")


def only_causal(spec: S.Model) -> None:
    """Raise unless a spec reads tokens and no token sees those behind it."""
    blocks = (spec.stack.block, *spec.stack.others)
    found = [sub.branch for block in blocks for sub in block if sub.kind == "attention"]
    causal = all(branch.causal for branch in found if isinstance(branch, S.Attention))
    if not causal or not isinstance(spec.head, S.Vocabulary):
        raise SpecError(
            "AutoregressiveWrapper needs a TransformerWrapper around a Decoder: an Encoder would "
            "see the tokens that it should predict"
        )
