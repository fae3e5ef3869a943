"""Hugging Face folders: config.json and safetensors, single or in shards, in and out.

Nothing of a folder is executed: config.json is data, weights are safetensors, and a pickle is
refused.
"""

from __future__ import annotations

import logging
from pathlib import Path

from torch import Tensor

from anyformer import spec as S
from anyformer.checkpoint import families, keymap, native, writer
from anyformer.checkpoint import folder as folders
from anyformer.checkpoint.family import FAMILIES, Config, Family
from anyformer.checkpoint.fill import Watch, check, empty, fill, nothing
from anyformer.checkpoint.labels import Labels, counted, with_labels
from anyformer.checkpoint.labels import labels as labelled
from anyformer.checkpoint.native import Origin
from anyformer.checkpoint.reader import Piece, Place, Stored
from anyformer.errors import AnyformerError, CheckpointError, known_or_raise
from anyformer.model.model import Model

__all__ = ["CONFIG", "Origin", "load", "read_config", "save"]
CONFIG = "config.json"
CODE = ("auto_map", "trust_remote_code", "custom_pipelines", "_attn_implementation_internal")
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
log = logging.getLogger("anyformer")
assert families  # importing it makes the families known


def load(
    folder: Path,
    task: str | None,
    place: Place = Place(),
    watch: Watch = nothing,
    stored: Stored | None = None,
    labels: Labels = None,
) -> Model:
    """The model of a Hugging Face folder, with the head of a task or its own.

    `stored` are its tensors where they were found already, in pickles for example; `labels` the
    number or the names of what the head tells apart, where not as config.json says.
    """
    file = folders.inside(folder, CONFIG)
    config = read_config(file)
    family = family_of(config, file)
    chosen = family.task(task, config)
    stored = folders.stored(folder) if stored is None else stored
    config = family.settle(config, stored)
    config = config if labels is None else with_labels(config, labels)
    model = _empty(family, config, chosen, file)
    ours = model.state_dict()
    rows = [r for r in family.rows(model.spec, chosen) if all(key in ours for key in r.ours)]
    named = _named(stored.entries, family, chosen, rows)
    theirs = _without_other_heads(named, family, model.spec, rows)
    spare = named.keys() - theirs.keys()
    theirs = theirs if task is None else _without_strangers(theirs, family, config, rows)
    theirs = Stored(theirs if labels is None else _relabelled(theirs, rows, model, config))
    own = (config.get("architectures") or [None])[0] == family.tasks[chosen].architecture
    fresh = set() if own and labels is None else _missing_head(theirs, rows)
    wanted = [key for key in ours if key not in fresh]
    rows = [r for r in rows if not set(r.ours) & fresh]
    check(model, rows, theirs, str(file))
    keymap.load(theirs.metas(), rows, wanted, str(folder))
    fill(model, rows, theirs, place, fresh, watch)
    kept = {key: place.put(named[key].read(), key) for key in spare if own}  # saved with it again
    model.origin = Origin(family.model_type, chosen, config, kept)
    return model.eval()


def read_config(file: Path) -> Config:
    """config.json as a dict, without the fields that name code."""
    config = folders.read_json(file)
    named = [key for key in CODE if config.get(key)]
    if named:
        log.warning("%s: %s ignored: code of a folder is never run", file, ", ".join(named))
    if not isinstance(config.get("architectures") or [], list):
        raise CheckpointError(f"{file}: architectures is no list of class names")
    return {key: value for key, value in config.items() if key not in CODE}


def family_of(config: Config, file: Path) -> Family:
    """The family that config.json names."""
    if "model_type" not in config:
        raise CheckpointError(f"{file} has no model_type; known: {', '.join(sorted(FAMILIES))}")
    name = known_or_raise(
        str(config["model_type"]), FAMILIES, f"model_type in {file}:", CheckpointError
    )
    return FAMILIES[name]


def _empty(family: Family, config: Config, task: str, file: Path) -> Model:
    """The model that config.json describes, with shapes alone."""
    try:
        return empty(family.spec_of(config, task))
    except AnyformerError as error:
        said = str(error).removeprefix("config.json: ")
        raise CheckpointError(f"{file}: {said}") from error
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        said = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{file} has a field of a kind it can't be: {said}") from error


