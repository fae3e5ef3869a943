"""Rotary positions in config.json: rope_parameters, and the older words for the same."""

from __future__ import annotations

import math

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import FULL, SLIDING
from anyformer.checkpoint.family import Config, Joint
from anyformer.errors import CheckpointError
from anyformer.spec.walk import attentions, head_dim

LENGTH, SHARE = "original_max_position_embeddings", "partial_rotary_factor"
PLAIN = {"rope_theta", "rope_type", "type", SHARE}
FACTOR, BENDS = {"factor": "factor"}, {"low": "low_freq_factor", "high": "high_freq_factor"}
YARN = {"fast": "beta_fast", "slow": "beta_slow", "gain": "attention_factor", "whole": "truncate"}
KINDS = {  # rope_type -> the node; its fields and their keys that must be there; those that may
    "linear": (S.Linear, FACTOR, {}),
    "llama3": (S.Llama3, FACTOR | BENDS, {"length": LENGTH}),
    "yarn": (S.Yarn, FACTOR, {"length": LENGTH} | YARN),
}
GAINS = ("mscale", "mscale_all_dim")  # of yarn, where attention_factor is not given


def scaling_of(given: Config, config: Config, usual: int) -> S.Scaling | None:
    """How rope_parameters slow turns down; what has no part here is refused.

    `usual` is the longest sequence of a family where config.json speaks of none.
    """
    kind = given.get("rope_type", given.get("type", "default"))
    node, needed, more = KINDS.get(kind, (None, {}, {}))
    known = {*PLAIN, *needed.values(), *more.values(), *(GAINS if kind == "yarn" else ())}
    if kind not in {*KINDS, "default"} or set(given) - known or set(needed.values()) - set(given):
        raise CheckpointError(
            f"config.json: rotary positions with {given} have no part here; rope_type 'default', "
            "'linear', 'llama3' and 'yarn' with their own entries have ('dynamic' would change "
            "what stands before a token as the row grows)"
        )
    if node is None:
        return None
    keys, longest = needed | more, config.get("max_position_embeddings") or usual
    found = {field: given[key] for field, key in keys.items() if given.get(key) is not None}
    if "length" in keys:
        found["length"] = config.get(LENGTH) or found.get("length") or longest
    if "factor" not in found:
        found["factor"] = longest / found["length"]
    if kind == "yarn" and "gain" not in found and all(given.get(name) for name in GAINS):
        slow = max(math.log(found["factor"]), 0.0) / 10
        found["gain"] = (given[GAINS[0]] * slow + 1) / (given[GAINS[1]] * slow + 1)
    return node(**found)


def words_of(rotary: S.Rotary) -> Config:
    """rope_parameters of rotary positions."""
    said: Config = {"rope_type": "default", "rope_theta": rotary.theta}
    for kind, (node, needed, more) in KINDS.items():
        if isinstance(rotary.scaling, node):
            found = {key: S.get(rotary.scaling, field) for field, key in (needed | more).items()}
            said |= {"rope_type": kind} | {k: v for k, v in found.items() if v is not None}
    return said


def older(words: Config) -> Config | None:
    """rope_scaling of rope_parameters, where they slow turns down."""
    said = {key: value for key, value in words.items() if key not in ("rope_theta", SHARE)}
    return None if said["rope_type"] == "default" else said


def rope(path: str, usual: int, base: str = "rope_theta", shares: bool = False) -> Joint:
    """Rotary positions at a path, alike in all layers; `base` is the older word of theta."""

    def read(spec: S.Model, config: Config) -> S.Model:
        given = config.get("rope_scaling") or config.get("rope_parameters") or {}
        if not shares and given.get(SHARE, 1.0) != 1.0:
            raise CheckpointError(f"config.json: {SHARE} has no part in this family yet")
        theta = given.get("rope_theta") or config.get(base) or 10000.0
        spec = S.override(spec, f"{path}.rotary.theta", theta)
        return S.override(spec, f"{path}.rotary.scaling", scaling_of(given, config, usual))

    def write(spec: S.Model) -> Config:
        attention = next(attentions(spec))[-1]
        rotary, width = attention.rotary or S.Rotary(), head_dim(attention, spec.dim)
        share = (rotary.dims or width) / width
        words = words_of(rotary) | ({SHARE: share} if shares else {})
        said = {base: rotary.theta, "rope_parameters": words, "rope_scaling": older(words)}
        return said | ({"rotary_pct": share} if shares else {})

    return Joint(read, write)


def two_ropes(usual: int, bases: dict[str, tuple[str, float]], both: bool = False) -> Joint:
    """Rotary positions of layers with and without a window.

    `bases`: of both kinds of layer the older word of theta and its default. `both`: rope_scaling
    is for both, not for the layers without a window alone.
    """
    kind_of = lambda attention: FULL if attention.window is None else SLIDING

    def read(spec: S.Model, config: Config) -> S.Model:
        given, scaling = config.get("rope_parameters") or {}, config.get("rope_scaling") or {}
        if set(given) - bases.keys():
            raise CheckpointError(f"config.json: rope_parameters are for {' and '.join(bases)}")
        for path, _, _, _, attention in attentions(spec):
            kind = kind_of(attention)
            words = (given.get(kind) or {}) | (scaling if both or kind == FULL else {})
            theta = words.get("rope_theta") or config.get(bases[kind][0]) or bases[kind][1]
            words = {key: value for key, value in words.items() if key != "truncate"}
            rotary = S.Rotary(theta=theta, scaling=scaling_of(words, config, usual))
            spec = S.override(spec, f"{path}.rotary", rotary)
        return spec

    def write(spec: S.Model) -> Config:
        words = {kind_of(a): words_of(a.rotary) for *_, a in attentions(spec) if a.rotary}
        said = {bases[kind][0]: each["rope_theta"] for kind, each in words.items()}
        scaling = None if both or FULL not in words else older(words[FULL])
        return said | {"rope_parameters": words, "rope_scaling": scaling}

    return Joint(read, write)
