"""From a study to its runs: specs, steps and settings, each run named by a hash of its content."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.tokenizer import tokenizer as tokenizer_of
from anyformer.data.order import mix
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import SpecError, StudyError
from anyformer.model.count import count
from anyformer.objectives.registry import default_for, fit, name_of
from anyformer.recipes.registry import options
from anyformer.spec.walk import models
from anyformer.study.cost import flops_of, rows_of
from anyformer.study.equal import equal
from anyformer.study.match import matched, with_hidden
from anyformer.study.nodes import (
    FlopBudget,
    StepBudget,
    Study,
    TimeBudget,
    TokenBudget,
    Variant,
    check,
    match_of,
    rates_of,
    target_of,
)
from anyformer.study.results import Arm
from anyformer.study.words import chosen, put
from anyformer.train.begin import Wish, fitted, gather
from anyformer.train.material import RecordSource, TextSource
from anyformer.train.ranks import device_of
from anyformer.train.settings import Cosine, Evaluation, Guard, Saving, Settings

TOKENIZER = "tokenizer"
# of the settings, what changes how a run is done but not what comes out of it
OUTSIDE = ("workers", "trackers", "log_every", "saving", "device", "micro")


@dataclass(frozen=True)
class Ground:
    """What all variants stand on: texts, tokenizer, objective."""

    words: Tokenizer
    plan: Any  # an objective as data
    material: TextSource | RecordSource
    data: dict[str, Any]  # digests of what is read
    context: int | None  # tokens of a row, where rows are running text


@dataclass(frozen=True)
class Trial:
    """One run as it is to be: a variant with a seed and a learning rate."""

    variant: str
    seed: int
    lr: float
    content: dict[str, Any]  # spec, objective, source and settings, as plain data

    @property
    def key(self) -> str:
        """A hash of all that its numbers depend on."""
        told = {k: v for k, v in self.content.items() if k != "source"}
        told["settings"] = {k: v for k, v in told["settings"].items() if k not in OUTSIDE}
        text = json.dumps(told, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def ground(study: Study, home: Path) -> Ground:
    """Texts, tokenizer and objective of a study; its tokenizer is kept in its folder."""
    kept, first = home / TOKENIZER, study.variants[0]
    name = first.base or study.base
    wish = Wish(
        model=name,
        options=_options(study, first),
        change=lambda spec: put(spec, name, first.words),
        data=study.data,
        objective=study.objective,
        asks=_pairs(study.asks),
        tokenizer=str(kept) if kept.is_dir() else study.tokenizer,
        context=study.length,
        settings=study.settings,
    )
    found = gather(wish)
    if not kept.is_dir():
        found.words.save(kept)
    learn, held = found.samples
    if held is None:
        raise StudyError("a study needs rows to validate on: give data with more than one row")
    told = lambda s: {"fingerprint": s.fingerprint, "size": s.size}
    data = {"what": list(study.data), "train": told(learn), "validation": told(held)}
    context = found.material.context if isinstance(found.material, TextSource) else None
    words = tokenizer_of(kept)
    return Ground(words, found.plan, found.material, data, context)


def specs(study: Study, on: Ground) -> dict[str, S.Model]:
    """The spec of each variant, with the sizes that the match asks for."""
    check(study)
    known, found = {v.name: v for v in study.variants}, dict[str, S.Model]()
    for name in known:
        _resolve(study, known, on, name, found)
    found = {name: found[name] for name in known}
    if not study.twins:
        _refuse_twins(study, found)
    return found


def _resolve(
    study: Study, known: dict[str, Variant], on: Ground, name: str, found: dict[str, S.Model]
) -> S.Model:
    """The spec of a variant, behind those that it is matched to."""
    if name not in found:
        v, target = known[name], target_of(study, known[name])
        if target is None:
            found[name] = _spec(study, v, on)
        else:
            other = _resolve(study, known, on, target, found)
            found[name] = _matched(study, v, on, other)
    return found[name]


def _matched(study: Study, v: Variant, on: Ground, target: S.Model) -> S.Model:
    match = match_of(study, v)
    assert match is not None
    build = lambda width, hidden: _spec(study, v, on, width, hidden)
    try:
        return matched(match, build, target, on.context)
    except StudyError as error:
        raise StudyError(f"{v.name}: {error}") from error


def _spec(
    study: Study, v: Variant, on: Ground, width: int | None = None, hidden: int | None = None
) -> S.Model:
    name = v.base or study.base
    if study.objective is None and name_of(default_for(name)) != name_of(on.plan):
        raise StudyError(
            f"{name} is trained by {name_of(default_for(name))}, and the baseline by "
            f"{name_of(on.plan)}: name one objective for all"
        )
    given = _options(study, v)
    if width is not None:
        if given.get("hidden") and isinstance(given["hidden"], int):
            given["hidden"] = max(round(given["hidden"] * width / _width(name, given)), 1)
        given["dim"] = width
    try:
        spec = put(fitted(name, given, on.plan, on.words, on.material), name, v.words)
        spec = spec if hidden is None else with_hidden(spec, hidden)
        return S.check(fit(plan_of(on, v), spec))
    except SpecError as error:
        raise StudyError(f"variant {v.name!r}: {error}") from error


def _width(name: str, given: dict[str, Any]) -> int:
    return int(given.get("dim") or options(name)["dim"])


def _options(study: Study, v: Variant) -> dict[str, Any]:
    name = v.base or study.base
    return {**_pairs(study.options), **chosen(name, v.words)}


def _pairs(words: Sequence[str]) -> dict[str, Any]:
    parts = [word.partition("=") for word in words]
    return {key: S.parse(value) for key, _, value in parts}


def plan_of(on: Ground, v: Variant) -> Any:
    """The objective of a variant: the study's, with what the variant asks of it."""
    found = on.plan
    for path, value in _pairs(v.asks).items():
        found = S.override(found, path, value)
    return found


