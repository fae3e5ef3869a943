"""The laws by name: what is said, of which specs, and where to look when one is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anyformer import spec as S
from anyformer.laws import (
    backends,
    counts,
    edges,
    generation,
    order,
    padding,
    recursion,
    training,
    trips,
)
from anyformer.laws.crossed import law_accepted

Check = Callable[[S.Model, int], None]


@dataclass(frozen=True)
class Law:
    """A function that raises where a law does not hold of a spec, and the law in words."""

    check: Check  # of a spec and a seed, from which weights and inputs are drawn
    says: str
    hint: str
    applies: Callable[[S.Model], bool] = lambda spec: True
    causal: bool | None = None  # the sort of specs to draw
    writes: bool = False  # whether those should write texts
    share: int = 1  # of this many drawn specs one is tried, since the law is slow
    of_one: bool = True  # it speaks of the spec itself, not of others made from it at random


PLACES = "place new positions after call.start, and read older ones through call.recall or extend"
MASKS = "hide what call.keep hides: take the mask of call.mask, or blank padding before mixing"
PLAN = "an option of the plan acts in one backend only: see anyformer.ops.attend"
TEXT = "the decoder's steps and one pass disagree: see the laws 2 and 3 of order first"


def _ordered(check: Check, says: str, hint: str) -> Law:
    return Law(check, says, hint, order.causal_with_positions, causal=True)


def _writing(check: Check, says: str, hint: str = TEXT) -> Law:
    return Law(check, says, hint, generation.writes, causal=True, writes=True)


LAWS = {
    "1 causal": _ordered(
        order.law_causal,
        "no position sees a later one",
        "something mixes positions without the causal mask: mask it, or set causal=False",
    ),
    "1 prefix": _ordered(
        order.law_prefix,
        "a prefix is seen from both sides, nothing else of the future is",
        "take the mask from call.mask, which knows of prefixes",
    ),
    "2 cache": _ordered(order.law_cache, "decoding with a cache equals one pass", PLACES),
    "3 segments": _ordered(
        order.law_segments, "segments with a memory of everything equal one pass", PLACES
    ),
    "4 padded": Law(
        padding.law_padded, "rows padded on the left or the right equal rows alone", MASKS
    ),
    "2 generation": _writing(
        generation.law_cached, "a text written with a cache is the one written with none"
    ),
    "2 work of a step": _writing(
        generation.law_work,
        "the linear maps of a step cost the same however long the text is",
        "something of the whole past is mapped again in each step: keep it by call.extend or once",
    ),
    "3 generation": _writing(
        generation.law_memory, "a text written with segment memory is the one written without"
    ),
    "3 prefill": _writing(
        generation.law_prefill, "a prompt read in parts is the prompt read at once"
    ),
    "4 generation": _writing(
        generation.law_ragged, "prompts of unequal length are continued as each alone", MASKS
    ),
    "5 backends": Law(
        backends.law_backends, "every backend gives eager's outputs and gradients", PLAN
    ),
    "5 backends after a cache": _ordered(
        backends.law_backends_cached, "every backend continues from a cache as eager does", PLAN
    ),
    "5 flex": Law(backends.law_flex, "FlexAttention gives eager's outputs", PLAN, share=20),
    "6 padded gradients": Law(
        padding.law_padded_gradients, "a padded batch has the gradients of its rows alone", MASKS
    ),
    "6 loss": Law(
        padding.law_loss, "the loss of a padded batch is the mean over its real tokens", MASKS
    ),
    "6 packed": Law(
        padding.law_packed,
        "documents packed into one row equal documents alone",
        "hide other documents (call.documents): take the mask of call.mask",
    ),
    "7 round trips": Law(
        trips.law_trips,
        "JSON, a copy, a pickle and a state_dict give bit-equal outputs",
        "keep what the outputs depend on in the spec, parameters or buffers; name functions",
    ),
    "7 folder": Law(
        trips.law_folder,
        "a model that is saved and loaded is bit-equal",
        "make the part's weights parameters or persistent buffers",
    ),
    "8 one position": Law(
        edges.law_short,
        "a row of one position has finite outputs and gradients",
        "look for a division by a length or a standard deviation that is 0 for one position",
    ),
    "8 masked row": Law(
        edges.law_masked_row,
        "a row of padding only is finite and leaves other rows alone",
        "give zeros, not 0 / 0, where nothing is seen",
    ),
    "8 far k and window": Law(
        edges.law_far,
        "top-k beyond the row is softmax, a window beyond it is none",
        "bound k and the window by what there is",
        edges.chooses,
    ),
    "9 parameters": Law(
        counts.law_parameters,
        "the spec alone tells names, shapes and number of the parameters",
        "anyformer.model.census and the part disagree: a size doesn't follow from the spec",
    ),
    "9 flops": Law(
        counts.law_flops,
        "the spec alone tells the FLOPs of a pass",
        "count the part's matrix products in anyformer.model.flops, or in its node's flops()",
    ),
    "rules: what they accept runs": Law(
        law_accepted,
        "what the rules accept builds, runs, learns and is counted",
        "add a rule with a reason and a remedy to anyformer.spec.rules, or make it run",
        of_one=False,
    ),
    "training: dropout": Law(
        training.law_dropout,
        "a dropout acts in training, anew each time, and never in evaluation",
        "apply the rate where self.training says so, and there alone",
        training.drops,
    ),
    "training: layer dropout": Law(
        training.law_layer_dropout,
        "a skipped block remembers what it would have read",
        PLACES,
        training.skips_and_remembers,
        causal=True,
    ),
    "training: reversible": Law(
        training.law_reversible,
        "gradients that recompute activations equal plain ones",
        "the part gives another answer the second time: keep no state between calls",
        training.reversible,
    ),
    "recursion: unrolled": Law(
        recursion.law_unrolled,
        "a block for each application computes what shared blocks compute",
        "the part keeps something between its applications: keep it by path",
        recursion.unrolls,
    ),
    "recursion: rounds": Law(
        recursion.law_rounds,
        "rounds that come and go leave no trace",
        "the part keeps something between its applications: keep it by path",
        recursion.goes_round,
    ),
}
