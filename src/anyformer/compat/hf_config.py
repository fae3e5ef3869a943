"""Configs under transformers' names: the fields of a config.json as attributes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

from anyformer.checkpoint import hub
from anyformer.checkpoint.family import FAMILIES, Family
from anyformer.checkpoint.huggingface import CONFIG, family_of, read_config
from anyformer.checkpoint.labels import labels, with_labels
from anyformer.errors import known_or_raise

COMMON = ("num_labels", "id2label", "label2id", "architectures", "use_cache")


class Config:
    """The fields that were given, and behind them the defaults of the family."""

    model_type: ClassVar[str] = ""

    def __init__(self, **fields: Any):
        given = dict(fields)
        count = given.pop("num_labels", None)
        given.pop("model_type", None)
        self.__dict__ |= given if count is None else with_labels(given, count)

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **changes: Any) -> Config:
        """The config of a folder or hub name, with fields changed."""
        file = hub.folder_of(name, changes.pop("revision", None), hub.TEXT) / CONFIG
        fields = read_config(file)
        found = family_of(fields, file).model_type
        return config_class(cls.model_type or found)(**fields | changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were given, and the model_type."""
        return {**self.__dict__, "model_type": self.model_type}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=2, sort_keys=True)
        (Path(folder) / CONFIG).write_text(text + "\n", encoding="utf-8")

    @property
    def num_labels(self) -> int:
        """How many labels there are."""
        return labels(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        defaults = {f.key: f.default for f in FAMILIES[self.model_type].fields}
        known = [*self.__dict__, *defaults, *COMMON]
        return defaults.get(known_or_raise(name, known, "field of the config", AttributeError))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__} {json.dumps(self.to_dict(), indent=2, sort_keys=True)}"


def stem(family: Family) -> str:
    """What transformers' class names of a family begin with, as Bert."""
    return family.tasks[family.base].architecture.removesuffix("Model")


_CLASSES: dict[str, type[Config]] = {}


def config_class(model_type: str) -> type[Config]:
    """The config class of a family, the same each time."""
    if model_type not in _CLASSES:
        name = f"{stem(FAMILIES[model_type])}Config"
        made = {"model_type": model_type, "__module__": "anyformer.compat.huggingface"}
        made["__doc__"] = f"The config.json of {model_type}."
        _CLASSES[model_type] = type(name, (Config,), made)
    return _CLASSES[model_type]
