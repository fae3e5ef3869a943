"""A folder becomes a pipeline: tokenizer.json as it is, else built from the older files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyformer.data import build, build_pieces, files, kinds
from anyformer.data.files import Named, Special
from anyformer.data.kinds import Kind
from anyformer.data.library import AddedToken, guarded, tokenizers
from anyformer.data.template import required, template
from anyformer.errors import CheckpointError

BUILDERS = {
    "wordpiece": build.wordpiece,
    "bytes": build.bytes_,
    "words": build.words,
    "pieces": build_pieces.pieces,
    "dictionary": build_pieces.dictionary,
}
AGAIN = "download or save the tokenizer again"
LONGEST_WORD = 1000  # WordPiece takes cubic time in it
# Options of older files that change the cut and that no builder has.
REFUSED = {"do_basic_tokenize": True, "vocab_type": "spm"}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A pipeline and what the folder says around it."""

    pipeline: tokenizers.Tokenizer
    kind: Kind | None
    roles: Mapping[str, str]
    options: Mapping[str, Any]
    base: int
    size: int
    files: Mapping[str, bytes]  # what saving writes


def load(folder: Path, kind: str | None = None, check: bool = True) -> Loaded:
    """The pipeline of a folder; `kind` where its files don't say, `check` against config.json."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder: give one that holds a tokenizer.json")
    config = files.read_if_there(folder / files.CONFIG)
    model = files.read_if_there(folder / files.MODEL)
    name = kinds.named(kind) if kind else _kind_of(config, model)
    row = kinds.KINDS[name] if name else None
    named = files.named_tokens(folder, config)
    options = {**(row.options if row else {}), **_given(config)}
    if (folder / files.JSON).is_file():
        loaded = _from_json(folder, row, named, options)
    else:
        loaded = _from_older(folder, row, named, options)
    if check:
        _check_size(loaded.size, folder, model)
        _check_own(loaded.size, folder)
    return loaded


def _kind_of(config: Mapping[str, Any], model: Mapping[str, Any]) -> str | None:
    for name in (config.get("tokenizer_class"), model.get("model_type")):
        found = kinds.find(name) if isinstance(name, str) else None
        if found:
            return found
    return None


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of tokenizer_config.json; those that are null leave the default, accents aside."""
    return {k: v for k, v in config.items() if v is not None or k == "strip_accents"}


def _from_json(folder: Path, kind: Kind | None, named: Named, options: dict[str, Any]) -> Loaded:
    """tokenizer.json as it is, but for truncation and padding, which each call decides."""
    file = folder / files.JSON
    found = files.read_json(file)
    found.update(truncation=None, padding=None)
    model = found.get("model")
    longest = model.get("max_input_chars_per_word", 0) if isinstance(model, dict) else 0
    if isinstance(longest, int) and longest > LONGEST_WORD:
        raise CheckpointError(
            f"{file}: max_input_chars_per_word {longest} is over {LONGEST_WORD}: lower it"
        )
    with guarded(f"{file} can't be read", CheckpointError, AGAIN):
        pipeline = tokenizers.Tokenizer.from_str(json.dumps(found))
        pipeline.encode_batch([("a", "b")])
        pipeline.decode(pipeline.encode("a b").ids)
    vocab = pipeline.get_vocab(with_added_tokens=True)
    if len(set(vocab.values())) < len(vocab):
        raise CheckpointError(f"{file} gives one id to several tokens: {AGAIN}")
    default = kind.roles if kind else {}
    roles = {**default, **{role: token.text for role, token in named.roles.items()}}
    return Loaded(
        pipeline=pipeline,
        kind=kind,
        roles={role: token for role, token in roles.items() if token in vocab},
        options=options,
        base=pipeline.get_vocab_size(with_added_tokens=False),
        size=max(vocab.values()) + 1,
        files=_bytes(folder, (files.JSON,)),
    )


def _from_older(folder: Path, kind: Kind | None, named: Named, options: dict[str, Any]) -> Loaded:
    kind, found = _files_of(folder, kind)
    for option, only in REFUSED.items():
        if options.get(option, only) != only:
            raise CheckpointError(
                f"{folder / files.CONFIG}: {option}={options[option]!r} is not known"
            )
    stated = {role: token.text for role, token in named.roles.items()}
    numbered = [t for t in named.others if t.id is not None]
    later = [t for t in named.others if t.id is None]
    texts = [token.text for token in (*numbered, *named.roles.values(), *later)]
    more = tuple(dict.fromkeys((*texts, *kind.specials)))
    unk = stated.get("unk", kind.roles.get("unk", ""))
    source = build.Source(folder, found, kind, options, unk, more)
    with guarded(f"{' and '.join(map(str, found))} can't be read", CheckpointError, AGAIN):
        built = BUILDERS[kind.build](source)
    pipeline = built.pipeline
    roles = {**kind.roles, **stated}
    roles = {
        role: token for role, token in roles.items() if pipeline.token_to_id(token) is not None
    }
    _complete(required(kind, options), {**kind.roles, **stated}, roles, found)
    _add(pipeline, _specials(kind, named, roles, built), folder)
    pipeline.post_processor = template(kind, roles, options, pipeline, folder)
    return Loaded(
        pipeline=pipeline,
        kind=kind,
        roles=roles,
        options=options,
        base=built.base,
        size=built.size,
        files=_bytes(folder, tuple(file.name for file in found)),
    )


