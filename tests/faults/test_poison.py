"""Poisoned folders of every known kind: whatever is done with them, nothing of theirs is run."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file

import anyformer
from anyformer.errors import AnyformerError, CheckpointError, UnsafeError
from anyformer.train import resume, save, train
from tests.faults.helping import CONFIG, INDEX, SPEC, WEIGHTS, assert_refused, edited, words
from tests.faults.test_a_files import Evil
from tests.study.fake import table
from tests.study.test_report import _Reader
from tests.train.tiny import Numbers, TinyCausal, settings, spec

VERBS = (
    ["convert", "FOLDER", "out"],
    ["convert", "FOLDER", "out2", "--to", "anyformer"],
    ["generate", "FOLDER", "hi", "--max-new-tokens", "1"],
    ["tokenizer", "show", "FOLDER", "hi"],
)
SLOWER = (
    ["evaluate", "FOLDER", "--data", "text.txt"],
    ["attend", "FOLDER", "hi", "--out", "page.html", "--no-png"],
    ["train", "FOLDER", "--data", "text.txt", "--steps", "1", "--batch", "2", "--out", "run"],
)


def everything(folder, command, verbs=VERBS):
    """Do all that the command can do with a folder; errors are ours, and the statuses known."""
    (command.folder / "text.txt").write_text("some words in a text. " * 30)
    codes = []
    for verb in verbs:
        words_ = [str(folder) if word == "FOLDER" else word for word in verb]
        code, _, err = command.ends(words_)
        assert code in (0, 2, 3), err
        assert "Traceback" not in err
        codes.append(code)
    return codes


def globals_named(module, name, marker):
    """A pickle that calls a function by its name, written by hand."""
    return f"c{module}\n{name}\n(S'touch {marker}'\ntR.".encode()


@pytest.mark.parametrize(
    "kind", ["reduce", "hand-made", "nested", "eval", "torch legacy", "every suffix"]
)
def test_p1_pickles(writer, command, marker, kind):
    tensors = load_file(writer / WEIGHTS)
    (writer / WEIGHTS).unlink()
    file = writer / "pytorch_model.bin"
    if kind == "hand-made":
        file.write_bytes(globals_named("os", "system", marker))
    elif kind == "eval":
        file.write_bytes(globals_named("builtins", "eval", marker))
    elif kind == "nested":
        torch.save({"a": {"b": [Evil(marker)]}}, file)
    elif kind == "torch legacy":
        torch.save({"a": Evil(marker)}, file, _use_new_zipfile_serialization=False)
    else:
        torch.save(tensors | {"x": Evil(marker)}, file)
    if kind == "every suffix":
        for suffix in (".pt", ".pth", ".ckpt", ".pkl", ".pickle"):
            (writer / f"model{suffix}").write_bytes(file.read_bytes())
    (writer / CONFIG).write_text(json.dumps({"model_type": "gpt2"}))
    everything(writer, command, VERBS + SLOWER if kind == "reduce" else VERBS)
    (writer / SPEC).unlink()
    assert 3 in everything(writer, command)
    for path in writer.glob("*.p*"):
        with assert_refused(error=CheckpointError):
            anyformer.load(path)


def test_p2_configurations_that_name_code(theirs, command, marker):
    words().save(theirs)
    code = f"import os; os.system('touch {marker}')"
    for name in ("evil", "modeling_evil", "configuration_evil", "__init__", "sitecustomize"):
        (theirs / f"{name}.py").write_text(code)
    edited(
        theirs / CONFIG,
        vocab_size=31,
        auto_map={"AutoModel": "evil.Model", "AutoTokenizer": ["evil.T", "evil.T"]},
        architectures=["evil.Model", "__import__('evil')"],
        model_type="gpt2",
        tokenizer_class="evil.Tokenizer",
        _target_="evil.main",
        torch_dtype="evil.dtype",
        quantization_config={"quant_method": "evil", "modules_to_not_convert": ["evil"]},
        custom_pipelines={"x": {"impl": "evil.Pipe", "pt": ["evil"]}},
    )
    (theirs / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "evil.Tokenizer", "auto_map": {"AutoTokenizer": "evil.T"}})
    )
    everything(theirs, command, VERBS + SLOWER)
    for spec_ in ({"is": "evil.Model"}, {"is": "os.system"}, {"is": "Model", "evil": 1}):
        (theirs / SPEC).write_text(json.dumps({"format": 1, "spec": spec_}))
        assert everything(theirs, command)[0] == 2
        with assert_refused(SPEC, error=AnyformerError, remedy=False):
            anyformer.load(theirs)


def rewritten(home, content):
    """Replace a checkpoint's index, and make its manifest fit."""
    (home / ".metadata").write_bytes(content)
    manifest = json.loads((home / save.MANIFEST).read_text())
    path = home / ".metadata"
    manifest["files"][".metadata"] = [path.stat().st_size, save.digest(path)]
    (home / save.MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize("kind", ["system", "hidden", "bytes entry", "outside"])
def test_p3_indexes_of_checkpoints(tmp_path, marker, kind):
    """A whole run that somebody else made, whose manifest fits what they put in."""
    done = train(spec(), Numbers(10), TinyCausal(), tmp_path / "run", settings(steps=2))
    home = done.folder / "checkpoints" / save.name(2)
    index = pickle.loads((home / ".metadata").read_bytes())
    if kind == "system":
        content = globals_named("os", "system", marker)
    elif kind == "hidden":
        index.planner_data = Evil(marker)
        content = pickle.dumps(index)
    elif kind == "bytes entry":
        from torch.distributed.checkpoint.metadata import BytesStorageMetadata

        key = next(iter(index.state_dict_metadata))
        index.state_dict_metadata[key] = BytesStorageMetadata()
        content = pickle.dumps(index)
    else:
        for place in index.storage_data.values():
            place.relative_path = "../../../secret"
        content = pickle.dumps(index)
    rewritten(home, content)
    for other in (done.folder / "checkpoints").glob("step-*"):
        if other != home:
            rewritten(other, content)
    with assert_refused(".metadata", error=UnsafeError, remedy=False):
        resume(done.folder, Numbers(10))


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.system('touch MARKER') }}",
        "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
        "{{ self.__init__.__globals__.__builtins__.__import__('os').system('touch MARKER') }}",
    ],
)
def test_p4_templates(writer, command, marker, text):
    hostile = text.replace("MARKER", str(marker))
    (writer / "chat_template.jinja").write_text(hostile)
    (writer / "chat_template.json").write_text(json.dumps({"chat_template": hostile}))
    (writer / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": hostile, "response_template": hostile})
    )
    assert 3 not in everything(writer, command, VERBS + SLOWER if "self" in text else VERBS)


