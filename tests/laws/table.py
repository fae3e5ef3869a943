"""The laws by name: the number of DESIGN.md, what is said, and of which specs it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anyformer import spec as S
from tests.laws import (
    law_backends,
    law_counts,
    law_edges,
    law_generation,
    law_order,
    law_padding,
    law_recursion,
    law_training,
)
from tests.laws import law_trips as trips
from tests.laws.crossed import law_accepted


@dataclass(frozen=True)
class Law:
    """A function that raises AssertionError where a law does not hold of a spec."""

    check: Callable[[S.Model, int], None]
    applies: Callable[[S.Model], bool] = lambda spec: True
    causal: bool | None = None  # the sort of specs to draw
    share: int = 1  # of this many specs one is tried, since the law is slow


def _ordered(check: Callable[[S.Model, int], None]) -> Law:
    return Law(check, law_order.causal_with_positions, causal=True)


def _writing(check: Callable[[S.Model, int], None]) -> Law:
    return Law(check, law_generation.writes, causal=True)


LAWS = {
    "1 causal": _ordered(law_order.law_causal),
    "1 prefix": _ordered(law_order.law_prefix),
    "2 cache": _ordered(law_order.law_cache),
    "3 segments": _ordered(law_order.law_segments),
    "4 padded": Law(law_padding.law_padded),
    "2 generation": _writing(law_generation.law_cached),
    "2 work of a step": _writing(law_generation.law_work),
    "3 generation": _writing(law_generation.law_memory),
    "3 prefill": _writing(law_generation.law_prefill),
    "4 generation": _writing(law_generation.law_ragged),
    "5 backends": Law(law_backends.law_backends),
    "5 backends after a cache": _ordered(law_backends.law_backends_cached),
    "5 flex": Law(law_backends.law_flex, share=20),
    "6 padded gradients": Law(law_padding.law_padded_gradients),
    "6 loss": Law(law_padding.law_loss),
    "6 packed": Law(law_padding.law_packed),
    "7 round trips": Law(trips.law_trips),
    "7 folder": Law(trips.law_folder),
    "8 one position": Law(law_edges.law_short),
    "8 masked row": Law(law_edges.law_masked_row),
    "8 far k and window": Law(law_edges.law_far),
    "9 parameters": Law(law_counts.law_parameters),
    "9 flops": Law(law_counts.law_flops),
    "rules: what they accept runs": Law(law_accepted),
    "training: dropout": Law(law_training.law_dropout),
    "training: layer dropout": Law(
        law_training.law_layer_dropout, law_training.skips_and_remembers, causal=True
    ),
    "training: reversible": Law(law_training.law_reversible, law_training.reversible),
    "recursion: unrolled": Law(law_recursion.law_unrolled, law_recursion.unrolls),
    "recursion: rounds": Law(law_recursion.law_rounds, law_recursion.goes_round),
}
