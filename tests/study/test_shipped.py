"""Studies that ship: every variant of every panel can be built, matched and counted."""

import json
from functools import cache
from typing import Any, cast

import pytest

from anyformer import spec as S
from anyformer.cli.main import main
from anyformer.errors import StudyError
from anyformer.model.model import build
from anyformer.study import plan, shipped
from anyformer.study.nodes import Study, check, match_of, target_of
from anyformer.study.results import Arm
from anyformer.study.run import run
from anyformer.study.shipped import modifications, recursive, sources
from anyformer.study.shipped.tier import TIERS
from tests.study.stand import ground


def every() -> list[tuple[str, str]]:
    return [(p.name, t) for t in TIERS for name in shipped.STUDIES for p in shipped.panels(name, t)]


@cache
def resolved(name: str, tier: Any) -> tuple[Study, dict[str, S.Model], dict[str, Arm]]:
    (study,) = shipped.panels(name, tier)
    on = ground(check(study))
    specs = plan.specs(study, on)
    return study, specs, {arm.name: arm for arm in plan.arms(study, on, specs)}


@pytest.mark.parametrize("name,tier", every(), ids=str)
def test_panels_resolve_and_are_matched_as_they_say(name, tier):
    study, _, arms = resolved(name, tier)
    assert study.name == name and study.title
    assert len(arms) == len(study.variants) >= 2
    for variant in study.variants:
        match, target = match_of(study, variant), target_of(study, variant)
        if match is not None and target is not None:
            mine, theirs = ({"parameters": arms[n].parameters, "flops": arms[n].flops,
                             "non_embedding": arms[n].non_embedding}[match.on]
                            for n in (variant.name, target))  # fmt: skip
            assert abs(mine / theirs - 1) <= match.within, variant.name
    assert all(not arms[n].equal for n in [study.variants[0].name])
    assert all(arm.equal for arm in [*arms.values()][1:])


@pytest.mark.parametrize(
    "name", [p.name for n in shipped.STUDIES for p in shipped.panels(n, "cpu")]
)
def test_counts_are_those_of_the_models(name):
    study, specs, arms = resolved(name, "cpu")
    for variant in study.variants[:: max(len(study.variants) // 4, 1)]:
        made = build(specs[variant.name])
        assert sum(p.numel() for p in made.parameters()) == arms[variant.name].parameters


def test_recursive_layers_has_the_controls_that_the_source_lacks():
    for panel in shipped.panels(recursive.STUDY, "gpu")[:4]:
        study, specs, arms = resolved(panel.name, "gpu")
        plain, wide, longer = (arms[n] for n in (recursive.PLAIN, recursive.WIDE, recursive.LONG))
        spent = lambda arm: arm.steps * arm.tokens * arm.flops
        assert longer.steps > 1.5 * plain.steps
        assert spent(longer) == pytest.approx(spent(wide), rel=0.01)
        assert longer.spec == plain.spec and longer.parameters == plain.parameters
        assert "times the steps" in longer.equal and "parameters" in wide.equal
        shared = arms[recursive.SHARED]
        assert shared.flops == plain.flops and shared.equal == "tokens and compute"
        assert arms[recursive.ONE].parameters == shared.parameters
        assert study.anchors == (recursive.ONE, recursive.PLAIN)
        attention = specs[recursive.SHARED].stack.block[0].branch
        assert isinstance(attention, S.Attention)
        assert attention.causal == ("causal" in panel.name)
        assert bool(attention.relative) == ("relative" in panel.name)
        assert len(study.variants) == 5 and len(study.rates) == 4


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("more", [-20, 7, 100])
def test_widths_are_found_for_other_vocabularies(tier, more):
    """The characters of a text, and the pieces that a trainer makes of it, aren't known before."""
    for panel in (*shipped.panels(recursive.STUDY, tier), *shipped.panels("positions", tier)):
        assert len(plan.specs(panel, ground(panel, more))) == len(panel.variants)


def test_modifications_are_many_and_each_changes_the_model():
    for panel in shipped.panels(modifications.STUDY, "cpu"):
        study, specs, _ = resolved(panel.name, "cpu")
        assert len(study.variants) > 21
        plain = specs["plain"]
        for name, spec in specs.items():
            assert name == "plain" or S.diff(plain, spec), name
        known = sources.narang()
        assert len([name for name in specs if name in known]) >= 10


def test_memory_costs_something():
    _, _, arms = resolved("transformer-xl/memory", "cpu")
    assert arms["no memory"].flops < arms["memory"].flops
    assert "compute" not in arms["no memory"].equal
    assert arms["memory"].tokens == 8 * 8 * 16


def test_scaling_covers_sizes_and_tokens():
    found = [resolved(p.name, t) for t in TIERS for p in shipped.panels("scaling", t)]
    for _, _, arms in found:
        sizes = [arm.non_embedding for arm in arms.values()]
        assert sizes == sorted(sizes) and sizes[-1] > 8 * sizes[0]


def test_panels_by_name_and_unknown_ones():
    (one,) = shipped.panels("recursive-layers/heads", "cpu")
    assert one.name == "recursive-layers/heads" and shipped.runs(one) == 6
    with pytest.raises(StudyError, match="recursive-layers"):
        shipped.panels("recursive-layer")
    with pytest.raises(StudyError, match="recursive-layers/heads"):
        shipped.panels("recursive-layers/head", "cpu")
    assert set(shipped.summaries()) == set(shipped.STUDIES)


def test_studies_are_data_that_comes_back():
    for name, tier in every():
        (study,) = shipped.panels(name, cast(Any, tier))
        assert S.from_dict(json.loads(S.to_json(study))) == study


def test_the_list_and_the_words_of_a_study(capsys):
    assert main(["study"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in shipped.STUDIES) and "runs of" in told
    assert main(["study", "positions", "--tier", "cpu", "--show", "--budget", "12steps"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"]["steps"] == 12


@pytest.mark.slow
def test_a_panel_runs_stops_and_goes_on(tmp_path, capsys):
    words = ["study", "transformer-xl", "--tier", "cpu", "--budget", "12steps", "--no-open"]
    out = str(tmp_path / "xl")
    assert main([*words, "--out", out, "--minutes", "0.02", "--jobs", "2"]) == 0
    assert "runs are left" in capsys.readouterr().err
    assert main([*words, "--out", out, "--jobs", "2"]) == 0
    from dataclasses import replace

    from anyformer.cli.studying import budget

    (study,) = shipped.panels("transformer-xl", "cpu")
    found = run(replace(study, budget=budget("12steps")), out)
    assert {o.status for o in found.outcomes} == {"done"}
    assert "loss@eval_memory=64" in found.outcomes[0].points[-1].scores
