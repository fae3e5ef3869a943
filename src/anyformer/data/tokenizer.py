"""One tokenizer for every family, over the `tokenizers` library."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from anyformer.data import batch, build, encode, files, load
from anyformer.data.kinds import ROLES
from anyformer.data.library import guarded, tokenizers
from anyformer.data.template import language_token, template
from anyformer.errors import InputError, known_or_raise

ALSO = ("offset_mapping", "special_tokens_mask", "token_type_ids")
PORTABLE = ("wordpiece", "bytes", "pieces")  # builders whose pipeline needs nothing around it


@final
class Tokenizer:
    """Text to ids and back. It never changes: what alters it returns another one."""

    def __init__(self, loaded: load.Loaded) -> None:
        self._loaded = loaded
        self._pipeline = loaded.pipeline

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], kind: str | None = None, check: bool = True
    ) -> Tokenizer:
        """The tokenizer of a folder: its tokenizer.json, else its older files.

        `kind` names the family where the files don't; check=False allows a vocabulary of another
        size than that of the folder's config.json.
        """
        return cls(load.load(Path(folder), kind, check))

    def __call__(
        self,
        text: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        max_length: int | None = None,
        padding: bool | str = False,
        side: str | None = None,
        tensors: bool = False,
        also: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Ids of one text or of several, with special tokens, under Hugging Face's names.

        Longer rows are cut to max_length, the longer text of a pair first. `padding` is True or
        "longest", or "max_length"; `side` is where it goes. `also` asks for "offset_mapping",
        "special_tokens_mask" or "token_type_ids". Lists for a text, lists of lists for several;
        tensors always have rows.
        """
        for name in also:
            known_or_raise(name, ALSO, "output", InputError)
        rows = encode.rows_of(text, pair)
        found = encode.encodings(self._loaded, rows, max_length, special=True)
        columns = encode.columns_of(self._loaded, found, also)
        lengths = [len(row) for row in columns["input_ids"]]
        where = side or str(self._option("padding_side", self._row_side()))
        chosen = batch.padding_of(padding, lengths, max_length, where)
        if chosen:
            (pad,) = self.need("pad")
            columns = batch.padded(columns, batch.Padding(*chosen, pad))
        if tensors:
            return batch.as_tensors(columns)
        return {k: v[0] for k, v in columns.items()} if isinstance(text, str) else columns

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of one text, without special tokens around it unless asked."""
        found = encode.encodings(self._loaded, encode.rows_of(text, None), None, special)
        return encode.ids_of(self._loaded, found[0])

    def tokens(self, text: str) -> list[str]:
        """The tokens of one text as they stand in the vocabulary."""
        return [self.token(id) or "" for id in self.encode(text)]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ids, a list or a one-dimensional tensor; ids without a token are skipped."""
        listed = [int(id) for id in ids]
        if any(id < 0 for id in listed):
            raise InputError(
                f"the id {min(listed)} has no text: take out what labels are padded with"
            )
        joiner = self._option("joiner", None)
        if isinstance(joiner, str):
            hidden = set(self._loaded.roles.values()) if skip_special else set[str]()
            tokens = [token for token in map(self.token, listed) if token and token not in hidden]
            return " ".join(tokens).replace(f"{joiner} ", "").strip()
        with guarded("these ids can't be decoded", InputError):
            text = self._pipeline.decode(listed, skip_special_tokens=skip_special)
        return text if self._portable() else text.strip()

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special: bool = True) -> list[str]:
        """The texts of several rows of ids."""
        return [self.decode(row, skip_special) for row in rows]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the files that this tokenizer was loaded from, and a tokenizer.json."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, content in self._loaded.files.items():
            (target / name).write_bytes(content)
        if files.JSON not in self._loaded.files and self._portable():
            (target / files.JSON).write_text(self._pipeline.to_str(pretty=True), encoding="utf-8")

    def with_roles(self, **tokens: str) -> Tokenizer:
        """Another tokenizer with tokens of the vocabulary in new roles: pad="<|endoftext|>"."""
        for role, token in tokens.items():
            known_or_raise(role, ROLES, "role of a special token", InputError)
            if self.id(token) is None:
                raise InputError(f"{token!r} is not in the vocabulary, so it can't be {role}")
        stated = {f"{role}_token": token for role, token in tokens.items()}
        roles = {**self._loaded.roles, **tokens}
        return Tokenizer(replace(self._loaded, roles=roles, files=self._files_with(stated)))

    def with_languages(self, source: str, target: str | None = None) -> Tokenizer:
        """Another tokenizer for texts of a language, to be translated into another."""
        kind = self._loaded.kind
        if kind is None or "src_lang" not in kind.options:
            raise InputError("this tokenizer has no languages: it reads all of them alike")
        stated = {"src_lang": source, "tgt_lang": target}
        options = {**self._loaded.options, **stated}
        pipeline = self._pipeline
        if kind.language:
            for code in filter(None, (source, target)):
                language_token(kind, code, pipeline)
            pipeline = tokenizers.Tokenizer.from_str(pipeline.to_str())
            pipeline.post_processor = template(kind, self._loaded.roles, options, pipeline)
        kept = self._files_with(stated)
        if files.JSON in kept:
            kept[files.JSON] = pipeline.to_str(pretty=True).encode()
        return Tokenizer(replace(self._loaded, pipeline=pipeline, options=options, files=kept))

    @property
    def language_id(self) -> int | None:
        """The id that a translation into the target language begins with (forced_bos_token_id)."""
        kind, target = self._loaded.kind, self._option("tgt_lang", None)
        if kind is None or not kind.language or target is None:
            return None
        return self.id(language_token(kind, str(target), self._pipeline))

    @property
    def roles(self) -> Mapping[str, str]:
        """The special tokens by role: bos, eos, unk, sep, pad, cls, mask, as far as there are."""
        return dict(self._loaded.roles)

    @property
    def role_ids(self) -> Mapping[str, int]:
        """The ids of the special tokens by role."""
        found = {role: self.id(token) for role, token in self._loaded.roles.items()}
        return {role: id for role, id in found.items() if id is not None}

    def need(self, *roles: str) -> tuple[int, ...]:
        """The ids of special tokens; one that this tokenizer lacks raises and says so."""
        ids = self.role_ids
        for role in roles:
            known_or_raise(role, ROLES, "role of a special token", InputError)
            if role not in ids:
                raise InputError(
                    f"this tokenizer has no {role} token; choose one of its tokens: "
                    f'tokenizer.with_roles({role}="...")'
                )
        return tuple(ids[role] for role in roles)

    def id(self, token: str) -> int | None:
        """The id of a token; None where the vocabulary lacks it."""
        joiner = self._option("joiner", None)
        if isinstance(joiner, str) and token not in self._loaded.roles.values():
            token = build.marked(token, joiner)
        found = self._pipeline.token_to_id(token)
        return found if found is not None and found < self._loaded.size else None

    def token(self, id: int) -> str | None:
        """The token of an id; None where there is none."""
        found = self._pipeline.id_to_token(id) if 0 <= id < self._loaded.size else None
        joiner = self._option("joiner", None)
        if found is None or not isinstance(joiner, str) or found in self._loaded.roles.values():
            return found
        return found.removesuffix("</w>") if found.endswith("</w>") else found + joiner

    @property
    def vocab_size(self) -> int:
        """The number of tokens without those that were added to the vocabulary."""
        return self._loaded.base

    def __len__(self) -> int:
        """The number of ids: an embedding needs as many rows."""
        return self._loaded.size

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} tokens, {dict(self._loaded.roles)})"

    def _option(self, name: str, default: object) -> object:
        return self._loaded.options.get(name, default)

    def _row_side(self) -> str:
        return self._loaded.kind.side if self._loaded.kind else "right"

    def _portable(self) -> bool:
        return self._loaded.kind is None or self._loaded.kind.build in PORTABLE

    def _files_with(self, stated: Mapping[str, Any]) -> dict[str, bytes]:
        """The files to save, with some fields of tokenizer_config.json set."""
        kept = dict(self._loaded.files)
        config = {**json.loads(kept.get(files.CONFIG, b"{}")), **stated}
        kept[files.CONFIG] = json.dumps(config, indent=2, ensure_ascii=False).encode()
        return kept
