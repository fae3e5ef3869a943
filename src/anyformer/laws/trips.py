"""Law 7: a model comes back from JSON, a copy, a pickle, a state_dict and a folder as it went."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile
from collections.abc import Callable

import torch
from torch import Tensor

import anyformer
from anyformer import spec as S
from anyformer.laws.broken import holds
from anyformer.laws.cases import answers, case, twin
from anyformer.model.model import Model


@torch.no_grad()
def law_trips(spec: S.Model, seed: int) -> None:
    """7: every round trip gives bit-equal outputs."""
    c = case(spec, seed)
    _spec_trips(spec)
    for name, trip in TRIPS.items():
        for found, before in zip(answers(c, trip(c.model)), c.plain(), strict=True):
            holds(torch.equal(found, before), f"{name} changed the outputs")


@torch.no_grad()
def law_folder(spec: S.Model, seed: int) -> None:
    """7: a model that was saved to a folder and loaded is bit-equal, its spec and weights too."""
    c = case(spec, seed)
    with tempfile.TemporaryDirectory() as folder:
        c.model.save_pretrained(folder)
        loaded = anyformer.load(folder)
    holds(loaded.spec == spec, "the folder changed the spec")
    before, after = c.model.state_dict(), loaded.state_dict()
    holds(before.keys() == after.keys(), "the folder changed the names of weights")
    for name, weight in before.items():
        holds(
            weight.dtype == after[name].dtype and torch.equal(weight, after[name]),
            f"the folder changed {name}",
        )
    for found, wanted in zip(answers(c, loaded), c.plain(), strict=True):
        holds(torch.equal(found, wanted), "the folder changed the outputs")


def _spec_trips(spec: S.Model) -> None:
    again = S.from_json(S.to_json(spec))
    holds(again == spec and hash(again) == hash(spec), "JSON changed the spec")
    known = {**vars(S), **S.KINDS, "__builtins__": {}}
    printed = eval(repr(spec), known)  # nosec B307 # nodes alone: there is nothing else to name
    holds(printed == spec, "the printed code makes another spec")
    pickled = pickle.loads(pickle.dumps(spec))  # nosec B301 # what was dumped on this line
    holds(pickled == spec, "a pickle changed the spec")
    holds(not S.diff(spec, copy.deepcopy(spec)), "a copy differs")


def _by_json(model: Model) -> Model:
    """A model built anew from the spec's JSON, with the weights of a state_dict."""
    return twin(model, S.from_json(S.to_json(model.spec)))


def _by_pickle(model: Model) -> Model:
    """A model from the pickle of its copy; tensors, whose pickles are torch's, go beside it."""
    tensors: dict[int, Tensor] = {}
    file = io.BytesIO()
    writer = pickle.Pickler(file)
    writer.persistent_id = lambda x: _aside(x, tensors)  # type: ignore[method-assign]
    writer.dump(copy.deepcopy(model))
    file.seek(0)
    reader = pickle.Unpickler(file)  # nosec B301 # what was dumped above
    reader.persistent_load = tensors.__getitem__  # type: ignore[method-assign]
    return reader.load()


def _aside(x: object, tensors: dict[int, Tensor]) -> int | None:
    """The key of a tensor among those that go beside a pickle; None for all else."""
    if not isinstance(x, Tensor):
        return None
    tensors[id(x)] = x
    return id(x)


TRIPS: dict[str, Callable[[Model], Model]] = {
    "JSON and a state_dict": _by_json,
    "a copy's pickle": _by_pickle,
}