@pytest.mark.parametrize(
    "name", ["../../outside.safetensors", "/etc/passwd", "file:///etc/passwd", "http://x/y", "a/b"]
)
def test_p5_shards_elsewhere(sharded, tmp_path, command, marker, name):
    index = json.loads((sharded / INDEX).read_text())
    key = next(iter(index["weight_map"]))
    index["weight_map"][key] = name
    (sharded / INDEX).write_text(json.dumps(index))
    save_file({key: torch.ones(1)}, tmp_path / "outside.safetensors")
    words().save(sharded)
    assert 3 in everything(sharded, command)
    with assert_refused(INDEX, "outside the folder", error=UnsafeError):
        anyformer.load(sharded)


def test_p5_links_elsewhere(writer, tmp_path, command, marker):
    secret = tmp_path / "secret.json"
    secret.write_text('{"format": 1}')
    (writer / SPEC).unlink()
    (writer / SPEC).symlink_to(secret)
    with assert_refused(SPEC, "outside the folder", error=UnsafeError):
        anyformer.load(writer)
    assert secret.read_text() == '{"format": 1}'


HTML = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def test_p6_names_in_reports_and_pages(writer, tmp_path, command, marker):
    """What a browser makes of the pages is tested with one (tests/study, tests/tasks)."""
    from anyformer.study.report import page

    odd = tmp_path / HTML.replace("/", "∕")
    os.rename(writer, odd)
    told = ["attend", odd, HTML[:15], "--out", "page.html", "--no-png"]
    code, _, err = command.ends(told)
    assert code == 0, err
    text = (tmp_path / "page.html").read_text()
    assert text.count("<script") == 2 and "<img" not in text
    read = _Reader(page(table({HTML: {0.1: [1.0]}, "b": {0.1: [2.0]}})))
    assert read.tags.count("script") == 1 and "img" not in read.tags
