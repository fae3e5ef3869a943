"""A prompt read in parts is the prompt read at once: what is remembered, what is written."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import generate, room
from anyformer.generate.chat import Chat
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import FEWEST, at_a_time, read_bytes
from anyformer.generate.static import Static
from anyformer.laws.cases import perturbed
from anyformer.laws.specs import VOCAB
from tests.generate.test_static import NEW, PROMPT, SWITCHES, close, decoder, prompt_of, trail

XL = {"recurrence": 4, "primed": True}
OTHERS = [(False, 3), (True, 1)]


@pytest.mark.parametrize(
    ("padded", "size"),
    [(False, 1), (True, 3), *(pytest.param(*c, marks=pytest.mark.slow) for c in OTHERS)],
)
@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_reads_in_parts(name, padded, size):
    model = perturbed(SWITCHES[name], 2)
    whole = prompt_of(model, 2, padded)
    parts, tokens = replace(whole, prefill=size), torch.randint(1, VOCAB, (2, NEW))
    wanted = trail(Growing(model), whole, tokens)
    close(trail(Growing(model), parts, tokens), wanted)
    close(trail(Static(model, room=NEW), parts, tokens), wanted)


@pytest.mark.parametrize("limit", [None, 0, 2, 9])
@pytest.mark.parametrize("first", ["zeros", "nothing"])
def test_a_segment_memory_is_what_it_would_be(first, limit):
    spec = decoder(relative=(S.XL(),), stack=XL if first == "zeros" else {"recurrence": 4})
    model = perturbed(spec, 0)
    limit = 4 if limit is None and first == "nothing" else limit
    given = {} if limit is None else {"mem_len": limit}
    if first == "zeros" and limit == 0:
        with pytest.raises(InputError, match="mem_len=0"):
            generate(model, [[3, 4, 5]], 2, prefill=2, mem_len=0)
        return
    whole = Prompt(ids=torch.randint(2, VOCAB, (2, 8)), given=given)
    pair = [Growing(model), Growing(model)]
    with torch.no_grad():
        for one, prompt in zip(pair, (whole, replace(whole, prefill=3)), strict=True):
            one.start(prompt)
    a, b = (one.past for one in pair)
    assert a is not None and b is not None
    assert (a.limit, a.length, a.seen, a.pinned) == (b.limit, b.length, b.seen, b.pinned)
    assert a.positions is not None and b.positions is not None
    assert torch.equal(a.positions, b.positions) and a.hidden.keys() == b.hidden.keys()
    for path in a.hidden:
        torch.testing.assert_close(a.hidden[path], b.hidden[path])
    tokens = torch.randint(2, VOCAB, (2, NEW))
    close(trail(Growing(model), replace(whole, prefill=3), tokens), trail(pair[0], whole, tokens))


def sizes(model, run):
    """Positions that a stack reads in each call, and those that get logits."""
    read, told = list[int](), list[int]()
    marks = [
        model.stack.register_forward_pre_hook(lambda m, x: read.append(x[0].shape[1])),
        model.head.register_forward_pre_hook(lambda m, x: told.append(x[0].shape[1])),
    ]
    run()
    for mark in marks:
        mark.remove()
    return read, told


def test_no_more_is_read_at_a_time_and_one_position_has_logits():
    model = perturbed(decoder(), 0)
    ids = torch.randint(2, VOCAB, (2, 11))
    read, told = sizes(model, lambda: generate(model, ids, 1, prefill=4))
    assert read == [4, 4, 3] and set(told) == {1}
    tokens = perturbed(decoder(embed={"memory": 3}), 0)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0  # memory tokens stand behind padding: the first part reaches beyond it
    read, _ = sizes(tokens, lambda: generate(tokens, ids, 1, prefill=4, attention_mask=mask))
    assert read == [7 + 3, 4]


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 3}, {"do_sample": True, "seed": 2, "num_return_sequences": 2}, {"draft": True}],
    ids=["beams", "drawn", "draft"],
)
def test_texts_are_the_same(options: dict[str, Any]):
    model = perturbed(decoder(), 0)
    if options.get("draft"):
        options = {"draft": perturbed(decoder(stack={"depth": 1}), 1)}
    rows = [[3, 4, 5, 6, 7, 8], [9, 10]]
    wanted = generate(model, rows, 9, **options)
    assert torch.equal(generate(model, rows, 9, prefill=2, **options), wanted)


def test_a_chat_reads_turns_in_parts():
    model = perturbed(decoder(), 0)
    turns = [[3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13]]
    whole, parts = Chat(model), Chat(model, prefill=2)
    for ids in turns:
        assert list(parts.say(ids, 4)) == list(whole.say(ids, 4))
    read, _ = sizes(model, lambda: list(Chat(model, prefill=2).say(turns[1], 1)))
    assert read == [2, 2, 2]


def test_what_memory_allows_is_read_at_a_time(monkeypatch):
    spec = anyformer.recipe("llama", dim=16, depth=1, heads=2, vocab=VOCAB)
    model = anyformer.build(spec).eval()
    assert at_a_time(model, 1, 4096) is None
    free = room.READING * read_bytes(spec, 1, 700, torch.float32)
    monkeypatch.setattr(room, "free_bytes", lambda device: free)
    assert at_a_time(model, 1, 701) == 512 and at_a_time(model, 1, 700) is None
    assert at_a_time(model, 2, 600) == FEWEST
    ids = torch.randint(2, VOCAB, (1, 1200))
    read, _ = sizes(model, lambda: generate(model, ids, 1, decoder="growing"))
    assert read == [512, 512, 176]


def test_the_bytes_of_reading_are_near_those_of_a_layer():
    spec = SWITCHES["learned"]
    assert read_bytes(spec, 2, 10, torch.float32) == 2 * 10 * (2 * (64 + 16) + 4 * 16) * 4


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "4"])
def test_bad_sizes_are_refused(size):
    with pytest.raises(InputError, match="prefill must be an int of at least 1"):
        generate(perturbed(decoder(), 0), torch.ones(1, PROMPT, dtype=torch.long), 2, prefill=size)
