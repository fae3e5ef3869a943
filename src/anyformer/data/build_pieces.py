"""A `tokenizers` pipeline from a sentencepiece model: as its file describes it, not its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyformer.data import codes, files, sentencepiece
from anyformer.data.build import Built, Source, append, size_of
from anyformer.data.library import Regex, decoders, models, normalizers, pre_tokenizers, tokenizers
from anyformer.data.sentencepiece import NORMAL, Piece, Pieces
from anyformer.errors import CheckpointError, known_or_raise

SPACE = "▁"


def pieces(source: Source) -> Built:
    """A sentencepiece model (ALBERT, T5, XLM-R, mBART, DeBERTa-v2, BigBird, Pegasus, Llama)."""
    model = sentencepiece.read(source.files[0])
    lead, skip, tail = _surroundings(source)
    entries = [*map(_control, lead), *model.pieces[skip:]]
    base = len(entries) + len(tail)
    known = {entry.text for entry in entries}
    for text in dict.fromkeys((*tail, *source.more)):
        if text not in known:
            entries.append(_control(text))
    return _assembled(model, entries, source, base, len(entries))


def dictionary(source: Source) -> Built:
    """A sentencepiece model whose ids are those of a vocab.json beside it (M2M-100)."""
    model = sentencepiece.read(source.files[0])
    vocab = files.read_vocabulary(source.files[1])
    base = len(vocab)
    if base != size_of(vocab):
        raise CheckpointError(
            f"{source.files[1]} leaves out ids: {base} tokens, not {size_of(vocab)}"
        )
    listed = known_or_raise(
        str(source.options["language_codes"]), codes.M2M, "language_codes", CheckpointError
    )
    spoken = tuple(source.kind.language.format(code) for code in codes.M2M[listed])
    append(vocab, (*spoken, *source.more))
    of = {piece.text: piece for piece in model.pieces}
    least = min(piece.score for piece in model.pieces)
    unseen = [piece for piece in model.pieces if piece.text not in vocab]
    entries = [
        of.get(token, Piece(token, least, sentencepiece.UNUSED))
        for token in sorted(vocab, key=vocab.__getitem__)
    ]
    specials = tuple(files.Special(token) for token in spoken)
    return _assembled(model, [*entries, *unseen], source, base, len(vocab), specials)


def _control(text: str) -> Piece:
    return Piece(text, 0.0, sentencepiece.CONTROL)


def _surroundings(source: Source) -> tuple[tuple[str, ...], int, tuple[str, ...]]:
    """What stands before and behind the pieces, as the kind and the options say."""
    kind, option = source.kind, source.options
    tail = kind.tail
    if count := option.get("extra_ids"):  # the sentinels of T5, the last one first
        tail = tuple(f"<extra_id_{i}>" for i in reversed(range(count)))
    offset = option.get("offset", len(kind.lead) - kind.skip)
    if offset == 0:
        return (), 0, tail
    if offset != len(kind.lead) - kind.skip:
        raise CheckpointError(
            f"{source.folder / files.CONFIG}: offset {offset} is not known, only 0 and "
            f"{len(kind.lead) - kind.skip}; put a tokenizer.json into the folder instead"
        )
    return kind.lead, kind.skip, tail


def _assembled(
    model: Pieces,
    entries: list[Piece],
    source: Source,
    base: int,
    size: int,
    specials: tuple[files.Special, ...] = (),
) -> Built:
    """The pipeline over entries, whose places are the ids."""
    texts = [entry.text for entry in entries]
    if source.unk not in texts:
        raise CheckpointError(
            f"{source.files[0]} has no {source.unk!r}, the unknown token of this kind; "
            f"name the right one as unk_token in {source.folder / files.CONFIG}"
        )
    unknown = texts.index(source.unk)
    if model.algorithm == "unigram":
        scores = [_score(entry, source) for entry in entries]
        made = models.Unigram(list(zip(texts, scores, strict=True)), unknown, model.byte_fallback)
    else:
        vocab = {text: i for i, text in enumerate(texts)}
        made = models.BPE(
            vocab,
            _merges(entries),
            unk_token=source.unk,
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    pipeline = tokenizers.Tokenizer(made)
    _surface(pipeline, model, source.options)
    declared = [
        files.Special(entry.text, special=entry.type == sentencepiece.CONTROL)
        for entry in entries
        if entry.type in (sentencepiece.CONTROL, sentencepiece.USER)
    ]
    return Built(pipeline, base, size, (*declared, *specials))


def _score(piece: Piece, source: Source) -> float:
    """Its score; ALBERT never takes a comma together with the digit before it."""
    pair = source.options.get("commas") and len(piece.text) > 1
    apart = pair and piece.text[-1] == "," and piece.text[-2].isdigit()
    return piece.score - 100 if apart else piece.score


def _merges(entries: list[Piece]) -> list[tuple[str, str]]:
    """Every pair whose union is a piece: the better union first, then the shorter left side."""
    rank = {entry.text: i for i, entry in enumerate(entries) if entry.type == NORMAL}
    found: list[tuple[float, int, tuple[str, str]]] = []
    for entry in entries:
        if entry.type != NORMAL:
            continue
        for at in range(1, len(entry.text)):
            left, right = entry.text[:at], entry.text[at:]
            if left in rank and right in rank:
                found.append((-entry.score, at, (left, right)))
    found.sort(key=lambda merge: merge[:2])
    return [pair for _, _, pair in found]


def _cleaning(model: Pieces, option: Mapping[str, Any]) -> list[normalizers.Normalizer]:
    """What happens to the characters of a text before it is cut."""
    steps: list[normalizers.Normalizer] = []
    if option.get("quotes"):
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if option.get("keep_accents") is False:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if option.get("do_lower_case"):
        steps.append(normalizers.Lowercase())
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.squeeze:
        steps += [
            normalizers.Replace(Regex("^ +| +$"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    return steps


def _surface(pipeline: tokenizers.Tokenizer, model: Pieces, option: Mapping[str, Any]) -> None:
    """Normaliser, pre-tokenizer and decoder, as the sentencepiece file describes them."""
    steps = _cleaning(model, option)
    before = option.get("add_prefix_space")
    before = model.prefix if before is None else before
    legacy = option.get("legacy", True)
    apart = not any(SPACE in piece.text[1:] for piece in model.pieces)
    cuts: list[pre_tokenizers.PreTokenizer] = []
    if option.get("split_by_punct"):
        cuts.append(pre_tokenizers.Punctuation("isolated"))
    if before and legacy and not model.squeeze:  # a space goes in front of a space as well
        steps += [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    else:
        scheme = "never" if not before else "always" if legacy else "first"
        if scheme == "always" and apart:  # so that an offset does not hold the space before a word
            cuts.append(pre_tokenizers.Split(" ", "removed"))
        cuts.append(pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=apart))
    if steps:
        pipeline.normalizer = normalizers.Sequence(steps)
    if cuts:
        pipeline.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    if not model.byte_fallback:
        pipeline.decoder = decoders.Metaspace(SPACE, prepend_scheme="always" if before else "never")
        return
    chain = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    pipeline.decoder = decoders.Sequence(chain + [decoders.Strip(" ", 1, 0)] * bool(before))
