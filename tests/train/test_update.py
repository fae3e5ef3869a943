"""Updates by kernels, which Python runs on a CPU, and copies of weights in 16 bits."""

import pytest
import torch

from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.ops.tiles import INSTALLED, interpreted
from anyformer.parts.attention import Attention
from anyformer.train.low import Low
from anyformer.train.optim import Optimisers
from anyformer.train.step import clip
from anyformer.train.update import Update, takes
from tests.train.tiny import Bound, settings, spec

WHERE = "cuda" if torch.cuda.is_available() else "cpu"


def _given(**options):
    torch.manual_seed(0)
    trainee = Trainee(build(spec(dropout=0.0)), Bound()).to(WHERE).train()
    given = settings(precision="bfloat16", lr=1e-2, **options)
    return trainee, Optimisers(trainee, given)


@pytest.mark.parametrize(
    ("most", "joined", "graph"), [(None, False, True), (0.5, True, False), (1e6, False, False)]
)
def test_steps_are_those_of_torch(most, joined, graph):
    if not INSTALLED or not (WHERE == "cuda" or interpreted()):
        pytest.skip("kernel: runs on a GPU, or with TRITON_INTERPRET=1")
    (one, ours), (_, theirs) = _given(graph=graph), _given()
    low = Low(one, torch.bfloat16, joined)
    assert takes(ours)
    assert low.copies
    assert bool(low.joins) == joined
    update = Update(ours, low, most)
    for turn in range(3):
        low.fresh()
        ours.set(1 / (turn + 1))
        theirs.set(1 / (turn + 1))
        for a, b in zip(ours.parameters, theirs.parameters, strict=True):
            copy = low.copies.get(id(a))
            drawn = torch.randn_like(b).to(b.dtype if copy is None else copy.leaf.dtype)
            b.grad = drawn.to(b.dtype)
            if copy is None:
                a.grad = drawn
                continue
            if copy.leaf.grad is None:
                copy.leaf.grad = torch.empty_like(copy.leaf)
            copy.grad.copy_(drawn)
        norm = update.run()
        low.zero()
        torch.testing.assert_close(norm, clip(theirs.parameters, most))
        theirs.all[0].step()
        for a, b in zip(ours.parameters, theirs.parameters, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for copy in low.copies.values():
        weight = copy.weight
        assert (copy.data.float() - weight).abs().max() <= 2**-7 * weight.abs().max()
    assert ours.tensors().keys() == theirs.tensors().keys()
    for name, tensor in ours.tensors().items():
        torch.testing.assert_close(tensor, theirs.tensors()[name], rtol=1e-5, atol=1e-6)


def _gradients(trainee, low):
    ids = torch.arange(24, device=WHERE).view(2, 12) % 7
    with torch.autocast(WHERE, torch.bfloat16):
        loss = trainee.model(input_ids=ids).logits.float().square().mean()
    loss.backward()
    if low is not None:
        low.collect()
    weights = trainee.parameters() if low is None else [copy.weight for copy in low.copies.values()]
    found = {id(p): p.grad for p in weights}
    for p in trainee.parameters():
        p.grad = None
    return float(loss.detach()), found


@pytest.mark.parametrize("joined", [False, True])
def test_copies_give_the_same_gradients(joined, monkeypatch):
    trainee, _ = _given()
    monkeypatch.setattr(Attention, "_pays", lambda self, x, call: joined)
    low = Low(trainee, torch.bfloat16, joined)
    plain = _gradients(trainee, None)
    with low.read():
        assert trainee.model.stack.blocks[0][1].branch.up.weight.dtype == torch.bfloat16
        copied = _gradients(trainee, low)
    assert copied[0] == plain[0]
    for key, gradient in copied[1].items():
        torch.testing.assert_close(gradient, plain[1][key])


def test_copies_follow_weights_that_others_change():
    trainee, _ = _given()
    low = Low(trainee, torch.bfloat16)
    low.fresh()
    copy = next(iter(low.copies.values()))
    with torch.no_grad():
        copy.weight.mul_(2.0)
    low.fresh()
    assert torch.equal(copy.data, copy.weight.to(torch.bfloat16))
