"""Published sizes of decoders: as many parameters as transformers builds from the same sizes."""

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.recipes import recipe

LLAMA = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
NEOX = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
OPT_350M = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "ffn_dim": 4096,
    "word_embed_proj_dim": 512,
    "do_layer_norm_before": False,
}
OPT_1B = {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "ffn_dim": 8192,
}
SIZES = {  # family -> fields of config.json by published size
    "llama": {
        "7b": {},
        "65b": dict(zip(LLAMA, (8192, 80, 64, 64), strict=True)) | {"intermediate_size": 22016},
        "2-70b": dict(zip(LLAMA, (8192, 80, 64, 8), strict=True)) | {"intermediate_size": 28672},
    },
    "mistral": {"7b": {}},
    "qwen2": {"7b": dict(zip(LLAMA, (3584, 28, 28, 4), strict=True)) | {"vocab_size": 152064}},
    "qwen3": {"8b": dict(zip(LLAMA, (4096, 36, 32, 8), strict=True))},
    "gpt_neo": {
        "1.3b": {},
        "125m": {
            "hidden_size": 768,
            "num_layers": 12,
            "num_heads": 12,
            "attention_types": [[["global", "local"], 6]],
        },
    },
    "openai-gpt": {"": {}},
    "ctrl": {"": {}},
    "gptj": {"6b": {}},
    "gpt_neox": {
        "20b": {},
        "pythia-410m": dict(zip(NEOX, (1024, 24, 16, 4096), strict=True)) | {"vocab_size": 50304},
    },
    "opt": {"125m": {}, "350m": OPT_350M, "1.3b": OPT_1B},
    "gemma2": {"2b": {}},
    "gemma3_text": {
        "4b": {},
        "1b": dict(zip(LLAMA, (1152, 26, 4, 1), strict=True)) | {"intermediate_size": 6912},
    },
}
CASES = [(family, size) for family in SIZES if family in FAMILIES for size in SIZES[family]]


@pytest.mark.parametrize(("family", "size"), CASES)
def test_as_many_parameters_as_transformers(family, size):
    given, known = SIZES[family][size], FAMILIES[family]
    config = transformers.AutoConfig.for_model(family, **given)
    with torch.device("meta"):
        built = getattr(transformers, known.tasks["causal-lm"].architecture)(config)
    theirs = sum(p.numel() for p in built.parameters())
    assert anyformer.count(known.spec_of(given, "causal-lm")).parameters == theirs


GPT3 = {  # the table of arXiv:2005.14165: depth, dim, heads, head_dim, parameters in millions
    "small": (12, 768, 12, 64, 125),
    "medium": (24, 1024, 16, 64, 350),
    "large": (24, 1536, 16, 96, 760),
    "xl": (24, 2048, 16, 128, 1300),  # printed with 24 heads, which would be 1500
    "2.7b": (32, 2560, 32, 80, 2700),
    "6.7b": (32, 4096, 32, 128, 6700),
    "13b": (40, 5140, 40, 128, 13000),
    "175b": (96, 12288, 96, 128, 175000),
}


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_has_the_sizes_of_its_table(name):
    depth, dim, heads, head_dim, millions = GPT3[name]
    spec = recipe("gpt3", depth=depth, dim=dim, heads=heads, head_dim=head_dim)
    assert anyformer.count(spec).parameters / 1e6 == pytest.approx(millions, rel=0.1)
