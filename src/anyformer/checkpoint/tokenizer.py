"""The tokenizer beside a model: of a folder or of a name of the hub."""

from __future__ import annotations

import os

from anyformer.checkpoint import hub
from anyformer.data.tokenizer import Tokenizer

__all__ = ["tokenizer"]


def tokenizer(
    path_or_hub_name: str | os.PathLike[str],
    revision: str | None = None,
    kind: str | None = None,
    check: bool = True,
) -> Tokenizer:
    """The tokenizer of a folder or of a hub name (org/name, at a revision).

    `kind` names the family where the files don't; check=False allows a vocabulary of another size
    than that of the model's config.json.
    """
    return Tokenizer.load(hub.folder_of(path_or_hub_name, revision, hub.TEXT), kind, check)
