"""Strips of queries: they cover all queries, fit into their room, and are few."""

from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("triton", reason="strips: Triton isn't installed")
from anyformer.ops.kernels import launch_strips
from anyformer.ops.kernels.launch import Facts


@dataclass(frozen=True)
class Call:
    q: torch.Tensor
    k: torch.Tensor
    facts: Facts
    scale: float = 1.0


def call(batch: int, heads: int, queries: int, keys: int, **facts: int) -> Call:
    q, k = (torch.empty(batch, heads, n, 8, device="meta") for n in (queries, keys))
    least = dict.fromkeys(("lead", "start", "causal", "width", "low", "high", "left", "right"), 0)
    return Call(q, k, Facts(**least | facts))


@pytest.mark.parametrize(
    "one",
    [
        call(4, 12, 8192, 8192, causal=1),
        call(32, 12, 1024, 1024, causal=1),
        call(3, 5, 700, 9000, width=300, lead=7),
        call(2, 64, 5000, 5000),
        call(1, 2, 70000, 3),
    ],
)
def test_strips_cover_all_queries_and_fit(one: Call) -> None:
    seen = torch.zeros(one.q.shape[0], one.q.shape[2], dtype=torch.int)
    strips = list(launch_strips.pieces(one))
    assert launch_strips.size_of(strips) <= launch_strips.ROOM
    for piece in strips:
        seen[piece.rows, piece.queries] += 1
        assert piece.alone == (piece.strip.queries == one.q.shape[2])
    assert (seen == 1).all()


def test_strips_are_few_where_early_queries_see_little() -> None:
    count = lambda causal: len(list(launch_strips.pieces(call(1, 12, 8192, 8192, causal=causal))))
    assert count(1) < 0.7 * count(0)


def test_a_strip_that_is_larger_than_its_room_has_sixteen_queries() -> None:
    sizes = [p.strip.queries for p in launch_strips.pieces(call(1, 2, 40, 40), 1)]
    assert sizes == [16, 16, 8]


def test_keys_that_no_query_sees_are_left_out() -> None:
    one = call(1, 2, 16, 400, start=200, causal=1, width=50)
    (piece,) = launch_strips.pieces(one)
    assert (piece.keys.start, piece.keys.stop) == (151, 216)
