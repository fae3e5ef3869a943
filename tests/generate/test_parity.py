"""Greedy and beam texts equal those of transformers.generate, token by token."""

from __future__ import annotations

import random

import pytest
import torch
import transformers

import anyformer
from tests.parity.hf import decoders, seq2seq
from tests.parity.hf.compare import SEEDS, shake
from tests.parity.hf.test_pair import part

VOCAB = 61
PAD, START, EOS = 1, 2, 3
NAMES = ("gpt2", "gptj", "t5", "bart", "m2m_100", "bert-bert", "vit-gpt2")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*max_length.*:UserWarning"),
]
cases = pytest.mark.parametrize(("name", "seed"), [(n, s) for n in NAMES for s in SEEDS])
IDS = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": START}


def alone(name, seed):
    """A decoder."""
    given = decoders.config(name, seed) | IDS
    made = transformers.AutoConfig.for_model(name, **given)
    return {"gpt2": transformers.GPT2LMHeadModel, "gptj": transformers.GPTJForCausalLM}[name](made)


def written(name, seed):
    """An encoder-decoder of one family."""
    given = seq2seq.config(name, seed) | IDS | {"decoder_start_token_id": START}
    made = transformers.AutoConfig.for_model(name, **given)
    kinds = {
        "t5": transformers.T5ForConditionalGeneration,
        "bart": transformers.BartForConditionalGeneration,
        "m2m_100": transformers.M2M100ForConditionalGeneration,
    }
    return kinds[name](made)


def pair(name, seed):
    """An encoder-decoder of two families."""
    first, second = name.split("-")
    kind = "VisionEncoderDecoder" if first == "vit" else "EncoderDecoder"
    both = part(first, seed, 12), part(second, seed + 1, random.Random(seed).choice((12, 8)))
    made = getattr(transformers, f"{kind}Config").from_encoder_decoder_configs(*both)
    made.decoder_start_token_id, made.pad_token_id, made.eos_token_id = START, PAD, EOS
    return getattr(transformers, f"{kind}Model")(config=made)


def theirs(name, seed):
    """A transformers model whose texts are not all alike, and nothing that it does unasked."""
    torch.manual_seed(seed)
    model = (pair if "-" in name else alone if name.startswith("gpt") else written)(name, seed)
    shake(model, seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            table = any(word in key for word in ("embed", "shared", "wte", "wpe"))
            sharp = 2.0 if name == "t5" else 5.0  # T5's scores are sharp: texts with equal chances
            parameter.mul_(1.0 if table else sharp if parameter.dim() > 1 else 2.0)
    model.generation_config = transformers.GenerationConfig(**IDS, decoder_start_token_id=START)
    return model


def batch(name, seed, pad):
    """Prompts, padded on the left for a decoder and on the right for an encoder; or images."""
    drawn = torch.Generator().manual_seed(seed)
    if name.startswith("vit"):
        c = part("vit", seed, 12)
        shape = (3, c.num_channels, c.image_size, c.image_size)
        return {"pixel_values": torch.randn(shape, generator=drawn)}
    length = 4 + seed % 5
    ids = torch.randint(6, VOCAB, (3, length), generator=drawn)
    mask = torch.ones_like(ids)
    if pad:
        mask[1, -2:], mask[2, 2:] = 0, 0
        mask = mask.flip(1) if name.startswith("gpt") else mask
    return {"input_ids": ids.masked_fill(mask == 0, PAD), "attention_mask": mask}


def both(name, seed, folder, pad=True):
    """Their model and ours, a batch and what ends texts."""
    hf = theirs(name, seed)
    hf.save_pretrained(folder)
    ours, given = anyformer.load(folder).eval(), batch(name, seed, pad)
    return hf, ours, given, ends_of(ours, given, seed)


def texts(rows, start, ends):
    """Rows up to the end of each text."""
    found = []
    for row in rows[:, start:].tolist():
        at = [i for i, token in enumerate(row) if token in ends]
        found.append(row[: at[0] + 1] if at else row)
    return found


def ends_of(ours, given, seed):
    """One or two ids that end texts, which the model says if nothing ends them."""
    free = ours.generate(**given, max_new_tokens=12)
    at = random.Random(seed).choice
    return sorted({int(free[at(range(3)), -at(range(1, 8))]) for _ in range(1 + seed % 2)})


def assert_same(hf, ours, given, ends, **options):
    """Texts of both, which must be equal."""
    start = given["input_ids"].shape[1] if ours.encoder is None else 1
    deeper = {} if hf.config.model_type != "t5" else {"use_cache": False}  # fails there if deeper
    wanted = texts(hf.generate(**given, **options, **deeper, eos_token_id=ends), start, ends)
    found = ours.generate(**given, **options, eos_token_id=ends, pad_token_id=PAD)
    found = texts(found, start, ends)
    assert found == wanted
    return found


def drawn_options(seed):
    """Some options of greedy texts and beams."""
    pick = random.Random(seed).choice
    return {
        "max_new_tokens": pick((6, 12)),
        "repetition_penalty": pick((1.0, 1.0, 1.3)),
        "no_repeat_ngram_size": pick((0, 1, 2, 3)),
        "min_new_tokens": pick((0, 4)),
        "bad_words_ids": pick(([], [[7], [8, 9]])),
        "forced_eos_token_id": pick((None, EOS)),
    }


def asked(options, name, pad):
    """What both can be asked: there, padding counts as tokens that were written."""
    if pad and name.startswith("gpt"):
        options = options | {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
    return {key: value for key, value in options.items() if value not in (None, [])}


@cases
def test_greedy(name, seed, tmp_path):
    hf, ours, given, ends = both(name, seed, tmp_path)
    assert_same(hf, ours, given, ends, max_new_tokens=12)
    assert_same(hf, ours, given, ends, **asked(drawn_options(seed), name, True))
    hf, ours, given, ends = both(name, seed, tmp_path, pad=False)
    assert_same(hf, ours, given, ends, **asked(drawn_options(seed + 100), name, False))


@cases
def test_beams(name, seed, tmp_path):
    hf, ours, given, ends = both(name, seed, tmp_path)
    pick = random.Random(seed).choice
    for early in (True, False, "never"):
        beams = pick((2, 3, 5))
        options = {
            "num_beams": beams,
            "num_return_sequences": pick((1, beams)),
            "early_stopping": early,
            "length_penalty": pick((0.0, 1.0, 2.0, -0.5)),
        }
        assert_same(hf, ours, given, ends, max_new_tokens=10, **options)
        assert_same(hf, ours, given, ends, **options, **asked(drawn_options(seed), name, True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_forced_language(seed, tmp_path):
    hf, ours, given, ends = both("m2m_100", seed, tmp_path)
    for options in ({}, {"num_beams": 3, "num_return_sequences": 3}):
        found = assert_same(
            hf, ours, given, ends, max_new_tokens=8, forced_bos_token_id=11, **options
        )
        assert all(row[0] == 11 for row in found)
