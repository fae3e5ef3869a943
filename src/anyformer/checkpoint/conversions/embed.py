"""Embeddings and vocabulary heads: tables of more or fewer rows, tied or not.

Letters: V vocabulary, E width of the tables, d width of the stream.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint.conversions.base import Part, rows
from anyformer.ops.rotary import sinusoid


def _as_mean(part: Part, name: str) -> None:
    """A table with the rows that the new spec wants; new rows are the mean of the old ones."""
    if part.has(name) and name in part.shapes:
        table, count = part.pieces[name].tensor, part.shapes[name][0]
        middle = table.float().mean(0, keepdim=True).to(table.dtype)
        rows(part, name, count, middle.expand(max(count, 1), *table.shape[1:]), "their mean")


def vocabulary(part: Part) -> None:
    """Token vectors: the old rows stay, new ones are their mean (Hewitt, 2021)."""
    _as_mean(part, "token.weight")


def types(part: Part) -> None:
    """Token types: the old rows stay, new ones are their mean; the first types of all are zeros."""
    name = "segment.weight"
    if part.old.types:
        _as_mean(part, name)
    elif part.new.types:
        why = "token types that start at zero: nothing changes"
        part.add(name, torch.zeros(part.shapes[name]), why)


def languages(part: Part) -> None:
    """Languages: the old rows stay, new ones are their mean."""
    _as_mean(part, "language.weight")


def memory(part: Part) -> None:
    """Memory tokens: the first stay, more are fresh."""
    if part.has("memory") and part.new.memory > part.old.memory:
        rows(part, "memory", part.new.memory, part.draw("memory"), "fresh")
    elif part.has("memory") and part.new.memory:
        rows(part, "memory", part.new.memory, part.pieces["memory"].tensor, "")


def positions(part: Part) -> None:
    """Learned positions of another length, or from the sines that they replace."""
    old, new, name = part.old.position, part.new.position, "position.weight"
    if isinstance(old, S.Sinusoidal) and isinstance(new, S.Learned):
        _sines(part, old, new)
    if not isinstance(old, S.Learned) or not isinstance(new, S.Learned) or not part.has(name):
        return
    if (old.length, old.offset) == (new.length, new.offset):
        return
    table = part.pieces[name].tensor
    if table.shape[1] != part.shapes[name][1]:
        return
    body, why = _longer(part, table[old.offset :], new.length)
    same = min(old.offset, new.offset)  # rows in front of position 0, counted from it
    lead = table[old.offset - same : old.offset]
    if new.offset > same:
        lead = torch.cat([part.draw(name).to(table)[: new.offset - same], lead])
    part.change(name, torch.cat([lead, body]), why)


def _longer(part: Part, table: Tensor, length: int) -> tuple[Tensor, str]:
    """The rows of positions 0 to length - 1.

    A grid of patches is interpolated (arXiv:2010.11929); a sequence is cut, or goes on with
    copies of itself (arXiv:2004.05150), so that what fitted before is unchanged.
    """
    sources = part.old.source, part.new.source
    if all(isinstance(s, S.Patches) for s in sources) and sources[0].cls == sources[1].cls:
        sides = [s.image // s.patch for s in sources]
        first = int(sources[0].cls)
        if len(table) == sides[0] ** 2 + first and length == sides[1] ** 2 + first:
            return _grid(
                table, first, sides
            ), f"a grid of {sides[1]}², interpolated from {sides[0]}²"
    if length <= len(table):
        return table[:length], f"the first {length} of {len(table)} positions"
    copies = table[torch.arange(length) % len(table)]
    return copies, f"{length - len(table)} positions more, copies of the first ones"


def _grid(table: Tensor, first: int, sides: list[int]) -> Tensor:
    """Rows (first + s², E) of a square grid at another side, by bicubic interpolation."""
    grid = table[first:].float().T.unflatten(1, (sides[0], sides[0]))[None]  # (1, E, s, s)
    size = (sides[1], sides[1])
    grid = F.interpolate(grid, size=size, mode="bicubic", align_corners=False)
    return torch.cat([table[:first], grid[0].flatten(1).T.to(table.dtype)])


def _sines(part: Part, old: S.Sinusoidal, new: S.Learned) -> None:
    name = "position.weight"
    table = torch.zeros(part.shapes[name])  # rows in front of position 0 stand for no place
    at = torch.arange(new.length) + old.offset
    waves = sinusoid(at, table.shape[1], old.theta, old.layout, old.closed)
    table[new.offset :] = waves * old.scale / new.scale
    part.add(name, table, "the sines that were there, now learned: nothing changes")


def untie(part: Part) -> None:
    """A head of its own starts as the token table that it used, through the projection if any."""
    old, new = part.old, part.new
    if not old.tied or new.tied or not part.has("table"):
        return
    table = part.pieces["table"].tensor
    if part.has("project.weight"):
        table = table @ part.pieces["project.weight"].tensor  # (V, d)
        why = "the token table, projected: nothing changes"
        part.add("weight", table, why, "table", "project.weight")
    elif old.dense == new.dense:
        part.add("weight", table, "a copy of the token table: nothing changes", "table")


def logits(part: Part) -> None:
    """Logits of another vocabulary: the old rows stay, new ones are their mean."""
    _as_mean(part, "weight")
    _as_mean(part, "bias")
    if part.new.tied and "bias" in part.shapes and not part.has("bias"):
        zeros = torch.zeros(part.shapes["bias"])
        part.add("bias", zeros, "a new bias of zeros: nothing changes")


def untied(part: Part) -> None:
    """The position table of TUPE: cut, or continued with copies of itself."""
    name = "untied.position.weight"
    if part.old.untied is None or part.new.untied is None or not part.has(name):
        return
    table, length = part.pieces[name].tensor, part.new.untied.length
    if length != len(table):
        part.change(name, table[torch.arange(length) % len(table)], f"{length} positions")
