"""Short prompts are read by graphs from their third time on; others, and those heard, as before."""

import pytest
import torch

from anyformer.generate import opening as module
from anyformer.generate.decoder import Growing
from anyformer.generate.opening import Opening, Openings
from anyformer.generate.prompt import Prompt
from anyformer.generate.static import Static
from anyformer.laws.cases import perturbed
from anyformer.model.model import build
from anyformer.recipes import recipe
from tests.generate.test_static import SWITCHES, VOCAB, close

SPEC = recipe("gpt2", dim=16, depth=2, heads=2, vocab=VOCAB, length=64)


class Replay:
    """In place of a graph: counts how often it runs."""

    times = 0

    def replay(self):
        self.times += 1


def opened(monkeypatch):
    """Openings whose graphs count, and what was read otherwise."""
    graph, read = Replay(), []
    made = lambda prompt, read: Opening(graph, prompt.ids.clone(), torch.ones(2, VOCAB), 7)
    monkeypatch.setattr(module, "_captured", made)

    def reading(prompt):
        read.append(prompt)
        return torch.zeros(2, VOCAB), prompt.ids.shape[1]

    return Openings(build(SPEC).eval()), graph, read, reading


checked: list[Prompt] = []


def drawn(length=5, **more):
    return Prompt(ids=torch.randint(0, VOCAB, (2, length)), **more)


def test_a_shape_that_comes_again_becomes_a_graph(monkeypatch):
    openings, graph, read, reading = opened(monkeypatch)
    prompts = [drawn() for _ in range(4)]
    checked.clear()
    lengths = [openings.read(prompt, reading, checked.append)[1] for prompt in prompts]
    assert lengths == [5, 5, 7, 7] and read == prompts[:2] == checked and graph.times == 2
    (one,) = openings.graphs.values()
    assert one is not None and torch.equal(one.ids, prompts[-1].ids)
    openings.read(drawn(6), reading, checked.append)  # another shape
    assert len(read) == 3


@pytest.mark.parametrize(
    "prompt",
    [
        drawn(given={"attention_mask": torch.ones(2, 5)}),
        drawn(prefill=2),
        drawn(module.FEWEST + 1),
        Prompt(ids=torch.zeros(module.TOKENS // 128 + 1, 128, dtype=torch.long)),
    ],
    ids=["a mask", "in parts", "long", "many rows"],
)
def test_other_prompts_are_read_as_before(prompt, monkeypatch):
    openings, graph, read, reading = opened(monkeypatch)
    for _ in range(4):
        openings.read(prompt, reading, checked.append)
    assert len(read) == 4 and not openings.graphs and graph.times == 0


def test_a_model_that_is_listened_to_is_read_as_before(monkeypatch):
    openings, graph, read, reading = opened(monkeypatch)
    for _ in range(3):
        openings.read(drawn(), reading, checked.append)
    openings.model.stack.blocks[0].register_forward_hook(lambda *a: None)
    openings.read(drawn(), reading, checked.append)
    assert len(read) == 3 and graph.times == 1


def test_a_pass_that_no_graph_can_hold_is_tried_once(monkeypatch):
    openings, _graph, read, reading = opened(monkeypatch)
    tried = []
    monkeypatch.setattr(module, "_captured", lambda *a: tried.append(a))
    for _ in range(5):
        openings.read(drawn(), reading, checked.append)
    assert len(read) == 5 and len(tried) == 1


def test_there_are_not_more_graphs_than_set(monkeypatch):
    openings, _, read, reading = opened(monkeypatch)
    monkeypatch.setattr(module, "MOST", 2)
    for length in (3, 4, 5):
        for _ in range(3):
            openings.read(drawn(length), reading, checked.append)
    assert [key[1][1] for key in openings.graphs] == [3, 4] and len(read) == 7


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["learned", "two key heads, rotary", "t5 bias"])
def test_graphs_say_what_a_growing_cache_says(name):
    model = perturbed(SWITCHES[name], 3).cuda()
    fixed, tokens = Static(model, room=20), torch.tensor([1, 2]).cuda()
    for _ in range(4):
        prompt = Prompt(ids=torch.randint(1, VOCAB, (2, 6)).cuda())
        both = [(one.start(prompt), one.step(tokens)) for one in (fixed, Growing(model))]
        for found, wanted in zip(*both, strict=True):
            close(found, wanted)
    assert [one is not None for one in fixed.openings.graphs.values()] == [True]
