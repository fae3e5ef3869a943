"""GPT and GPT-2 with words and choices at once against transformers: numbers, gradients, files."""

from __future__ import annotations

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
from tests.parity.hf.compare import SEEDS, close, same_files, same_gradients, shake
from tests.parity.hf.decoders import VOCAB, config

TASK = "double-heads"
FAMILY = ("gpt2", "openai-gpt")
transformers.utils.logging.set_verbosity_error()


def theirs(family, seed, task=TASK, **more):
    """A transformers model with weights that show every part."""
    torch.manual_seed(seed)
    rates = {"summary_first_dropout": (0.0, 0.2)[seed % 2], "pad_token_id": 0}
    fields = config(family, seed) | rates | {"summary_activation": (None, "tanh")[seed % 3 // 2]}
    made = transformers.AutoConfig.for_model(family, **fields | more)
    return shake(getattr(transformers, FAMILIES[family].tasks[task].architecture)(made), seed)


def batch(seed, padded=True):
    """Sequences of choices with padding on the right, where to read them, labels of both kinds."""
    drawn, shape = torch.Generator().manual_seed(seed), (2, 2 + seed % 3, 4 + seed % 5)
    draw = lambda low, high, *shape: torch.randint(low, high, shape, generator=drawn)
    ids, mask = draw(1, VOCAB, *shape), torch.ones(shape, dtype=torch.long)
    if padded:
        mask[0, 1, 2:] = mask[1, 0, 3:] = 0
    given = {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}
    given["mc_token_ids"] = (draw(0, shape[2], *shape[:2])).minimum(mask.sum(-1) - 1)
    labels = ids.masked_fill((mask == 0) | (draw(0, 4, *shape) == 0), -100)
    labels[0, 0, -1] = 1  # at least one counts
    return given | {"labels": labels, "mc_labels": draw(0, shape[1], 2)}


def run(model, given):
    """Logits at real positions, of choices, and both losses."""
    flat = {}
    if isinstance(model, transformers.OpenAIGPTDoubleHeadsModel) and "attention_mask" in given:
        flat = {"attention_mask": given["attention_mask"].flatten(0, 1)}  # as it has to be there
    out = model(**{**given, **flat})
    found = {n: out[n] for n in ("loss", "mc_loss", "logits", "mc_logits") if n in out}
    real = given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()
    return found | {"logits": found["logits"][real]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILY)
def test_same_numbers_gradients_and_files(family, seed, tmp_path):
    hf, given = theirs(family, seed), batch(seed)
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "theirs")
    for p in again.parameters():
        p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
    a, b, c = run(hf, given), run(ours, given), run(again, given)
    assert a.keys() == b.keys() == {"loss", "mc_loss", "logits", "mc_logits"}
    for name in a:
        close(b[name], a[name], name)
        assert torch.equal(a[name], c[name]), name
    (a["loss"] + a["mc_loss"]).backward()
    (b["loss"] + b["mc_loss"]).backward()
    table = "transformer.tokens_embed.weight"  # in files it has the name of the head
    same_gradients(hf, ours, family, TASK, lambda n: "lm_head.weight" if n == table else n)


@pytest.mark.parametrize("family", FAMILY)
def test_without_a_place_the_last_position_tells(family, tmp_path):
    hf, given = theirs(family, 0), batch(1, padded=False)
    hf.save_pretrained(tmp_path)
    told = {"input_ids": given["input_ids"]}
    a, b = run(hf, told), run(anyformer.load(tmp_path), told)
    assert a.keys() == b.keys()
    for name in a:
        close(b[name], a[name], name)


def test_a_table_under_the_name_of_the_head_serves_other_heads(tmp_path):
    hf, ids = theirs("openai-gpt", 0), batch(0)["input_ids"].flatten(0, 1)
    hf.save_pretrained(tmp_path / "double")
    words = anyformer.load(tmp_path / "double", "causal-lm")
    close(words(ids).logits, hf(ids).logits, "words")
    words.save_pretrained(tmp_path / "words")
    back = anyformer.load(tmp_path / "words", TASK)
    close(back(ids[None]).logits[0], words(ids).logits, "words again")


@pytest.mark.parametrize("tied", [True, False])
def test_a_language_model_learns_to_choose(tied, tmp_path):
    hf = theirs("gpt2", 0, "causal-lm", tie_word_embeddings=tied)
    hf.save_pretrained(tmp_path / "theirs")
    ours, given = anyformer.load(tmp_path / "theirs", TASK), batch(0, padded=False)
    ours.save_pretrained(tmp_path / "ours")
    again = transformers.GPT2DoubleHeadsModel.from_pretrained(tmp_path / "ours").eval()
    a, b = run(again, given), run(ours, given)
    for name in a:
        close(b[name], a[name], name)
    ids = given["input_ids"].flatten(0, 1)
    back = anyformer.load(tmp_path / "ours", "causal-lm")
    close(back(ids).logits, hf(ids).logits, "words")


@pytest.mark.parametrize("key", ["summary_type", "summary_use_proj", "summary_proj_to_labels"])
def test_other_summaries_are_refused(key):
    with pytest.raises(CheckpointError, match=key):
        FAMILIES["gpt2"].spec_of({key: "first" if key == "summary_type" else False}, TASK)
