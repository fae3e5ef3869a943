"""From layers to one shared layer with a LoRA for each, and back (arXiv:2410.20672).

A turn of an old stack computes with its weight and its own update. A new shared weight is the
mean of those that become it, and each new turn's update the best one of its rank for what that
leaves, by singular values. Where nothing is joined or parted, both stay as they are.
Letters: R rank, d inputs, e outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Size, Tensor

from anyformer.checkpoint.conversions import Piece, mean
from anyformer.checkpoint.pairs import Match, Site

LARGE, SPARE, ROUNDS = 1024, 8, 4  # of larger matrices only the singular values asked for are found
UPDATES = {"weight": ("a", "b"), "bias": ("bias",)}  # what an update has for a linear map's tensors
Pieces = dict[str, Piece]


@dataclass(frozen=True)
class Turn:
    """A tensor of a linear map at an old turn: the shared one, the turn's update, their keys."""

    shared: Tensor
    update: Tensor | None
    keys: tuple[str, ...]

    @property
    def whole(self) -> Tensor:
        """What the turn computes with."""
        wide = _wide(self.shared)
        return wide if self.update is None else wide + self.update


@dataclass(frozen=True)
class Relax:
    """A branch of a new stack and the turns that become it."""

    turns: list[Match]
    state: dict[str, Tensor]  # old tensors
    shapes: dict[str, Size]  # new ones
    lead: str  # before all keys of the model

    @property
    def concerned(self) -> bool:
        """Whether there is a LoRA before or after."""
        return any(turn.old.lora or turn.new.lora for turn in self.turns)

    def merged(self, pieces: Pieces, same: set[str]) -> Pieces:
        """Tensors that take updates in; `same`: those that no other conversion changes."""
        found: Pieces = {}
        for name in pieces:
            turns = self._shared(name)
            if all(turn.update is None for turn in turns) or self._stays(name, same):
                continue
            keys = tuple(dict.fromkeys(key for turn in turns for key in turn.keys))
            told = f"the mean of {len(turns)} turns" if len(turns) > 1 else "one turn's"
            value = mean([turn.whole for turn in turns]).to(turns[0].shared.dtype)
            found[name] = Piece(value, keys, (f"{told}, with what LoRA added",))
        return found

    def updates(self, pieces: Pieces, same: set[str]) -> Iterator[tuple[str, Pieces]]:
        """For each new turn what stands before the keys of its LoRA, and its tensors."""
        found: list[Pieces] = [{} for _ in self.turns]
        for name in pieces:
            if name not in same or not self._wanted(name):
                continue
            made = self._moved(name) if self._stays(name, same) else self._left(name, pieces[name])
            for held, one in zip(found, made or [{}] * len(found), strict=True):
                held |= one
        for turn, held in zip(self.turns, found, strict=True):
            if held:
                yield f"{self.lead}{turn.new.lora}.", held

    def _shared(self, name: str) -> list[Turn]:
        """The tensor at the turns that what is shared starts from."""
        one = self.turns[0].one
        if name.partition(".")[0] in self.turns[0].new.apart:
            return self._turns(name)[:1]
        if one is None or len(self.turns) == 1:
            return self._turns(name)
        return [self._turn(one, name, f"{self.lead}{one.key(name)}")]

    def last_maps(self) -> Iterator[tuple[str, Pieces]]:
        """For each new turn with a last map of its own what stands before its keys, and tensors."""
        for turn in self.turns:
            home = f"{self.lead}{turn.new.maps}."
            names = [key.removeprefix(home) for key in self.shapes if key.startswith(home)]
            found: Pieces = {}
            for name in names if turn.new.maps else ():
                key = f"{self.lead}{turn.old.key(name)}"
                if key in self.state:
                    old = self._turn(turn.old, name, key)
                    found[name] = Piece(old.whole.to(old.shared.dtype), old.keys)
            if found:
                yield home, found

    def _turns(self, name: str) -> list[Turn]:
        """The tensor at all turns; at the first alone where they are unlike."""
        keys = [f"{self.lead}{turn.old.key(name)}" for turn in self.turns]
        first = self.state[keys[0]].shape
        alike = all(key in self.state and self.state[key].shape == first for key in keys)
        return [
            self._turn(turn.old, name, key)
            for turn, key in zip(self.turns[: None if alike else 1], keys, strict=False)
        ]

    def _turn(self, site: Site, name: str, key: str) -> Turn:
        beside = self._keys(site, name)
        if not beside or not all(k in self.state for k in beside):
            return Turn(self.state[key], None, (key,))
        parts = [_wide(self.state[k]) for k in beside]
        update = parts[0] if len(parts) == 1 else site.scale * (parts[1] @ parts[0])
        return Turn(self.state[key], update, (key, *beside))

    def _keys(self, site: Site, name: str) -> tuple[str, ...]:
        """The keys of the update of a tensor, if a linear map has it."""
        layer, _, kind = name.rpartition(".")
        return tuple(f"{self.lead}{site.lora}.{layer}.{part}" for part in UPDATES.get(kind, ()))

    def _wanted(self, name: str) -> bool:
        """Whether new turns have an update for a tensor; all of them do, or none."""
        keys = self._keys(self.turns[0].new, name)
        return bool(keys) and all(key in self.shapes for key in keys)

    def _stays(self, name: str, same: set[str]) -> bool:
        """Whether all turns shared a tensor and still do, with updates beside it."""
        alone = len({turn.old.path for turn in self.turns}) == 1
        return alone and name in same and self._wanted(name)

    def _moved(self, name: str) -> list[Pieces] | None:
        """Updates as they are, or of another rank; None: there were none."""
        turns, layer = self._turns(name), name.rpartition(".")[0]
        updates = [turn.update for turn in turns if turn.update is not None]
        if len(updates) < len(self.turns):
            return None
        keys = [self._keys(turn.old, name) for turn in self.turns]
        wanted = [self.shapes[key] for key in self._keys(self.turns[0].new, name)]
        if wanted != [self.state[key].shape for key in keys[0]]:
            return self._found(name, updates, keys)
        ratio = self.turns[0].old.scale / self.turns[0].new.scale
        parts = UPDATES[name.rpartition(".")[2]]
        return [
            {f"{layer}.{p}": self._scaled(key, ratio if p == "b" else 1.0) for p, key in named}
            for named in (list(zip(parts, old, strict=True)) for old in keys)
        ]

    def _scaled(self, key: str, ratio: float) -> Piece:
        """An old tensor, for another alpha where there is one."""
        tensor = self.state[key]
        if ratio == 1.0:
            return Piece(tensor, (key,))
        value = (_wide(tensor) * ratio).to(tensor.dtype)
        return Piece(value, (key,), (f"times {ratio:g}, for another alpha: nothing changes",))

    def _left(self, name: str, shared: Piece) -> list[Pieces] | None:
        """Updates for what each turn's tensor has beyond the shared one; None: it has nothing."""
        turns = self._turns(name)
        left = [turn.whole - _wide(shared.tensor) for turn in turns]
        if len(turns) < len(self.turns) or not any(bool(rest.any()) for rest in left):
            return None
        return self._found(name, left, [turn.keys for turn in turns])

    def _found(self, name: str, left: list[Tensor], keys: list[tuple[str, ...]]) -> list[Pieces]:
        """The updates nearest to some tensors, with the share of their squares that is kept."""
        layer, _, kind = name.rpartition(".")
        dtype = self.state[keys[0][0]].dtype
        if kind == "bias":
            why = ("what its bias has beyond the shared one",)
            pairs = zip(left, keys, strict=True)
            return [{f"{layer}.bias": Piece(rest.to(dtype), of, why)} for rest, of in pairs]
        rank = self.shapes[self._keys(self.turns[0].new, name)[0]][0]
        made = [truncated(rest, rank) for rest in left]
        total = sum(float(rest.square().sum()) for rest in left)
        kept = sum(float(b.square().sum()) for _, b in made) / total if total else 1.0
        why = (
            f"rank {rank} keeps {min(kept, 1.0):.2%} of the squared differences between "
            f"{len(left)} weights and the shared one",
        )
        return [
            {
                f"{layer}.a": Piece(a.to(dtype), of, why),
                f"{layer}.b": Piece((b / turn.new.scale).to(dtype), of, why),
            }
            for (a, b), of, turn in zip(made, keys, self.turns, strict=True)
        ]


def truncated(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """a (R, d) with orthonormal rows and b (e, R): b @ a is nearest to a matrix (e, d)."""
    small = min(matrix.shape)
    if small <= LARGE or 4 * (rank + SPARE) > small:
        exact = matrix.double() if small <= LARGE else matrix
        u, values, v = torch.linalg.svd(exact, full_matrices=False)
    else:
        devices = [matrix.device] if matrix.device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # the same answer each time, and no draw is spent
            torch.manual_seed(0)
            u, values, v = torch.svd_lowrank(matrix, q=rank + SPARE, niter=ROUNDS)
            v = v.mT
    return v[:rank], u[:, :rank] * values[:rank]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
