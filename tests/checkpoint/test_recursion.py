"""A trained stack as a recursive one and back: exact where it must be (arXiv:2410.20672)."""

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import recursive, swap, untied, with_rounds
from anyformer.errors import CheckpointError

SIZES = {"dim": 16, "depth": 6, "heads": 4, "vocab": 23}
IDS = torch.arange(18).view(2, 9) % 23
EXACT = {"rtol": 1e-9, "atol": 1e-9}
CHOICES = ("average", "stepwise", "lower")
NAMES = ("llama", "gpt2", "bert")


@torch.no_grad()
def made(name="llama", alike=False, **changes):
    """A model in float64 whose layers differ, or are all alike."""
    options = {"length": 12} if name in ("gpt2", "bert") else {}
    spec = anyformer.recipe(name, **SIZES, **options)
    for path, value in changes.items():
        spec = S.override(spec, path, value)
    torch.manual_seed(0)
    model = anyformer.build(spec).double().eval()
    for weight in model.parameters():
        weight.add_(0.1 * torch.randn_like(weight))
    for block in model.stack.blocks if alike else ():
        block.load_state_dict(model.stack.blocks[0].state_dict())
    return model


def assert_same(one, other, **close):
    a, b = one(IDS).last_hidden_state, other(IDS).last_hidden_state
    torch.testing.assert_close(a, b, **close or EXACT)


def key(block, part="0.branch.q.weight"):
    return f"stack.blocks.{block}.{part}"


