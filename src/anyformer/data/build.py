"""A `tokenizers` pipeline from the older files, one builder for each way to keep a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyformer.data import files
from anyformer.data.kinds import Kind
from anyformer.data.library import Regex, decoders, models, normalizers, pre_tokenizers, tokenizers


@dataclass(frozen=True)
class Source:
    """What a builder is given."""

    folder: Path
    files: tuple[Path, ...]
    kind: Kind
    options: Mapping[str, Any]
    unk: str
    more: tuple[str, ...]  # tokens to put behind the vocabulary where it lacks them


@dataclass(frozen=True)
class Built:
    """A pipeline without special tokens and template; ids from `size` on stand for unknowns."""

    pipeline: tokenizers.Tokenizer
    base: int  # tokens of the vocabulary file
    size: int  # and those put behind it
    specials: tuple[files.Special, ...] = ()  # that the vocabulary itself declares


def wordpiece(source: Source) -> Built:
    """WordPiece (BERT, DistilBERT, ELECTRA): vocab.txt, longest match first."""
    vocab = files.read_vocabulary(source.files[0])
    base, option = size_of(vocab), source.options
    append(vocab, source.more)
    pipeline = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=source.unk))
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=option["tokenize_chinese_chars"],
        strip_accents=option["strip_accents"],
        lowercase=option["do_lower_case"],
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    return Built(pipeline, base, size_of(vocab))


def bytes_(source: Source) -> Built:
    """Byte-level BPE (GPT-2, RoBERTa, BART, GPT-Neo, GPT-J, DeBERTa): vocab.json, merges.txt."""
    vocab, merges = files.read_vocabulary(source.files[0]), files.read_merges(source.files[1])
    base, option = size_of(vocab), source.options
    append(vocab, source.more)
    pipeline = tokenizers.Tokenizer(models.BPE(vocab, merges, fuse_unk=False))
    if option.get("compose"):
        pipeline.normalizer = normalizers.NFC()
    pattern = option.get("pattern")
    level = pre_tokenizers.ByteLevel(option["add_prefix_space"], use_regex=not pattern)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([*split, level]) if split else level
    pipeline.decoder = decoders.ByteLevel()
    return Built(pipeline, base, size_of(vocab))


CUTS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "bert": pre_tokenizers.BertPreTokenizer,
    "lines": lambda: pre_tokenizers.Split(Regex(r"\S+\n?"), "removed", invert=True),
    "spaces": lambda: pre_tokenizers.Split(" ", "removed"),
}


def words(source: Source) -> Built:
    """BPE over characters whose last piece of a word is marked (GPT, CTRL, XLM).

    CTRL marks the other pieces instead, with `@@`, and is brought to the same form.
    """
    vocab, merges = files.read_vocabulary(source.files[0]), files.read_merges(source.files[1])
    base, option = size_of(vocab), source.options
    append(vocab, source.more)
    size, unk = size_of(vocab), source.unk
    if joiner := option.get("joiner"):
        kept = {unk, *source.more}
        vocab = {t if t in kept else marked(t, joiner): i for t, i in vocab.items()}
    # pieces on the way that are no tokens: they read as unknown
    append(vocab, tuple(piece for a, b in merges for piece in (a, b, a + b)))
    model = models.BPE(vocab, merges, unk_token=unk, fuse_unk=False, end_of_word_suffix="</w>")
    pipeline = tokenizers.Tokenizer(model)
    if option["cut"] == "bert":
        pipeline.normalizer = normalizers.BertNormalizer(lowercase=option["do_lower_case"])
    pipeline.pre_tokenizer = CUTS[option["cut"]]()
    pipeline.decoder = decoders.BPEDecoder(suffix="</w>")
    return Built(pipeline, base, size)


def size_of(vocab: Mapping[str, int]) -> int:
    """The number of ids, unused ones between them included."""
    return max(vocab.values()) + 1


def append(vocab: dict[str, int], more: tuple[str, ...]) -> None:
    """Give the tokens that a vocabulary lacks the next free ids."""
    free = size_of(vocab)
    for token in more:
        if token not in vocab:
            vocab[token] = free
            free += 1


def marked(token: str, joiner: str) -> str:
    """A token of a vocabulary that marks pieces inside a word, in the form that marks ends."""
    return token.removesuffix(joiner) if token.endswith(joiner) else token + "</w>"
