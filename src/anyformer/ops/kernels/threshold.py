"""The bounds of rows: below them scores weigh nothing, in top-k and in entmax-1.5.

A program keeps, for each place in a tile, the largest scores that came there: N strips of the keys,
three scores of each for top-k and two for entmax. They are scores of the row, so the k-th of them
is at most the k-th of all, and their τ at most that of all; in practice little lies between.

For top-k a second pass keeps the next two of each strip, and counts: mostly all scores above a
level just below the k-th of the first are known then, and few are too many. Where some aren't, a
pass writes down what is above the level, in a list of C scores for each row; where that
is more than C, the bracket is narrowed in further passes first. For entmax passes sum what is above
τ until it rests: mostly two.

Scores of top-k are in units of log 2, those of entmax are x = s / 2 in units of 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.passes import COUNTED, DEEPER, LISTED, STRIPS, SUMMED, sweep
from anyformer.ops.kernels.tile import HALF, TOP, anew, place, rows

MANY = tl.constexpr(64)  # passes after which a row, of NaN surely, is left alone


@triton.jit
def some(asked, turn):
    """Whether a loop goes on: 1 where something is asked for and turns are left."""
    return tl.max((asked & (turn < MANY)).to(tl.int32), 0)


@triton.jit
def above_all(kept, level):
    """How many of the scores that strips kept are above a level (M,)."""
    one, two, three = kept
    third = (three > level[:, None]).to(tl.float32)
    pair = (one > level[:, None]).to(tl.float32) + (two > level[:, None]).to(tl.float32)
    return tl.sum(pair + third, 1)


@triton.jit
def rough(kept, asked):
    """A level (M,) that `asked` of the scores kept pass, and few more; and how many do.

    Where fewer were kept, it is -inf.
    """
    one, two, three = kept
    lowest = tl.where(three > float("-inf"), three, tl.where(two > float("-inf"), two, one))
    lowest = tl.min(tl.where(lowest > float("-inf"), lowest, float("inf")), 1)
    there = lowest < float("inf")
    low = beneath(tl.where(there, lowest, 0.0))
    high = tl.where(there, tl.max(one, 1), 0.0)
    filled = above_all(kept, low)
    count = filled
    for _ in range(11):
        half = low + (high - low) * 0.5
        here = above_all(kept, half)
        many = here >= asked
        low, high = tl.where(many, half, low), tl.where(many, high, half)
        count = tl.where(many, here, count)
    enough = filled >= asked
    return tl.where(enough, low, float("-inf")), tl.where(enough, count, filled)


@triton.jit
def next_of(kept, level):
    """The least of the scores kept that are above a level (M,); inf: none."""
    one, two, three = kept
    last = level[:, None]
    a, b = tl.where(one > last, one, float("inf")), tl.where(two > last, two, float("inf"))
    c = tl.where(three > last, three, float("inf"))
    return tl.min(tl.minimum(tl.minimum(a, b), c), 1)


@triton.jit
def ladder(kept, low, count):
    """The next six scores above a level, and whether there are no others up to the last.

    count: how many of the scores kept pass the level.
    """
    a = next_of(kept, low)
    b = next_of(kept, a)
    c = next_of(kept, b)
    d = next_of(kept, c)
    e = next_of(kept, d)
    f = next_of(kept, e)
    found, there = (a, b, c, d, e, f), above_all(kept, f)
    for i in tl.static_range(6):
        there += (found[i] < float("inf")).to(tl.float32)
    return found, there == count


@triton.jit
def beneath(x):
    """A number a little lower."""
    return x - tl.maximum(tl.abs(x) * 1e-6, 1e-30)


@triton.jit
def ranked(x, low, high, rank, asked):
    """The score (M,) of a rank, from 1, among x (M, C) in (low, high], for the rows asked.

    Halves of the bracket until few are left there, of which the largest go one by one.
    """
    low, high = tl.where(asked, low, 0.0), tl.where(asked, high, 0.0)
    above = tl.zeros_like(rank)
    found, going, turn = high, 1, 0
    while going > 0:
        for _ in range(8 if turn == 0 else 2):
            half = low + (high - low) * 0.5
            count = tl.sum((x > half[:, None]).to(tl.int32), 1)
            many = count >= rank
            low, high = tl.where(many, half, low), tl.where(many, high, half)
            above = tl.where(many, above, count)
        found = tl.max(tl.where(x <= high[:, None], x, float("-inf")), 1)
        above += tl.sum((x == found[:, None]).to(tl.int32), 1)
        lower = asked & (above < rank)
        high = tl.where(lower, tl.max(tl.where(x < found[:, None], x, float("-inf")), 1), found)
        turn += 1
        going = some(lower, turn)
    return found


@triton.jit
def narrower(bracket, wide, scene, F: tl.constexpr, C: tl.constexpr):
    """A quarter of a bracket (low, high] that holds the score of rank `most`, for the wide rows.

    Its third number counts the scores above it. Where no number lies between low and high, all in
    the bracket is high itself, and so is that score: low is then the largest below.
    """
    low, high, above, shut = bracket
    site = scene[4]
    step = tl.where(wide, high - tl.where(wide, low, 0.0), 0.0) * 0.25
    a, b, c = low + step, low + step * 2, low + step * 3
    none, nothing = tl.full((F.M,), 0, tl.int32), tl.full((F.M,), float("-inf"), tl.float32)
    more = sweep((none, none, none, nothing), (a, b, c, high), scene, F, C, COUNTED)
    in_a, in_b, in_c = more[0] >= site.most, more[1] >= site.most, more[2] >= site.most
    close = (b <= low) | (b >= high)
    found = tl.where(in_c, c, tl.where(in_b, b, tl.where(in_a, a, low)))
    until = tl.where(in_c, high, tl.where(in_b, c, tl.where(in_a, b, a)))
    over = tl.where(in_c, above, tl.where(in_b, more[2], tl.where(in_a, more[1], more[0])))
    found, until = tl.where(close, more[3], found), tl.where(close, high, until)
    over = tl.where(close, above, over)
    low, high = tl.where(wide, found, low), tl.where(wide, until, high)
    return low, high, tl.where(wide, over, above), shut | (wide & close)


@triton.jit
def listed(low, high, asked, lists, scene, F: tl.constexpr, C: tl.constexpr):
    """The bounds of the rows asked, from lists of their scores in (low, high]."""
    most = scene[4].most
    mine = tl.program_id(0) * F.M + tl.arange(0, F.M) + anew()  # else held where nothing is listed
    room, counts = lists[0] + mine[:, None] * C, lists[1] + mine * 8
    none = tl.full((F.M,), 0, tl.int32)
    over, count, wide, shut = none, none, none > 0, none > 0
    low = tl.where(asked, low, high)
    going, turn = 1, 0
    while going > 0:
        if turn > 0:
            low, high, over, shut = narrower((low, high, over, shut), wide, scene, F, C)
        tl.store(counts, none)
        tl.debug_barrier()
        sweep((none, none, none, none), (low, high, room, counts), scene, F, C, LISTED)
        tl.debug_barrier()
        count = tl.load(counts, volatile=True)
        wide, turn = (count > C) & ~shut, turn + 1
        going = some(wide, turn)
    slot = tl.arange(0, C)
    x = tl.load(room + slot[None, :], mask=slot[None, :] < count[:, None], other=float("-inf"))
    inside = asked & (over + count >= most) & ~shut
    score = tl.where(shut, high, ranked(x, low, high, most - over, inside))
    under = tl.max(tl.where(x < score[:, None], x, float("-inf")), 1)
    under = tl.where(shut, low, tl.maximum(under, low))
    return tl.where(inside | shut, midway(under, score), float("-inf"))


@triton.jit
def midway(under, score):
    """Between two scores, or the higher where no number is; below all where there is no lower."""
    alone = under == float("-inf")
    middle = under + (tl.where(alone, 0.0, score) - tl.where(alone, 0.0, under)) * 0.5
    return tl.where(alone | (middle > under), middle, score)


@triton.jit
def climbed(one, two, steps, low, many):
    """From a level (M,) so many scores up, of two tiles and a ladder: the last, and what is below.

    Third: how many are missing where the ladder ends.
    """
    score, under, going, turn = low, low, 1, 0
    while going > 0:
        last, inf = score[:, None], float("inf")
        x, y = tl.where(one > last, one, inf), tl.where(two > last, two, inf)
        new = tl.min(tl.minimum(x, y), 1)
        for i in tl.static_range(6):
            new = tl.minimum(new, tl.where(steps[i] > score, steps[i], inf))
        here = new[:, None]
        same = tl.sum((x == here).to(tl.float32) + (y == here).to(tl.float32), 1)
        for i in tl.static_range(6):
            same += (steps[i] == new).to(tl.float32)
        higher = (many > 0) & (new <= steps[5]) & (new < inf)
        under, score = tl.where(higher, score, under), tl.where(higher, new, score)
        many, turn = tl.where(higher, many - same, many), turn + 1
        going = some((many > 0) & higher, turn)
    return score, under, many


@triton.jit
def of_top(kept, least, lists, scene, F: tl.constexpr, C: tl.constexpr):
    """The bound of the `most` largest scores of each row, midway to what is below it."""
    most, high = scene[4].most, tl.max(kept[0], 1)
    low, known = rough(kept, most + 1)
    steps, single = ladder(kept, low, known)
    nothing = tl.full((F.M, F.N), float("-inf"), tl.float32)
    none = tl.full((F.M, 2, 8), 0.0, tl.float32)
    state = (nothing, nothing, none, least)
    four, five, count, _ = sweep(state, (kept[2], low), scene, F, C, DEEPER)
    total = tl.sum(tl.sum(count, 2), 1)
    few = total <= most
    sure = single & (total == known + above_all((four, five, nothing), low))
    many = tl.where(sure & ~few, total - most + 1, 0.0)
    score, under, left = climbed(four, five, steps, low, many)
    bound = tl.where(few, float("-inf"), midway(under, score))
    lost = ~few & (~sure | (left > 0))
    if tl.max(lost.to(tl.int32), 0) > 0:
        blind = least == float("inf")
        least = tl.where(blind, float("-inf"), beneath(tl.where(blind, 0.0, least)))
        low = tl.where(low == float("-inf"), least, low)
        bound = tl.where(lost, listed(low, high, lost, lists, scene, F, C), bound)
    return bound


@triton.jit
def rising(tau, low, sums, turn):
    """A better τ, what it is at least, and whether it may be off by more than 1e-6 of the weights.

    sums: how many x are above τ, by how much, and the squares. If all of them stay above, τ is the
    root of a quadratic, else a little lower: at first that. The root of a line is never too high.
    """
    count, total, squares = sums
    safe, far = tl.where(total > 0, total, 1.0), tl.where(total > 0, squares - 1, 0.0)
    low = tl.maximum(low, tau + far / (2 * safe))
    within = safe * safe - count * far
    root = tau + far / (safe + tl.sqrt(tl.maximum(within, 0.0)))
    new = tl.where((within > 0) & (turn < 4), root, low)
    step = new - tau
    return new, low, count * step * step > 1e-6


@triton.jit
def of_strips(one, two):
    """τ (M,) of the scores that the strips kept, from their largest on."""
    high = tl.max(one, 1)
    tau = tl.where(high == float("-inf"), 0.0, high - 1.0)
    low, going, turn = tau, 1, 0
    while going > 0:
        a, b = tl.maximum(one - tau[:, None], 0.0), tl.maximum(two - tau[:, None], 0.0)
        count = tl.sum((a > 0).to(tl.float32) + (b > 0).to(tl.float32), 1)
        sums = (count, tl.sum(a + b, 1), tl.sum(a * a + b * b, 1))
        tau, low, more = rising(tau, low, sums, turn)
        turn += 1
        going = some(more, turn)
    return tau, high == float("-inf")


@triton.jit
def of_entmax(one, two, scene, F: tl.constexpr, C: tl.constexpr):
    """Entmax's τ of each row; of rows without a score a number that hides all."""
    tau, blind = of_strips(one * HALF, two * HALF)
    low = tl.where(blind, 0.0, tl.max(one, 1) * HALF - 1.0)
    none, going, turn = tl.full((F.M, F.N), 0.0, tl.float32), 1, 0
    while going > 0:
        state = sweep((none, none, none, tau), (tau,), scene, F, C, SUMMED)
        sums = (tl.sum(state[0], 1), tl.sum(state[1], 1), tl.sum(state[2], 1))
        tau, low, more = rising(tau, low, sums, turn)
        turn += 1
        going = some(more, turn)
    return tl.where(blind, float("inf"), tau)


