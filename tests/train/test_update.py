"""Updates by kernels, which Python runs on a CPU, and copies of weights in 16 bits."""

import pytest
import torch

from anyformer.data.loader import Loader
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.ops.tiles import INSTALLED, interpreted
from anyformer.parts.attention import Attention
from anyformer.recipes import recipe
from anyformer.train import step
from anyformer.train.low import Low
from anyformer.train.optim import Optimisers
from anyformer.train.prepare import prepare
from anyformer.train.ranks import alone
from anyformer.train.step import clip
from anyformer.train.update import Update, takes
from tests.train.tiny import Bound, Numbers, settings, spec

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


@pytest.mark.parametrize("micro", [None, 2])
def test_a_step_learns_as_it_does_without(micro, monkeypatch):
    """Rounding alone is different, where a step is small beside it."""
    if not INSTALLED or not (WHERE == "cuda" or interpreted()):
        pytest.skip("kernel: runs on a GPU, or with TRITON_INTERPRET=1")
    given = settings(precision="bfloat16", batch=4, micro=micro, lr=1e-2)

    def run(devices):
        monkeypatch.setattr(step, "LOW", devices)
        torch.manual_seed(0)
        trainee = Trainee(build(spec(dropout=0.0)), Bound()).to(WHERE).train()
        stepper = step.Stepper(alone(trainee), given, torch.device(WHERE))
        loader = Loader(Numbers(), Bound(), 4, micro, seed=1)
        told = [stepper.run(s, loader.step(s), 1.0, False).read() for s in range(4)]
        return stepper, [t["loss"] for t in told], [t["norm"] for t in told]

    low, losses, norms = run((WHERE,))
    plain, wanted, wanted_norms = run(())
    assert low.low is not None and low.update is not None
    assert plain.low is None
    assert losses == pytest.approx(wanted, rel=2e-3)
    assert norms == pytest.approx(wanted_norms, rel=2e-2)
    assert losses[-1] < losses[0]
    for a, b in zip(low.optimisers.parameters, plain.optimisers.parameters, strict=True):
        # Adam's first steps are signs, which rounding turns round where gradients are near 0.
        assert (a - b).norm() < 0.2 * given.lr * 4 * a.numel() ** 0.5


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


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*grad attribute of a Tensor:UserWarning")  # torch 2.11's own
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
@pytest.mark.parametrize("stream", ["float32", "bfloat16"])
def test_compiled_blocks_have_the_gradients_of_float32_on_a_gpu(stream):
    """With all kernels that stand in compiled blocks, by the torch that is installed there."""
    given = recipe("gpt2", dim=128, depth=2, heads=2, vocab=50, length=128, dropout=0.0)
    ids = torch.arange(512, device=WHERE).view(4, 128) % 50

    def gradients(compiled):
        torch.manual_seed(0)
        model = build(given).to(WHERE).train()
        if compiled:
            asked = {"precision": "bfloat16", "stream": stream, "compile": True}
            prepare(model, settings(**asked))
        with torch.autocast(WHERE, torch.bfloat16, enabled=compiled):
            model(ids).logits.float().square().mean().backward()
        return {name: p.grad for name, p in model.named_parameters()}

    wanted, found = gradients(False), gradients(True)
    for name, value in wanted.items():
        if not name.endswith("branch.k.bias"):  # softmax doesn't see it
            assert (found[name] - value).norm() <= 5e-2 * value.norm(), name


def test_copies_follow_weights_that_others_change():
    trainee, _ = _given()
    low = Low(trainee, torch.bfloat16)
    low.fresh()
    copy = next(iter(low.copies.values()))
    with torch.no_grad():
        copy.weight.mul_(2.0)
    low.fresh()
    assert torch.equal(copy.data, copy.weight.to(torch.bfloat16))
