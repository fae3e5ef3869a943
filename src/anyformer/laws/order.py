"""Laws 1 to 3: nobody sees the future, and a row read in parts is the row read at once."""

from __future__ import annotations

import torch

from anyformer import spec as S
from anyformer.laws.broken import all_same, finite, holds, same
from anyformer.laws.cases import Case, case, each, is_causal, splits, twin
from anyformer.spec.walk import customs, leaves


def causal_with_positions(spec: S.Model) -> bool:
    """Whether laws 1 to 3 speak of this spec; a head that looks for a question needs whole rows."""
    asks = isinstance(spec.head, S.Span) and spec.head.token is not None
    return is_causal(spec) and not isinstance(spec.embed.source, S.Patches) and not asks


@torch.inference_mode()
def law_causal(spec: S.Model, seed: int) -> None:
    """1: what changes at position t leaves the outputs before t as they are."""
    c = case(spec, seed)
    t = c.rng.randrange(1, c.length)
    before = c.plain()
    shuffled = c.main.x.clone()
    shuffled[:, t:] = shuffled[:, t:].flip(1) if t < c.length - 1 else shuffled[:, :1]
    c.main.x = shuffled
    after = each(c(output_hidden_states=not spec.stack.reversible))
    before = before[: len(after)]  # the answers of each position come first
    all_same([a[:, :t] for a in after], [b[:, :t] for b in before], f"before position {t}")
    holds(not torch.equal(after[0][:, -1], before[0][:, -1]), "the last position saw no change")


@torch.inference_mode()
def law_prefix(spec: S.Model, seed: int) -> None:
    """1: a prefix is seen from both sides, nothing else of the future is."""
    if spec.encoder is not None or not paths_of_attentions(spec, cross=False):
        return  # the decoder of an encoder takes no prefix, nor does what never looks around
    if customs(spec.stack):
        return  # only attentions can be told to look both ways
    c = case(spec, seed)
    prefix = c.rng.randrange(1, c.length)
    lengths = torch.full((c.main.x.shape[0],), prefix)
    before = each(c(prefix_lengths=lengths))
    whole = each(c(prefix_lengths=torch.full_like(lengths, c.length)))
    all_same(whole, each(_seeing_all(c)()), "a prefix of everything and no causality")
    c.main.x = torch.cat([c.main.x[:, :prefix], c.main.x[:, prefix:].roll(1, 0)], 1)
    after = each(c(prefix_lengths=lengths))
    all_same([a[:, :prefix] for a in after], [b[:, :prefix] for b in before], "inside the prefix")


def _seeing_all(c: Case) -> Case:
    """The same weights without causality."""
    spec = c.spec
    for path in paths_of_attentions(spec, cross=False):
        spec = S.override(spec, f"{path}.causal", False)
    return Case(spec, twin(c.model, spec), c.main, c.other, c.rng)


def paths_of_attentions(spec: S.Model, cross: bool | None = None) -> list[str]:
    """The paths of a spec's attentions, of its encoder's too; `cross` picks a sort of the main."""
    found = []
    for prefix, model in (("", spec), ("encoder.", spec.encoder)):
        if model is None or (cross is not None and prefix):
            continue
        blocks = [("block", model.stack.block)]
        blocks += [(f"others.{i}", b) for i, b in enumerate(model.stack.others)]
        for name, block in blocks:
            for j, sub in enumerate(block):
                for path, leaf in leaves(sub, f"{prefix}stack.{name}.{j}.branch"):
                    if isinstance(leaf, S.Attention) and cross in (None, leaf.cross):
                        found.append(path)
    return found


@torch.inference_mode()
def law_cache(spec: S.Model, seed: int) -> None:
    """2: decoding with a cache, in random steps, equals one pass; with padding on the left too."""
    c = case(spec, seed)
    mask, steps = torch.ones(c.main.x.shape[:2], dtype=torch.long), splits(c.rng, c.length)
    if c.rng.random() < 0.5:  # memory tokens stand before the first real position of the first step
        most = steps[0].stop if spec.embed.memory else c.length
        mask[1, : c.rng.randrange(most)] = 0
    whole, real = each(c(**{c.main.mask: mask})), mask.bool()
    past, parts = None, []
    for at in steps:
        given = {} if past is None else {"past_key_values": past}
        out = c(at=at, use_cache=True, **given, **_mask(c, mask, at, past is None))
        past = out.past_key_values
        parts.append(each(out))
    holds(
        past is not None and past.length == c.length + spec.embed.memory,
        "the cache has another length than the row",
    )
    for found, wanted in zip(zip(*parts, strict=True), whole, strict=True):
        same(torch.cat(found, 1)[real], wanted[real], "cached decoding")


def _mask(c: Case, mask: torch.Tensor, at: slice, first: bool) -> dict[str, torch.Tensor]:
    """The mask of a step: its own columns, or at random all columns so far."""
    whole = not first and c.rng.random() < 0.5
    return {c.main.mask: mask[:, : at.stop] if whole else mask[:, at]}


@torch.inference_mode()
def law_segments(spec: S.Model, seed: int) -> None:
    """3: segments with a memory of everything equal one pass; a shorter memory stays short."""
    total = 64
    c = case(S.override(spec, "stack.recurrence", total), seed)
    mems, parts = None, []
    for at in splits(c.rng, c.length):
        out = c(at=at, mems=mems, return_mems=True)
        mems = out.mems
        parts.append(each(out))
    for found, wanted in zip(zip(*parts, strict=True), each(c()), strict=True):
        same(torch.cat(found, 1), wanted, "segments with memory")
    _bounded(c, spec)


def _bounded(c: Case, spec: S.Model) -> None:
    """With a memory of 3, each attention remembers the last 3 inputs and the memory tokens."""
    short = twin(c.model, S.override(spec, "stack.recurrence", 3))
    small = Case(spec, short, c.main, c.other, c.rng)
    tokens, first = spec.embed.memory, slice(0, c.length - 2)
    mems, full = small(at=first, return_mems=True).mems, c(at=first, return_mems=True).mems
    holds(mems.length == 3 + tokens, f"a memory of 3 keeps {mems.length - tokens}")
    for path, rows in mems.hidden.items():
        every = full.hidden[path]
        kept = torch.cat([every[:, :tokens], every[:, tokens:][:, -3:]], 1)
        same(rows, kept, f"memory of {path}")
    out = small(at=slice(c.length - 2, c.length), mems=mems, return_mems=True)
    finite([out.last_hidden_state], "outputs after a memory of 3")
    holds(out.mems.length == 3 + tokens, f"a memory of 3 keeps {out.mems.length - tokens}")
    kept = {rows.shape[1] for rows in out.mems.hidden.values()}
    holds(kept <= {3 + tokens}, f"memories of 3 have {sorted(kept)} rows")
