"""Memory keys by our kernels beside the library's causal square equal eager in float64."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from anyformer.ops.attend import attend, choose, refusal
from anyformer.ops.mask import Causal, Padding, Window
from anyformer.ops.plan import Plan
from anyformer.ops.relative import Relative
from tests.ops.tile_cases import GPU, WHERE, Case, assert_as_exact_as_can_be, gaps, small_tiles

pytest.importorskip("triton", reason="lead: Triton isn't installed")
DTYPE = torch.bfloat16 if GPU else torch.float32  # the library's kernels of a GPU are for 16 bits
NEAR = 1e-2 if GPU else 1e-5


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyformer.ops.kernels import launch, launch_lead

    small_tiles(monkeypatch)
    if not GPU:
        small = {128: launch.Size(16, 64, 4, 1)}
        for kernel in ("FORWARD", "BACKWARD", "JOIN"):
            monkeypatch.setattr(launch_lead, kernel, small)
        monkeypatch.setattr(launch_lead, "PROGRAMS", 5)


plain = partial(Case, causal=True, size=(16, 16), dtype=DTYPE, terms="")
CASES = {
    "one key": plain(queries=33, lead=1),
    "fewer than a tile": plain((2, 2), 41, lead=5),
    "one program a head": plain((5, 5), 20, lead=16),
    "several programs a head": plain(queries=90, lead=17),
    "shared keys": plain((4, 2), 37, lead=3),
    "one shared by all": plain((3, 1), 18, lead=20, size=(24, 24)),
    "as many as there may be": plain(queries=9, lead=64, size=(40, 40)),
    "two tokens": plain(queries=2, lead=2),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    found = gaps(CASES[name], "lead")
    assert max(found.values()) < NEAR, found


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([8, 16, 40])
    case = plain(
        heads=draw.choice([(2, 2), (4, 2), (2, 1)]),
        queries=draw.randint(2, 70),
        lead=draw.randint(1, 40),
        size=(size, size),
        gain=draw.choice([1.0, 20.0]),  # sharp rows: all weight on one side of the merge
    )
    assert_as_exact_as_can_be(case, "lead")


@pytest.mark.parametrize("lead", [3, 16])
def test_equals_eager_in_16_bits(lead: int) -> None:
    case = plain((4, 2), 50, lead=lead, dtype=torch.bfloat16)
    assert_as_exact_as_can_be(case, "lead")


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(20))
def test_random_shapes_on_a_gpu(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([16, 32, 40, 64, 128])
    case = plain(
        heads=draw.choice([(4, 4), (12, 2), (2, 1)]),
        queries=draw.randint(2, 1500),
        lead=draw.choice([1, 7, 16, 33, 64]),
        size=(size, size),
    )
    found = gaps(case, "lead")
    assert max(found.values()) < 1e-2, (case, found)


def test_twice_the_same_gradients_bit_for_bit() -> None:
    case = CASES["several programs a head"]
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "lead")
    one, two = (case.results(run, given, DTYPE) for _ in range(2))
    wanted = [n for n in one if not GPU or n == "out"]  # cuDNN's dq isn't
    assert all(torch.equal(one[name], two[name]) for name in wanted)


def test_padding_on_the_right_changes_no_real_token() -> None:
    q, k, v = (torch.randn(2, 2, n, 16, device=WHERE, dtype=DTYPE) for n in (21, 24, 24))
    keep = torch.ones(2, 21, dtype=torch.bool, device=WHERE)
    keep[1, 15:] = False
    plan = Plan(0.25, Causal() & Padding(keep, queries=True, right=True), lead=3)
    ours, exact = attend(q, k, v, plan, "lead"), attend(q, k, v, plan, "eager")
    torch.testing.assert_close(ours, exact, atol=NEAR, rtol=NEAR)
    assert not ours[1, :, 15:].any()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_compiled_graph_has_no_break() -> None:
    case = replace(CASES["shared keys"], queries=18)
    given = case.tensors()
    run = lambda q, k, v, p: attend(q, k, v, p, "lead").sin()
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    one, two = (case.results(f, given, DTYPE) for f in (run, compiled))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


@pytest.mark.parametrize("turned", [False, True])
def test_lies_as_tracing_says(turned: bool) -> None:
    """Where heads or tokens lie first, outputs and gradients have the strides of their fakes."""
    from anyformer.ops import lead

    lie = lambda n: torch.randn(2, n, 4, 16, device=WHERE, dtype=DTYPE).transpose(1, 2)
    q, k, v = (lie(n) if turned else lie(n).contiguous() for n in (21, 24, 24))
    whole = lead.run_forward([q, k, v], 0.25, 3)
    after = [q, k, v, *whole, torch.randn_like(q)]
    torch.library.opcheck(lead.run_forward, ([q, k, v], 0.25, 3), test_utils="test_faketensor")
    torch.library.opcheck(lead.run_backward, (after, 0.25, 3), test_utils="test_faketensor")
    assert whole[0].stride() == torch.empty_like(q).stride()


def test_says_what_it_cannot() -> None:
    draw = lambda n, size=16: torch.randn(2, 2, n, size, device=WHERE, dtype=DTYPE)
    q, k, v = draw(16), draw(19), draw(19)
    says = lambda plan: str(refusal("lead", q, k, v, plan))
    keep = torch.ones(2, 16, dtype=torch.bool, device=WHERE)
    assert refusal("lead", q, k, v, Plan(1.0, Causal(), lead=3)) is None
    assert choose(q, k, v, Plan(1.0, Causal(), lead=3)) != "lead"  # not yet
    assert says(Plan(1.0, Causal())) == "needs memory keys, up to 64"
    assert "causal mask" in says(Plan(1.0, lead=3))
    for mask in (Causal() & Window(5), Causal() & Padding(keep)):
        assert says(Plan(1.0, mask, lead=3)) == (
            "needs a causal mask alone, or with padding on the right"
        )
    for plan in (Plan(1.0, Causal(), lead=2), Plan(1.0, Causal(), lead=3, start=4)):
        assert says(plan) == "needs queries and keys that are the same tokens"
    terms = Relative(-3, 0, torch.randn(2, 4, device=WHERE))
    assert "relative" in says(Plan(1.0, Causal(), terms, lead=3))
    narrow = draw(16, 12), draw(19, 12), draw(19, 12)
    assert "a multiple of 8" in str(refusal("lead", *narrow, Plan(1.0, Causal(), lead=3)))
    one = draw(1), draw(4), draw(4)
    assert "2 tokens" in str(refusal("lead", *one, Plan(1.0, Causal(), lead=3)))
    long = draw(16), draw(81), draw(81)
    assert "up to 64" in str(refusal("lead", *long, Plan(1.0, Causal(), lead=65)))
