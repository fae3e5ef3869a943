"""From what a user names to a folder: a folder that is there, or a name of Hugging Face's hub.

Nothing is looked up on the network unless the name is no folder and has the form of a hub name.
HF_HUB_OFFLINE, HF_HOME and HF_TOKEN work as they do for the package huggingface_hub.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from anyformer.checkpoint.folder import command
from anyformer.errors import CheckpointError, UnsafeError

NAME = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9_][\w.\-]{0,95})?")
ABOUT = [
    "config.json",
    "anyformer.json",
    "generation_config.json",
    "preprocessor_config.json",
    "task.json",  # what fine-tuning says of labels and fields
]
TOKENIZER = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "vocab.bpe",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "spm.model",
    "bpe.codes",
    "chat_template.jinja",
]
WEIGHTS = ["model.safetensors", "model-*.safetensors", "model.safetensors.index.json"]
PICKLES = ["pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"]
INSTALL = "install it: pip install 'anyformer[hub]'"


SAFE = (*ABOUT, *TOKENIZER, *WEIGHTS)
TEXT = (*ABOUT, *TOKENIZER)  # no weights
OLD = (*SAFE, *PICKLES)  # old weights too, where no others are


def at_home(name: str | os.PathLike[str]) -> Path:
    """A path, with the home that a ~ in front of it names; raise where there is none."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise CheckpointError(
            f"{os.fspath(name)}: there is no home folder of that name; write ./{name} for a "
            "folder that begins with ~"
        ) from error


def folder_of(
    name: str | os.PathLike[str], revision: str | None = None, wanted: tuple[str, ...] = SAFE
) -> Path:
    """The folder of a path or of a hub name, of which the wanted files are fetched."""
    path = at_home(name)
    if os.path.exists(path):  # of a name that is too long, too
        if revision is not None:
            raise CheckpointError(f"revision={revision!r} is for names of the hub; {path} is here")
        return path
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CheckpointError(
            f"{_absent(path)}, and it is no name of the hub, as org/name is: give one"
        )
    return _fetched(name, revision, wanted)


def _fetched(name: str, revision: str | None, wanted: tuple[str, ...]) -> Path:
    """The files of a hub name, from the cache or downloaded into it."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise CheckpointError(
            f"{_absent(Path(name))}; a name of the hub needs the package huggingface_hub: {INSTALL}"
        ) from error
    missing = lambda why: CheckpointError(f"{_absent(Path(name))}, and {why}")
    try:
        found = Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=[*wanted])
        )
    except errors.GatedRepoError as error:
        raise missing(f"on the hub {name!r} is gated: ask for access, then set HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise missing(f"the hub's {name!r} has no revision {revision!r}") from error
    except errors.RepositoryNotFoundError as error:
        why = f"the hub has no {name!r}, or it is private: then set HF_TOKEN"
        raise missing(why) from error
    except errors.LocalEntryNotFoundError as error:
        why = f"{name!r} is not in the hub's cache, and the hub can't be reached or is switched off"
        raise missing(f"{why} (HF_HUB_OFFLINE): connect, or give a folder") from error
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise missing(f"the hub did not give {name!r}: {type(error).__name__}: {said}") from error
    if wanted == SAFE and not any(found.glob("*.safetensors")):
        raise UnsafeError(
            f"the hub's {name!r} has no safetensors. If it has old weights (pytorch_model.bin), "
            f"they can run code: refused. {command(name, name.rpartition('/')[2])}"
        )
    return found


def _absent(path: Path) -> str:
    """That a folder is not there, and which of its neighbours may have been meant."""
    home = path.parent
    beside = [p.name for p in home.iterdir() if p.is_dir()] if os.path.isdir(home) else []
    near = difflib.get_close_matches(path.name, beside, 1, 0.6)
    hint = f" (did you mean {str(home / near[0])!r}?)" if near else ""
    return f"there is no folder {str(path)[:200]!r}{hint}"
