"""Parts of a recursion against the formulas written out, position by position."""

import math

import pytest
import torch

from anyformer import spec as S
from anyformer.parts import build

B, N, D, ROUNDS = 2, 5, 6, 4


def made(spec, rounds=ROUNDS):
    """The part of a loop in float64, no weight at its start."""
    torch.manual_seed(3)
    part = build(spec, D, rounds, rounds).double().eval()
    with torch.no_grad():
        for weight in part.parameters():
            weight.copy_(torch.randn_like(weight))
    return part


def states(rounds=ROUNDS):
    return [torch.randn(B, N, D, dtype=torch.float64) for _ in range(rounds + 1)]


def run(part, given, keep=None):
    """The record of a pass whose rounds lead to given states, and the states that went on."""
    record, went = part.begin(given[0], keep), [given[0]]
    for t, new in enumerate(given[1:]):
        went.append(record.after(t, went[-1], new, t + 2 == len(given)))
    return record, went


# ------------------------------------------------------------------- injection


@pytest.mark.parametrize("inject", ["none", "add", "concat", "gated", "stable"])
def test_injection(inject):
    part = made(S.Loop(inject=inject))
    h, e = states()[:2]
    found = part.injected(h, e, part.read(e))
    w = part.inject and dict(part.inject.named_parameters())
    both = torch.cat([h, e], -1)
    if inject == "none":
        wanted = h
    elif inject == "add":
        wanted = h + e
    elif inject == "concat":
        wanted = both @ w["weight"].T
    elif inject == "gated":
        gate = (both @ w["weight"].T + w["bias"]).sigmoid()
        wanted = gate * h + (1 - gate) * e
    else:
        decay = torch.exp(-torch.log1p(w["delta"].exp()) * w["decay"].exp())
        assert ((decay > 0) & (decay < 1)).all()
        wanted = decay * h + e @ w["weight"].T
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("inject", ["concat", "stable"])
def test_injection_starts_as_a_sum(inject):
    part = build(S.Loop(inject=inject), D, 2, 2)
    part.inject.fresh(0.0)
    h, e = (x.float() for x in states()[:2])
    share = 1.0 if inject == "concat" else 0.5
    torch.testing.assert_close(part.injected(h, e, part.read(e)), share * h + e)


# ----------------------------------------------------------------------- steps


