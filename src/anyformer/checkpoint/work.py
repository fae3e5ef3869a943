"""A change of spec as work: each part of the new model with the old tensors that it starts from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint.conversions import Part, Piece, convert, mean
from anyformer.checkpoint.pairs import Choose, Match, Site, match, sites
from anyformer.checkpoint.relax import Relax
from anyformer.model.model import Model, build
from anyformer.spec.schedule import LAST

Pieces = dict[str, Piece]
Sides = tuple[S.Model, S.Model]  # before and after


class Work:
    """The old weights, the new shapes, and fresh weights once they are asked for."""

    def __init__(self, old: Model, new: Model, choose: Choose = "average"):
        self.choose: Choose = choose
        self.old, self.new = old.spec, new.spec
        self.state = {key: t.detach() for key, t in old.state_dict().items()}
        self.shapes = {key: t.shape for key, t in new.state_dict().items()}
        self._left = set(self.shapes)  # keys that no part has claimed yet
        sizes: Counter[torch.dtype] = Counter()
        for tensor in self.state.values():
            sizes[tensor.dtype] += tensor.numel()
        device = next(iter(self.state.values())).device
        self.like = torch.empty(0, dtype=sizes.most_common(1)[0][0], device=device)

    @cached_property
    def _drawn(self) -> dict[str, Tensor]:
        """Fresh weights of the whole new model."""
        return build(self.new).state_dict()

    def finish(self, key: str, piece: Piece | None) -> Tensor:
        """A tensor of the new model; what is not of old weights gets their device and dtype."""
        if piece is None:
            return self._drawn[key].to(self.like)
        tensor = piece.tensor if piece.sources else piece.tensor.to(self.like)
        return tensor.clone(memory_format=torch.contiguous_format)

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Every part of the new model, inner ones first, with what stands before its keys."""
        inner = self._models((self.old, self.new), "")
        for sides, lead, shared in inner:
            yield from self._blocks(sides, lead)
            yield from self._stack(sides, lead)
            yield from self._head(sides, lead)
            yield self._embed(sides, lead, shared)
        for sides, lead, _ in reversed(inner):
            pieces = self._pieces([lead], ("embed", "stack", "head", "encoder"))
            yield lead, self._part(lead, sides, sides, pieces)

    def _models(self, sides: Sides, lead: str) -> list[tuple[Sides, str, bool]]:
        """A model and the encoders in it, and whether each read the table of the one around it."""
        found, shared = [(sides, lead, False)], sides[0].share_tokens
        while sides[0].encoder is not None and sides[1].encoder is not None:
            sides, lead = (sides[0].encoder, sides[1].encoder), f"{lead}encoder."
            found.append((sides, lead, shared))
            shared = sides[0].share_tokens
        return found

    def _part(
        self, prefix: str, specs: tuple[Any, Any], sides: Sides, pieces: Pieces, only: str = ""
    ) -> Part:
        """A part, which claims what the parts inside it have left."""
        inside = [k for k in self.shapes if k in self._left and k.startswith(prefix + only)]
        self._left -= set(inside)
        shapes = {key.removeprefix(prefix): self.shapes[key] for key in inside}
        return Part(*specs, sides, pieces, shapes, lambda name: self._drawn[prefix + name])

    def _pieces(self, paths: list[str], without: tuple[str, ...] = ()) -> Pieces:
        """The tensors of an old part by name, averaged over the parts that become one."""
        found, apart = {}, list(dict.fromkeys(paths))
        for key in [k for k in self.state if k.startswith(paths[0])] if paths else ():
            name = key.removeprefix(paths[0])
            if name.split(".")[0] in without:
                continue
            keys = [path + name for path in apart]
            alike = all(k in self.state and _alike(self.state, k, key) for k in keys)
            if len(keys) == 1 or not alike:
                found[name] = Piece(self.state[key], (key,))
            else:
                value = mean([self.state[path + name] for path in paths])
                found[name] = Piece(value, tuple(keys), (f"the mean of {len(keys)} parts",))
        return found

    def _blocks(self, sides: Sides, lead: str) -> Iterator[tuple[str, Part]]:
        """The parts of sublayers, each with the turns that become it."""
        found = match(sides[0].stack, sides[1].stack, self.choose)
        moved = () if sides[1].stack.relative else sides[0].stack.relative  # out of the stack
        for new, turns in _by(found, lambda m: m.new.relative):
            old = _sources(turns)
            leaves = _relative(old[0]), _relative(turns[0].new)
            mine = leaves[0] + (moved if turns[0].new.place[1] == "attention" else ())
            pieces = self._relatives([lead + site.relative for site in old], len(leaves[0]), 0)
            pieces |= self._relatives([f"{lead}stack"], len(moved), len(leaves[0]))
            yield self._terms(f"{lead}{new}.", (mine, leaves[1]), sides, pieces)
        for new, turns in _by(found, lambda m: m.new.path):
            yield from self._branch(f"{lead}{new}.", turns, sides, lead)
        for new, turns in _by(found, lambda m: m.new.residual):
            specs = turns[0].old.sub.residual, turns[0].new.sub.residual
            alike = type(specs[0]) is type(specs[1])
            paths = [f"{lead}{site.residual}." for site in _sources(turns)]
            pieces = self._pieces(paths) if alike else {}
            yield f"{lead}{new}.", self._part(f"{lead}{new}.", specs, sides, pieces)
        yield from self._norms(found, sides, lead)

    def _terms(
        self, prefix: str, terms: tuple[Any, Any], sides: Sides, pieces: Pieces
    ) -> tuple[str, Part]:
        """Relative parts, which stand in an attention, a sublayer or the stack."""
        part = self._part(prefix, terms, sides, pieces, "relative.")
        part.relatives = terms
        return prefix, part

    def _relatives(self, paths: list[str], count: int, at: int) -> Pieces:
        """The relative parts of some place, numbered on from `at`."""
        return {
            f"relative.{at + i}.{name}": piece
            for i in range(count)
            for name, piece in self._pieces([f"{path}.relative.{i}." for path in paths]).items()
        }

    def _branch(
        self, prefix: str, turns: list[Match], sides: Sides, lead: str
    ) -> Iterator[tuple[str, Part]]:
        """A branch, and the LoRA of each of its turns."""
        old, new = turns[0].old, turns[0].new
        pieces = self._pieces([f"{lead}{s.path}." for s in _sources(turns)], ("relative",))
        pieces |= self._last_maps(turns, pieces, lead)
        part = self._part(prefix, (old.leaf, new.leaf), sides, pieces)
        part.relatives = _relative(old), _relative(new)
        if isinstance(old.leaf, S.Attention) and isinstance(new.leaf, S.Attention):
            both = old.leaf.qk_norm, new.leaf.qk_norm
            part.norms = {"q_norm.": both, "k_norm.": both}
        relax, beside = Relax(turns, self.state, self.shapes, lead), list[tuple[str, Pieces]]()
        if relax.concerned:
            same = _unchanged(part)
            part.pieces |= relax.merged(part.pieces, same)
            beside = list(relax.updates(part.pieces, same))
        yield prefix, part
        beside += relax.last_maps()
        for at, held in beside:
            yield at, self._part(at, (None, None), sides, held)

    def _last_maps(self, turns: list[Match], pieces: Pieces, lead: str) -> Pieces:
        """Last maps of a branch that its old turns, or its new ones, have for themselves."""
        found: Pieces = {}
        for name in [n for n in pieces if n.partition(".")[0] in LAST]:
            mine = name.partition(".")[0] in turns[0].new.apart
            sites = [turns[0].old] if mine else _sources(turns)
            keys = list(dict.fromkeys(lead + site.key(name) for site in sites))
            plain = [f"{lead}{site.path}.{name}" for site in _sources(turns)]
            if keys == list(dict.fromkeys(plain)) or not all(k in self.state for k in keys):
                continue
            told = (f"the mean of {len(keys)} parts",) if len(keys) > 1 else ()
            found[name] = Piece(mean([self.state[k] for k in keys]), tuple(keys), told)
        return found

    def _norms(self, found: list[Match], sides: Sides, lead: str) -> Iterator[tuple[str, Part]]:
        """Norms of branches and sublayers, each from the nearest one that stood there."""
        sources: dict[str, list[str]] = {}
        norms: dict[str, tuple[S.Norm | None, S.Norm | None]] = {}
        uses = Counter(path for turn in found for path, _ in turn.new.norms)
        for turn in found:
            old, new = turn.old, turn.new
            if turn.one is not None and any(uses[path] > 1 for path, _ in new.norms):
                old = turn.one
            ways = [(one, old.norms) for one in new.own]
            ways += [(one, old.norm or old.own) for one in new.norm]
            if new.sub.place == "sandwich" == old.sub.place:
                ways += [((new.after, norm), [(old.after, n) for _, n in old.norm])
                         for _, norm in new.norm]  # fmt: skip
            for (path, norm), before in ways:
                for source, was in before[:1]:
                    sources.setdefault(f"{lead}{path}.", []).append(f"{lead}{source}.")
                    norms.setdefault(f"{lead}{path}.", (was, norm))
        for prefix, paths in sources.items():
            part = self._part(prefix, norms[prefix], sides, self._pieces(paths))
            part.norms[""] = norms[prefix]
            yield prefix, part

    def _stack(self, sides: Sides, lead: str) -> Iterator[tuple[str, Part]]:
        old, new, prefix = sides[0].stack, sides[1].stack, f"{lead}stack."
        inner = [] if any(map(_relative, sites(new))) else [*filter(_relative, sites(old))]
        moved = _relative(inner[0]) if inner else ()  # from the attentions into the stack
        pieces = self._relatives([f"{lead}stack"], len(old.relative), 0)
        places = [lead + site.relative for site in inner]
        pieces |= self._relatives(places, len(moved), len(old.relative))
        yield self._terms(prefix, (old.relative + moved, new.relative), sides, pieces)
        pieces = self._pieces([prefix], ("blocks", "relative"))
        part = self._part(prefix, (old, new), sides, pieces)
        part.norms["norm."] = old.final_norm, new.final_norm
        yield prefix, part

    def _head(self, sides: Sides, lead: str) -> Iterator[tuple[str, Part]]:
        """A head of the same kind; one of another kind starts fresh."""
        old, new, prefix = sides[0].head, sides[1].head, f"{lead}head."
        old_two = isinstance(old, S.Pretraining | S.Double)
        if old_two and isinstance(new, S.Pretraining | S.Double):
            yield self._logits((old.tokens, new.tokens), sides, lead, f"{prefix}tokens.")
        if isinstance(old, S.Vocabulary) and isinstance(new, S.Vocabulary):
            yield self._logits((old, new), sides, lead, prefix)
        elif type(old) is type(new):
            yield prefix, self._part(prefix, (old, new), sides, self._pieces([prefix]))

    def _logits(
        self, heads: tuple[S.Vocabulary, S.Vocabulary], sides: Sides, lead: str, prefix: str
    ) -> tuple[str, Part]:
        table, pieces = f"{lead}embed.token.weight", self._pieces([prefix])
        if table in self.state:
            pieces["table"] = Piece(self.state[table], (table,))
        part = self._part(prefix, heads, sides, pieces)
        part.norms["norm."] = heads[0].norm, heads[1].norm
        return prefix, part

    def _embed(self, sides: Sides, lead: str, shared: bool) -> tuple[str, Part]:
        old, new, prefix = sides[0].embed, sides[1].embed, f"{lead}embed."
        pieces = self._pieces([prefix])
        if shared:  # the encoder read the table of the decoder
            table = f"{lead.removesuffix('encoder.')}embed.token.weight"
            pieces["token.weight"] = Piece(self.state[table], (table,))
        part = self._part(prefix, (old, new), sides, pieces)
        part.norms["norm."] = old.norm, new.norm
        return prefix, part


def _sources(turns: list[Match]) -> list[Site]:
    """The old turns that what these share starts from."""
    one = turns[0].one
    return [turn.old for turn in turns] if one is None or len(turns) == 1 else [one]


def _relative(site: Site) -> tuple[S.Relative, ...]:
    return site.leaf.relative if isinstance(site.leaf, S.Attention) else ()


def _by(found: list[Match], key: Callable[[Match], str]) -> list[tuple[str, list[Match]]]:
    """Turns that have one part of the new stack, in their order."""
    groups: dict[str, list[Match]] = {}
    for turn in found:
        groups.setdefault(key(turn), []).append(turn)
    return list(groups.items())


def _unchanged(part: Part) -> set[str]:
    """The names of tensors that a part's conversion leaves as they are."""
    tried = replace(part, pieces=dict(part.pieces))
    made = convert(tried)
    return {name for name in made if name in part.pieces and made[name] is part.pieces[name]}


def _alike(state: dict[str, Tensor], one: str, other: str) -> bool:
    return state[one].shape == state[other].shape
