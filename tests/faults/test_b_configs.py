"""Group B: configurations that can't be, and files that are no configuration at all."""

import json
import logging
import os

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import BackendError, CheckpointError, SpecError
from anyformer.train import run as runs
from tests.faults.helping import CONFIG, SPEC, assert_kept, assert_refused, copied, edited, made

GPT2 = S.to_json(anyformer.recipe("gpt2", dim=8, depth=2, heads=2, vocab=31, length=16))


def test_b22_unknown_key(ours, tmp_path, command):
    about = json.loads((ours / SPEC).read_text())
    about["spec"]["stack"]["depht"] = 2
    (ours / SPEC).write_text(json.dumps(about))
    with assert_kept(ours), assert_refused(str(ours / SPEC), "'depht'; did you mean 'depth'?"):
        anyformer.load(ours)
    (tmp_path / "mine.json").write_text(GPT2.replace('"dim": 8', '"dmi": 8', 1))
    command.assert_fails(["show", "mine.json"], "mine.json", "'dmi'; did you mean 'dim'?")
    command.assert_fails(["show", "gpt2", "dpeth=3"], "did you mean 'depth'?")
    command.assert_fails(
        ["train", "gpt2", "--set", "stpes=3", "--out", "r"], "did you mean 'steps'?"
    )


@pytest.mark.parametrize("value", ["16", 1.5, True, float("nan"), float("inf"), None, [2], {}])
def test_b23_wrong_type(theirs, tmp_path, value, command):
    edited(theirs / CONFIG, n_head=value)
    with assert_kept(theirs):
        if value is None:  # as if it were not there: the family's own
            with assert_refused(CONFIG, error=CheckpointError):
                anyformer.load(theirs)
        else:
            with assert_refused(CONFIG, "heads takes an int", error=CheckpointError):
                anyformer.load(theirs)
    text = GPT2.replace('"depth": 2', f'"depth": {json.dumps(value)}')
    (tmp_path / "mine.json").write_text(text)
    command.assert_fails(["show", "mine.json"], "mine.json")


def test_b23_a_number_beyond_all(theirs):
    text = (theirs / CONFIG).read_text().replace('"n_layer": 2', '"n_layer": 1e400')
    (theirs / CONFIG).write_text(text)
    with (
        assert_kept(theirs),
        assert_refused(CONFIG, "depth takes an int, not inf", error=CheckpointError),
    ):
        anyformer.load(theirs)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gpt2", "depth=0"], "at least 1"),
        (["gpt2", "depth=-2"], "at least 1"),
        (["gpt2", "heads=7"], "choose heads that divide dim"),
        (["llama", "heads=8", "kv_heads=3"], "kv_heads"),
        (["llama", "dim=6", "heads=2"], "rotary.dims must be even"),
        (["gpt2", "vocab=0"], "at least 1"),
        (["gpt2", "dropout=1.5"], "at most 1"),
    ],
)
def test_b24_sizes_that_can_not_be(command, words, says):
    command.assert_fails(["show", *words], says)
    command.assert_fails(["train", *words, "--steps", "1", "--out", "run"], says)


def test_b25_contradictory_switches(command):
    cross = "stack.block.0.branch.cross=true"
    command.assert_fails(["show", "gpt2", cross], "cross-attention", "causal", "Leave")
    command.assert_fails(
        ["show", "gpt2", "stack.reversible=true", "stack.layer_dropout=0.1"], "revers"
    )
    path = "stack.block.0.branch"
    model = made("gpt2", **{f"{path}.weigh": S.TopK(k=2), f"{path}.backend": "sdpa"})
    with assert_refused("sdpa", "weigh", error=BackendError, remedy=False):
        model(torch.arange(4)[None])


def test_b25_rotary_and_alibi_both_count():
    """The two are no contradiction here: each has its effect, none is dropped."""
    rotary, alibi = S.Rotary(), (S.ALiBi(),)
    ids, found = torch.arange(9)[None] % 7, []
    for a, b in ((None, ()), (rotary, ()), (None, alibi), (rotary, alibi)):
        path = "stack.block.0.branch"
        model = made("gpt2", **{f"{path}.rotary": a, f"{path}.relative": b})
        found.append(model(ids).logits)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    assert not any(torch.equal(found[i], found[j]) for i, j in pairs)


@pytest.mark.parametrize("options", [{"vocab": 10**12}, {"dim": 12 * 10**10}, {"length": 10**13}])
def test_b26_beyond_all_memory(options):
    with assert_refused("GiB", "lower dim", error=SpecError):
        anyformer.build(anyformer.recipe("gpt2", **options))