@triton.jit(do_not_specialize=["batch"])
def threshold(
    given, made, extra, batch, site,
    F: tl.constexpr, C: tl.constexpr, LEAD: tl.constexpr, SCARCE: tl.constexpr,
):  # fmt: skip
    """given: q and k; made: bound (B, H, Q), and room for each program, which takes tiles in turn.

    The room: lists (M, C), and their counts, 8 places apart. SCARCE: strips may keep too few
    though there are enough scores.
    """
    q_, k_ = given
    bound_, lists, counts = made
    tiles = (site.queries + F.M - 1) // F.M
    m = tl.arange(0, F.M)
    for step in range(tl.program_id(0), tiles * batch * site.heads, tl.num_programs(0)):
        bh = step % (batch * site.heads)
        b, h = bh // site.heads, bh % site.heads
        first = (tiles - 1 - step // (batch * site.heads)) * F.M  # causal tiles: longest first
        left = site.queries - first
        q = rows(q_, place(q_, b, h, first), left, F.M, F.D, F.BD)
        best = tl.full((F.M, F.N), float("-inf"), tl.float32)
        least = tl.full((F.M,), float("inf"), tl.float32)
        scene = (q, (b, h, first), k_, extra, site, LEAD)
        state = (best, best, best if F.weigh == TOP else least, least)
        one, two, three, least = sweep(state, (SCARCE,), scene, F, C, STRIPS)
        if F.weigh == TOP:
            found = of_top((one, two, three), least, (lists, counts), scene, F, C)
        else:
            found = of_entmax(one, two, scene, F, C)
        tl.store(place(bound_, b, h, first) + m, found, mask=m < left)
        tl.debug_barrier()