def test_steps():
    x, at = states()[0], torch.arange(N)[None]
    learned = made(S.Loop(step="learned"))
    torch.testing.assert_close(learned.stepped(x, 2, at), x + learned.step[2])
    wave = lambda p: torch.tensor(
        [math.sin(p / 10000 ** (2 * i / D)) for i in range(D // 2)]
        + [math.cos(p / 10000 ** (2 * i / D)) for i in range(D // 2)],
    ).double()
    close = {"rtol": 1e-6, "atol": 1e-6}  # angles are float32
    found = made(S.Loop(step="sinusoidal")).stepped(x, 2, at)
    torch.testing.assert_close(found, x + wave(3), **close)
    found = made(S.Loop(step="coordinates")).stepped(x, 0, at)
    every = torch.stack([wave(n) for n in range(N)])
    torch.testing.assert_close(found, x + wave(1) + every, **close)


# ---------------------------------------------------------------------- rounds


def test_rounds_are_drawn_in_training_alone():
    part = build(S.Loop(drawn="uniform", inject="add", most=3), D, 4, 4).eval()
    assert part.count() == 4
    part.train()
    assert {part.count() for _ in range(99)} == {1, 2, 3}
    torch.manual_seed(5)
    first = [part.count() for _ in range(9)]
    torch.manual_seed(5)
    assert first == [part.count() for _ in range(9)]


def test_drawn_rounds_have_the_mean():
    torch.manual_seed(0)
    part = build(S.Loop(drawn="poisson", mean=8, most=999), D, 4, 4).train()
    drawn = torch.tensor([part.count() for _ in range(4000)]).double()
    assert abs(drawn.mean() - 8) < 0.3
    assert drawn.min() >= 1
    assert drawn.var() > 8, "wider than a Poisson"
    few = build(S.Loop(drawn="poisson", mean=8), D, 4, 4).train()
    assert max(few.count() for _ in range(99)) == 4
    one = build(S.Loop(drawn="poisson", mean=1), D, 4, 4).train()
    assert {one.count() for _ in range(20)} == {1}


# --------------------------------------------------------------------- halting


@pytest.mark.parametrize("epsilon", [0.01, 0.4])
def test_act_is_the_loop_written_out(epsilon):
    part = made(S.Loop(halt=S.Act(epsilon=epsilon))).requires_grad_(False)
    given = states()
    record, went = run(part, given)
    unit = part.halt
    for b in range(B):
        for n in range(N):
            h, total, out, cost = given[0][b, n], 0.0, torch.zeros(D).double(), 0.0
            for t in range(1, ROUNDS + 1):
                h = given[t][b, n]
                p = torch.sigmoid(unit.weight[0] @ h + unit.bias[0])
                cost += 1
                if total + p > 1 - epsilon or t == ROUNDS:
                    out, cost = out + (1 - total) * h, cost + 1 - total
                    break
                total, out = total + p, out + p * h
            torch.testing.assert_close(record.answer()[b, n], out)
            assert float(record.extra()[b, n]) == pytest.approx(float(cost))
            torch.testing.assert_close(went[-1][b, n], h)  # copied since


def test_ponder_cost_and_answer_reach_the_unit():
    part = made(S.Loop(halt=S.Act()))
    record, _ = run(part, states())
    for value in (record.extra().sum(), record.answer().square().sum()):
        grads = torch.autograd.grad(value, list(part.halt.parameters()), retain_graph=True)
        assert all(bool(g.any()) for g in grads)


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_exit_is_the_distribution_written_out(share):
    part = made(S.Loop(halt=S.Exit(share=share))).train()
    given = states()
    record, _ = run(part, given)
    shares = torch.cat(record.shares, -1)
    torch.testing.assert_close(shares.sum(-1), torch.ones(B, N).double())
    for b in range(B):
        for n in range(N):
            left, p = 1.0, []
            for t in range(1, ROUNDS + 1):
                gate = torch.sigmoid(part.halt.weight[0] @ given[t][b, n] + part.halt.bias[0])
                p.append(left if t == ROUNDS else left * gate)
                left = left * (1 - gate)
            p = torch.stack([torch.as_tensor(x) for x in p])
            torch.testing.assert_close(shares[b, n], p)
            torch.testing.assert_close(record.extra()[b, n], (p * p.log()).sum())
            first = int((p.cumsum(0) >= share).int().argmax())
            torch.testing.assert_close(record.answer()[b, n], given[1 + first][b, n])


def test_tokens_choose_their_depth():
    part = made(S.Loop(halt=S.Route()))
    given, keep = states(), torch.ones(B, N, dtype=torch.bool)
    keep[1, 3:] = False
    record, went = run(part, given, keep)
    p = (given[0] @ part.halt.weight.T + part.halt.bias).softmax(-1)
    depth = p.argmax(-1)
    assert depth.unique().numel() > 1
    for b in range(B):
        for n in range(N):
            last = given[1 + depth[b, n]][b, n]
            torch.testing.assert_close(went[-1][b, n], last)
            wanted = given[0][b, n] + p[b, n].max() * (last - given[0][b, n])
            torch.testing.assert_close(record.answer()[b, n], wanted)
        real = keep[b]
        share = torch.stack([(depth[b][real] == r).double().mean() for r in range(ROUNDS)])
        balance = ROUNDS * (share * p[b][real].mean(0)).sum()
        torch.testing.assert_close(record.extra()[b, 0], balance)


@pytest.mark.parametrize("training", [True, False])
def test_rounds_choose_positions(training):
    part = made(S.Loop(halt=S.Route(choice="expert", capacity=(1.0, 0.6, 0.4, 0.2)))).train(
        training
    )
    given, unit = states(), part.halt
    record, went = run(part, given)
    for b in range(B):
        going = set(range(N))
        for t, share in enumerate(unit.capacity):
            logit = [
                (unit.weight[t] @ went[t][b, n] + unit.bias[t]).detach().item() for n in range(N)
            ]
            best = sorted(going, key=lambda n: -logit[n])[: math.ceil(share * N)]
            going = set(best) if training else {n for n in going if logit[n] > 0}
            for n in range(N):
                gain = torch.sigmoid(torch.tensor(logit[n])) if n in going else 0.0
                wanted = went[t][b, n] + gain * (given[t + 1][b, n] - went[t][b, n])
                torch.testing.assert_close(went[t + 1][b, n], wanted, rtol=1e-5, atol=1e-6)
    assert record.answer() is went[-1]
    assert torch.autograd.grad(record.extra().sum(), unit.weight)[0].any()
