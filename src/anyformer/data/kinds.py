"""The kinds of tokenizer, one row each: how the vocabulary is read, special tokens, template.

A template is written with the names of roles: `cls:0 $A:0 sep:0 $B:1 sep:1` puts the token of the
role `cls` first and gives the second text and what follows it the token type 1. `lang` is the
token of the source language. A role with an option `add_<role>_token` that is false is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anyformer.data import codes
from anyformer.errors import CheckpointError, known_or_raise

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to turn a text into ids, as far as the files of a folder leave it open."""

    build: str  # the builder of data/build.py
    roles: Mapping[str, str]  # special tokens where the folder names none
    around: tuple[str, str] = ("$A:0", "$A:0 $B:1")  # templates of one text and of two
    types: bool = False  # the model reads token types
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    specials: tuple[str, ...] = ()  # special tokens that are put behind a vocabulary without them
    strip: tuple[str, ...] = ()  # roles whose token takes the spaces before it
    lead: tuple[str, ...] = ()  # what stands in front of a sentencepiece vocabulary ...
    skip: int = 0  # ... in place of its first pieces
    tail: tuple[str, ...] = ()  # what stands behind the vocabulary
    language: str = ""  # how the token of a language is written
    prepare: str = ""  # a step in Python before the tokenizer: data/moses.py
    side: str = "right"  # where padding goes


