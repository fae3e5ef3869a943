"""What a model's folder says of its task: the objective it was tuned with, labels, pixels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyformer.errors import InputError
from anyformer.objectives.registry import read

ABOUT = "task.json"  # in a model's folder: the task and its objective
PIXELS = "preprocessor_config.json"  # in a folder of Hugging Face's: how images become pixels
UNNAMED = re.compile(r"LABEL_\d+")  # names that stand for none


def plan_in(folder: Path) -> tuple[str, Any] | None:
    """The task and objective that a fine-tuned folder says it is for."""
    file = folder / ABOUT
    if not file.is_file():
        return None
    try:
        about = json.loads(file.read_text("utf-8"))
        return str(about["task"]), read(about["objective"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} can't be read: {error}; remove it, or tune again") from error


def pixels_in(folder: Path) -> dict[str, Any]:
    """The scale of pixels that a folder's model was trained with: mean and std, where it says."""
    file = folder / PIXELS
    if not file.is_file():
        return {}
    told = json.loads(file.read_text("utf-8"))
    pairs = {"mean": told.get("image_mean"), "std": told.get("image_std")}
    return {name: tuple(map(float, value)) for name, value in pairs.items() if value}


def names_in(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the labels of a config.json, in the order of the logits; () for none."""
    named: Mapping[str, str] = config.get("id2label") or {}
    return tuple(str(named[key]) for key in sorted(named, key=int))
