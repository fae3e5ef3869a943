"""Which old parts each part of a changed spec comes from.

Branches of a kind are matched in the order in which they run, so that depth, sharing, recursion,
sandwich order and branches side by side are one rule: the r-th of n comes from the r-th of m,
and where the numbers differ they are spread evenly with both ends kept, as DistilBERT chose its
layers (arXiv:1910.01108). A block that runs several times has the sources of all its turns. Where
as many blocks only run more or less often, each comes from itself, turn by turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from anyformer import spec as S
from anyformer.spec.parallel import kind_of
from anyformer.spec.schedule import LAST

KINDS = ("attention", "cross", "feedforward")
Choose = Literal["average", "stepwise", "lower"]  # what layers that become one start from


Norms = list[tuple[str, S.Norm]]  # where each stands


@dataclass(frozen=True)
class Site:
    """A branch at one of its turns: its spec, its sublayer's, and where their weights stand.

    A block that is lent parts by another has the paths of the lender there.
    """

    leaf: S.Leaf
    sub: S.Sublayer
    place: tuple[int, str, int]  # kind of block, kind of branch, its number in the block
    path: str
    relative: str  # what its relative parts stand in
    after: str
    residual: str
    own: Norms  # its own norm, beside other branches
    norm: Norms  # the sublayer's, if there is one
    block: int = 0  # the number of its block, in the order in which they first run
    maps: str = ""  # where the turn's own last map stands, if it isn't in the branch
    apart: tuple[str, ...] = ()  # last maps that every turn has for itself
    lora: str = ""  # where the turn's own LoRA stands, if the stack has one
    scale: float = 1.0  # of that LoRA

    def key(self, name: str) -> str:
        """Where a tensor of its branch stands."""
        apart = self.maps and name.partition(".")[0] in self.apart
        return f"{self.maps if apart else self.path}.{name}"

    @property
    def norms(self) -> Norms:
        """The norms that it reads through, the nearest first."""
        return self.own + self.norm


@dataclass(frozen=True)
class Match:
    """A branch of the new stack at one of its turns, and the old turn that it comes from.

    What turns share comes from all of their old ones, or from `one` where that is chosen.
    """

    new: Site
    old: Site
    one: Site | None = None


def sites(stack: S.Stack) -> Iterator[Site]:
    """Every branch of a stack at every turn, in the order in which they run."""
    plan, kinds = S.layout(stack), (stack.block, *stack.others)
    blocks = list(dict.fromkeys(plan.lenders[b] for b in plan.schedule))
    for b in plan.schedule:
        counts: Counter[str] = Counter()
        block, lender = plan.blocks[b], plan.lenders[b]
        which = kinds.index(block) if block in kinds else 0
        for j, sub in enumerate(block):
            parts = (sub.kind, "norm", "gain", "relative")
            homes = {p: f"stack.blocks.{b if p in stack.own else lender}.{j}" for p in parts}
            apart = "relative" in stack.own and sub.kind not in stack.own
            for i, leaf in enumerate(sub.leaves):
                kind = kind_of(leaf)
                site = _site(leaf, sub, i, (which, kind, counts[kind]), homes, apart)
                maps = (
                    f"stack.blocks.{b}.{j}.maps"
                    if b != lender and sub.kind not in stack.own
                    else ""
                )
                apart_maps = tuple(name for name in LAST if name in stack.own)
                site = replace(site, block=blocks.index(lender), maps=maps, apart=apart_maps)
                if stack.lora is not None:
                    at = f"stack.blocks.{b}.{j}.lora.{i}"
                    site = replace(site, lora=at, scale=stack.lora.scale)
                yield site
                counts[kind] += 1


def _site(
    leaf: S.Leaf,
    sub: S.Sublayer,
    index: int,
    place: tuple[int, str, int],
    homes: dict[str, str],
    apart: bool,
) -> Site:
    branch, norm = f"{homes[sub.kind]}.branch", homes["norm"]
    own = sub.branch.norms if isinstance(sub.branch, S.Parallel) else ()
    path = f"{branch}.branches.{index}" if isinstance(sub.branch, S.Parallel) else branch
    return Site(
        leaf=leaf,
        sub=sub,
        place=place,
        path=path,
        relative=homes["relative"] if apart and path == branch else path,
        after=f"{norm}.after",
        residual=f"{homes['gain']}.residual",
        own=[(f"{branch}.norms.{index}", own[index])] if own else [],
        norm=[(f"{norm}.norm", sub.norm)] if sub.norm is not None else [],
    )


def spread(rank: int, count: int, old: int) -> int:
    """Which of `old` things the rank-th of `count` comes from: evenly, both ends kept."""
    if count == old or count == 1:
        return rank
    return int(rank * (old - 1) / (count - 1) + 0.5)


def match(old: S.Stack, new: S.Stack, choose: Choose = "average") -> list[Match]:
    """Every branch of the new stack at every turn, with the old turn that it comes from."""
    before, after = list(sites(old)), list(sites(new))
    if _only_rounds(old, new):
        return _by_block(before, after)
    whole = {kind for kind in KINDS if _places(before, kind) == _places(after, kind)}
    key = lambda site: site.place if site.place[1] in whole else site.place[1]
    groups: dict[object, list[Site]] = {}
    for site in before:
        groups.setdefault(key(site), []).append(site)
    counts = Counter(key(site) for site in after)
    ranks: Counter[object] = Counter()
    found: list[Match] = []
    for site in after:
        group, rank = groups.get(key(site), []), ranks[key(site)]
        if group:
            found.append(Match(site, group[spread(rank, counts[key(site)], len(group))]))
        ranks[key(site)] += 1
    return found if choose == "average" else _chosen(found, choose)


def _only_rounds(old: S.Stack, new: S.Stack) -> bool:
    """Whether stacks have the same blocks, some of which run again, but not equally often."""
    plans = S.layout(old), S.layout(new)
    unique = [len({plan.lenders[b] for b in plan.schedule}) for plan in plans]
    again = any(len(plan.schedule) > unique[0] for plan in plans)
    alike = old.block == new.block and old.others == new.others and old.kinds == new.kinds
    return alike and unique[0] == unique[1] and again and old.depth != new.depth


def _by_block(before: list[Site], after: list[Site]) -> list[Match]:
    """Each turn of a block from the same turn of it, or from its last."""
    key = lambda site: (site.block, site.place)
    groups: dict[object, list[Site]] = {}
    for site in before:
        groups.setdefault(key(site), []).append(site)
    turns: Counter[object] = Counter()
    found: list[Match] = []
    for site in after:
        group = groups[key(site)]
        found.append(Match(site, group[min(turns[key(site)], len(group) - 1)]))
        turns[key(site)] += 1
    return found


def _chosen(found: list[Match], choose: Choose) -> list[Match]:
    """Blocks that run several times each from one old turn of those that all of them replace.

    lower: the first ones; stepwise: evenly spread ones with both ends kept (arXiv:2410.20672).
    """
    uses = Counter(m.new.path for m in found)
    several = [m for m in found if uses[m.new.path] > 1]
    picked: dict[str, Site] = {}
    for place in dict.fromkeys(m.new.place for m in several):
        here = [m for m in several if m.new.place == place]
        paths = list(dict.fromkeys(m.new.path for m in here))
        for u, path in enumerate(paths):
            at = u if choose == "lower" else spread(u, len(paths), len(here))
            picked[path] = here[at].old
    return [replace(m, one=picked.get(m.new.path)) for m in found]


def _places(stack: list[Site], kind: str) -> set[tuple[int, str, int]]:
    """Where branches of a kind stand; stacks that agree on it are matched place by place."""
    return {site.place for site in stack if site.place[1] == kind}
