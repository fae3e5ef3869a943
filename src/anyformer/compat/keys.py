"""Keys of x-transformers' state dicts and ours: one table for three releases, read both ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint.keymap import Row, Step, each, linear, reshape, row
from anyformer.compat.describe import ends_normed
from anyformer.errors import CheckpointError
from anyformer.spec.walk import head_dim, selves


@dataclass(frozen=True)
class Release:
    """What a release calls its weights, and how it keeps them."""

    token: str
    inner: str  # of the feed-forward
    down: int  # its last matrix
    talk: str  # mixes of heads
    slots: bool = True  # three places for a sublayer's norms
    scaled: bool = True  # learned positions count dim^-½
    bare: bool = False  # gains are kept as their distance from 1, most biases are not there


RELEASES = {
    "0.12.3": Release("token_emb", "net", 2, "{}_softmax_proj", slots=False, scaled=False),
    "0.25.9": Release("token_emb.emb", "net", 3, "{}_softmax_talking_heads.weight"),
    "2.31.10": Release(
        "token_emb.emb", "ff", 2, "attend.{}_softmax_talking_heads.weight", bare=True
    ),
}
PLUS_ONE = each(lambda t: t + 1, lambda t: t - 1)
PLUS_SAME = each(lambda t: t + torch.eye(len(t)).to(t), lambda t: t - torch.eye(len(t)).to(t))
CONVOLVED = each(lambda t: t[:, :, 0, 0].T, lambda t: t.T[:, :, None, None])  # over heads
HALVES = Step(lambda ts: list(ts[0].chunk(2)), lambda ts: [torch.cat(ts)])


def times(factor: float) -> Step:
    """A factor that their code applies and ours does not."""
    return each(lambda t: t * factor, lambda t: t / factor)


def beside(heads: int, groups: int, dim: int) -> Step:
    """Query heads h, h + G, … of a key head lie apart in theirs, side by side in ours."""
    order = torch.arange(heads).view(-1, groups).T.flatten()
    move = lambda t, to: t.unflatten(dim, (heads, -1)).index_select(dim, to).flatten(dim, dim + 1)
    return each(
        lambda t: move(t, order.to(t.device)), lambda t: move(t, order.argsort().to(t.device))
    )


def one_gain(heads: int) -> Step:
    """A gain per head and channel (H, 1, D), which has to be the same for all heads."""

    def alike(gain: Tensor) -> Tensor:
        if not torch.equal(gain, gain[:1].expand_as(gain)):
            raise CheckpointError("the gains of q_rmsnorm or k_rmsnorm differ between heads")
        return gain[0, 0] + 1

    return each(alike, lambda t: (t - 1).expand(heads, 1, -1))


def outside(model: S.Model, named: Release) -> Iterator[Row]:
    """What the wrapper holds: embedding, head and, in old releases, the norm at the end."""
    width, full, blocks = model.embed.dim or model.dim, not named.bare, S.layout(model.stack).blocks
    if isinstance(model.embed.source, S.Patches):
        yield row("pos_embedding", "embed.position.weight", reshape((-1, width), (1, -1, width)))
    else:
        steps = [times(width**-0.5)] * named.scaled
        yield row("pos_emb.emb.weight", "embed.position.weight", *steps)
    yield row(f"{named.token}.weight", "embed.token.weight")
    yield row("cls_token", "embed.cls", reshape((-1,), (1, 1, -1)))
    yield row("memory_tokens", "embed.memory")
    heads = {S.Project: [("project_out", "head.out", full)],
             S.Vocabulary: [("to_logits", "head", full)],
             S.Classes: [("mlp_head.net.0.0", "head.hidden", True),
                         (f"mlp_head.net.{named.down}", "head.out", True)]}  # fmt: skip
    pairs = [("project_emb", "embed.project", True), ("patch_to_embedding", "embed.patch", True)]
    pairs += [("project_in", "embed.value", full), *heads.get(type(model.head), ())]
    if named.bare:
        yield row("post_emb_norm.gamma", "embed.norm.weight")
    else:
        pairs.append(("post_emb_norm", "embed.norm", True))
        last = f"stack.blocks.{len(blocks) - 1}.{len(blocks[-1]) - 1}"
        pairs.append(("norm", f"{last}.norm" if ends_normed(model.stack) else "stack.norm", True))
    for theirs, ours, bias in pairs:
        yield from linear(theirs, ours, bias)


def inside(model: S.Model, named: Release) -> Iterator[Row]:
    """What the layers hold: sublayers in their order, shared positions, the norm at the end."""
    if named.bare:
        yield from _norm(model.stack.final_norm, "final_norm", "stack.norm", named)
    sizes = [head_dim(a, model.dim) for a in selves(model.stack)]
    table = "rel_pos.relative_attention_bias.weight"
    yield row(table, "stack.relative.0.table", *[times(size**0.5) for size in sizes[:1]])
    blocks = enumerate(S.layout(model.stack).blocks)
    every = [(f"stack.blocks.{b}.{j}", sub) for b, block in blocks for j, sub in enumerate(block)]
    for number, (ours, sub) in enumerate(every):
        theirs, last = f"layers.{number}", number == len(every) - 1
        if not (last and sub.place == "post" and not named.bare):  # else the wrapper has its norm
            slot = (".2" if sub.place == "post" else ".0") if named.slots else ""
            yield from _norm(sub.norm, f"{theirs}.0{slot}", f"{ours}.norm", named)
        yield from _norm(sub.norm, f"{theirs}.0.1", f"{ours}.after", named)
        yield from _sublayer(sub, theirs, ours, named)


def _norm(norm: S.Norm | None, theirs: str, ours: str, named: Release) -> Iterator[Row]:
    gain = ("gamma" if named.bare else "weight") if isinstance(norm, S.LayerNorm) else "g"
    yield row(f"{theirs}.{gain}", f"{ours}.weight", *[PLUS_ONE] * named.bare)
    if not named.bare:
        yield row(f"{theirs}.bias", f"{ours}.bias")


def _sublayer(sub: S.Sublayer, theirs: str, ours: str, named: Release) -> Iterator[Row]:
    added, gain = sub.residual, f"{ours}.residual.gain"
    skipped = isinstance(added, S.Scaled) and added.on == "skip"
    wrapped = isinstance(added, (S.ReZero, S.Scaled)) and not skipped
    if skipped or isinstance(added, S.ReZero):
        yield row(f"{theirs}.{'2.residual_scale' if skipped else '1.g'}", gain)
    else:
        yield row(f"{theirs}.1.gamma", gain, *[PLUS_ONE] * named.bare)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        yield row(f"{theirs}.2.gru.{name}", f"{ours}.residual.cell.{name}")
    deep = f"{theirs}.1." + "fn." * (wrapped + (added.branch != 1.0))
    if isinstance(sub.branch, S.Attention):
        yield from _attention(sub.branch, deep, f"{ours}.branch", named)
    elif isinstance(sub.branch, S.FeedForward):
        yield from _feedforward(sub.branch, f"{deep}{named.inner}", f"{ours}.branch", named)


def _attention(spec: S.Attention, theirs: str, ours: str, named: Release) -> Iterator[Row]:
    groups = spec.kv_heads or spec.heads
    order = lambda dim: [beside(spec.heads, groups, dim)] * (groups < spec.heads)
    out = f"{theirs}to_out{'.0' if spec.gate == 'glu' else ''}"
    yield row(f"{theirs}to_q.weight", f"{ours}.q.weight", *order(0))
    yield row(f"{out}.weight", f"{ours}.out.weight", *order(1))
    if not named.bare:
        yield row(f"{out}.bias", f"{ours}.out.bias")
    yield row(f"{theirs}collab_mixing", f"{ours}.collab")
    for name in ("k", "v"):
        yield row(f"{theirs}to_{name}.weight", f"{ours}.{name}.weight")
        yield row(f"{theirs}mem_{name}", f"{ours}.memory_{name}")
    for name, heads in (("q", spec.heads), ("k", groups)):
        yield row(f"{theirs}{name}_rmsnorm.gamma", f"{ours}.{name}_norm.weight", one_gain(heads))
    for side in ("pre", "post"):
        steps = [CONVOLVED] * named.slots + [PLUS_SAME] * (named.bare and side == "pre")
        yield row(theirs + named.talk.format(side), f"{ours}.talk_{side}", *steps)


def _feedforward(spec: S.FeedForward, theirs: str, ours: str, named: Release) -> Iterator[Row]:
    for name in ("weight", "bias"):
        yield row(f"{theirs}.{named.down}.{name}", f"{ours}.down.{name}")
        if spec.gated:  # the first half is the value, the second the gate
            both = (f"{ours}.up.{name}", f"{ours}.gate.{name}")
            yield row(f"{theirs}.0.proj.{name}", both, HALVES)
        else:
            yield row(f"{theirs}.0.0.{name}", f"{ours}.up.{name}")
