"""Tiny vocabularies in the formats of the time before tokenizer.json, and texts to try them on."""

import json
import random
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

LINES = [line for key in sorted(topics)[:12] for line in topics[key].split("\n")][:900]
FOREIGN = [
    "Ünïcode café naïve",
    "日本語のテキスト",
    "Привет, мир",
    "😀 👍🏽 fine",
    "1,000 and 3,14",
]
CORPUS = [*LINES, *FOREIGN * 30]

ODD = [
    *("", "Hello world", "  two  spaces   here ", "Ünïcode CAFÉ naïve", "ENDS with space "),
    *("日本語のテキスト mixed 中文", "한국어 문장", "ไทย", "مرحبا بالعالم", "हिन्दी", "Iİıß ſ"),
    *("😀👍🏽 emoji👨\u200d👩\u200d👧", "ﬁ ligature ½ ①Ⅷ", "e=mc² #hash @user http://a.b/c?d=e&f"),
    *(
        "It's don't WON'T 1,000 3,14 9,",
        "``quoted'' \"x\"",
        "x = y**2  # comment",
        "...,,,!!!",
        "▁under ▁ x",
    ),
    *("«guillemets» “quotes” ‘x’ – —", "naïve e\u0301 \u0301combining"),
    *("\u00a0nbsp\u2003em\u3000ideographic", "a\u200b\ufeffd\u200db"),
]
CONTROL = [
    *("tab\tnew\nline\r\n", "a\x00b\x07c", "\n\n\n", " ", " " * 60 + "x", "\x1c\x1d\x85"),
    "\ud7ff\ue000",
]
LONG = ["a" * 300, "word " * 80, "ÀÉ" * 40]


def _drawn(seed: int) -> str:
    """A short text of mixed scripts, spaces, marks and signs."""
    draw = random.Random(seed)
    letters = "abcdefghij THE the, .'\"-()  \n\tÀéñßøĳ日本語中文Привет😀👍½①ﬁ0123456789"
    return "".join(draw.choice(letters) for _ in range(draw.randrange(40)))


TEXTS = [*ODD, *CONTROL, *LONG, *LINES[::15], *(_drawn(seed) for seed in range(120))]


def folder(root: Path, files: dict[str, str | bytes], config: dict, about: dict) -> Path:
    """A folder with vocabulary files, tokenizer_config.json and config.json."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (root / "tokenizer_config.json").write_text(json.dumps(config))
    (root / "config.json").write_text(json.dumps(about))
    return root


@cache
def wordpiece() -> dict[str, str]:
    """vocab.txt of a WordPiece vocabulary."""
    maker = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    maker.normalizer = normalizers.BertNormalizer()
    maker.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=specials, show_progress=False
    )
    maker.train_from_iterator(CORPUS, trainer)
    vocab = maker.get_vocab()
    return {"vocab.txt": "\n".join(sorted(vocab, key=vocab.__getitem__)) + "\n"}


@cache
def byte_level(specials: tuple[str, ...]) -> dict[str, str]:
    """vocab.json and merges.txt over bytes."""
    maker = tokenizers.Tokenizer(models.BPE())
    maker.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    maker.train_from_iterator(CORPUS, trainer)
    vocab, merges = _model(maker)
    return {"vocab.json": json.dumps(vocab), "merges.txt": "#version: 0.2\n" + lines(merges)}


@cache
def words(specials: tuple[str, ...], lower: bool) -> tuple[dict[str, int], list[list[str]]]:
    """Vocabulary and merges over characters, the end of a word marked with </w>."""
    maker = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    if lower:
        maker.normalizer = normalizers.BertNormalizer()
    whole = pre_tokenizers.WhitespaceSplit
    maker.pre_tokenizer = (pre_tokenizers.BertPreTokenizer if lower else whole)()
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=list(specials),
        end_of_word_suffix="</w>",
        limit_alphabet=60,
        show_progress=False,
    )
    maker.train_from_iterator(CORPUS, trainer)
    return _model(maker)


def lines(merges: list[list[str]], end: str = "") -> str:
    """Merges as the lines of merges.txt."""
    return "".join(f"{a} {b}{end}\n" for a, b in merges)


def _model(maker: tokenizers.Tokenizer) -> tuple[dict[str, int], list[list[str]]]:
    model = json.loads(maker.to_str())["model"]
    return model["vocab"], model["merges"]


@cache
def pieces(algorithm: str, **options: object) -> bytes:
    """A sentencepiece model file, made with the package of that name."""
    import io

    import sentencepiece

    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=made,
        model_type=algorithm,
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 420, **options},
    )
    return made.getvalue()
