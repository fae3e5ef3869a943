"""config.json of decoders: older words, what is refused, and what a spec can't be saved as."""

import json

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.checkpoint.huggingface import Origin
from anyformer.errors import CheckpointError
from anyformer.spec import get
from tests.parity.hf.decoders import config

SELF = "stack.block.0.branch"


def spec(family, **fields):
    return FAMILIES[family].spec_of(fields, "causal-lm")


def test_old_and_new_words_for_rotary_positions():
    new = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert spec("llama", rope_theta=5e5) == spec("llama", **new)
    share = {"rope_parameters": {"rope_theta": 30.0, "partial_rotary_factor": 0.5}}
    assert spec("gpt_neox", rotary_pct=0.5, rotary_emb_base=30) == spec("gpt_neox", **share)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gemma2"])
def test_both_words_are_written(family):
    made = spec(family, rope_theta=5e5)
    written = FAMILIES[family].config_of(made, "causal-lm", {})
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 5e5


def test_null_is_not_the_default_where_it_says_something():
    window = lambda **fields: get(spec("mistral", **fields), f"{SELF}.window")
    assert window() == 4096
    assert window(sliding_window=None) is None
    assert get(spec("gemma2", attn_logit_softcapping=None), f"{SELF}.mods") == ()


REFUSED = [
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "factor": 8.0}}, "longrope"),
    ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
    ("gpt_neox", {"rope_parameters": {"rope_type": "linear"}}, "linear"),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 30.0}}, "full_attention"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine"),
    ("gpt_neo", {"attention_types": [[["global"], 3]]}, "give 3 layers"),
    ("gpt_neo", {"attention_types": [[["globl"], 24]]}, "globl"),
    ("openai-gpt", {"afn": "gleu"}, "did you mean 'gelu'"),
]


@pytest.mark.parametrize(("family", "fields", "message"), REFUSED)
def test_what_has_no_part_is_refused(family, fields, message):
    with pytest.raises(CheckpointError, match=message):
        spec(family, **fields)


def test_a_spec_beyond_the_family_is_not_written_wrongly():
    windows = anyformer.override(spec("llama"), f"{SELF}.window", 7)
    with pytest.raises(CheckpointError, match=r"can't say .*window"):
        FAMILIES["llama"].config_of(windows, "causal-lm", {})


def test_files_of_untied_neox_keep_their_table(tmp_path):
    fields = config("gpt_neox", 0) | {"tie_word_embeddings": False}
    hf = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**fields))
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    assert torch.equal(model.head.weight, hf.lm_head.weight)


@pytest.mark.parametrize("family", ["llama", "gptj", "gpt_neox", "opt"])
def test_a_fresh_model_is_read_by_transformers(family, tmp_path):
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(family, **config(family, 1)).to_dict()
    model = anyformer.build(spec(family, **made)).eval()
    model.origin = Origin(family, "causal-lm", {"max_position_embeddings": 40, "n_positions": 40})
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == family
    ids = torch.randint(3, 60, (2, 9))
    hf = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(hf(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
