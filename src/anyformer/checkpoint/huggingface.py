"""Hugging Face folders: config.json and safetensors, single or in shards, in and out.

Nothing of a folder is executed: config.json is data, weights are safetensors, and a pickle is
refused.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint import families, keymap, native
from anyformer.checkpoint.family import FAMILIES, Config, Family
from anyformer.errors import CheckpointError, known_or_raise
from anyformer.model.model import Model, build

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
log = logging.getLogger("anyformer")
assert families  # importing it makes the families known


@dataclass(frozen=True)
class Origin:
    """Where a model came from: what its folder said beyond the spec, for saving it back."""

    family: str
    task: str
    config: Config


def load(folder: Path, task: str | None) -> Model:
    """The model of a Hugging Face folder, with the head of a task or its own."""
    config = read_config(folder / CONFIG)
    family = family_of(config, folder / CONFIG)
    chosen = family.task(task, config)
    weights = read_weights(folder)
    config = family.settle(config, weights)
    with torch.device("meta"):
        model = build(family.spec_of(config, chosen))
    rows = family.rows(model.spec, chosen)
    theirs = _named(weights, family, chosen, rows)
    theirs = _without_other_heads(theirs, family, model.spec, rows)
    own = (config.get("architectures") or [None])[0] == family.tasks[chosen].architecture
    fresh = set() if own else _missing_head(theirs, rows)
    wanted = [key for key in model.state_dict() if key not in fresh]
    found = keymap.load(theirs, [r for r in rows if not set(r.ours) & fresh], wanted, str(folder))
    _fill(model, found, fresh)
    model.origin = Origin(family.model_type, chosen, config)
    return model.eval()


def read_config(file: Path) -> Config:
    """config.json as a dict."""
    try:
        config = json.loads(file.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file} holds {type(config).__name__}, not an object of fields")
    return config


def family_of(config: Config, file: Path) -> Family:
    """The family that config.json names."""
    if "model_type" not in config:
        raise CheckpointError(f"{file} has no model_type; known: {', '.join(sorted(FAMILIES))}")
    name = known_or_raise(
        str(config["model_type"]), FAMILIES, f"model_type in {file}:", CheckpointError
    )
    return FAMILIES[name]


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder."""
    if not (folder / INDEX).is_file():
        if not (folder / WEIGHTS).is_file():
            raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {INDEX}")
        return native.read_weights(folder / WEIGHTS)
    shards = sorted(set(read_config(folder / INDEX).get("weight_map", {}).values()))
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        if Path(shard).name != shard:
            raise CheckpointError(f"{folder / INDEX} names {shard!r}, outside the folder: refused")
        if not (folder / shard).is_file():
            raise CheckpointError(f"{folder} lacks the shard {shard} that {INDEX} names")
        tensors |= native.read_weights(folder / shard)
    return tensors


def _named(
    tensors: dict[str, Tensor], family: Family, task: str, rows: list[keymap.Row]
) -> dict[str, Tensor]:
    """Keys as the rows spell them: today's names, the body's prefix there or not, no copies."""
    prefix = family.lead
    tied = set(family.tasks[task].tied) - {key for item in rows for key in item.theirs}
    bare_rows = family.rows(_spec_free(family), family.base)
    bodies = {k for item in bare_rows for k in item.theirs}
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        for old, new in OLD_NAMES.items():
            key = key.replace(old, new)
        if key.endswith(family.ignore) or key in tied:
            continue
        bare = key.removeprefix(prefix)
        if _counted(bare) in bodies or task == family.base:
            key = bare if task == family.base else prefix + bare
        out[key] = tensor
    return out


def _counted(key: str) -> str:
    """A key with its layer number set to 0."""
    parts = [("0" if p.isdigit() else p) for p in key.split(".")]
    return ".".join(parts)


def _spec_free(family: Family) -> S.Model:
    """A spec of the family with one layer, whose rows name every kind of key."""
    first = next(iter(family.tasks))
    return S.override(family.spec_of({}, first), "stack.depth", 1)


def _without_other_heads(
    theirs: dict[str, Tensor], family: Family, spec: S.Model, rows: list[keymap.Row]
) -> dict[str, Tensor]:
    """The tensors less those of other tasks' heads, which are named in the log."""
    used = {key for item in rows for key in item.theirs}
    others = {key for task in family.tasks.values() for key in task.tied}
    for name, task in family.tasks.items():
        lead = family.lead if name == family.base else ""
        others |= {lead + k for item in task.rows(spec) for k in item.theirs}
    spare = sorted(key for key in theirs if key in others - used)
    if spare:
        log.warning("weights of other heads are left out: %s", ", ".join(spare))
    return {key: tensor for key, tensor in theirs.items() if key not in spare}


def _missing_head(theirs: dict[str, Tensor], rows: list[keymap.Row]) -> set[str]:
    """Our keys of a head that the folder has nothing for: they start fresh, and that is said."""
    head = [r for r in rows if all(key.startswith("head.") for key in r.ours)]
    names = {key for r in head if not set(r.theirs) & theirs.keys() for key in r.ours}
    if names:
        log.warning("no weights for the head: %s start fresh", ", ".join(sorted(names)))
    return names


def _fill(model: Model, found: dict[str, Tensor], fresh: set[str]) -> None:
    """Put tensors into a model of shapes alone; what starts fresh is drawn."""
    if fresh:
        drawn = build(S.override(model.spec, "stack.depth", 1)).state_dict()
        found = found | {key: drawn[key] for key in fresh}
    native.check(model.state_dict(), found, Path(CONFIG))
    native.restore_constants(model, found)
    model.load_state_dict(found, assign=True)


def save(model: Model, folder: Path, origin: Origin) -> None:
    """Write a model as its family's folder."""
    family = FAMILIES[origin.family]
    config = family.config_of(model.spec, origin.task, origin.config)
    ours = {k: t.detach().cpu() for k, t in model.state_dict().items()}
    tensors = keymap.save(ours, family.rows(model.spec, origin.task))
    native.write(folder, {WEIGHTS: tensors}, CONFIG, config)
