"""AutoTokenizer: our tokenizer behind transformers' argument names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from anyformer.checkpoint.tokenizer import tokenizer
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import InputError, known_or_raise

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
ASKED = {  # return_… arguments -> what to ask of our tokenizer
    "return_offsets_mapping": "offset_mapping",
    "return_special_tokens_mask": "special_tokens_mask",
    "return_token_type_ids": "token_type_ids",
}
TAKEN = ("truncation", "return_tensors", "add_special_tokens", "padding_side", *ASKED)


class Encoding(dict[str, Any]):
    """A batch: a dict whose entries are attributes too, and that moves to a device."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the batch has {', '.join(self)}, not {name}")
        return self[name]

    def to(self, device: torch.device | str) -> Encoding:
        """The batch with its tensors on a device."""
        moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in self.items()}
        return Encoding(moved)


class AutoTokenizer:
    """A tokenizer under transformers' names."""

    def __init__(self, plain: Tokenizer, longest: int | None = None):
        self.plain = plain
        self.model_max_length = longest

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], *, revision: str | None = None, **options: Any
    ) -> AutoTokenizer:
        """The tokenizer of a folder or hub name; src_lang and tgt_lang choose languages."""
        found = tokenizer(name, revision)
        longest = options.pop("model_max_length", None)
        source, target = options.pop("src_lang", None), options.pop("tgt_lang", None)
        if options.pop("use_fast", True) is not True:
            raise InputError("use_fast=False: there is one tokenizer, the fast one; leave it out")
        if options:
            taken = "revision, model_max_length, src_lang, tgt_lang"
            raise InputError(f"from_pretrained takes {taken}, not {', '.join(options)}")
        return cls(found if source is None else found.with_languages(source, target), longest)

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        padding: bool | str = False,
        max_length: int | None = None,
        **options: Any,
    ) -> Encoding:
        """Ids of one text or of several, as lists or, with return_tensors="pt", as tensors."""
        for name in options:
            known_or_raise(name, TAKEN, "argument of the tokenizer", InputError)
        kind = options.get("return_tensors")
        if kind not in (None, "pt"):
            raise InputError(f'return_tensors={kind!r}: torch tensors are "pt", lists None')
        if options.get("add_special_tokens", True) is not True:
            raise InputError("add_special_tokens=False: use .plain.encode(text)")
        cut = (max_length or self.model_max_length) if options.get("truncation") else None
        found = self.plain(
            text,
            text_pair,
            max_length=max_length if padding == "max_length" else cut,
            padding=False if padding == "do_not_pad" else padding,
            side=options.get("padding_side"),
            tensors=kind == "pt",
            also=[ours for theirs, ours in ASKED.items() if options.get(theirs)],
        )
        return Encoding(found)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids."""
        return self.plain.decode(ids, skip_special_tokens)

    def batch_decode(
        self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = False
    ) -> list[str]:
        """The texts of several rows of ids."""
        return self.plain.batch_decode(rows, skip_special_tokens)

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text."""
        return self.plain.tokens(text)

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        """The id of a token or of each of several; the unknown token's where there is none."""
        if isinstance(tokens, list):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self.plain.id(tokens)
        return self.plain.role_ids.get("unk") if found is None else found

    def convert_ids_to_tokens(self, ids: int | list[int]) -> Any:
        """The token of an id or of each of several."""
        if isinstance(ids, list):
            return [self.plain.token(id) for id in ids]
        return self.plain.token(ids)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the tokenizer's files."""
        self.plain.save(folder)

    @property
    def vocab_size(self) -> int:
        """The number of tokens without added ones."""
        return self.plain.vocab_size

    def __len__(self) -> int:
        return len(self.plain)

    def __getattr__(self, name: str) -> Any:
        role, _, rest = name.partition("_token")
        if role in ROLES and rest in ("", "_id"):
            known = self.plain.role_ids if rest else self.plain.roles
            return known.get(role)
        raise AttributeError(f"AutoTokenizer has no {name}; .plain is our own tokenizer")