_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_FAIRSEQ = dict(bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>")
_ONE_SEP = ("cls:0 $A:0 sep:0", "cls:0 $A:0 sep:0 $B:1 sep:1")
_TWO_SEPS = ("cls:0 $A:0 sep:0", "cls:0 $A:0 sep:0 sep:0 $B:0 sep:0")
_ENDS = ("bos:0 $A:0 eos:0", "bos:0 $A:0 eos:0 bos:1 $B:1 eos:1")
_LEAD = ("<s>", "<pad>", "</s>", "<unk>")
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_bert = Kind(
    build="wordpiece",
    roles=_BERT,
    types=True,
    options={"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True},
    around=_ONE_SEP,
)
_gpt2 = Kind(
    build="bytes",
    roles=dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"),
    options={"add_prefix_space": False, "add_bos_token": False, "add_eos_token": False},
    around=_ENDS,
)
_roberta = Kind(
    build="bytes",
    roles={**_FAIRSEQ, "mask": "<mask>"},
    options={"add_prefix_space": False, "trim_offsets": True},
    strip=("mask",),
    around=_TWO_SEPS,
)
_xlm_roberta = Kind(
    build="pieces",
    roles={**_FAIRSEQ, "mask": "<mask>"},
    strip=("mask",),
    lead=_LEAD,
    skip=3,
    tail=("<mask>",),
    around=_TWO_SEPS,
)
_mbart = replace(
    _xlm_roberta,
    around=("$A:0 eos:0 lang:0", "$A:0 $B:0 eos:0 lang:0"),
    tail=(*codes.MBART, "<mask>"),
    language="{}",
    options={"src_lang": "en_XX", "tgt_lang": None},
)
_llama = Kind(
    build="pieces",
    roles={"bos": "<s>", "eos": "</s>", "unk": "<unk>"},
    options={"add_bos_token": True, "add_eos_token": False, "legacy": True},
    side="left",
    around=_ENDS,
)

KINDS: dict[str, Kind] = {
    "bert": _bert,
    "distilbert": replace(_bert, types=False),
    "mpnet": replace(
        _bert,
        roles={**_FAIRSEQ, "unk": "[UNK]", "mask": "<mask>"},
        types=False,
        strip=("mask",),
        around=_TWO_SEPS,
    ),
    "gpt2": _gpt2,
    "opt": replace(
        _gpt2,
        roles={**dict.fromkeys(("bos", "eos", "unk"), "</s>"), "pad": "<pad>"},
        options={**_gpt2.options, "add_bos_token": True},
    ),
    "qwen2": Kind(
        build="bytes",
        roles={"eos": "<|endoftext|>", "pad": "<|endoftext|>"},
        options={"add_prefix_space": False, "pattern": _QWEN, "compose": True},
    ),
    "roberta": _roberta,
    "deberta": replace(
        _roberta,
        roles={**_BERT, "bos": "[CLS]", "eos": "[SEP]"},
        options={"add_prefix_space": False},
        types=True,
        around=_ONE_SEP,
    ),
    "openaigpt": Kind(
        build="words", roles={"unk": "<unk>"}, options={"cut": "bert", "do_lower_case": True}
    ),
    "ctrl": Kind(build="words", roles={"unk": "<unk>"}, options={"cut": "lines", "joiner": "@@"}),
    "xlm": Kind(
        build="words",
        roles={
            "bos": "<s>",
            "unk": "<unk>",
            "sep": "</s>",
            "pad": "<pad>",
            "cls": "</s>",
            "mask": "<special1>",
        },
        around=("bos:0 $A:0 sep:0", "bos:0 $A:0 sep:0 $B:1 sep:1"),
        specials=tuple(f"<special{i}>" for i in range(10)),
        options={"cut": "spaces", "do_lowercase_and_remove_accent": True, "src_lang": "en"},
        prepare="moses",
    ),
    "albert": Kind(
        build="pieces",
        roles={**_BERT, "bos": "[CLS]", "eos": "[SEP]", "unk": "<unk>", "pad": "<pad>"},
        types=True,
        options={"do_lower_case": True, "keep_accents": False, "quotes": True, "commas": True},
        strip=("mask",),
        around=_ONE_SEP,
    ),
    "bigbird": Kind(
        build="pieces",
        roles={**_FAIRSEQ, "sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"},
        strip=("mask",),
        around=_ONE_SEP,
    ),
    "debertav2": Kind(
        build="pieces",
        roles={**_BERT, "bos": "[CLS]", "eos": "[SEP]"},
        types=True,
        options={"do_lower_case": False, "split_by_punct": False},
        specials=("[MASK]",),
        around=_ONE_SEP,
    ),
    "t5": Kind(
        build="pieces",
        roles={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        around=("$A:0 eos:0", "$A:0 eos:0 $B:0 eos:0"),
        options={"extra_ids": 100},
    ),
    "pegasus": Kind(
        build="pieces",
        roles={"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"},
        around=("$A:0 eos:0", "$A:0 $B:0 eos:0"),
        options={"offset": 103},
        lead=("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103))),
        skip=2,
    ),
    "xlmroberta": _xlm_roberta,
    "camembert": replace(
        _xlm_roberta,
        lead=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        skip=1,
    ),
    "mbart": _mbart,
    "mbart50": replace(
        _mbart,
        around=("lang:0 $A:0 eos:0", "lang:0 $A:0 $B:0 eos:0"),
        tail=(*codes.MBART50, "<mask>"),
    ),
    "m2m100": Kind(
        build="dictionary",
        roles={k: v for k, v in _FAIRSEQ.items() if k != "cls"},
        around=("lang:0 $A:0 eos:0", "lang:0 $A:0 $B:0 eos:0"),
        options={"src_lang": "en", "tgt_lang": None, "language_codes": "m2m100"},
        language="__{}__",
    ),
    "llama": _llama,
    "gemma": replace(
        _llama, roles={"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}
    ),
}

# Names of classes and model types, in small letters without - and _, that are another's kind.
ALIASES = {
    "bart": "roberta",
    "codellama": "llama",
    "convbert": "bert",
    "electra": "bert",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "gemma3text": "gemma",
    "gptj": "gpt2",
    "gptneo": "gpt2",
    "gptneox": "gpt2",
    "led": "roberta",
    "longformer": "roberta",
    "mistral": "llama",
    "mixtral": "llama",
    "mobilebert": "bert",
    "mt5": "t5",
    "phi": "gpt2",
    "phi3": "llama",
    "qwen3": "qwen2",
    "robertaprelayernorm": "roberta",
    "xlmrobertaxl": "xlmroberta",
}


def find(name: str) -> str | None:
    """The kind that a tokenizer class or a model type names: LlamaTokenizerFast is llama."""
    short = name.removesuffix("Fast").removesuffix("Tokenizer").lower()
    short = short.replace("-", "").replace("_", "")
    short = ALIASES.get(short, short)
    return short if short in KINDS else None


def named(name: str) -> str:
    """As find, for a name that a user gives: an unknown one raises and names the nearest."""
    return find(name) or known_or_raise(name, KINDS, "kind of tokenizer", CheckpointError)