def _refuse_twins(study: Study, found: dict[str, S.Model]) -> None:
    seen: dict[tuple[Any, ...], str] = {}
    for v in study.variants:
        twin = seen.setdefault((S.to_json(found[v.name]), v.spends, v.asks), v.name)
        if twin != v.name:
            raise StudyError(
                f"{twin!r} and {v.name!r} are the same model: leave one out, or change it; to see "
                "the noise of one model, give more seeds"
            )


def arms(study: Study, on: Ground, found: dict[str, S.Model], seconds: float = 0.0) -> list[Arm]:
    """Each variant with its size, its costs and its steps.

    `seconds` is what one step of every run takes together: what a budget of minutes is divided by.
    """
    baseline, known = found[study.variants[0].name], {v.name: v for v in study.variants}
    made: dict[str, Arm] = {}
    for name, spec in found.items():
        told, asked = count(spec, on.context), plan_of(on, known[name])
        tokens = study.settings.batch * told.length * rows_of(asked)
        flops = flops_of(spec, asked, on.context, told)
        made[name] = Arm(
            name=name,
            changes=tuple(str(line) for line in S.diff(baseline, spec)),
            spec=S.to_dict(spec),
            parameters=told.parameters,
            non_embedding=told.non_embedding,
            applied=count(_untied(spec), on.context).parameters,
            flops=flops,
            steps=_steps(study, tokens, flops, seconds),
            tokens=tokens,
        )
    for v in study.variants:
        made[v.name] = replace(made[v.name], steps=_spent(known, made, v, study.evaluations))
    return [replace(arm, equal=equal(study, arm, made)) for arm in made.values()]


def _spent(known: dict[str, Variant], made: dict[str, Arm], v: Variant, least: int) -> int:
    """The steps of a variant: its own, or those that cost what the variant it names costs."""
    arm = made[v.name]
    if v.spends is None:
        return arm.steps
    other = made[v.spends]
    whole = _spent(known, made, known[v.spends], least) * other.flops * other.tokens
    steps = round(whole / (arm.flops * arm.tokens))
    if steps < least:
        raise StudyError(
            f"{v.name} can take {steps} steps for what {v.spends} costs, fewer than its {least} "
            "evaluations: raise the budget"
        )
    return steps


