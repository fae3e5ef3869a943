"""Encoder and decoder of two families against transformers, for text and for images."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
from tests.parity.hf.compare import SEEDS, backward, close, same_files, same_gradients, shake
from tests.parity.hf.seq2seq import VOCAB, config
from tests.parity.hf.test_vision import disk

PAIRS = ("bert-bert", "bert-gpt2", "roberta-bert", "vit-bert", "vit-gpt2", "electra-roberta")
PAD, START = 1, 2
pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")
cases = pytest.mark.parametrize(("pair", "seed"), [(p, s) for p in PAIRS for s in SEEDS])


def part(name, seed, dim):
    """The config of one side, of a given width."""
    pick = random.Random(f"{name}{seed}").choice
    if name == "vit":
        given = config("vit", seed) | {"hidden_size": dim, "num_attention_heads": pick((1, 3))}
        return transformers.ViTConfig(**given)
    heads, depth, length = pick((1, 2, 4)), pick((1, 3)), 40
    if name == "gpt2":
        sizes = {"n_embd": dim, "n_layer": depth, "n_head": heads, "n_positions": length}
        ends = {"bos_token_id": 0, "eos_token_id": 0, "n_inner": pick((None, 17))}
        return transformers.GPT2Config(vocab_size=VOCAB, **sizes, **ends)
    return transformers.AutoConfig.for_model(
        name,
        vocab_size=VOCAB,
        hidden_size=dim,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=pick((17, 40)),
        max_position_embeddings=length,
        hidden_act=pick(("gelu", "relu")),
        layer_norm_eps=pick((1e-12, 1e-2)),
        pad_token_id=PAD,
    )


def theirs(pair, seed):
    """A transformers model of both."""
    torch.manual_seed(seed)
    first, second = pair.split("-")
    kind = "VisionEncoderDecoder" if first == "vit" else "EncoderDecoder"
    both = part(first, seed, 12), part(second, seed + 1, random.Random(seed).choice((12, 8)))
    made = getattr(transformers, f"{kind}Config").from_encoder_decoder_configs(*both)
    made.decoder_start_token_id, made.pad_token_id = START, PAD
    return shake(getattr(transformers, f"{kind}Model")(config=made), seed)


def batch(hf, seed):
    """A padded text or images, and labels with padding on the right."""
    drawn = torch.Generator().manual_seed(seed)
    seed %= 8  # sizes stay within the tables by position
    labels = torch.randint(3, VOCAB, (3, 4 + seed), generator=drawn)
    labels[1, 2 + seed :] = -100
    if hf.config.encoder.model_type == "vit":
        c = hf.config.encoder
        shape = (3, c.num_channels, c.image_size, c.image_size)
        return {"pixel_values": torch.randn(shape, generator=drawn), "labels": labels}
    length = 5 + 3 * seed
    ids = torch.randint(3, VOCAB, (3, length), generator=drawn)
    mask = torch.ones_like(ids)
    mask[2, length // 2 :] = 0
    return {
        "input_ids": ids.masked_fill(mask == 0, PAD),
        "attention_mask": mask,
        "labels": labels,
    }


def run(model, given):
    """Logits where labels count, the loss, and what the encoder gives."""
    out, mask = model(**given), given.get("attention_mask")
    states = out.encoder_last_hidden_state
    found = {"encoder": states if mask is None else states[mask.bool()]}
    return found | {"logits": out.logits[given["labels"] != -100], "loss": out.loss}


def on_disk(name):
    """The name on disk: images change theirs."""
    front, _, rest = name.partition(".")
    return f"{front}.{disk(rest)}" if front == "encoder" else name


@cases
def test_same_numbers_and_gradients(pair, seed, tmp_path):
    hf = theirs(pair, seed)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(hf, seed)
    a, b = run(hf, given), run(ours, given)
    for name in a:
        close(b[name], a[name], name)
    backward(a)
    backward(b)
    named = on_disk if pair.startswith("vit") else lambda name: name
    same_gradients(hf, ours, hf.config.model_type, pair, named)


@cases
def test_same_files(pair, seed, tmp_path):
    hf = theirs(pair, seed)
    given = batch(hf, seed)
    a, b = run(hf, given), run(same_files(hf, tmp_path), given)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_cache_changes_nothing(pair, tmp_path):
    hf = theirs(pair, 1)
    hf.save_pretrained(tmp_path)
    ours = anyformer.load(tmp_path)
    given = batch(hf, 1)
    ids = given.pop("labels").clamp(min=3)
    whole = ours(**given, decoder_input_ids=ids).logits
    first = ours(**given, decoder_input_ids=ids[:, :2], use_cache=True)
    rest = ours(decoder_input_ids=ids[:, 2:], past_key_values=first.past_key_values)
    close(torch.cat([first.logits, rest.logits], 1), whole, "logits")


def test_a_map_between_unlike_widths():
    sides = {"encoder": {"hidden_size": 24}, "decoder": {"hidden_size": 48}}
    spec = FAMILIES["encoder-decoder"].spec_of(sides, "bert-bert")
    assert spec.bridge
    sides["decoder"]["cross_attention_hidden_size"] = 24
    with pytest.raises(CheckpointError, match="cross_attention_hidden_size"):
        FAMILIES["encoder-decoder"].spec_of(sides, "bert-bert")
