"""Tokenizers from texts: BPE over bytes, WordPiece, Unigram, characters and bytes, in any style.

A kind says how texts are cut into tokens; a style says which special tokens there are and what
goes around a text. Both together become a tokenizer.json that Hugging Face's library reads alike.
The library's WordPiece trainer breaks ties in another order each time: keep what it made.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyformer.data import files, kinds
from anyformer.data.library import (
    AddedToken,
    decoders,
    guarded,
    models,
    normalizers,
    processors,
    tokenizers,
)
from anyformer.data.library import pre_tokenizers as cuts
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import DataError, known_or_raise

SENTINEL = "<extra_id_{}>"


@dataclass(frozen=True)
class Style:
    """Special tokens by role, in the order of their ids, and templates as in kinds.Kind."""

    roles: dict[str, str]
    around: tuple[str, str]
    types: bool = False  # whether models read token types
    sentinels: int = 0  # <extra_id_0> and so on, the first one last, as T5 has them
    strip: tuple[str, ...] = ()


END = "<|endoftext|>"
STYLES: dict[str, Style] = {
    "gpt": Style({"eos": END, "bos": END, "pad": END}, ("$A:0", "$A:0 $B:0")),
    "bert": Style(
        {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
        kinds.KINDS["bert"].around,
        types=True,
    ),
    "t5": Style(
        {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, kinds.KINDS["t5"].around, False, 100
    ),
    "roberta": Style(
        {
            **{"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"},
            **{"cls": "<s>", "sep": "</s>"},
        },
        kinds.KINDS["roberta"].around,
        strip=("mask",),
    ),
    "plain": Style({}, ("$A:0", "$A:0 $B:0")),
}
STYLES["bart"] = STYLES["roberta"]


@dataclass(frozen=True)
class Plan:
    """What a kind is trained with."""

    vocab: int
    special: list[str]
    unk: str  # the unknown token; only kinds that can miss a text need it
    lowercase: bool
    fallback: bool
    texts: Iterable[str] = field(repr=False)


def train(
    kind: str,
    texts: Iterable[str] = (),
    vocab: int = 8000,
    style: str | None = None,
    extra: Iterable[str] = (),
    **options: Any,
) -> Tokenizer:
    """A tokenizer of at most `vocab` ids, special tokens included.

    `kind` is "bpe" (over bytes), "wordpiece", "unigram", "characters" or "bytes"; `style` "gpt",
    "bert", "t5", "roberta" (which is BART's too) or "plain"; `extra` are more special tokens, as
    languages. Options: sentinels=N (default 100 for t5), lowercase=True (default for wordpiece),
    and fallback=False for characters, where those that were not seen are then unknown instead of
    bytes. Bytes, characters and BPE give every text back as it was.
    """
    make = MAKERS[known_or_raise(kind, MAKERS, "kind of tokenizer", DataError)]
    chosen = known_or_raise(style or DEFAULTS[kind], STYLES, "style of tokenizer", DataError)
    look = STYLES[chosen]
    sentinels = int(options.pop("sentinels", look.sentinels))
    plan, roles = _plan(kind, look, extra, vocab, options, texts)
    room = vocab - sentinels
    if room <= len(plan.special):
        raise DataError(
            f"vocab={vocab} is too small: there are {len(plan.special) + sentinels} special tokens "
            "alone; take more"
        )
    with guarded(f"the {kind} tokenizer can't be trained", DataError):
        made = make(plan, room)
    size = made.get_vocab_size()
    if size > room and kind not in ("bytes", "characters"):
        raise DataError(
            f"vocab={vocab} is too small: characters and special tokens alone are "
            f"{size + sentinels}; take more, or kind='bpe' or 'bytes', which need 256 and no more"
        )
    _add(made, roles, look, plan.special)
    made.add_special_tokens([SENTINEL.format(i) for i in reversed(range(sentinels))])
    made.post_processor = _template(made, look, roles)
    return _loaded(made, look, roles)


def _plan(
    kind: str,
    look: Style,
    extra: Iterable[str],
    vocab: int,
    options: dict[str, Any],
    texts: Iterable[str],
) -> tuple[Plan, dict[str, str]]:
    lowercase = bool(options.pop("lowercase", kind == "wordpiece"))
    fallback = bool(options.pop("fallback", True))
    for name in options:
        known_or_raise(name, ("sentinels", "lowercase", "fallback"), "option", DataError)
    roles = dict(look.roles)
    if kind in ("wordpiece", "unigram") or (kind == "characters" and not fallback):
        roles.setdefault("unk", "<unk>")
    special = list(dict.fromkeys([*roles.values(), *extra]))
    return Plan(vocab, special, roles.get("unk", ""), lowercase, fallback, _some(texts)), roles


def _some(texts: Iterable[str]) -> Iterator[str]:
    """The texts, of which the trainers take short ones best: line by line."""
    for text in texts:
        yield from text.splitlines(keepends=True)


def _corpus(plan: Plan) -> Iterator[str]:
    """The texts; none at all raises."""
    some = False
    for line in plan.texts:
        some = some or bool(line.strip())
        yield line
    if not some:
        raise DataError("the corpus is empty: give texts to train a tokenizer on")


def _trained(pipeline: tokenizers.Tokenizer, trainer: Any, plan: Plan) -> tokenizers.Tokenizer:
    pipeline.train_from_iterator(_corpus(plan), trainer)
    return pipeline


def _bpe(plan: Plan, room: int) -> tokenizers.Tokenizer:
    if room < 256 + len(plan.special):
        raise DataError(
            f"vocab={plan.vocab} is too small: it needs 256 bytes and {len(plan.special)} special "
            f"tokens{' and sentinels' * (room < plan.vocab)}"
        )
    pipeline = _over_bytes(models.BPE(), plan)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=room,
        special_tokens=plan.special,
        initial_alphabet=cuts.ByteLevel.alphabet(),
        show_progress=False,
    )
    return _trained(pipeline, trainer, plan)


def _over_bytes(model: Any, plan: Plan, words: bool = True) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(model)
    if plan.lowercase:
        pipeline.normalizer = normalizers.Lowercase()
    pipeline.pre_tokenizer = cuts.ByteLevel(add_prefix_space=False, use_regex=words)
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _wordpiece(plan: Plan, room: int) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token=plan.unk))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=plan.lowercase)
    pipeline.pre_tokenizer = cuts.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=room, special_tokens=plan.special, show_progress=False
    )
    return _trained(pipeline, trainer, plan)


def _unigram(plan: Plan, room: int) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.Unigram())
    steps: list[Any] = [normalizers.NFKC(), *[normalizers.Lowercase()] * plan.lowercase]
    pipeline.normalizer = normalizers.Sequence(steps)
    pipeline.pre_tokenizer = cuts.Metaspace()
    pipeline.decoder = decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=room,
        special_tokens=plan.special,
        unk_token=plan.unk,
        show_progress=False,
    )
    return _trained(pipeline, trainer, plan)


def _characters(plan: Plan, room: int) -> tokenizers.Tokenizer:
    text = (line.lower() if plan.lowercase else line for line in _corpus(plan))
    seen = sorted({letter for line in text for letter in line})
    tokens = [*plan.special, *(f"<0x{b:02X}>" for b in range(256) if plan.fallback), *seen]
    if len(tokens) > room:
        raise DataError(
            f"vocab={plan.vocab} is too small: there are {len(tokens)} characters; take more"
        )
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    unk = {} if plan.fallback else {"unk_token": plan.unk}
    model = models.BPE(vocab, [], byte_fallback=plan.fallback, **unk)
    pipeline = tokenizers.Tokenizer(model)
    if plan.lowercase:
        pipeline.normalizer = normalizers.Lowercase()
    pipeline.pre_tokenizer = cuts.Split(tokenizers.Regex(r"\s+|\S+"), "isolated")
    pipeline.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return pipeline


def _bytes(plan: Plan, room: int) -> tokenizers.Tokenizer:
    tokens = [*plan.special, *(_sign(byte) for byte in range(256))]
    if len(tokens) > room:
        raise DataError(f"vocab={plan.vocab} is too small: take {len(tokens)}, bytes and all")
    vocab = {token: i for i, token in enumerate(tokens)}
    return _over_bytes(models.BPE(vocab, []), plan)


def _sign(byte: int) -> str:
    """The letter that stands for a byte in a byte-level vocabulary (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return chr(byte) if byte in shown else chr(256 + hidden.index(byte))


MAKERS: dict[str, Callable[[Plan, int], tokenizers.Tokenizer]] = {
    "bpe": _bpe,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
    "characters": _characters,
    "bytes": _bytes,
}
DEFAULTS = {
    "bpe": "gpt",
    "wordpiece": "bert",
    "unigram": "t5",
    "characters": "gpt",
    "bytes": "gpt",
}


def _add(
    made: tokenizers.Tokenizer, roles: dict[str, str], look: Style, special: list[str]
) -> None:
    stripped = {roles[role] for role in look.strip}
    made.add_special_tokens(
        [AddedToken(t, lstrip=t in stripped, normalized=False, special=True) for t in special]
    )


def _template(
    made: tokenizers.Tokenizer, look: Style, roles: dict[str, str]
) -> processors.PostProcessor:
    tokens = {"$A": "$A", "$B": "$B", **roles}
    written = [
        [f"{tokens[place.partition(':')[0]]}:{place.partition(':')[2]}" for place in text.split()]
        for text in look.around
    ]
    used = sorted({place.rpartition(":")[0] for place in written[1]} - {"$A", "$B"})
    ids = [(token, made.token_to_id(token)) for token in used]
    return processors.TemplateProcessing(single=written[0], pair=written[1], special_tokens=ids)


def _loaded(made: tokenizers.Tokenizer, look: Style, roles: dict[str, str]) -> Tokenizer:
    """The tokenizer of the files that are written for it."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", *["token_type_ids"] * look.types, "attention_mask"],
        **{f"{role}_token": token for role, token in roles.items()},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / files.JSON).write_text(made.to_str(pretty=True), encoding="utf-8")
        (folder / files.CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False))
        return Tokenizer.load(folder)
