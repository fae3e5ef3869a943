"""What a folder says about generation: its generation_config.json, else its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyformer.checkpoint.folder import read_json
from anyformer.data.tokenizer import Tokenizer

CONFIG = "generation_config.json"
FIELDS = (  # those that say what ids mean; how tokens are chosen is asked for each time
    "eos_token_id",
    "pad_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "decoder_start_token_id",
    "bad_words_ids",
)


def defaults_of(folder: Path, words: Tokenizer) -> dict[str, Any]:
    """Options of generate that a folder asks for; where it says nothing, a text ends with eos."""
    stated = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    found = {name: stated[name] for name in FIELDS if stated.get(name) is not None}
    for role in ("eos", "pad"):
        if role in words.role_ids:
            found.setdefault(f"{role}_token_id", words.role_ids[role])
    if words.language_id is not None:
        found["forced_bos_token_id"] = words.language_id
    return found