def test_b26_beyond_all_memory_in_files(theirs, command):
    for field, value in (("n_embd", 10**12), ("n_layer", 10**9), ("vocab_size", 10**12)):
        folder = copied(theirs, theirs.with_name(field))
        edited(folder / CONFIG, **{field: value})
        command.assert_fails(["convert", folder, "out", "--to", "anyformer"], CONFIG)
    command.assert_fails(["show", "gpt2", "depth=1000000000"], "at most 10000")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"a":' * 10_000, "nested too deeply"),
        (b'{"n_layer": 1, "n_layer": 2}', "'n_layer' stands there twice"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"// comment\n{}", "is not valid JSON"),
        (b'{"a": 1,}', "is not valid JSON"),
        (b"\xff\xfe{\0}\0", "not text in UTF-8"),
        (b"", "is not valid JSON"),
        (b"[]", "holds list"),
    ],
)
def test_b27_files_that_are_no_configuration(theirs, ours, tmp_path, command, text, says):
    (theirs / CONFIG).write_bytes(text)
    (ours / SPEC).write_bytes(text)
    for folder in (theirs, ours):
        with assert_kept(folder), assert_refused(str(folder), says, error=CheckpointError):
            anyformer.load(folder)
    (tmp_path / "mine.json").write_bytes(text)
    command.assert_fails(["show", "mine.json"], "mine.json")


def test_b27_a_file_of_a_hundred_megabytes(theirs, command):
    with (theirs / CONFIG).open("wb") as file:
        file.truncate(100_000_000)
    command.assert_fails(
        ["convert", theirs, "out"], CONFIG, "more than 50,000,000 bytes", seconds=2
    )


def test_b28_configurations_that_name_code(theirs, marker, caplog):
    code = f"__import__('os').system('touch {marker}')"
    (theirs / "evil.py").write_text(code)
    edited(
        theirs / CONFIG,
        auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"},
        trust_remote_code=True,
        _attn_implementation_internal="evil",
        custom_pipelines={"x": {"impl": "evil.P"}},
        _target_="os.system",
        torch_dtype=f"!!python/object/apply:os.system ['touch {marker}']",
    )
    with caplog.at_level(logging.WARNING, "anyformer"):
        model = anyformer.load(theirs)
    assert "auto_map" in caplog.text and "never run" in caplog.text
    assert "auto_map" not in model.origin.config
    for name in ("os.system", "evil.Model", "Model.__init__", "posix"):
        with assert_refused("unknown kind of part", error=SpecError):
            S.from_dict({"is": name})
    with assert_refused("as a value", error=SpecError, remedy=False):
        S.parse(code)


def test_b29_unknown_family(theirs, command):
    edited(theirs / CONFIG, model_type="gtp2")
    with assert_kept(theirs), assert_refused(CONFIG, "did you mean 'gpt2'?", error=CheckpointError):
        anyformer.load(theirs)
    edited(theirs / CONFIG, model_type="mamba-zzz")
    with assert_kept(theirs), assert_refused(CONFIG, "known: albert, bart", error=CheckpointError):
        anyformer.load(theirs)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_b30_other_versions(ours, tmp_path, command, version):
    edited(ours / SPEC, format=version)
    with assert_kept(ours), assert_refused(SPEC, f"has format {version!r}", error=CheckpointError):
        anyformer.load(ours)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / runs.RECORD).write_text(json.dumps({"format": version}))
    command.assert_fails(["resume", "run"], runs.RECORD, f"has format {version!r}")


def test_b31_paths(theirs, tmp_path, command):
    odd = copied(theirs, tmp_path / "mit Leerzeichen und ünïcödé 模型")
    assert anyformer.load(odd).spec.dim == 8
    for folder in (odd, theirs):
        folder.chmod(0o555)
    assert anyformer.load(odd).spec.dim == 8
    odd.chmod(0o755)
    with assert_refused("there is no folder", error=CheckpointError):
        anyformer.load("a" * 4096)
    command.assert_fails(["show", "b" * 4096], "unknown recipe")
    command.assert_fails(["show", "b" * 4096 + ".json"], "can't read", "too long")
    command.assert_fails(["convert", theirs, "c" * 4096], "File name too long")
    os.mkfifo(tmp_path / "pipe.json")
    command.assert_fails(["show", "pipe.json"], "pipe.json", "no ordinary file")
    (tmp_path / "folder.json").mkdir()
    command.assert_fails(["show", "folder.json"], "folder.json", "a folder")
    theirs.chmod(0o755)
    (theirs / CONFIG).unlink()
    os.mkfifo(theirs / CONFIG)
    with assert_refused(str(theirs), error=CheckpointError):
        anyformer.load(theirs)
