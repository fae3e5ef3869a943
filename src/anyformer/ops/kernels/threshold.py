"""The bounds of rows: below them scores weigh nothing, in top-k and in entmax-1.5.

A program keeps, for each place in a tile, the largest score that came there: N strips of the keys
and their maxima. They are scores of the row, so the k-th of them is at most the k-th of all, and
their τ at most that of all; in practice little lies between. A second pass writes down what does,
in a list of C scores for each row, in which the bound is found exactly. Where it was more than C,
the bracket is narrowed in further passes first.

Scores of top-k are in units of log 2, those of entmax are x = s / 2 in units of 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.tile import (
    ENTMAX,
    HALF,
    LOG2E,
    TOP,
    dot,
    far_query,
    far_score,
    hidden,
    key_range,
    near_score,
    place,
    rows,
    steps,
)

STRIPS, LISTED, COUNTED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # kinds of passes
MANY = tl.constexpr(64)  # passes after which a row, of NaN surely, is left alone


@triton.jit
def meet(state, s, given, F: tl.constexpr, C: tl.constexpr, PASS: tl.constexpr):
    """What one tile of scores adds to a pass; state: three tensors, by the kind of pass."""
    one, two, three = state
    if PASS == STRIPS:  # maxima (M, N), least score of all
        one = tl.maximum(one, s)
        if given[0]:
            two = tl.minimum(two, tl.min(tl.where(s == float("-inf"), float("inf"), s), 1))
    if PASS == LISTED:  # how many are in the bracket, and what is just below; or sums for Newton
        low, high, room = given
        if F.weigh == ENTMAX:
            s = s * HALF
            inside = s > low[:, None]
            over = tl.where(inside, s - low[:, None], 0.0)
            two += tl.sum(over, 1)
            three += tl.sum(over * over, 1)
        else:
            inside = (s > low[:, None]) & (s <= high[:, None])
            two = tl.maximum(two, tl.max(tl.where(s < low[:, None], s, float("-inf")), 1))
        each = inside.to(tl.int32)
        at = one[:, None] + tl.cumsum(each, 1) - 1
        tl.store(room + at, s, mask=inside & (at < C))
        one += tl.sum(each, 1)
    if PASS == COUNTED:  # how many are above each of three scores
        one += tl.sum((s > given[0][:, None]).to(tl.int32), 1)
        two += tl.sum((s > given[1][:, None]).to(tl.int32), 1)
        three += tl.sum((s > given[2][:, None]).to(tl.int32), 1)
    return one, two, three


@triton.jit
def some(asked, turn):
    """Whether a loop goes on: 1 where something is asked for and turns are left."""
    return tl.max((asked & (turn < MANY)).to(tl.int32), 0)


@triton.jit
def sweep(state, given, scene, F: tl.constexpr, C: tl.constexpr, PASS: tl.constexpr):
    """One pass over all scores of a tile of queries; scene: what it is, and what it reads."""
    q, at, k_, extra, site = scene
    b, h, first = at
    g = h // site.group
    n = tl.arange(0, F.N)
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    for j in range(0, site.lead, F.N):
        k = rows(k_, place(k_, b, g, j), site.lead - j, F.N, F.D, F.BD)
        s = dot(q, tl.trans(k)) * (site.scale * LOG2E)
        s = tl.where((j + n < site.lead)[None, :], s, float("-inf"))
        state = meet(state, s, given, F, C, PASS)
    bounds = key_range(first, site, F)
    for side in tl.static_range(3):  # beyond the low end, between, beyond the high end
        if side == 1 or (side == 0 and F.left) or (side == 2 and F.right):
            if side != 1:
                row = 0 if side == 0 else site.high - site.low
                more = far_query(q, extra, h, row, site, F)
            for t in range(bounds[side], bounds[side + 1]):
                p0 = t * F.N
                k = rows(k_, place(k_, b, g, site.lead + p0), site.keys - p0, F.N, F.D, F.BD)
                least = p0 - first - site.start - F.M + 1
                away = steps(least, F, False)
                if side == 1:
                    s = near_score(q, k, extra, h, away, least, site, F, False)
                else:
                    s = far_score(q, k, more, extra, h, away, site, F, side, False)
                s = hidden(s, away, p0 + n[None, :], keep, site, F, side == 1)
                state = meet(state, s, given, F, C, PASS)
    return state


@triton.jit
def rough(best, least, count):
    """A score (M,) that at least `count` scores of a row reach, from the maxima of its strips."""
    there = best > float("-inf")
    filled = tl.sum(there.to(tl.int32), 1)
    low = tl.where(filled > 0, tl.min(tl.where(there, best, float("inf")), 1), 0.0)
    high = tl.where(filled > 0, tl.max(best, 1), 0.0)
    for _ in range(12):
        half = low + (high - low) * 0.5
        many = tl.sum((best >= half[:, None]).to(tl.int32), 1) >= count
        low, high = tl.where(many, half, low), tl.where(many, high, half)
    low = tl.where(filled >= count, low, least)
    return tl.where(low == float("inf"), float("-inf"), low)


@triton.jit
def newton(x, tau):
    """τ of x (M, N) from one that is at most it: Σ max(0, x - τ)² = 1, whose root it nears."""
    going, turn = 1, 0
    while going > 0:
        over = tl.maximum(x - tau[:, None], 0.0)
        step = newton_step(tl.sum(over, 1), tl.sum(over * over, 1))
        tau, turn = tau + step, turn + 1
        going = some(step > 1e-6, turn)
    return tau


@triton.jit
def newton_step(total, squares):
    """How far τ rises; rows without a score stay."""
    safe = tl.where(total > 0, total, 1.0)
    return tl.where(total > 0, tl.maximum((squares - 1) / (2 * safe), 0.0), 0.0)


@triton.jit
def ranked(x, low, high, rank, asked):
    """The score (M,) of a rank, from 1, among x (M, C) in (low, high], for the rows asked."""
    low, high = tl.where(asked, low, 0.0), tl.where(asked, high, 0.0)
    going, turn = 1, 0
    while going > 0:
        for _ in range(4):
            half = low + (high - low) * 0.5
            many = tl.sum((x > half[:, None]).to(tl.int32), 1) >= rank
            low, high = tl.where(many, half, low), tl.where(many, high, half)
        most = tl.max(tl.where(x <= high[:, None], x, float("-inf")), 1)
        least = tl.min(tl.where(x > low[:, None], x, float("inf")), 1)
        high, turn = tl.where(asked, most, 0.0), turn + 1
        going = some(asked & (most != least), turn)
    return high


@triton.jit
def narrower(bracket, wide, scene, F: tl.constexpr, C: tl.constexpr):
    """A quarter of a bracket (low, high] that holds the score of rank `most`, for the wide rows.

    Its third number counts the scores above it. Where no number lies between low and high, all in
    the bracket is high itself, and so is that score.
    """
    low, high, above = bracket
    site = scene[4]
    step = tl.where(wide, high - tl.where(wide, low, 0.0), 0.0) * 0.25
    a, b, c = low + step, low + step * 2, low + step * 3
    none = tl.full((F.M,), 0, tl.int32)
    more = sweep((none, none, none), (a, b, c), scene, F, C, COUNTED)
    in_a, in_b, in_c = more[0] >= site.most, more[1] >= site.most, more[2] >= site.most
    close = (b <= low) | (b >= high)
    found = tl.where(in_c, c, tl.where(in_b, b, tl.where(in_a, a, low)))
    until = tl.where(in_c, high, tl.where(in_b, c, tl.where(in_a, b, a)))
    over = tl.where(in_c, above, tl.where(in_b, more[2], tl.where(in_a, more[1], more[0])))
    found, until = tl.where(close, high, found), tl.where(close, high, until)
    over = tl.where(close, above, over)
    return tl.where(wide, found, low), tl.where(wide, until, high), tl.where(wide, over, above)


@triton.jit
def of_top(best, least, room, scene, F: tl.constexpr, C: tl.constexpr):
    """The bound of the `most` largest scores of each row, midway to the largest below it."""
    site = scene[4]
    low, high = rough(best, least, site.most), tl.max(best, 1)
    none = tl.full((F.M,), 0, tl.int32)
    nothing = tl.full((F.M,), float("-inf"), tl.float32)
    above, count, below, wide = none, none, nothing, none > 0
    going, turn = 1, 0
    while going > 0:
        if turn > 0:
            low, high, above = narrower((low, high, above), wide, scene, F, C)
        state = (none, nothing, none)
        count, below, _ = sweep(state, (low, high, room), scene, F, C, LISTED)
        wide, turn = (count > C) & (above + count >= site.most), turn + 1
        going = some(wide, turn)
    tl.debug_barrier()
    slot = tl.arange(0, C)
    x = tl.load(room + slot[None, :], mask=slot[None, :] < count[:, None], other=float("-inf"))
    inside = above + count >= site.most  # else the score asked for is low itself
    score = tl.where(inside, ranked(x, low, high, site.most - above, inside), low)
    under = tl.max(tl.where(x < score[:, None], x, float("-inf")), 1)
    under = tl.where(inside, tl.maximum(under, tl.maximum(below, low)), below)
    alone = under == float("-inf")
    middle = under + (tl.where(alone, 0.0, score) - tl.where(alone, 0.0, under)) * 0.5
    return tl.where(alone | (middle > under), middle, score)


@triton.jit
def of_entmax(best, room, scene, F: tl.constexpr, C: tl.constexpr):
    """Entmax's τ of each row; of rows without a score a number that hides all."""
    best = best * HALF
    high = tl.max(best, 1)
    blind = high == float("-inf")
    tau = newton(best, tl.where(blind, 0.0, high - 1.0))
    none = tl.full((F.M,), 0, tl.int32)
    zero = tl.full((F.M,), 0.0, tl.float32)
    count, going, turn = none, 1, 0
    while going > 0:
        state = (none, zero, zero)
        count, total, squares = sweep(state, (tau, tau, room), scene, F, C, LISTED)
        step = tl.where(count > C, newton_step(total, squares), 0.0)
        tau, turn = tau + step, turn + 1
        going = some(step > 1e-5, turn)
    tl.debug_barrier()
    slot = tl.arange(0, C)
    x = tl.load(room + slot[None, :], mask=slot[None, :] < count[:, None], other=float("-inf"))
    exact = newton(tl.where((count > C)[:, None], float("-inf"), x), tau)
    return tl.where(blind, float("inf"), exact)


