"""Folders that lie, break or point elsewhere: one error that names file and key, nothing loaded."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import anyformer
from anyformer.checkpoint import huggingface, save, writer
from anyformer.checkpoint.huggingface import Origin
from anyformer.errors import CheckpointError
from anyformer.recipes import recipe

INDEX, WEIGHTS, CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
SIZES = {"dim": 8, "depth": 2, "heads": 2, "vocab": 31, "length": 16}
IDS = torch.arange(10).view(2, 5)
KEY = "encoder.layer.1.output.dense.weight"


def tiny(name="bert", family="bert", task="base"):
    model = anyformer.build(recipe(name, **SIZES)).eval()
    model.origin = Origin(family, task, {})
    return model


@pytest.fixture
def single(tmp_path):
    tiny().save_pretrained(tmp_path / "single")
    return tmp_path / "single"


@pytest.fixture
def sharded(tmp_path):
    tiny().save_pretrained(tmp_path / "sharded", max_shard_size="2KB")
    assert not (tmp_path / "sharded" / WEIGHTS).exists()
    return tmp_path / "sharded"


def changed(file, change):
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


def edited(file, **fields):
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def assert_says(folder, *patterns):
    with pytest.raises(CheckpointError) as error:
        anyformer.load(folder)
    for pattern in patterns:
        assert pattern in str(error.value)


@pytest.mark.parametrize(
    ("name", "family", "task"), [("bert", "bert", "base"), ("gpt2", "gpt2", "causal-lm")]
)
@pytest.mark.parametrize("format", ["huggingface", "anyformer"])
def test_shards_are_read_back_bit_for_bit(name, family, task, format, tmp_path):
    model = tiny(name, family, task)
    save(model, tmp_path / "a", format, max_shard_size="2KB")
    index = json.loads((tmp_path / "a" / INDEX).read_text())
    shards = sorted(p.name for p in (tmp_path / "a").glob("*.safetensors"))
    assert len(shards) > 3
    assert set(index["weight_map"].values()) == set(shards)
    sizes = {s: sum(t.nbytes for t in load_file(tmp_path / "a" / s).values()) for s in shards}
    assert index["metadata"]["total_size"] == sum(sizes.values())
    again = anyformer.load(tmp_path / "a")
    assert again.origin == model.origin or format == "huggingface"
    assert all(torch.equal(t, again.state_dict()[k]) for k, t in model.state_dict().items())


def test_transformers_reads_our_shards(sharded):
    theirs = transformers.BertModel.from_pretrained(sharded).eval()
    ours = anyformer.load(sharded)
    torch.testing.assert_close(
        ours(IDS).last_hidden_state, theirs(IDS).last_hidden_state, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("order", [("2KB", "5GB"), ("5GB", "2KB"), ("2KB", "4KB")])
def test_saving_again_leaves_no_old_weights(order, tmp_path):
    for size in order:
        model = tiny()
        model.save_pretrained(tmp_path, max_shard_size=size)
        found = anyformer.load(tmp_path).state_dict()
        assert all(torch.equal(t, found[k]) for k, t in model.state_dict().items())
    files = {p.name for p in tmp_path.iterdir()}
    assert (WEIGHTS in files) == (order[-1] == "5GB") == (INDEX not in files)
    assert len({name[-17:] for name in files if name.startswith("model-")}) <= 1


def test_a_save_in_another_format_replaces_the_first(tmp_path):
    save(tiny(), tmp_path, "anyformer")
    model = tiny()
    save(model, tmp_path, "huggingface")
    assert not (tmp_path / "anyformer.json").exists()
    assert torch.equal(anyformer.load(tmp_path).embed.token.weight, model.embed.token.weight)


def test_files_can_be_read_by_others(single):
    assert os.stat(single / WEIGHTS).st_mode == os.stat(single / CONFIG).st_mode


@pytest.mark.parametrize(
    ("size", "bytes"), [("5GB", 5 * 10**9), ("1.5 kb", 1500), ("2GiB", 2**31), (7, 7), ("9", 9)]
)
def test_sizes(size, bytes):
    assert writer.parsed(size) == bytes


@pytest.mark.parametrize("size", ["", "big", "5TB", "-1GB", 0, "nan", "1e9"])
def test_what_is_no_size(size):
    with pytest.raises(CheckpointError, match="max_shard_size"):
        writer.parsed(size)


def test_a_key_that_its_shard_does_not_hold(sharded):
    shard = json.loads((sharded / INDEX).read_text())["weight_map"][KEY]
    changed(sharded / shard, lambda tensors: tensors.pop(KEY))
    assert_says(sharded, INDEX, shard, repr(KEY), "it doesn't")


def test_a_key_in_two_shards(sharded):
    first, second = sorted(sharded.glob("model-*.safetensors"))[:2]
    key = next(iter(load_file(first)))
    changed(second, lambda tensors: tensors.update({key: torch.zeros(1)}))
    assert_says(sharded, second.name, first.name, repr(key))


@pytest.mark.parametrize("placed", [None, [], {"a": 1}, {"a": None}])
def test_an_index_without_a_map(sharded, placed):
    edited(sharded / INDEX, weight_map=placed)
    assert_says(sharded, INDEX, "has no weight_map")


def test_a_broken_shard_is_named(sharded):
    shard = sorted(sharded.glob("model-*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-3])
    assert_says(sharded, shard.name, "cut short")


def test_shapes_are_named_before_anything_is_read(single, monkeypatch):
    monkeypatch.setattr("anyformer.checkpoint.reader.Entry.read", lambda self: pytest.fail("read"))
    changed(single / WEIGHTS, lambda tensors: tensors.update({KEY: torch.zeros(8, 9)}))
    assert_says(single, WEIGHTS, repr(KEY), "of shape (8, 9), not (8, 32)", CONFIG)


def test_fused_shapes_are_named(tmp_path):
    tiny("gpt2", "gpt2", "causal-lm").save_pretrained(tmp_path)
    edited(tmp_path / CONFIG, n_embd=12)
    assert_says(
        tmp_path, WEIGHTS, "'transformer.h.0.attn.c_attn.weight' of shape (8, 24), not (12, 36)"
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none(single, bad):
    changed(single / WEIGHTS, lambda tensors: tensors[KEY].view(-1)[5].fill_(bad))
    assert_says(single, WEIGHTS, repr(KEY), "NaN or infinite")


def test_heads_of_an_unknown_class_need_a_task(tmp_path, caplog):
    tiny("bert", "bert", "base").save_pretrained(tmp_path)
    strange = {"cls.species.weight": torch.zeros(3, 8)}
    prefixed = lambda ts: {f"bert.{k}": ts.pop(k) for k in list(ts)} | strange
    changed(tmp_path / WEIGHTS, lambda ts: ts.update(prefixed(ts)))
    edited(tmp_path / CONFIG, architectures=["AntiBERTy"])
    assert_says(tmp_path, "no row for", "cls.species.weight")
    with caplog.at_level(logging.WARNING, "anyformer"):
        assert anyformer.load(tmp_path, "base").spec.dim == 8
    assert "weights of AntiBERTy, a class unknown here, are left out: cls.species" in caplog.text


def test_numbers_beyond_the_dtype(single):
    changed(single / WEIGHTS, lambda tensors: tensors[KEY].view(-1)[5].fill_(1e6))
    with pytest.raises(CheckpointError, match=r"numbers beyond torch.float16: choose"):
        anyformer.load(single, dtype="float16")
    assert anyformer.load(single, dtype="bfloat16").embed.token.weight.dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [None, "bfloat16", torch.float64])
@pytest.mark.parametrize("task", [None, "masked-lm"])
def test_everything_gets_the_dtype(single, dtype, task):
    model = anyformer.load(single, task, dtype=dtype)
    named = {"bfloat16": torch.bfloat16, None: torch.float32}.get(dtype, dtype)
    assert {t.dtype for t in model.state_dict().values()} == {named}
    assert not any(p.is_meta for p in model.parameters())
    assert model(IDS).last_hidden_state.dtype == named


def test_a_fresh_head_has_the_dtype_of_the_file(single):
    changed(single / WEIGHTS, lambda ts: ts.update({k: t.half() for k, t in ts.items()}))
    model = anyformer.load(single, "token-classification")
    assert {p.dtype for p in model.parameters()} == {torch.float16}


def test_the_device(single):
    assert {p.device.type for p in anyformer.load(single, device="meta").parameters()} == {"meta"}


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_link_out_of_the_folder_is_refused(single, tmp_path, name):
    (single / name).rename(tmp_path / "elsewhere")
    (single / name).symlink_to(tmp_path / "elsewhere")
    assert_says(single, name, "is a link to", "outside the folder: refused")


def test_a_link_inside_the_folder_is_followed(single):
    (single / WEIGHTS).rename(single / "real")
    (single / WEIGHTS).symlink_to("real")
    assert anyformer.load(single).spec.dim == 8


def test_links_of_a_snapshot_go_to_its_blobs_only(single, tmp_path):
    snapshot, blobs = (
        tmp_path / "models--a--b" / "snapshots" / "c",
        tmp_path / "models--a--b" / "blobs",
    )
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in (CONFIG, WEIGHTS):
        (single / name).rename(blobs / name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert anyformer.load(snapshot).spec.dim == 8
    (blobs / WEIGHTS).rename(tmp_path / "models--a--b" / WEIGHTS)
    (snapshot / WEIGHTS).unlink()
    (snapshot / WEIGHTS).symlink_to(f"../../{WEIGHTS}")
    assert_says(snapshot, WEIGHTS, "outside the folder: refused")


def test_code_of_a_folder_is_never_run(single, tmp_path, caplog):
    marker = tmp_path / "marker"
    (single / "modeling_x.py").write_text(f"open({str(marker)!r}, 'w')")
    named = {"AutoModel": "modeling_x.X", "AutoConfig": "modeling_x.C"}
    edited(single / CONFIG, auto_map=named, trust_remote_code=True)
    with caplog.at_level(logging.WARNING, "anyformer"):
        model = anyformer.load(single)
    assert "auto_map, trust_remote_code ignored" in caplog.text
    assert not marker.exists()
    model.save_pretrained(tmp_path / "out")
    assert "auto_map" not in json.loads((tmp_path / "out" / CONFIG).read_text())


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"hidden_size": "16"}, "dim"),
        ({"hidden_size": 8.5}, "dim"),
        ({"num_attention_heads": 0}, "heads"),
        ({"vocab_size": -1}, "vocab"),
        ({"vocab_size": 10**12}, "of shape"),
        ({"num_hidden_layers": 10**9}, "at most 10000, not 1000000000"),
        ({"id2label": 5, "architectures": ["BertForSequenceClassification"]}, ""),
        ({"hidden_act": "swish_glue"}, "activation"),
        ({"hidden_act": ["gelu"]}, "activation"),
        ({"model_type": "brt"}, "did you mean 'bert'"),
        ({"model_type": None}, "model_type"),
        ({"architectures": 7}, "no list of class names"),
    ],
)
def test_a_config_that_can_not_be(single, fields, pattern):
    edited(single / CONFIG, **fields)
    assert_says(single, CONFIG, pattern)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[" * 100_000, b'{"a": 1,}', b"// x\n{}", b'{"a": 1, "a": 2}']
)
def test_a_config_that_is_not_json(single, text):
    (single / CONFIG).write_bytes(text)
    assert_says(single, CONFIG, "is not valid JSON")


def test_a_huge_config_is_not_read(single, monkeypatch):
    monkeypatch.setattr("anyformer.spec.strict.MOST", 100)
    assert_says(single, CONFIG, "more than 100 bytes")


def test_many_unknown_keys_are_refused_fast(single):
    many = {f"../../x{i}": torch.zeros(0) for i in range(20_000)}
    changed(single / WEIGHTS, lambda tensors: tensors.update(many))
    assert_says(single, "no row for", "and 19995 more")


def test_a_failed_write_leaves_the_old_folder(single, monkeypatch):
    before = {f.name: f.read_bytes() for f in single.iterdir()}
    calls = []

    def broken(tensors, path, about):
        calls.append(path)
        if len(calls) > 1:
            raise OSError("disk full")
        save_file(tensors, path, about)

    monkeypatch.setattr("anyformer.checkpoint.native.save_file", broken)
    with pytest.raises(CheckpointError, match="can't be written: disk full"):
        tiny().save_pretrained(single, max_shard_size="2KB")
    assert {f.name: f.read_bytes() for f in single.iterdir()} == before


PEAK = """
import os, sys
import anyformer, torch
from pathlib import Path

