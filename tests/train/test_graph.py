"""A step as a CUDA graph: what it refuses anywhere, and equal runs on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from anyformer.data.loader import Loader
from anyformer.errors import SpecError, TrainError
from anyformer.model import checks, inputs
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.recipes import recipe
from anyformer.spec import override
from anyformer.study.shipped import modifications
from anyformer.study.words import put
from anyformer.train.ranks import alone
from anyformer.train.settings import Adafactor, Settings, check
from anyformer.train.step import Stepper
from tests.train.tiny import Bound, Numbers, spec

SETTINGS = Settings(steps=8, batch=4, lr=1e-2, graph=True)


def test_settings_that_a_graph_has_no_place_for():
    for wrong in ({"precision": "float16"}, {"optimiser": Adafactor()}):
        with pytest.raises(SpecError, match="graph=True captures"):
            check(replace(SETTINGS, **wrong))


def test_a_graph_needs_a_gpu():
    trainee = Trainee(build(spec()), Bound())
    with pytest.raises(TrainError, match="leave it out"):
        Stepper(alone(trainee), SETTINGS, torch.device("cpu"))


def _losses(settings: Settings, layer_dropout: float = 0.0) -> tuple[list[float], dict]:
    torch.manual_seed(0)
    device = torch.device("cuda")
    made = override(spec(dropout=0.1), "stack.layer_dropout", layer_dropout)
    trainee = Trainee(build(made), Bound()).to(device).train()
    stepper = Stepper(alone(trainee), settings, device)
    loader = Loader(Numbers(), trainee.objective, settings.batch, settings.micro, seed=1)
    told = [stepper.run(s, loader.step(s), 1 / (s + 1), False) for s in range(settings.steps)]
    return [t.read()["loss"] for t in told], trainee.state_dict()


@pytest.mark.gpu
@pytest.mark.parametrize("micro", [None, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_replayed_steps_equal_plain_ones(micro, precision):
    """With dropout and a rate that changes: the graph reads seeds and rates of every step."""
    settings = replace(SETTINGS, micro=micro, precision=precision)
    graph, plain = (_losses(replace(settings, graph=on)) for on in (True, False))
    assert graph[0] == pytest.approx(plain[0], rel=1e-5)
    assert len({round(x, 6) for x in graph[0]}) == settings.steps
    for name, weight in plain[1].items():
        torch.testing.assert_close(graph[1][name], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_model_that_draws_on_the_host_is_refused():
    with pytest.raises(TrainError, match="draws on the host"):
        _losses(SETTINGS, layer_dropout=0.5)


@pytest.mark.parametrize("kind", [modifications.ENCODER, modifications.DECODER, modifications.PAIR])
def test_the_host_reads_nothing_of_a_step_of_any_switch(kind, monkeypatch):
    """Tensors without values, on which reading one raises: what is read here can't be captured."""
    for module in (inputs, checks):  # values are looked at on a CPU alone
        monkeypatch.setattr(module, "readable", lambda x: False, raising=False)
    base = modifications.BASES[kind][0]
    plain = recipe(base, dim=16, depth=1, heads=2, vocab=40)
    names = {modifications.ENCODER: (), modifications.DECODER: ("labels",)}
    names = ("input_ids", *names.get(kind, ("labels", "decoder_input_ids")))
    given = {name: torch.zeros(2, 4, dtype=torch.long, device="meta") for name in names}

    def is_read(words, look):
        model = build(put(plain, base, words)).to("meta").train()
        try:
            out = model(**given)
            loss = out.last_hidden_state.sum() if out.loss is None else out.loss
            loss.backward()
            look(loss.detach())
        except RuntimeError as error:
            assert "meta tensors" in str(error) or isinstance(error, NotImplementedError)
            return True
        return False

    assert is_read((), float)  # so it would be seen
    switches = {"plain": (), **modifications.switches(kind, "cpu")}
    assert not [name for name, words in switches.items() if is_read(words, lambda loss: None)]
