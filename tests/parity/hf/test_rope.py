"""Slower rotary positions against transformers: frequencies, numbers, gradients and files."""

from __future__ import annotations

import random

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.ops.rotary import angles
from anyformer.parts.rotary import gain_of, stretch_of
from anyformer.spec import get
from tests.parity.hf.compare import SEEDS, close, same_files, same_gradients, shake
from tests.parity.hf.decoders import config
from tests.parity.hf.test_decoders import DISK, backward, batch, run

FLAT = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gpt_neox")
SELF = "stack.block.0.branch"


def drawn(kind, seed):
    """rope_parameters of a kind."""
    rng = random.Random(f"{kind}{seed}")
    pick = lambda *options: rng.choice(options)
    given = {"rope_type": kind, "factor": pick(2.0, 8.0), "rope_theta": pick(10000.0, 50.0)}
    if kind == "llama3":
        low = pick(0.5, 1.0)
        given |= {"low_freq_factor": low, "high_freq_factor": low * pick(2, 4)}
        given["original_max_position_embeddings"] = pick(20, 200)
    if kind == "yarn":
        given |= pick({}, {"original_max_position_embeddings": pick(20, 200)})
        given |= pick({}, {"beta_fast": 4.0, "beta_slow": 0.5}, {"truncate": False})
        given |= pick({}, {"attention_factor": 0.8}, {"mscale": 0.7, "mscale_all_dim": 1.3})
    return given


def words(family, seed):
    """The fields of a seed, with slower turns."""
    fields = config(family, seed) | {"max_position_embeddings": 40}
    slow = drawn(random.Random(seed).choice(("linear", "llama3", "yarn")), seed)
    share = fields["rope_parameters"].get("partial_rotary_factor")
    slow |= {} if share is None else {"partial_rotary_factor": share}
    return fields | {"rope_parameters": slow}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_frequencies(kind, seed):
    given = drawn(kind, seed)
    made = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=2, rope_parameters=dict(given)
    )
    wanted, gain = ROPE_INIT_FUNCTIONS[kind](made, None)
    spec = FAMILIES["llama"].spec_of(made.to_dict(), "base")
    rotary = get(spec, f"{SELF}.rotary")
    found = angles(torch.ones(1), 32, rotary.theta, stretch_of(rotary, 32))[0]
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)
    assert gain_of(rotary.scaling) == pytest.approx(gain)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FLAT)
def test_same_numbers_gradients_and_files(family, seed, tmp_path):
    torch.manual_seed(seed)
    made = transformers.AutoConfig.for_model(family, **words(family, seed))
    architecture = FAMILIES[family].tasks["causal-lm"].architecture
    hf = shake(getattr(transformers, architecture)(made), seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "theirs")
    assert ours.spec == anyformer.load(tmp_path / "ours").spec
    assert get(next(leaf for leaf in ours.spec.stack.block[0].leaves), "rotary.scaling")
    given = batch(seed, "causal-lm")
    a, b = run(hf, given), run(ours, given)
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    names = DISK.get(family, {})
    same_gradients(hf, ours, family, "causal-lm", lambda name: names.get(name, name))
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.data = parameter.data.clone()  # aligned in memory as hf's are
        saved = run(again, given)
    assert all(torch.equal(saved[name], a[name]) for name in a)


def test_long_rows_agree_too(tmp_path):
    fields = config("llama", 0) | {"rope_parameters": drawn("yarn", 0)}
    hf = shake(transformers.LlamaModel(transformers.LlamaConfig(**fields)), 0)
    hf.save_pretrained(tmp_path)
    ids, far = torch.arange(6)[None], torch.arange(100_000, 100_006)[None]
    found = anyformer.load(tmp_path)(ids, position_ids=far).last_hidden_state
    close(found, hf(ids, position_ids=far).last_hidden_state, "far positions")


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_older_words_say_the_same(family):
    read = lambda **fields: FAMILIES[family].spec_of(fields, "base")
    base = {"llama": "rope_theta", "gpt_neox": "rotary_emb_base"}[family]
    slow = {"factor": 4.0}
    new = read(rope_parameters={"rope_type": "linear", "rope_theta": 5e5, **slow})
    assert read(rope_scaling={"type": "linear", **slow}, **{base: 5e5}) == new
    written = FAMILIES[family].config_of(new, "base", {})
    assert written["rope_scaling"] == {"rope_type": "linear", **slow}
    assert written[base] == written["rope_parameters"]["rope_theta"] == 5e5


def test_older_words_of_two_sorts_of_layers():
    read = lambda **fields: FAMILIES["gemma3_text"].spec_of(fields, "base")
    slow = {"rope_type": "linear", "factor": 8.0}
    kinds = {"full_attention": slow | {"rope_theta": 3e5}, "sliding_attention": {"rope_theta": 9.0}}
    old = {"rope_scaling": slow, "rope_theta": 3e5, "rope_local_base_freq": 9.0}
    new = read(rope_parameters=kinds)
    assert read(**old) == new
    written = FAMILIES["gemma3_text"].config_of(new, "base", {})
    assert {key: written[key] for key in old} == old
    assert read(**old, sliding_window_pattern=6) == new
    assert read(**old, sliding_window_pattern=3) != new