def _files_of(folder: Path, kind: Kind | None) -> tuple[Kind, tuple[Path, ...]]:
    every = sorted({name for sets in files.FILES.values() for names in sets for name in names})
    there = [name for name in every if (folder / name).is_file()]
    if not there:
        raise CheckpointError(
            f"{folder} has no tokenizer: none of {files.JSON}, {', '.join(every)} is there; "
            "copy them from where the model comes from"
        )
    if kind is None:
        raise CheckpointError(
            f"{folder} has {', '.join(there)} but nothing says for which family: put "
            f'"tokenizer_class" into {files.CONFIG} or pass kind=, one of {", ".join(kinds.KINDS)}'
        )
    for names in files.FILES[kind.build]:
        if set(names) <= set(there):
            return kind, tuple(folder / name for name in names)
    wanted = " or ".join(" with ".join(names) for names in files.FILES[kind.build])
    raise CheckpointError(
        f"{folder} has {', '.join(there)}, but its family keeps its vocabulary in {wanted}: "
        f"correct tokenizer_class in {files.CONFIG} or pass kind="
    )


def _complete(
    need: set[str], wanted: Mapping[str, str], roles: Mapping[str, str], found: tuple[Path, ...]
) -> None:
    for role in sorted(need - roles.keys()):
        raise CheckpointError(
            f"{found[0]} lacks {wanted.get(role)!r}, the {role} token that this family needs; is "
            f"it the vocabulary of another model? Else name the token as {role}_token in "
            f"{found[0].with_name(files.CONFIG)}"
        )


def _specials(
    kind: Kind, named: Named, roles: Mapping[str, str], built: build.Built
) -> dict[str, Special]:
    """Every token to find in a text before all else; what the folder says wins."""
    found = {token.text: token for token in built.specials}
    found |= {text: Special(text) for text in kind.specials}
    for token in named.others:  # one that is listed twice keeps its id
        found[token.text] = token if token.id is not None else found.get(token.text, token)
    for role, text in roles.items():
        known = found.get(text, Special(text))
        left = known.strip_left or role in kind.strip
        found[text] = replace(known, strip_left=left, special=True, normal=False)
        stated = named.roles.get(role, Special(text))
        if stated != Special(text):  # with marks of its own, not the name alone
            found[text] = replace(stated, special=True, id=known.id)
    return found


def _add(pipeline: tokenizers.Tokenizer, specials: Mapping[str, Special], folder: Path) -> None:
    for text, token in specials.items():
        id = pipeline.token_to_id(text)
        if id is None:
            continue
        if token.id is not None and id != token.id:
            raise CheckpointError(
                f"{folder}: {text!r} is given the id {token.id}, but in the vocabulary it is {id}; "
                "the files are of different tokenizers"
            )
        made = AddedToken(
            text,
            single_word=token.word,
            lstrip=token.strip_left,
            rstrip=token.strip_right,
            normalized=token.normal,
            special=token.special,
        )
        (pipeline.add_special_tokens if token.special else pipeline.add_tokens)([made])


def _check_size(size: int, folder: Path, model: Mapping[str, Any]) -> None:
    """The model must have a row for each id, and not many more: rounding up is common."""
    text = model.get("text_config")
    places = (model, text if isinstance(text, dict) else {})
    stated = [p[key] for p in places for key in ("vocab_size", "n_words") if key in p]
    rows = stated[0] if stated else None
    if not isinstance(rows, int) or (size <= rows and rows - size <= max(256, 0.04 * rows)):
        return
    raise CheckpointError(
        f"the tokenizer in {folder} has {size} tokens but {folder / files.MODEL} says vocab_size "
        f"{rows}: take both of one model; check=False loads them all the same"
    )


def _check_own(size: int, folder: Path) -> None:
    """The model of a folder of our own must have a row for each id too."""
    rows: Any = files.read_if_there(folder / files.OWN)
    for name in ("spec", "embed", "source", "vocab"):
        rows = rows.get(name) if isinstance(rows, dict) else None
    if isinstance(rows, int) and size > rows:
        raise CheckpointError(
            f"the tokenizer in {folder} has {size} tokens but {folder / files.OWN} says vocab "
            f"{rows}: take both of one model; check=False loads them all the same"
        )


def _bytes(folder: Path, sources: tuple[str, ...]) -> dict[str, bytes]:
    names = (*sources, files.CONFIG, files.MAP, files.ADDED)
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
