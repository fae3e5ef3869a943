"""Token shards: what is read is what was written, and damage is told."""

import json
import pickle

import numpy as np
import pytest

from anyformer.data.prepare import prepare
from anyformer.data.shard_writer import Writer, replacing
from anyformer.data.shards import MANIFEST, Shards
from anyformer.data.train_tokenizer import train
from anyformer.errors import DataError

TEXTS = ["One line.\nTwo lines.\n", "", "Another. With more? Yes!", "zß水🍌"]


@pytest.fixture(scope="module")
def tokenizer():
    return train("bytes")


@pytest.fixture
def shards(tokenizer, tmp_path):
    rows = [{"text": t, "kind": f"k{i}" if i else None} for i, t in enumerate(TEXTS)]
    return prepare(rows, tokenizer, tmp_path / "s", segments="sentence", name="kind", shard=20)


def test_documents_segments_and_names(shards, tokenizer):
    kept = [text for text in TEXTS if text]
    assert shards.documents == len(shards) == 3 and shards.shards == 3
    assert [tokenizer.decode(shards.document(k)) for k in range(3)] == kept
    assert shards.document(0).dtype == np.int64
    assert [tokenizer.decode(s) for s in shards.segments(1)] == ["Another.", " With more?", " Yes!"]
    assert [shards.names(k) for k in range(3)] == [None, "k2", "k3"]
    assert shards.lengths.tolist() == [len(text.encode()) for text in kept]
    assert shards.tokens == shards.lengths.sum()


def test_slices_cross_documents_and_shards(shards):
    whole = np.concatenate([shards.document(k) for k in range(3)])
    for start in range(0, shards.tokens, 5):
        for stop in range(start, shards.tokens + 1, 7):
            assert np.array_equal(shards.slice(start, stop), whole[start:stop])
    for bad in ((-1, 2), (0, shards.tokens + 1), (3, 2)):
        with pytest.raises(IndexError):
            shards.slice(*bad)
    with pytest.raises(IndexError, match="document 3 of 3"):
        shards.document(3)


def test_the_whole_document_is_a_segment_where_none_were_made(tokenizer, tmp_path):
    plain = prepare(TEXTS, tokenizer, tmp_path / "p")
    assert [len(plain.segments(k)) for k in range(3)] == [1, 1, 1] and plain.names(0) is None


def test_other_processes_open_the_files_themselves(shards):
    sent = pickle.dumps(shards)
    again = pickle.loads(sent)
    assert again.fingerprint == shards.fingerprint and again.slice(3, 9).tolist() == [
        *shards.slice(3, 9)
    ]


def test_the_fingerprint_is_that_of_the_content(shards, tokenizer, tmp_path):
    rows = [{"text": t, "kind": f"k{i}" if i else None} for i, t in enumerate(TEXTS)]
    made = lambda name, rows: prepare(
        rows, tokenizer, tmp_path / name, segments="sentence", name="kind", shard=20
    )
    assert made("again", rows).fingerprint == shards.fingerprint
    rows[0]["text"] += "!"
    assert made("other", rows).fingerprint != shards.fingerprint


def test_wide_vocabularies_take_four_bytes(tmp_path):
    for size, width in ((65536, 2), (65537, 4)):
        with replacing(tmp_path / str(size)) as work:
            writer = Writer(work, size, False, False)
            writer.add(np.array([size - 1, 0], np.uint32))
            writer.end()
            about = {"tokenizer": "", "segments": None, "end": None, "source": {}}
            writer.finish(about)
        found = Shards.open(tmp_path / str(size), check=True)
        assert found.document(0).tolist() == [size - 1, 0]
        assert (tmp_path / str(size) / "00000.tokens").stat().st_size == 2 * width


def test_another_tokenizer_is_refused_but_not_another_role(shards, tokenizer):
    other = train("bpe", TEXTS * 3, vocab=270)
    with pytest.raises(DataError, match=r"another tokenizer \(257 ids; this one has"):
        Shards.open(shards.folder, other)
    Shards.open(shards.folder, tokenizer.with_roles(mask="<|endoftext|>"))


def _edited(change):
    def damage(folder):
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return damage


def _cut(folder):
    (folder / "00001.tokens").write_bytes((folder / "00001.tokens").read_bytes()[:-2])


def _outside(folder):
    (folder / "00000.tokens").rename(folder.parent / "elsewhere")
    (folder / "00000.tokens").symlink_to(folder.parent / "elsewhere")


def _renamed(manifest):
    files = manifest["shards"][0]["files"]
    files["../00000.tokens"] = files.pop("00000.tokens")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, r"00001.tokens has \d+ bytes, not \d+"),
        (lambda f: (f / "00000.documents").unlink(), "00000.documents is missing"),
        (_outside, "leads out of its folder"),
        (lambda f: (f / MANIFEST).unlink(), "no shards.json"),
        (lambda f: (f / MANIFEST).write_text("{"), "not valid JSON"),
        (lambda f: (f / MANIFEST).write_text("[" * 100_000), "not valid JSON"),
        (lambda f: (f / MANIFEST).write_text("{}"), "does not describe"),
        (_edited(lambda m: m.update(version=2)), "version 2, this anyformer reads 1"),
        (_edited(_renamed), "damaged"),
        (_edited(lambda m: m.update(dtype="object")), "damaged"),
        (_edited(lambda m: m.pop("shards")), "damaged"),
        (_edited(lambda m: m["shards"][0].update(tokens=-1)), "damaged"),
        (_edited(lambda m: m["shards"][0].update(tokens=10**15)), "damaged"),
    ],
)
def test_damage_is_told(shards, damage, said):
    damage(shards.folder)
    with pytest.raises(DataError, match=said):
        Shards.open(shards.folder)


def test_changed_bytes_are_found_when_asked(shards):
    file = shards.folder / "00000.tokens"
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    Shards.open(shards.folder)
    with pytest.raises(DataError, match="checksum"):
        Shards.open(shards.folder, check=True)


def test_offsets_that_lie_are_found_when_read(shards):
    file = shards.folder / "00000.documents"
    file.write_bytes(bytes(8) + (10**9).to_bytes(8, "little"))
    with pytest.raises(DataError, match="documents of a shard are damaged"):
        Shards.open(shards.folder).document(0)