def held(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(what)) * 1024

anyformer.load(sys.argv[1], dtype="bfloat16")(torch.arange(4)[None])  # libraries are there
assert "torch._dynamo" not in sys.modules, "torch's compiler was loaded: seconds for nothing"
for case in sys.argv[2:]:
    if os.fork() == 0:
        folder, dtype = case.split("=")
        anyformer.load(sys.argv[1], dtype=dtype)  # the pages of libraries are this process's too
        Path("/proc/self/clear_refs").write_text("5")
        before = held("VmRSS")
        model = anyformer.load(folder, dtype=dtype)
        print(held("VmHWM") - before, sum(p.nbytes for p in model.parameters()), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_loading_needs_room_for_the_weights_once(single, tmp_path):
    spec = recipe("gpt2", dim=512, depth=6, heads=8, vocab=8192, length=64)
    model = anyformer.build(spec)
    model.origin = Origin("gpt2", "causal-lm", {})
    save(model, tmp_path / "theirs", "huggingface", max_shard_size="30MB")
    save(model, tmp_path / "ours", "anyformer")
    cases = [
        f"{tmp_path}/theirs=float32",
        f"{tmp_path}/ours=float32",
        f"{tmp_path}/theirs=bfloat16",
    ]
    source = Path(anyformer.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", PEAK, str(single), *cases]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line, case in zip(done.stdout.splitlines(), cases, strict=True):
        peak, size = map(int, line.split())
        assert size > 45e6
        # a matrix as stored, cast, and in parts: 24 to 31 MB alone, once 35.5 beside other tests,
        # why isn't known; the weights once more would be 46 at least
        assert peak < size + 42e6, (case, peak, size)


def test_names_here_and_there():
    assert huggingface.Origin is Origin
