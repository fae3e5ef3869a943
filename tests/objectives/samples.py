"""Small tokenizers of each kind, and samples held in memory."""

import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from anyformer.data.tokenizer import Tokenizer
from tests.data import vocabularies as V

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
CONTROLS = {"control_symbols": "[CLS],[SEP],[MASK]"}


def _m2m():
    import sentencepiece

    content = V.pieces("unigram")
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    words = ["<s>", "<pad>", "</s>", "<unk>", *map(model.id_to_piece, range(3, len(model)))]
    vocab = json.dumps({word: id for id, word in enumerate(words)})
    return {"vocab.json": vocab, "sentencepiece.bpe.model": content}


def _words(*specials):
    vocab, merges = V.words(specials, lower=True)
    return {"vocab.json": json.dumps(vocab), "merges.txt": "#version: 0.2\n" + V.lines(merges)}


def _ctrl():
    vocab, merges = V.words(("<unk>",), lower=False)
    back = lambda token: token.removesuffix("</w>") if token.endswith("</w>") else token + "@@"
    named = {token if token == "<unk>" else back(token): id for token, id in vocab.items()}
    named |= {"Books": len(named), "Links": len(named) + 1}
    return {"vocab.json": json.dumps(named), "merges.txt": "#version: 0.2\n" + V.lines(merges)}


FILES = {
    "bert": (V.wordpiece, {}),
    "gpt2": (lambda: V.byte_level(("<|endoftext|>",)), {}),
    "roberta": (lambda: V.byte_level(FAIRSEQ), {}),
    "bart": (lambda: V.byte_level(FAIRSEQ), {}),
    "t5": (lambda: {"spiece.model": V.pieces("unigram", **T5)}, {}),
    "albert": (lambda: {"spiece.model": V.pieces("unigram", **ALBERT, **CONTROLS)}, {}),
    "m2m_100": (_m2m, {"src_lang": "en"}),
    "mbart": (lambda: {"sentencepiece.bpe.model": V.pieces("unigram")}, {}),
    "xlm": (lambda: _words("<s>", "</s>", "<pad>", "<unk>"), {}),
    "ctrl": (_ctrl, {}),
}


@cache
def tokenizer(name):
    """A small tokenizer of a family, trained on the documentation of Python."""
    made, config = FILES[name]
    with tempfile.TemporaryDirectory() as root:
        folder = V.folder(Path(root), made(), config, {"model_type": name})
        return Tokenizer.load(folder, kind=name, check=False)


class Rows:
    """Packed rows of drawn ids, or of those given."""

    def __init__(self, rows, documents=None, fingerprint="rows"):
        self.rows, self.size, self.fingerprint = rows, len(rows), fingerprint
        self.documents = documents or [np.zeros(len(row), np.int64) for row in rows]

    def __getitem__(self, index):
        at = index % self.size
        return {"ids": self.rows[at], "documents": self.documents[at]}


class Documents:
    """Documents in segments."""

    fingerprint = "documents"

    def __init__(self, documents, names=None):
        self.documents, self.size = documents, len(documents)
        self.names = names or [None] * self.size

    def document(self, k):
        return np.concatenate([np.zeros(0, np.int64), *self.documents[k]])

    def __getitem__(self, index):
        k = index % self.size
        segments = self.documents[k]
        told = {"segments": segments, "place": k, "name": self.names[k]}
        return {"ids": self.document(k), **told}


class Records(list):
    """Records, read round and round."""

    fingerprint = "records"

    @property
    def size(self):
        return len(self)

    def __getitem__(self, index):
        return super().__getitem__(index % len(self))


def rng(seed=0, index=0):
    """The generator of a row."""
    return np.random.Generator(np.random.Philox(key=[seed, index]))


def text_rows(tok, length, count):
    """Packed rows of real text."""
    ids = np.array([id for line in V.LINES[:250] for id in tok.encode(line)])
    return Rows([ids[i * length : (i + 1) * length] for i in range(min(count, len(ids) // length))])


def drawn_rows(tok, length, count, seed=0):
    """Rows of random ids that are no special tokens."""
    special = {id for role, id in tok.role_ids.items() if role != "unk"}
    plain = np.array([id for id in range(tok.vocab_size) if id not in special])
    return plain[np.random.default_rng(seed).integers(len(plain), size=(count, length))]
