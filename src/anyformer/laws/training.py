"""Laws of training: of dropout, of blocks that are skipped, of activations computed again."""

from __future__ import annotations

import dataclasses

import torch

from anyformer import spec as S
from anyformer.laws.broken import all_same, finite, holds, same, same_each
from anyformer.laws.cases import case, each, twin
from anyformer.laws.crossed import nodes
from anyformer.laws.order import causal_with_positions
from anyformer.laws.padding import gradients, weighed
from anyformer.spec.node import names
from anyformer.spec.schedule import layout
from anyformer.spec.walk import attentions

RATES = ("dropout", "pool_dropout", "layer_dropout")


def without_dropout(spec: S.Model) -> S.Model:
    """The spec with every rate at 0, and rounds that aren't drawn or chosen along a row."""
    for path, node in nodes(spec):
        for rate in set(RATES) & set(names(node)):
            spec = S.override(spec, f"{path}.{rate}", 0.0)
        if isinstance(node, S.Loop):
            spec = S.override(
                spec, path, dataclasses.replace(node, drawn="fixed", mean=None, most=None)
            )
        if isinstance(node, S.Route):
            spec = S.override(spec, f"{path}.choice", "token")
    return spec


def paths_of_dropout(spec: S.Model) -> list[str]:
    """The path of every dropout rate of a spec before its head that can change anything.

    Where an attention sees one key alone, that key has all the weight, whatever its score. A head
    that asks the last block anew reads what entered it, so that of a single block nothing is left,
    nor of the convolution behind it, as in the library that such files come from.
    """
    found = [(path, node) for path, node in nodes(spec) if not path.startswith("head")]
    idle = {f"{at}.disentangled" for at, _, _, _, a in attentions(spec) if a.window == 1}
    if isinstance(spec.head, S.Vocabulary) and spec.head.enhanced and _blocks(spec) == 1:
        idle.add("stack.convolution")
    return [f"{path}.dropout" for path, n in found if "dropout" in names(n) and path not in idle]


def _blocks(spec: S.Model) -> int:
    """How many blocks are applied."""
    return len(layout(spec.stack).schedule)


def drops(spec: S.Model) -> bool:
    """Whether there is a rate to try."""
    return bool(paths_of_dropout(spec))


@torch.inference_mode()
def law_dropout(spec: S.Model, seed: int) -> None:
    """A single dropout changes outputs in training and leaves them alone in evaluation."""
    paths, plain = paths_of_dropout(spec), without_dropout(spec)
    path = paths[seed % len(paths)]
    c = case(plain, seed)
    wanted = each(c())
    all_same(each(dataclasses.replace(c, model=c.model.train())()), wanted, "training, no dropout")
    c.model = twin(c.model, S.override(plain, path, 0.5))
    all_same(each(c()), wanted, f"{path} in evaluation")
    c.model.train()
    found = each(c())[0]
    holds(not torch.allclose(found, wanted[0]), f"{path} does nothing in training")
    more = (each(c())[0] for _ in range(6))  # a few weights may by chance fall alike once
    holds(not all(torch.equal(found, again) for again in more), f"{path} drops always the same")


def skips_and_remembers(spec: S.Model) -> bool:
    """Whether the spec can have both segment memory and layer dropout."""
    return causal_with_positions(spec) and not spec.stack.reversible and not spec.stack.loop


@torch.inference_mode()
def law_layer_dropout(spec: S.Model, seed: int) -> None:
    """A skipped block remembers what it would have read, so that memories stay aligned."""
    spec = S.override(without_dropout(spec), "stack.recurrence", 4)
    spec = S.override(spec, "stack.layer_dropout", 1.0)
    c = case(spec, seed)
    wanted = c(return_mems=True).mems
    c.model.train()
    out = c(return_mems=True, output_hidden_states=True)
    holds(out.mems.hidden.keys() == wanted.hidden.keys(), "a skipped attention forgot")
    holds(out.mems.length == wanted.length, "a skipped block changed the memory's length")
    for path, rows in out.mems.hidden.items():
        holds(rows.shape == wanted.hidden[path].shape, f"memory of {path}: another shape")
        same(rows[:, -4:], out.hidden_states[0][:, -4:], f"memory of {path}, which was skipped")
    c.model.eval()
    finite([c(mems=out.mems).last_hidden_state], "outputs after skipped blocks")


def reversible(spec: S.Model) -> bool:
    """Whether the main stack is reversible."""
    return spec.stack.reversible


def law_reversible(spec: S.Model, seed: int) -> None:
    """Gradients that recompute the activations equal plain ones, dropout included."""
    c = case(spec, seed)
    c.model.train()
    found = []
    for more in ({}, {"use_cache": True}):  # a cache is made the plain way, by autograd
        torch.manual_seed(seed)
        out = each(c(**more))
        found.append(([t.detach() for t in out], gradients(c, weighed(out))))
    (outputs, grads), (plain, wanted) = found
    all_same(outputs, plain, "two streams")
    same_each(grads, wanted, "gradient of {} by recomputation")
