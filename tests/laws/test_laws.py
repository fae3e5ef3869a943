"""The laws over drawn specs: 25 a law in CI, 1000 with HYPOTHESIS_PROFILE=long."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from anyformer import spec as S
from anyformer.laws.cases import perturbed
from anyformer.laws.specs import KINDS, sample
from anyformer.laws.table import LAWS
from tests.laws.strategy import specs

SEEDS = st.integers(0, 10**6)


@pytest.mark.parametrize("name", LAWS)
def test_law(name):
    law = LAWS[name]
    some = max(5, settings.default.max_examples // law.share)

    # a law about a part that few specs have leaves many of them out
    passed = (*settings.default.suppress_health_check, HealthCheck.filter_too_much)

    @settings(max_examples=some, suppress_health_check=passed)
    @given(spec=specs(law.causal, law.writes), seed=SEEDS)
    def holds(spec, seed):
        assume(law.applies(spec))
        assert law.check(spec, seed) is None

    assert holds() is None


@pytest.fixture(scope="module")
def drawn():
    return [sample(seed) for seed in range(500)]


def test_drawn_specs_keep_the_rules(drawn):
    assert not [seed for seed, spec in enumerate(drawn) if S.problems(spec)]


def test_drawn_specs_use_the_whole_vocabulary(drawn):
    text = "".join(S.to_json(spec, None) for spec in drawn)
    kinds = [k for k, node in S.KINDS.items() if node.__module__.startswith("anyformer.spec")]
    missing = [kind for kind in kinds if f'"is": "{kind}"' not in text]
    rows = {"Choices", "Double"}  # (B, C, N); Detect has logits (B, N), Beams rows: test_heads.py
    assert set(missing) == rows | {"Detect", "Beams"}


def test_drawn_specs_are_many(drawn):
    assert len(set(drawn)) > 490 > len(KINDS)


def test_weights_of_a_case_are_away_from_their_start():
    model = perturbed(sample(0), 0)
    still = [name for name, w in model.named_parameters() if not w.detach().std(correction=0) > 0]
    assert not [name for name in still if dict(model.named_parameters())[name].numel() > 1]
