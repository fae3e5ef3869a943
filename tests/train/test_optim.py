"""Groups: who decays, who learns at which rate, who is left alone, and state by name."""

import pytest
import torch

from anyformer.errors import SpecError
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.recipes import recipe
from anyformer.train.optim import Optimisers, freeze, groups, heights
from anyformer.train.settings import Adafactor, AdamW, Muon
from tests.train.tiny import Bound, settings, spec


def _trainee(**options) -> Trainee:
    return Trainee(build(spec(**options)), Bound())


def _decay(trainee, **options) -> dict[str, float]:
    made = groups(trainee, settings(**options))
    return {n: g["weight_decay"] for g in made for n in g["names"]}


def test_norms_biases_and_embeddings_do_not_decay():
    decay = _decay(_trainee())
    assert decay["model.embed.token.weight"] == 0.0
    for name, value in decay.items():
        plain = name.endswith("bias") or "norm" in name or ".embed." in name
        assert value == (0.0 if plain else 0.1), name
    assert 0.1 in decay.values()


def test_what_does_not_decay_is_a_choice():
    decay = _decay(_trainee(), undecayed=())
    assert set(decay.values()) == {0.1}
    assert _decay(_trainee(), undecayed=("biases",))["model.embed.token.weight"] == 0.1


def test_every_parameter_is_in_one_group():
    trainee = _trainee()
    found = [id(p) for g in groups(trainee, settings(layer_decay=0.5)) for p in g["params"]]
    assert len(found) == len(set(found)) == len(list(trainee.parameters()))


def test_rates_fall_with_each_block_away_from_the_head():
    made = groups(_trainee(depth=3), settings(layer_decay=0.5))
    scale = {n: g["scale"] for g in made for n in g["names"]}
    assert scale["model.stack.norm.weight"] == 1.0
    assert [scale[f"model.stack.blocks.{i}.0.norm.weight"] for i in range(3)] == [0.125, 0.25, 0.5]
    assert scale["model.embed.token.weight"] == 0.0625


def test_an_encoder_lies_below_its_decoder():
    model = build(recipe("t5", dim=16, depth=2, heads=2, vocab=20))
    height = heights([n for n, _ in Trainee(model, Bound()).named_parameters()])
    find = lambda part: {v for n, v in height.items() if part in n}
    assert find("encoder.stack.blocks.0.") == {4}
    assert find("encoder.stack.blocks.1.") == {3}
    assert {v for n, v in height.items() if n.startswith("model.stack.blocks.0.")} == {2}


def test_frozen_parameters_do_not_learn():
    trainee = _trainee()
    frozen = freeze(trainee, ("embed.*", "model.stack.blocks.0.*"))
    names = {n for g in groups(trainee, settings()) for n in g["names"]}
    assert frozen
    assert not names & set(frozen)
    assert not any(p.requires_grad for p in trainee.model.stack.blocks[0].parameters())


def test_a_pattern_that_matches_nothing_names_one_that_would():
    with pytest.raises(SpecError, match=r"embed\.token"):
        freeze(_trainee(), ("embed.tokens.weight",))
    with pytest.raises(SpecError, match="nothing is left"):
        freeze(_trainee(), ("*",))


def test_muon_takes_the_matrices_of_blocks_only():
    made = groups(_trainee(), settings(optimiser=Muon()))
    muon = {n for g in made if g["muon"] for n in g["names"]}
    assert muon
    assert all(".blocks." in n and n.endswith("weight") and "norm" not in n for n in muon)
    assert len(Optimisers(_trainee(), settings(optimiser=Muon())).all) == 2


@pytest.mark.parametrize("optimiser", [AdamW(), Adafactor(), Muon()])
def test_state_by_name_goes_from_one_optimiser_to_another(optimiser):
    given = settings(optimiser=optimiser, layer_decay=0.9)
    one, two = _trainee(dropout=0.0), _trainee(dropout=0.0)
    two.load_state_dict(one.state_dict())
    first, second = Optimisers(one, given), Optimisers(two, given)
    ids = torch.randint(0, 23, (2, 12))

    def step(trainee, optimisers):
        trainee.model(ids, labels=ids).loss.backward()
        optimisers.set(0.5)
        for inner in optimisers.all:
            inner.step()
        optimisers.zero()

    step(one, first)
    state = first.tensors()
    two.load_state_dict(one.state_dict())
    for key, tensor in second.prepare({k: (t.shape, t.dtype) for k, t in state.items()}).items():
        tensor.copy_(state[key])
    assert second.tensors().keys() == state.keys()
    step(one, first)
    step(two, second)
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
