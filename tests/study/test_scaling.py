"""Power laws: exponents that are known are found, within their intervals."""

import numpy as np
import pytest

from anyformer.errors import StudyError
from anyformer.study import powerlaw, scaling, together
from anyformer.study.results import Arm, Outcome, Point, Results
from anyformer.study.scaling import Run
from tests.study import fake

ALPHA, BETA, FLOOR = 0.34, 0.28, 1.69
A, B = 406.4, 410.7  # those of arXiv:2203.15556


def chinchilla(size: float, tokens: float) -> float:
    return FLOOR + A / size**ALPHA + B / tokens**BETA


def runs(noise: float, seed: int = 0, seeds: int = 3) -> list[Run]:
    rng = np.random.default_rng(seed)
    found = []
    for size in np.geomspace(1e6, 1e9, 7):
        for tokens in np.geomspace(1e7, 1e11, 9):
            for s in range(seeds):
                loss = chinchilla(size, tokens) * float(np.exp(rng.normal(0, noise)))
                found.append(Run(size, tokens, 6 * size * tokens, loss, s))
    return found


def inside(number: powerlaw.Number, value: float) -> bool:
    return number.low <= value <= number.high


def test_a_law_without_noise_is_found_exactly():
    x = np.geomspace(1e4, 1e8, 9)
    law = powerlaw.fit({"x": x}, 0.7 + 35 * x**-0.41, draws=5)
    assert law.powers[0].value == pytest.approx(0.41, rel=1e-3)
    assert law.floor.value == pytest.approx(0.7, rel=1e-3)
    assert law.scales[0].value == pytest.approx(35, rel=1e-2)
    assert law(x=1e6) == pytest.approx(0.7 + 35 * 1e6**-0.41, rel=1e-4)


@pytest.mark.parametrize("power,floor", [(0.5, 2.0), (1.2, 1.0)])
def test_the_interval_of_a_power_holds_it_nearly_always(power, floor):
    x = np.repeat(np.geomspace(1e3, 1e7, 8), 3)
    hits = 0
    for seed in range(10):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.004, len(x)))
        law = powerlaw.fit({"x": x}, (floor + 8 * (x / 1e3) ** -power) * noise, 60, seed)
        hits += inside(law.powers[0], power)
    assert hits >= 8  # of 40 with 200 draws 37


def test_a_law_that_falls_to_nothing_has_nearly_no_floor():
    x = np.geomspace(1e3, 1e7, 12)
    law = powerlaw.fit({"x": x}, 8 * (x / 1e3) ** -0.08, draws=0)
    assert law.powers[0].value == pytest.approx(0.08, abs=0.003)
    assert law.floor.value < 0.3


def test_one_run_far_off_moves_a_law_little():
    x = np.repeat(np.geomspace(1e3, 1e7, 8), 3)
    losses = 1 + 8 * (x / 1e3) ** -0.5
    losses[4] *= 1.5
    law = powerlaw.fit({"x": x}, losses, draws=0)
    assert law.powers[0].value == pytest.approx(0.5, abs=0.01)
    assert np.isnan(law.powers[0].low)


def test_a_joint_law_and_how_to_spend_compute():
    found = scaling.fit(runs(0.003), draws=40)
    assert found.joint is not None and found.size_power is not None
    alpha, beta = found.joint.powers
    assert inside(alpha, ALPHA) and inside(beta, BETA) and inside(found.joint.floor, FLOOR)
    assert alpha.high - alpha.low < 0.1
    share = BETA / (ALPHA + BETA)
    assert inside(found.size_power, share)
    assert found.token_power is not None
    assert found.token_power.value == pytest.approx(1 - found.size_power.value)
    assert found.size is not None and abs(found.size.powers[0].value - ALPHA) < 0.1
    assert found.data is not None and abs(found.data.powers[0].value - BETA) < 0.1
    assert found.compute is not None and 0.05 < found.compute.powers[0].value < 0.4


def test_the_frontier_by_parabolas_agrees_with_the_law():
    found = scaling.frontier(runs(0.0005), draws=30)
    assert found is not None and len(found.flops) > 8
    assert found.size_power.value == pytest.approx(BETA / (ALPHA + BETA), abs=0.08)
    assert found.size_power.value + found.token_power.value == pytest.approx(1, abs=1e-6)
    for c, n, d in zip(found.flops, found.sizes, found.tokens, strict=True):
        assert 6 * n * d == pytest.approx(c, rel=1e-6)
    assert scaling.frontier([r for r in runs(0.0) if r.size < 2e6]) is None


def test_only_what_nothing_beats_is_on_the_envelope():
    cheap, worse, dear = (Run(1, 1, c, loss, 0) for c, loss in ((1, 3.0), (2, 3.5), (3, 2.0)))
    sized = [Run(i + 1.0, 1.0, r.flops, r.loss, 0) for i, r in enumerate((cheap, worse, dear))]
    assert [r.flops for r in scaling.best(sized)] == [1, 3]


def results(tokens: float) -> Results:
    """A study of three sizes at one number of tokens, as the engine keeps it."""
    sizes = (1e6, 4e6, 1.6e7)
    arms = tuple(
        Arm(str(n), (), {}, int(n), int(n), int(n), 2 * n, 100, int(tokens / 100)) for n in sizes
    )
    outcomes = tuple(
        Outcome(str(n), seed, 1e-3, f"{n}-{seed}", "done",
                points=(Point(100, int(tokens), 6 * n * tokens, None,
                              {"loss": chinchilla(n, tokens)}),))
        for n in sizes
        for seed in (0, 1)
    )  # fmt: skip
    return Results("scaling/x", "", str(sizes[0]), arms, outcomes, (0, 1), (1e-3,))


def test_studies_are_read_told_and_drawn(tmp_path):
    found = scaling.fit([results(t) for t in (1e7, 1e8, 1e9)], draws=10)
    assert len(found.runs) == 18 and found.joint is not None
    assert found.joint.powers[0].value == pytest.approx(ALPHA, abs=0.02)
    rows = scaling.table(found)
    assert any("N ∝ C^" in row[1] for row in rows) and rows[0][0] == "law"
    for kind in ("png", "svg"):
        assert scaling.figure(found, tmp_path / f"scaling.{kind}").stat().st_size > 1000


def test_too_little_is_said():
    with pytest.raises(StudyError, match="4 at least"):
        scaling.fit([Run(1, 1, 1, 2.0, 0)])
    few = scaling.fit([Run(n, 1e6, 6e6 * n, 3 - n / 10, s) for n in (1.0, 2.0) for s in (0, 1)])
    assert few.joint is None and few.size is None and few.frontier is None
    assert ("L(N), at the most tokens", "too few values", "", "") in scaling.table(few)


def test_panels_tell_their_laws_together(tmp_path, monkeypatch):
    for tokens in ("1e7", "1e8", "1e9"):
        (tmp_path / tokens).mkdir()
        (tmp_path / tokens / "study.json").write_text("{}")
    monkeypatch.setattr(together, "opened", lambda panel: results(float(panel.name)))
    files = together.together(tmp_path, tmp_path)
    assert [f.name for f in files] == [f"scaling.{k}" for k in ("md", "jsonl", "png", "svg")]
    assert "N ∝ C^" in files[0].read_text("utf-8")
    assert len(files[1].read_text("utf-8").splitlines()) == 18
    monkeypatch.setattr(together, "opened", lambda _: fake.table({"a": {1e-3: [1.0, 2.0]}}))
    assert together.together(tmp_path) == []
