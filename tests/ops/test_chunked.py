"""Blocks cover a call once, and recomputation draws the same dropout."""

import pytest
import torch

import anyformer.ops.chunked as chunked_
from anyformer.ops.chunked import blocks, chunked, random_from, random_state
from anyformer.ops.eager import block, eager
from anyformer.ops.mask import Causal, Padding, Window
from anyformer.ops.plan import Mod, Plan
from anyformer.ops.relative import Relative


def tensors(queries=50, keys=None, batch=3, heads=2):
    lengths = (queries, keys or queries, keys or queries)
    return [
        torch.randn(batch, heads, n, 4, dtype=torch.float64, requires_grad=True) for n in lengths
    ]


@pytest.mark.parametrize("scores", [1, 3000, 1 << 20])
@pytest.mark.parametrize(
    ("queries", "start", "lead"), [(1, 9, 0), (17, 0, 3), (50, 4, 2), (300, 0, 0)]
)
def test_blocks_cover_every_query_once_and_every_key_that_is_seen(
    monkeypatch, scores, queries, start, lead
):
    monkeypatch.setattr(chunked_, "SCORES", scores)
    q, k, _ = tensors(queries, queries + start + lead)
    plan = Plan(1.0, mask=Causal() & Window(7), start=start, lead=lead)
    count = torch.zeros(3, queries, dtype=torch.int)
    for b in blocks(q, k, plan):
        count[b.rows, b.queries] += 1
        assert b.at.row == b.rows.start
        assert b.at.query == start + b.queries.start
        assert b.at.key == b.keys.start - lead
        first, last = start + b.queries.start, start + b.queries.stop - 1
        assert b.keys.start <= lead + max(0, first - 6)
        assert b.keys.stop >= lead + last + 1
        assert lead == 0 or b.keys.start == 0  # persistent keys are always read
    assert (count == 1).all()


def test_keys_out_of_the_window_are_not_read():
    q, k, _ = tensors(400)
    read = [b.keys for b in blocks(q, k, Plan(1.0, mask=Causal() & Window(8)))]
    assert len(read) > 1
    assert all(keys.stop - keys.start <= 128 + 7 for keys in read)


def test_blocks_stay_below_the_limit(monkeypatch):
    monkeypatch.setattr(chunked_, "SCORES", 5000)
    q, k, _ = tensors(300, 70)
    for b in blocks(q, k, Plan(1.0)):
        size = (b.queries.stop - b.queries.start) * (b.keys.stop - b.keys.start)
        rows = min(b.rows.stop, 3) - b.rows.start
        assert rows * 2 * size <= max(5000, 16 * 2 * 70)


def gradients(out, inputs):
    weight = torch.linspace(-1, 1, out.shape[-1], dtype=out.dtype)
    return torch.autograd.grad((out * weight).sum(), inputs)


def test_backward_draws_the_dropout_of_forward(monkeypatch):
    monkeypatch.setattr(chunked_, "SCORES", 2000)
    q, k, v = tensors()
    plan = Plan(0.5, mask=Causal(), dropout=0.4)
    assert len(list(blocks(q, k, plan))) > 3
    torch.manual_seed(5)
    out = chunked(q, k, v, plan)
    torch.rand(100)  # what is drawn between the passes doesn't matter
    found = gradients(out, (q, k, v))
    torch.manual_seed(5)
    want = torch.zeros_like(out)
    for b in blocks(q, k, plan):
        keys = (b.rows, slice(None), b.keys)
        part = block(q[b.rows, :, b.queries], k[keys], v[keys], plan, b.at)
        want[b.rows, :, b.queries] = part
    assert torch.equal(out, want)
    for ours, theirs in zip(found, gradients(want, (q, k, v)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dropout_drops_about_its_share_and_keeps_the_mean(monkeypatch):
    monkeypatch.setattr(chunked_, "SCORES", 2000)
    q, k, v = tensors(60)
    ones = torch.ones_like(v)
    out = chunked(q, k, ones, Plan(0.0, dropout=0.25))
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)
    assert out.std() > 0.01


def test_backward_leaves_the_random_state_alone():
    q, k, v = tensors()
    out = chunked(q, k, v, Plan(0.5, dropout=0.4))
    before = torch.get_rng_state()
    out.sum().backward()
    assert torch.equal(before, torch.get_rng_state())


def test_random_from_goes_on_from_a_state():
    state = random_state(torch.zeros(1))
    drawn = torch.rand(3)
    outer = torch.get_rng_state()
    with random_from(state, torch.zeros(1)):
        assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(outer, torch.get_rng_state())


def test_every_tensor_of_a_plan_learns(monkeypatch):
    monkeypatch.setattr(chunked_, "SCORES", 2000)
    q, k, v = tensors()
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    bias, query, key, mix, remix, gain = (
        make(2, 9),
        make(1, 9, 4),
        make(2, 9, 4),
        make(2, 2),
        make(2, 2),
        make(2),
    )
    keep = torch.ones(3, 50, dtype=torch.bool)
    keep[1, :20] = False
    plan = Plan(
        0.5,
        mask=Causal() & Padding(keep, True),
        relative=Relative(-8, 0, bias, query, key),
        mods=(Mod(lambda s, b, h, q, k: s * gain[h], (gain,)),),
        mix=mix,
        remix=remix,
    )
    inputs = (q, k, v, bias, query, key, mix, remix, gain)
    ours, theirs = (gradients(run(q, k, v, plan), inputs) for run in (chunked, eager))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_nothing_to_learn_is_fine():
    q, k, v = (t.detach() for t in tensors())
    plan = Plan(0.5, relative=Relative(-1, 1, torch.randn(2, 3, dtype=torch.float64)))
    torch.testing.assert_close(chunked(q, k, v, plan), eager(q, k, v, plan))


def test_one_input_alone_learns():
    q, k, v = tensors(20)
    plan = Plan(0.5, mask=Causal())
    (ours,) = gradients(chunked(q, k.detach(), v.detach(), plan), (q,))
    (theirs,) = gradients(eager(q, k.detach(), v.detach(), plan), (q,))
    torch.testing.assert_close(ours, theirs)
