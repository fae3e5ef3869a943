"""Which old parts each part of a changed spec comes from.

Branches of a kind are matched in the order in which they run, so that depth, sharing, recursion,
sandwich order and branches side by side are one rule: the r-th of n comes from the r-th of m,
and where the numbers differ they are spread evenly with both ends kept, as DistilBERT chose its
layers (arXiv:1910.01108). A block that runs several times has the sources of all its turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from anyformer import spec as S
from anyformer.spec.parallel import kind_of

KINDS = ("attention", "cross", "feedforward")


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
    lora: str = ""  # where the turn's own LoRA stands, if the stack has one
    scale: float = 1.0  # of that LoRA

    @property
    def norms(self) -> Norms:
        """The norms that it reads through, the nearest first."""
        return self.own + self.norm


@dataclass(frozen=True)
class Match:
    """A branch of the new stack at one of its turns, and the old turn that it comes from."""

    new: Site
    old: Site


def sites(stack: S.Stack) -> Iterator[Site]:
    """Every branch of a stack at every turn, in the order in which they run."""
    plan, kinds = S.layout(stack), (stack.block, *stack.others)
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


def match(old: S.Stack, new: S.Stack) -> list[Match]:
    """Every branch of the new stack at every turn, with the old turn that it comes from."""
    before, after = list(sites(old)), list(sites(new))
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
    return found


def _places(stack: list[Site], kind: str) -> set[tuple[int, str, int]]:
    """Where branches of a kind stand; stacks that agree on it are matched place by place."""
    return {site.place for site in stack if site.place[1] == kind}