def _named(
    tensors: dict[str, Piece], family: Family, task: str, rows: list[keymap.Row]
) -> dict[str, Piece]:
    """Keys as the rows spell them: today's names, the body's prefix there or not, no copies."""
    lead, part = family.lead_of(task), family.tasks[task].part
    leads = sorted({family.lead, *map(family.lead_of, family.tasks)}, key=len, reverse=True)
    bare_rows = family.rows(_spec_free(family), family.base)
    bodies = {k for item in bare_rows for k in item.theirs}
    known = {key for item in rows for key in item.theirs}
    own = {key for key in known if key.startswith(lead)}
    bodies |= {_counted(key.removeprefix(lead)) for key in own}
    tied = set(family.tasks[task].tied) - known
    idle = tuple(end for end in family.ignore if not any(key.endswith(end) for key in known))
    aliases = {v: family.lead + k for t in family.tasks.values() for k, v in t.alias.items()}
    there = {lead + k: v for k, v in family.tasks[task].alias.items()}
    out: dict[str, Piece] = {}
    left: list[str] = []  # of a side that the task has no use for
    for key, tensor in tensors.items():
        for old, new in OLD_NAMES.items():
            key = key.replace(old, new)
        key = aliases[key] if key in aliases and aliases[key] not in tensors else key
        if key.endswith(idle) or key in tied:
            continue
        bare = key.removeprefix(next((start for start in leads if key.startswith(start)), ""))
        if part is not None and bare.startswith(part.leaves):
            left.append(key)
            continue
        bare = bare if part is None else part.alias.get(bare, bare)
        name = lead + bare if _counted(bare) in bodies or task == family.base else key
        out[there.get(name, name)] = tensor
    if left:
        log.warning("%d weights of the other side are left out, %s first", len(left), left[0])
    older = {old: key for key, old in family.tasks[task].older.items() if key in known - out.keys()}
    return {older.get(key, key): tensor for key, tensor in out.items()}


def _counted(key: str) -> str:
    """A key with its layer number set to 0."""
    parts = [("0" if p.isdigit() else p) for p in key.split(".")]
    return ".".join(parts)


def _spec_free(family: Family) -> S.Model:
    """A spec of the family with one layer, whose rows name every kind of key."""
    first = next(iter(family.tasks))
    return S.override(family.spec_of({}, first), "stack.depth", 1)


def _without_other_heads(
    theirs: dict[str, Piece], family: Family, spec: S.Model, rows: list[keymap.Row]
) -> dict[str, Piece]:
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


def _without_strangers(
    theirs: dict[str, Piece], family: Family, config: Config, rows: list[keymap.Row]
) -> dict[str, Piece]:
    """The tensors less the heads of a class that is not known here, which are named in the log.

    They stand beside the body's prefix in the file. Where no task is asked for, they are errors.
    """
    named = (config.get("architectures") or [None])[0]
    ours = {task.architecture for task in family.tasks.values()}
    led = lambda piece: bool(family.lead) and piece.key.startswith(family.lead)
    if named is None or named in ours or not any(map(led, theirs.values())):
        return theirs
    used = {key for item in rows for key in item.theirs}
    spare = {key for key, piece in theirs.items() if key not in used and not led(piece)}
    if spare:
        listed = ", ".join(sorted(spare))
        log.warning("weights of %s, a class unknown here, are left out: %s", named, listed)
    return {key: piece for key, piece in theirs.items() if key not in spare}


def _relabelled(
    theirs: dict[str, Piece], rows: list[keymap.Row], model: Model, config: Config
) -> dict[str, Piece]:
    """The tensors less those of the head's last map that was made for other labels."""
    count = counted(model.spec.head)
    if count != labelled(config):
        said = "has no labels" if count is None else f"has always {count}"
        raise CheckpointError(f"labels: the head of this task {said}; choose another by task=")
    last = [r for r in rows if all(key.startswith("head.out.") for key in r.ours)]
    keys = {k for r in last for k in r.theirs if k in theirs and theirs[k].meta().shape[0] != count}
    return {key: tensor for key, tensor in theirs.items() if key not in keys}


def _missing_head(theirs: Stored, rows: list[keymap.Row]) -> set[str]:
    """Our keys of a head that the folder has nothing for: they start fresh, and that is said."""
    head = [r for r in rows if all(key.startswith("head.") for key in r.ours)]
    names = {key for r in head if not set(r.theirs) & theirs.keys() for key in r.ours}
    if names:
        log.warning("no weights for the head: %s start fresh", ", ".join(sorted(names)))
    return names


def save(
    model: Model, folder: Path, origin: Origin, max_shard_size: int | str = writer.SHARD
) -> None:
    """Write a model as its family's folder."""
    family = FAMILIES[known_or_raise(origin.family, FAMILIES, "family", CheckpointError)]
    config = family.config_of(model.spec, origin.task, origin.config)
    ours, rows = model.state_dict(), family.rows(model.spec, origin.task)
    known = {key for item in rows for key in item.ours}
    keymap.complain("the model has parameters without a row", set(ours) - known, known)
    rows = [item for item in rows if all(key in ours for key in item.ours)]
    spare = origin.spare.keys() - {key for item in rows for key in item.theirs}
    units = [_unit(item, ours) for item in rows]
    units += [_unit(keymap.row(key, key), origin.spare) for key in sorted(spare)]
    native.write(folder, units, max_shard_size, {CONFIG: config})
    (folder / native.SPEC).unlink(missing_ok=True)  # of an earlier save, which it would belie


def _unit(item: keymap.Row, ours: dict[str, Tensor]) -> writer.Unit:
    """Their tensors of a row, made when they are written."""
    held = {key: ours[key].detach() for key in item.ours}
    shapes = keymap.backwards(item, {key: tensor.to("meta") for key, tensor in held.items()})
    sizes = {key: tensor.nbytes for key, tensor in shapes.items()}
    return writer.Unit(sizes, lambda: keymap.backwards(item, held))