@triton.jit(do_not_specialize=["batch"])
def threshold(
    q_, k_, made, extra, batch, site, F: tl.constexpr, C: tl.constexpr, SCARCE: tl.constexpr
):
    """made: bound (B, H, Q), and lists (programs, M, C); a program takes tiles of queries in turn.

    SCARCE: too few strips can be filled though there are enough scores.
    """
    bound_, lists = made
    tiles = (site.queries + F.M - 1) // F.M
    m = tl.arange(0, F.M)
    room = lists + (tl.program_id(0) * F.M + m)[:, None] * C
    for step in range(tl.program_id(0), tiles * batch * site.heads, tl.num_programs(0)):
        bh = step % (batch * site.heads)
        b, h = bh // site.heads, bh % site.heads
        first = (tiles - 1 - step // (batch * site.heads)) * F.M  # causal tiles: longest first
        left = site.queries - first
        q = rows(q_, place(q_, b, h, first), left, F.M, F.D, F.BD)
        best = tl.full((F.M, F.N), float("-inf"), tl.float32)
        least = tl.full((F.M,), float("inf"), tl.float32)
        scene = (q, (b, h, first), k_, extra, site)
        state = sweep((best, least, least), (SCARCE,), scene, F, C, STRIPS)
        best, least = state[0], state[1]
        if F.weigh == TOP:
            found = of_top(best, least, room, scene, F, C)
        else:
            found = of_entmax(best, room, scene, F, C)
        tl.store(place(bound_, b, h, first) + m, found, mask=m < left)
        tl.debug_barrier()
