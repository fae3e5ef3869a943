"""Paths and names of the hub: what is looked up, where, and every way in which it fails."""

import subprocess
import sys
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
import torch
from huggingface_hub import errors

import anyformer
from anyformer.checkpoint import hub
from anyformer.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    spec = anyformer.recipe("bert", dim=8, depth=1, heads=2, vocab=11, length=9)
    anyformer.build(spec).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def fetched(monkeypatch):
    """What snapshot_download is called with; it gives or raises what the test says."""

    class Fake:
        calls: list = []  # noqa: RUF012
        answer: object = None

        def __call__(self, name, **options):
            self.calls.append((name, options))
            if isinstance(self.answer, Exception):
                raise self.answer
            return str(self.answer)

    fake = Fake()
    fake.calls = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    return fake


def test_a_folder_wins(folder, fetched, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert anyformer.load("model").spec.dim == 8
    assert not fetched.calls


def test_a_name_is_fetched_with_few_files(folder, fetched):
    fetched.answer = folder
    assert anyformer.load("org/name", revision="v1").spec.dim == 8
    ((name, options),) = fetched.calls
    assert (name, options["revision"]) == ("org/name", "v1")
    patterns = options["allow_patterns"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "task.json"} <= set(patterns)
    assert not any(p.endswith((".bin", ".py", ".h5", ".msgpack")) or p == "*" for p in patterns)


@pytest.mark.parametrize(
    "name",
    ["/no/where", "./org/name", "../x", "a/b/c", "~/nowhere", "a b", "org/", "", Path("x/y")],
)
def test_what_can_only_be_a_path_is_not_looked_up(name, fetched):
    with pytest.raises(
        CheckpointError, match=r"there is no folder.*no name of the hub|is a file|no any"
    ):
        anyformer.load(name)
    assert not fetched.calls


def test_a_neighbour_is_offered(folder, fetched, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    fetched.answer = errors.LocalEntryNotFoundError("offline")
    name = f"{folder.parent.name}/modle"
    with pytest.raises(CheckpointError, match=rf"did you mean '{folder.parent.name}/model'.*cache"):
        anyformer.load(name)
    with pytest.raises(CheckpointError, match="did you mean"):
        anyformer.load(folder.with_name("modle"))


def response(status):
    return httpx2.Response(status, request=httpx2.Request("GET", "https://hub"))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.RepositoryNotFoundError("x", response=response(404)), "the hub has no 'org/name'"),
        (errors.RevisionNotFoundError("x", response=response(404)), "has no revision 'v9'"),
        (errors.GatedRepoError("x", response=response(403)), "gated.*HF_TOKEN"),
        (errors.LocalEntryNotFoundError("x"), "can't be reached or is switched off"),
        (errors.HfHubHTTPError("x", response=response(500)), "the hub did not give"),
        (OSError("no network"), "the hub did not give.*no network"),
    ],
)
def test_what_the_hub_says_is_one_clear_error(error, says, fetched):
    fetched.answer = error
    with pytest.raises(CheckpointError, match=f"there is no folder 'org/name'.*{says}"):
        anyformer.load("org/name", revision="v9")


def test_a_name_with_old_weights_only(tmp_path, fetched):
    fetched.answer = tmp_path
    with pytest.raises(CheckpointError, match="anyformer convert org/name name"):
        anyformer.load("org/name")
    assert hub.folder_of("org/name", wanted=hub.OLD) == tmp_path
    assert "pytorch_model.bin" in fetched.calls[-1][1]["allow_patterns"]


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        CheckpointError, match=r"no folder 'org/name'.*pip install 'anyformer\[hub\]'"
    ):
        anyformer.load("org/name")


def test_a_revision_is_for_names(folder):
    with pytest.raises(CheckpointError, match="revision='v1' is for names of the hub"):
        anyformer.load(folder, revision="v1")


def cached(home, folder):
    """A cache as the hub's package makes it: links to blobs."""
    repo = home / "models--org--name"
    snapshot = repo / "snapshots" / COMMIT
    for part in (snapshot, repo / "blobs", repo / "refs"):
        part.mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(folder.iterdir())):
        (repo / "blobs" / f"blob{number}").write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/blob{number}")
    return snapshot


OFFLINE = """
import sys, anyformer, torch
model = anyformer.load("org/name", dtype="float64")
print(model.spec.dim, next(model.parameters()).dtype)
try:
    anyformer.load("org/other")
except anyformer.errors.CheckpointError as error:
    print(error)
"""


def test_the_cache_serves_without_a_network(folder, tmp_path):
    snapshot = cached(tmp_path / "cache", folder)
    assert torch.equal(
        anyformer.load(snapshot).embed.token.weight, anyformer.load(folder).embed.token.weight
    )
    source = Path(anyformer.__file__).parents[1]
    env = {
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(source),
    }
    done = subprocess.run([sys.executable, "-c", OFFLINE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "8 torch.float64"
    assert "not in the hub's cache" in second


def test_a_tokenizer_is_fetched_without_weights(tmp_path, fetched):
    fetched.answer = tmp_path
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\n")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 6}')
    assert anyformer.tokenizer("org/name").encode("cat") == [5]
    assert not any("safetensors" in name for name in fetched.calls[-1][1]["allow_patterns"])


@pytest.mark.parametrize("ask", [hub.folder_of, hub.at_home])
def test_a_home_that_nobody_has_is_refused(ask):
    with pytest.raises(CheckpointError, match=r"no home folder of that name; write \./~nobody-0"):
        ask("~nobody-0/model")
