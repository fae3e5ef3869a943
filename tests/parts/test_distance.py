"""Vectors by distance and the scores that disentangled attention makes of them, against loops."""

import pytest
import torch

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.ops.relative import log_bucket
from anyformer.parts import build as build_part
from anyformer.parts.state import Call

TABLES = [
    S.Distances(reach=3),
    S.Distances(reach=50),
    S.Distances(reach=6, buckets=4, norm=S.LayerNorm()),
    S.Distances(reach=20, buckets=6),
]


def row(table, distance):
    """The row of the table for q - k."""
    at = torch.tensor(distance)
    at = at if table.buckets is None else log_bucket(at, table.buckets, table.reach)
    return min(max(int(at) + table.size, 0), 2 * table.size - 1)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("low", "high"), [(0, 0), (-2, 1), (-9, 0), (-8, 8), (-40, 60)])
def test_each_distance_has_its_row(table, low, high):
    part = build_part(table, 5)
    torch.nn.init.normal_(part.table.weight)
    whole = part.table.weight if part.norm is None else part.norm(part.table.weight)
    found = part(low, high)
    first, last = table.rows(low, high)
    assert found.rows.shape[0] == last - first + 1 <= 2 * table.size
    for distance in range(low, high + 1):
        at = min(max(distance, found.low), found.high) - found.low
        assert torch.equal(found.rows[found.at[at]], whole[row(table, -distance)]), distance


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("terms", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("table", TABLES)
def test_scores_are_words_and_distances_apart(table, terms, shared):
    torch.manual_seed(0)
    apart = S.Disentangled(c2p=terms[0], p2c=terms[1], shared=shared)
    attention = S.Attention(heads=2, disentangled=apart)
    stack = S.Stack(block=(S.Sublayer(branch=attention),), depth=1, distances=table)
    model = build(S.Model(dim=6, embed=S.Embed(source=S.Tokens(vocab=5)), stack=stack)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    part, length, x = model.stack.blocks[0][0].branch, 9, torch.randn(1, 9, 6).double()
    call = Call(length=length, positions=torch.arange(length)[None], weights=[])
    call.distances = model.stack.distances(1 - length, length - 1)
    part(x, call, "0.0")
    split = lambda y: y.unflatten(-1, (2, 3)).transpose(-2, -3)
    whole = model.stack.distances.table.weight
    whole = whole if table.norm is None else model.stack.distances.norm(whole)
    own = part.disentangled
    q, k = split(part.q(x))[0], split(part.k(x))[0]
    far = split((part.k if shared else own.k)(whole)) if terms[0] else None
    near = split((part.q if shared else own.q)(whole)) if terms[1] else None
    scores = torch.zeros(2, length, length).double()
    for h in range(2):
        for i in range(length):
            for j in range(length):
                r = row(table, i - j)
                total = q[h, i] @ k[h, j]
                total = total if far is None else total + q[h, i] @ far[h, r]
                total = total if near is None else total + k[h, j] @ near[h, r]
                scores[h, i, j] = total / (3 * (1 + sum(terms))) ** 0.5
    torch.testing.assert_close(call.weights[0][0], scores.softmax(-1))