def _steps(study: Study, tokens: int, flops: float, seconds: float) -> int:
    budget = study.budget
    if isinstance(budget, StepBudget):
        steps = budget.steps
    elif isinstance(budget, TokenBudget):
        steps = int(budget.tokens / tokens)
    elif isinstance(budget, FlopBudget):
        steps = int(budget.flops / (3 * flops * tokens))
    else:
        steps = int(budget.minutes * 60 / seconds) if seconds else 1
    if steps < study.evaluations:
        raise StudyError(
            f"the budget allows {steps} steps of a run, fewer than its {study.evaluations} "
            "evaluations: raise the budget, or take a smaller model, fewer seeds or fewer variants"
        )
    return steps


def _untied(spec: S.Model) -> S.Model:
    """The model with a block for each application."""
    for path, model in models(spec):
        if isinstance(model.stack.schedule, S.Plain | S.Sandwich):
            continue
        many = len(S.layout(model.stack).schedule)
        for field, value in (("own", ()), ("lora", None), ("schedule", S.Plain()), ("depth", many)):
            spec = S.override(spec, f"{path}stack.{field}", value)
    return spec


def settings_of(study: Study, arm: Arm, seed: int, lr: float) -> Settings:
    """The settings of one run: the same batches for a seed, first weights of its own."""
    warmup = min(study.settings.schedule.warmup or max(arm.steps // 20, 1), arm.steps)
    schedule = study.settings.schedule
    if schedule == Cosine():
        schedule = Cosine(final=0.1)
    every = max(math.ceil(arm.steps / study.evaluations), 1)
    return replace(
        study.settings,
        steps=arm.steps,
        lr=lr,
        seed=seed,
        draw=mix(seed, zlib.crc32(arm.name.encode())) % 2**31,
        schedule=replace(schedule, warmup=warmup),
        evaluation=Evaluation(every=every, rows=study.rows, first=True),
        saving=Saving(every=max(arm.steps // 4, 1), keep=1, best=False),
        guard=Guard(skips=0),
        log_every=max(arm.steps // 50, 1),
        device=device_of(study.settings.device).type,
    )


def trial(study: Study, on: Ground, arm: Arm, seed: int, lr: float) -> Trial:
    """A run of a variant."""
    v = next(v for v in study.variants if v.name == arm.name)
    again = {"lengths": list(study.lengths), "retests": list(study.retests)}
    content = {
        "spec": arm.spec,
        "objective": S.to_dict(plan_of(on, v)),
        "source": S.to_dict(on.material),
        "data": {k: v for k, v in on.data.items() if k != "what"},
        "settings": S.to_dict(settings_of(study, arm, seed, lr)),
        "version": anyformer.__version__,
        "kind": device_of(study.settings.device).type,
        **{name: asked for name, asked in again.items() if asked},
    }
    return Trial(arm.name, seed, lr, content)


def trials(study: Study, on: Ground, made: list[Arm]) -> list[Trial]:
    """All runs that are known from the start, those of a seed beside each other."""
    rates = rates_of(study)
    seeds = study.seeds[:1] if study.tune == "first" and len(rates) > 1 else study.seeds
    order = longest_first(made)
    return [trial(study, on, arm, s, lr) for s in seeds for arm in order for lr in rates]


def longest_first(made: list[Arm]) -> list[Arm]:
    """The order in which to start runs, so that no long one is alone at the end."""
    return sorted(
        made, key=lambda arm: (arm.flops * arm.tokens * arm.steps, arm.steps), reverse=True
    )


def is_timed(study: Study) -> bool:
    """Whether the steps of a study follow from how fast this machine is."""
    return isinstance(study.budget, TimeBudget)
