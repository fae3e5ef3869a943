"""Law 7: a model comes back from JSON, a copy, a pickle, a state_dict and a folder as it went."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile

import torch
from torch import Tensor

import anyformer
from anyformer import spec as S
from anyformer.laws.broken import holds
from anyformer.laws.cases import Case, case, each, pooled
from anyformer.model.model import Model, build


@torch.no_grad()
def law_trips(spec: S.Model, seed: int) -> None:
    """7: every round trip gives bit-equal outputs."""
    c = case(spec, seed)
    _spec_trips(spec)
    wanted = _outputs(c, c.model)
    for name, trip in TRIPS.items():
        for found, before in zip(_outputs(c, trip(c.model)), wanted, strict=True):
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
    for found, wanted in zip(_outputs(c, loaded), _outputs(c, c.model), strict=True):
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


def _outputs(c: Case, model: torch.nn.Module) -> list[Tensor]:
    out = Case(c.spec, model, c.main, c.other, c.rng)()  # type: ignore[arg-type]
    return [*each(out), *pooled(out)]


def _by_json(model: Model) -> torch.nn.Module:
    """A model built anew from the spec's JSON, with the weights of a state_dict on disk."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = build(S.from_json(S.to_json(model.spec))).double().eval()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


TRIPS = {
    "JSON and a state_dict": _by_json,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),  # nosec B301 # dumped here
}
