"""Findings as files, so that what broke once is tried for ever after."""

from __future__ import annotations

import json
import re
from pathlib import Path

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.laws.check import Finding, broken
from anyformer.laws.table import LAWS
from anyformer.spec.strict import parsed, text_of


def write(finding: Finding, folder: Path) -> Path:
    """Write what to try again: the law, the seed and the spec; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", finding.law).strip("-")
    path = folder / f"{name}-{finding.seed}.json"
    kept = {"law": finding.law, "seed": finding.seed, "what": finding.what}
    path.write_text(json.dumps({**kept, "spec": S.to_dict(finding.spec)}, indent=1) + "\n")
    return path


def again(path: Path) -> Finding | None:
    """What a kept file still breaks; None where the law holds now."""
    kept = parsed(text_of(path, SpecError))
    if not isinstance(kept, dict) or not {"law", "seed", "spec"} <= kept.keys():
        raise SpecError(f"{path} was not written by `anyformer laws --keep`: law, seed, spec")
    spec, law = S.from_dict(kept["spec"]), kept["law"]
    if law not in LAWS or not isinstance(spec, S.Model) or S.problems(spec):
        raise SpecError(f"{path} names no law, or describes no model that can be: write it anew")
    return broken(law, spec, (int(kept["seed"]),))