# ---------------------------------------------------------- layers to a recursion


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("name", NAMES)
def test_equal_layers_become_one_and_many_again(name, choose):
    model = made(name, alike=True)
    one = recursive(model, choose=choose, own=())
    assert len(one.stack.blocks) == 1
    assert_same(one, model, rtol=0, atol=0)
    back = untied(one)
    assert back.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(t, model.state_dict()[k]) for k, t in back.state_dict().items())


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("unique", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_full_rank_is_exact_whatever_is_chosen(name, unique, choose):
    model = made(name)
    again = recursive(model, unique, choose=choose, rank=64)
    assert not again.report.fresh and not again.report.dropped
    assert_same(again, model)
    assert_same(untied(again), model)


def test_what_the_shared_blocks_start_from():
    model = made()
    state, at = model.state_dict(), lambda m, b: m.state_dict()[key(b)]
    lower = recursive(model, 2, choose="lower", own=())
    assert [torch.equal(at(lower, u), state[key(u)]) for u in (0, 1)] == [True, True]
    steps = recursive(model, 2, choose="stepwise", own=())
    assert torch.equal(at(steps, 0), state[key(0)]) and torch.equal(at(steps, 1), state[key(5)])
    mean = recursive(model, 2, own=())
    wanted = torch.stack([state[key(i)] for i in (0, 2, 4)]).mean(0)
    torch.testing.assert_close(at(mean, 0), wanted)
    three = recursive(model, 3, choose="stepwise", own=()).state_dict()
    old = [0, 3, 5]
    assert all(torch.equal(three[key(u)], state[key(i)]) for u, i in enumerate(old))
    norm = "0.norm.weight"
    assert all(torch.equal(three[key(u, norm)], state[key(i, norm)]) for u, i in enumerate(old))


@pytest.mark.parametrize("choose", CHOICES)
def test_layers_before_and_behind_the_loop_stay(choose):
    model = made()
    spec = S.override(model.spec, "stack.schedule", S.Looped(prelude=1, core=2, coda=1, loops=2))
    new, state = swap(model, spec, choose=choose).state_dict(), model.state_dict()
    assert torch.equal(new[key(0)], state[key(0)]) and torch.equal(new[key(3)], state[key(5)])
    picked = {"lower": (1, 2), "stepwise": (1, 4)}.get(choose)
    if picked is not None:
        assert [torch.equal(new[key(1 + u)], state[key(i)]) for u, i in enumerate(picked)]
        assert torch.equal(new[key(1)], state[key(picked[0])])
        assert torch.equal(new[key(2)], state[key(picked[1])])


def test_own_norms_stay_with_their_turns():
    model = made()
    again = recursive(model, choose="lower", own=("norm",))
    for i, block in enumerate(model.stack.blocks):
        assert torch.equal(block[0].norm.weight, again.stack.blocks[i][0].norm.weight)


# --------------------------------------------------------- a recursion to layers


SCHEDULES = [
    S.Shared(unique=2, order="sequence"),
    S.Shared(unique=3, order="cycle"),
    S.Shared(unique=4, order="middle_cycle"),
    S.Shared(unique=4, order="middle_sequence"),
    S.Shared(unique=3, order="cycle_reverse"),
    S.Looped(prelude=1, core=2, coda=1, loops=2),
    S.Superblocks(layers=3, repeat=2),
    S.Explicit(order=(0, 1, 0, 2, 1, 0)),
]
BESIDE = [
    {},
    {"stack.own": ("norm", "gain", "relative")},
    {"stack.own": ("attention",), "stack.lora": S.Lora(rank=2, alpha=3.0)},
    {"stack.own": ("feedforward",)},
    {"stack.own": ("out", "down")},
    {"stack.own": ("norm", "out"), "stack.lora": S.Lora(rank=2)},
    {"stack.loop": S.Loop()},
]


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_recursion_unrolled_is_the_same(schedule, beside):
    model = made(**{"stack.schedule": schedule, **beside})
    flat = untied(model)
    assert flat.spec.stack.schedule == S.Plain() and len(flat.stack.blocks) == 6
    assert not flat.report.fresh and not flat.report.dropped
    assert_same(flat, model)


def test_kinds_of_blocks_unrolled():
    other = made("gpt2").spec.stack.block
    model = made("gpt2")
    spec = S.override(model.spec, "stack.others", (other[:1],))
    spec = S.override(spec, "stack.schedule", S.Shared(unique=2, order="cycle"))
    torch.manual_seed(1)
    model = anyformer.build(spec).double().eval()
    assert_same(untied(model), model)


@pytest.mark.parametrize(
    "changes",
    [
        {"stack.loop": S.Loop(step="learned")},
        {"stack.loop": S.Loop(keys="first")},
        {"stack.schedule": S.Superblocks(layers=3, repeat=2, around=True)},
    ],
)
def test_what_a_plain_stack_cannot_compute_is_refused(changes):
    schedule = {"stack.schedule": S.Shared(unique=3, order="cycle")}
    with pytest.raises(CheckpointError):
        untied(made(**{**schedule, **changes}))


# -------------------------------------------------------------- other rounds


def test_turns_keep_what_is_theirs_with_more_rounds():
    model = made(**{"stack.schedule": S.Shared(unique=2, order="cycle"), "stack.own": ("norm",)})
    more = with_rounds(model, 4)
    for i in range(8):
        old = i if i < 6 else 4 + i % 2
        wanted = model.stack.blocks[old][0].norm.weight
        assert torch.equal(more.stack.blocks[i][0].norm.weight, wanted)
    assert_same(with_rounds(more, 3), model, rtol=0, atol=0)


def test_routers_go_on_like_the_last():
    loop = S.Loop(halt=S.Route())
    model = made(**{"stack.schedule": S.Shared(unique=2, order="cycle"), "stack.loop": loop})
    more = with_rounds(model, 4).stack.loop.halt
    assert torch.equal(more.weight[:3], model.stack.loop.halt.weight)
    assert torch.equal(more.weight[3], more.weight[2]) and torch.equal(more.bias[3], more.bias[2])


# ------------------------------------------------------- last maps of one's own


@pytest.mark.parametrize("name", NAMES)
def test_last_maps_stay_with_their_layers(name):
    model = made(name)
    own = ("norm", "out", "down")
    again = recursive(model, 2, own=own)
    assert not again.report.fresh and not again.report.dropped
    for i, block in enumerate(model.stack.blocks):
        new = again.stack.blocks[i]
        for j, layer in enumerate(("out", "down")):
            mine = new[j].branch if new[j].maps is None else new[j].maps
            found = mine[layer] if new[j].maps is not None else getattr(mine, layer)
            assert torch.equal(found.weight, getattr(block[j].branch, layer).weight)
    full = recursive(model, 2, own=own, rank=64)
    assert_same(full, model)
    assert_same(untied(full), model)
