"""One pass over the scores of a tile of queries, to find its bounds, and what each kind keeps."""

from __future__ import annotations

import triton
import triton.language as tl

from anyformer.ops.kernels.scores import far_query, far_score, near_score
from anyformer.ops.kernels.tile import (
    HALF,
    LOG2E,
    TOP,
    anew,
    dot,
    hidden,
    key_range,
    place,
    rows,
    steps,
)

# kinds of passes
STRIPS, DEEPER, LISTED, COUNTED, SUMMED = (tl.constexpr(i) for i in range(5))


@triton.jit
def meet(state, s, given, F: tl.constexpr, C: tl.constexpr, PASS: tl.constexpr):
    """What one tile of scores adds to a pass; state: four tensors, by the kind of pass."""
    one, two, three, four = state
    if PASS == STRIPS:  # the largest (M, N) in order, of entmax two; the least score of all
        if F.weigh == TOP:
            three = tl.maximum(three, tl.minimum(two, s))
        two = tl.maximum(two, tl.minimum(one, s))
        one = tl.maximum(one, s)
        if given[0]:
            four = tl.minimum(four, tl.min(tl.where(s == float("-inf"), float("inf"), s), 1))
    if PASS == DEEPER:  # the two largest below those of a pass before, and how many pass a level
        fresh = tl.where(s < given[0], s, float("-inf"))
        two = tl.maximum(two, tl.minimum(one, fresh))
        one = tl.maximum(one, fresh)
        three += folded((s > given[1][:, None]).to(tl.float32), F)
    if PASS == LISTED:  # what is in the bracket, in any order
        low, high, room, count = given
        inside = (s > low[:, None]) & (s <= high[:, None])
        each = count[:, None] + tl.zeros_like(s).to(tl.int32)
        at = tl.atomic_add(each, 1, mask=inside, sem="relaxed", scope="cta")
        tl.store(room + at, s, mask=inside & (at < C))
    if PASS == COUNTED:  # how many are above each of three scores, and what is just below a fourth
        one += tl.sum((s > given[0][:, None]).to(tl.int32), 1)
        two += tl.sum((s > given[1][:, None]).to(tl.int32), 1)
        three += tl.sum((s > given[2][:, None]).to(tl.int32), 1)
        four = tl.maximum(four, tl.max(tl.where(s < given[3][:, None], s, float("-inf")), 1))
    if PASS == SUMMED:  # by strip: how many are above τ, by how much, and the squares
        over = tl.maximum(s * HALF - given[0][:, None], 0.0)
        one += (over > 0).to(tl.float32)
        two += over
        three += over * over
    return one, two, three, four


@triton.jit
def folded(x, F: tl.constexpr):
    """Sums (M, 2, 8) over columns that one thread has: so none waits for another."""
    return tl.sum(tl.reshape(x, (F.M, 2, F.N // 16, 8)), 2)


@triton.jit
def partly(p0, least, site, F: tl.constexpr):
    """Whether something of a tile may be hidden: most tiles are seen whole."""
    most = least + F.M + F.N - 2
    found = p0 + F.N > site.keys
    if F.causal:
        found = found | (most > 0)
    if F.window:
        found = found | (most >= site.width) | (least <= -site.width)
    if F.pads:
        found = found | (p0 >= 0)
    return found


@triton.jit
def sweep(state, given, scene, F: tl.constexpr, C: tl.constexpr, PASS: tl.constexpr):
    """One pass over all scores of a tile of queries; scene: what it is, and what it reads."""
    q, at, k_, extra, site, LEAD = scene
    b, h, first = at
    g = h // site.group
    n = tl.arange(0, F.N)
    keep = extra[3].at + tl.cast(b, tl.int64) * extra[3].b
    if LEAD:
        for j in range(0, site.lead, F.N):
            k = rows(k_, place(k_, b, g, j), site.lead - j, F.N, F.D, F.BD)
            s = dot(q, tl.trans(k)) * (site.scale * LOG2E)
            s = tl.where((j + n < site.lead)[None, :], s, float("-inf"))
            state = meet(state, s, given, F, C, PASS)
    bounds = key_range(first, 0 * first, site, F)
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
                    s = far_score((q, k), more, extra, h, away, site, F, side, False)
                if partly(p0, least, site, F):
                    here = anew()
                    away = steps(least + here, F, False)
                    s = hidden(s, away, p0 + here + n[None, :], keep, site, F, side == 1)
                state = meet(state, s, given, F, C, PASS)
    return state
