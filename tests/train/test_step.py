"""A step cut into pieces is the whole step; precisions; memory."""

import pytest
import torch

from anyformer.data.loader import Loader
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.train import room
from anyformer.train.ranks import alone
from anyformer.train.settings import Settings
from anyformer.train.step import Stepper
from tests.train.tiny import Bound, Numbers, settings, spec

CPU = torch.device("cpu")


def _stepper(given: Settings, dtype=torch.float32, **options) -> Stepper:
    torch.manual_seed(3)
    model = build(spec(**options)).to(dtype)
    return Stepper(alone(Trainee(model, Bound()).train()), given, CPU)


def _run(given: Settings, steps: int = 3, **options):
    stepper = _stepper(given, **options)
    loader = Loader(Numbers(ragged=True), Bound(), given.batch, given.micro, seed=1)
    told = [stepper.run(s, loader.step(s), 1.0, False).read() for s in range(steps)]
    return told, stepper.spread.trainee.state_dict()


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_accumulation_is_one_batch(micro):
    exact = {"dropout": 0.0, "dtype": torch.float64}  # float32 shakes gradients that should be 0
    wanted, whole = _run(settings(batch=6), **exact)
    found, pieces = _run(settings(batch=6, micro=micro), **exact)
    for a, b in zip(wanted, found, strict=True):
        assert a.keys() == b.keys()
        assert all(a[k] == pytest.approx(b[k], rel=1e-5, abs=1e-6) for k in a)
    for key, tensor in whole.items():
        torch.testing.assert_close(pieces[key], tensor, rtol=1e-6, atol=1e-6, msg=key)


def test_the_loss_is_the_weighted_mean_over_what_counts():
    given = settings(batch=4, micro=2)
    stepper, loader = _stepper(given, dropout=0.0), Loader(Numbers(ragged=True), Bound(), 4, 2)
    batches = loader.step(0)
    trainee = stepper.spread.trainee
    with torch.no_grad():
        results = [trainee(b) for b in batches]
    counts = [trainee.objective.counts(b) for b in batches]
    mean = {
        n: float(sum(r.losses[n] for r in results)) / float(sum(c[n] for c in counts))
        for n in ("next", "early")
    }
    told = stepper.run(0, batches, 1.0, False).read()
    assert told["loss"] == pytest.approx(mean["next"] + 0.5 * mean["early"], rel=1e-6)
    assert told["loss/early"] == pytest.approx(mean["early"], rel=1e-6)
    assert told["stop"] == 0
    assert told["norm"] > 0


def test_a_step_is_a_function_of_its_number():
    one, first = _run(settings())
    torch.rand(10)
    two, second = _run(settings())
    assert one == two
    assert all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precisions_learn(precision):
    told, weights = _run(settings(precision=precision, lr=1e-2), steps=12)
    assert told[-1]["loss"] < told[0]["loss"]
    assert all(torch.isfinite(w).all() and w.dtype == torch.float32 for w in weights.values())


def test_a_scaler_answers_overflow_and_leaves_the_weights():
    stepper = _stepper(settings(precision="float16"))
    stepper.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, enabled=True)
    before = {k: v.clone() for k, v in stepper.spread.trainee.state_dict().items()}
    loader = Loader(Numbers(), Bound(), 4)
    stepper.run(0, loader.step(0), 1.0, False)
    assert stepper.scaler.get_scale() < 2.0**120
    after = stepper.spread.trainee.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_an_error_leaves_no_half_of_a_gradient():
    stepper = _stepper(settings(batch=4, micro=2))
    forward, calls = stepper.spread.module.forward, []

    def full(batch):
        calls.append(batch)
        if len(calls) == 2:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(batch)

    stepper.spread.module.forward = full
    with pytest.raises(RuntimeError, match="out of memory") as error:
        stepper.run(0, Loader(Numbers(), Bound(), 4, 2).step(0), 1.0, False)
    assert room.out_of_memory(error.value)
    assert all(p.grad is None for p in stepper.spread.trainee.parameters())
    told = room.advice(stepper.spread.trainee, stepper.settings, torch.device("cpu"))
    assert "micro=" in told
    assert "recompute=True" in told
    assert "resume" in told


def test_another_error_stays_what_it_is():
    stepper = _stepper(settings())

    def wrong(batch):
        raise RuntimeError("shapes differ")

    stepper.spread.module.forward = wrong
    with pytest.raises(RuntimeError, match="shapes differ"):
        stepper.run(0, Loader(Numbers(), Bound(), 4).step(0), 1.0, False)


def test_averages_follow_the_weights():
    stepper = _stepper(settings(ema=0.5))
    assert stepper.ema is not None
    loader, wanted = Loader(Numbers(), Bound(), 4), {}
    wanted = {k: v.clone() for k, v in stepper.ema.means.items()}
    for step in range(3):
        stepper.run(step, loader.step(step), 1.0, False)
        decay = min(0.5, (1 + step) / (10 + step))
        for name, live in stepper.ema.live.items():
            wanted[name] = wanted[name] + (1 - decay) * (live.detach() - wanted[name])
    for name, mean in stepper.ema.means.items():
        torch.testing.assert_close(mean, wanted[name])
    live = {k: v.detach().clone() for k, v in stepper.ema.live.items()}
    with stepper.ema.swapped():
        changed = [k for k in live if not torch.equal(stepper.ema.live[k], live[k])]
    assert changed
    assert all(torch.equal(stepper.ema.live[k], live[k]) for k in live)
