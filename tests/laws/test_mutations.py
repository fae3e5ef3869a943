"""Deliberate mistakes, one at a time: the law whose subject is broken notices each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from anyformer import spec as S
from anyformer.checkpoint import native
from anyformer.laws.table import LAWS
from anyformer.model import begin, flops, reversible, stack
from anyformer.ops import attend, chunked, flex, mask, sdpa, weigh
from anyformer.parts.state import Call, Past
from anyformer.spec import node

Patch = Callable[[pytest.MonkeyPatch], None]


def plain(**options: Any) -> S.Model:
    """A small decoder; options of its attention, `embed_…`, `stack_…` and `encoder`."""
    rest = {k: v for k, v in options.items() if not k.startswith(("embed_", "stack_"))}
    inner = lambda start: {k[len(start) :]: v for k, v in options.items() if k.startswith(start)}
    attention = S.Attention(**{"heads": 2, "causal": True, **rest})
    block = (S.Sublayer(branch=attention), S.Sublayer(branch=S.FeedForward()))
    embed = {"source": S.Tokens(vocab=29), "position": S.Learned(length=40), **inner("embed_")}
    return S.Model(
        dim=8,
        embed=S.Embed(**embed),
        stack=S.Stack(**{"block": block, "depth": 2, **inner("stack_")}),
        head=S.Vocabulary(),
    )


def crossing(**options: Any) -> S.Model:
    """A decoder whose blocks only look at another sequence."""
    attention = S.Attention(heads=2, cross=True, **options)
    return plain(stack_block=(S.Sublayer(branch=attention), S.Sublayer(branch=S.FeedForward())))


# ---------------------------------------------------------------- the mistakes


def sees_the_next(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mask.Causal, "__call__", lambda self, b, h, q, k: k <= q + 1)


def prefix_of_one_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mask.Prefix, "__call__", lambda self, b, h, q, k: k <= self.lengths[b] + 0 * q)


def positions_start_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(begin, "_continued", lambda past, count, left: count)


def memory_keeps_the_first(patch: pytest.MonkeyPatch) -> None:
    keep = lambda past, whole, axis=1: whole.narrow(
        axis, 0, min(whole.shape[axis], past.pinned + (past.limit or 0))
    )
    patch.setattr(Past, "kept", keep)


def memory_is_not_normed(patch: pytest.MonkeyPatch) -> None:
    def output(self, x, call, path):
        whole = call.recall(path, x) if self.recalls else x
        old, new = whole[:, : -x.shape[1]], whole[:, -x.shape[1] :]
        return self.branch(torch.cat([old, self.norm(new)], 1), call, path)

    patch.setattr(stack.Sublayer, "output", output)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Call, "keeps", property(lambda call: False))


def padding_is_seen(patch: pytest.MonkeyPatch) -> None:
    everything = lambda self, b, h, q, k: torch.ones_like(self.keep[b, k])
    patch.setattr(mask.Padding, "__call__", everything)


def no_gradient_for_tables(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chunked, "_total", lambda total, found: None)


def tables_not_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend.Plan, "apart", lambda plan: plan)


def _running(patch: pytest.MonkeyPatch, name: str, change: Callable) -> None:
    """Let a backend run a changed plan."""
    backend = attend.BACKENDS[name]
    run = lambda q, k, v, plan: backend.run(q, k, v, change(plan))
    patch.setitem(attend.BACKENDS, name, dataclasses.replace(backend, run=run))


def mods_ignored(patch: pytest.MonkeyPatch) -> None:
    _running(patch, "chunked", lambda plan: dataclasses.replace(plan, mods=()))


def table_row_off_by_one(patch: pytest.MonkeyPatch) -> None:
    found = flex._relative
    late = lambda q, k, plan: found(q, k, dataclasses.replace(plan, start=plan.start + 1))
    patch.setattr(flex, "_relative", late)


def documents_see_each_other(patch: pytest.MonkeyPatch) -> None:
    everything = lambda self, b, h, q, k: self.ids[b, q] == self.ids[b, q] + 0 * k
    patch.setattr(mask.Documents, "__call__", everything)


def json_forgets_a_field(patch: pytest.MonkeyPatch) -> None:
    whole = node.to_dict

    def forgetful(value):
        found = whole(value)
        return {k: v for k, v in found.items() if k != "bias"} if type(found) is dict else found

    patch.setattr(node, "to_dict", forgetful)


def saved_in_less_precision(patch: pytest.MonkeyPatch) -> None:
    write = native.save_file
    half = lambda weights, *rest: write({k: w.float() for k, w in weights.items()}, *rest)
    patch.setattr(native, "save_file", half)


def hidden_rows_see_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sdpa, "_blank", lambda out, padding, plan: out)


def top_k_of_fewer(patch: pytest.MonkeyPatch) -> None:
    whole = weigh.top_k
    patch.setattr(weigh, "top_k", lambda scores, k: whole(scores, min(k, scores.shape[-1] - 1)))


def a_product_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    whole = flops._feedforward
    patch.setattr(flops, "_feedforward", lambda spec, dim, at: whole(spec, dim, at) // 2)


def updates_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(flops, "lora_products", lambda model, at, twice: ())


def dropout_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stack.F, "dropout", lambda x, rate: x)


def skipped_blocks_forget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stack.Block, "skip", lambda self, x, call, path: x)


def wrong_activations_again(patch: pytest.MonkeyPatch) -> None:
    whole = reversible.addition

    def off(sublayer, x, call, path):  # where it is computed again, x is a leaf
        return whole(sublayer, x * 1.001 if x.is_leaf and x.requires_grad else x, call, path)

    patch.setattr(reversible, "addition", off)


# ------------------------------------------------------------------ who notices


@dataclass(frozen=True)
class Mutation:
    """A mistake, the law that must notice it, and a spec that shows it."""

    mistake: Patch
    law: str
    spec: S.Model


EAGER = {"backend": "eager"}
T5 = (S.Buckets(count=8, max_distance=20),)
FAR = {"disentangled": S.Disentangled(), "stack_distances": S.Distances(reach=64)}
RELAXED = {"stack_schedule": S.Shared(unique=1), "stack_lora": S.Lora(rank=2)}
MUTATIONS = [
    Mutation(sees_the_next, "1 causal", plain(**EAGER)),
    Mutation(prefix_of_one_more, "1 prefix", plain(**EAGER)),
    Mutation(positions_start_again, "2 cache", plain()),
    Mutation(nothing_is_kept, "2 work of a step", plain(**FAR)),
    Mutation(memory_keeps_the_first, "3 segments", plain(stack_recurrence=8)),
    Mutation(memory_is_not_normed, "3 segments", plain(stack_recurrence=8)),
    Mutation(padding_is_seen, "4 padded", plain(causal=False, **EAGER)),
    Mutation(no_gradient_for_tables, "5 backends", plain(relative=(S.Shaw(clip=2),))),
    Mutation(tables_not_apart, "5 backends", plain(relative=(S.Shaw(clip=2, key_side=True),))),
    Mutation(mods_ignored, "5 backends", plain(mods=(S.SoftCap(value=0.5),))),
    Mutation(table_row_off_by_one, "5 flex", plain(stack_relative=T5)),
    Mutation(padding_is_seen, "6 padded gradients", plain(causal=False, **EAGER)),
    Mutation(documents_see_each_other, "6 packed", plain(**EAGER)),
    Mutation(json_forgets_a_field, "7 round trips", plain(bias=False)),
    Mutation(saved_in_less_precision, "7 folder", plain()),
    Mutation(hidden_rows_see_all, "8 masked row", crossing()),
    Mutation(top_k_of_fewer, "8 far k and window", plain(causal=False, weigh=S.TopK(k=3))),
    Mutation(a_product_is_not_counted, "9 flops", plain()),
    Mutation(updates_are_not_counted, "9 flops", plain(**RELAXED)),
    Mutation(dropout_ignored, "training: dropout", plain()),
    Mutation(skipped_blocks_forget, "training: layer dropout", plain(stack_recurrence=8)),
    Mutation(wrong_activations_again, "training: reversible", plain(stack_reversible=True)),
]
SEEDS = range(6)  # a law draws lengths and masks; some of these show the mistake


def _name(mutation: Mutation) -> str:
    return f"{mutation.law}: {mutation.mistake.__name__}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=_name)
def test_mutation_is_noticed(mutation, monkeypatch):
    law = LAWS[mutation.law]
    assert law.applies(mutation.spec)
    assert [law.check(mutation.spec, seed) for seed in SEEDS] == [None] * len(SEEDS)
    mutation.mistake(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            law.check(mutation.spec, seed)
