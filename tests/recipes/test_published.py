"""Published sizes of encoder-decoders and image models: parameters as transformers counts them."""

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES

V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SIZES = {  # name -> (class, fields of its config.json)
    "t5-small": ("T5ForConditionalGeneration", {}),
    "t5-base": (
        "T5ForConditionalGeneration",
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    "t5-large": (
        "T5ForConditionalGeneration",
        {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
    ),
    "t5-v1_1-small": ("T5Model", {"d_ff": 1024, "num_layers": 8, "num_heads": 6} | V11),
    "mt5-small": ("MT5Model", {}),
    "bart-base": (
        "BartModel",
        {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072}
        | {"decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12},
    ),
    "mbart-large-cc25": ("MBartModel", {"vocab_size": 250027, "scale_embedding": True}),
    "m2m100_418M": ("M2M100ForConditionalGeneration", {}),
    "vit-base": ("ViTForImageClassification", {"num_labels": 1000}),
}
COUNTS = {"t5-small": 60_506_624, "bart-base": 139_420_416, "m2m100_418M": 483_905_536}


@pytest.mark.parametrize("name", SIZES)
def test_published_sizes(name):
    named, fields = SIZES[name]
    made = getattr(transformers, named).config_class(**fields)
    with torch.device("meta"):
        theirs = getattr(transformers, named)(made).num_parameters()
    family = FAMILIES[made.model_type]
    task = family.task(None, {"architectures": [named]})
    spec = family.spec_of(made.to_dict() | fields, task)
    assert anyformer.count(spec).parameters == theirs
    assert COUNTS.get(name, theirs) == theirs
