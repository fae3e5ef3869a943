"""Tasks that write: what generate writes, whatever stands beside it; images told of; faults."""

import numpy as np
import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.huggingface import Origin
from anyformer.errors import InputError
from anyformer.objectives.task import predict
from anyformer.objectives.to_text import ToText
from anyformer.recipes.pair import joined
from tests.tasks.tiny import built, texts, words


def gpt(**options):
    model = built("gpt2", None, "gpt", length=64)
    return model, anyformer.task("generate", model, tokenizer=words("gpt"), **options)


def test_a_decoder_goes_on_as_generate_does():
    model, done = gpt(max_new_tokens=7)
    tok = words("gpt")
    for text in texts(3, high=6):
        ids = torch.tensor([tok.encode(text)])
        new = model.generate(ids, max_new_tokens=7, eos_token_id=tok.role_ids["eos"])[
            0, ids.shape[1] :
        ]
        assert done(text)["text"] == tok.decode(new.tolist()).strip()


def test_options_of_generate_are_passed_on():
    _, done = gpt(max_new_tokens=9, do_sample=True, seed=3, temperature=2.0)
    assert done("the film") == done("the film")
    assert done("the film") != gpt(max_new_tokens=9)[1]("the film")
    with pytest.raises(InputError, match="did you mean 'temperature'"):
        gpt(temperatur=2.0)


def test_prompts_that_are_too_long_or_empty():
    _, done = gpt(max_new_tokens=10, on_error="return")
    long = "film " * 80
    found = list(done(["a film", long, "", "a book"]))
    assert (
        "model reads 55" in found[1]["error"] and "must be a text, not empty" in found[2]["error"]
    )
    assert found[0]["text"] and found[3]["text"]
    assert gpt(max_new_tokens=10, truncate=True)[1](long)["text"]


def test_an_encoder_decoder_writes_as_its_objective_does():
    model = built("t5", None, "t5")
    plan = ToText(source="text", answer=6, prefix="a ")
    given = texts(4, high=10)
    wanted = predict(plan.bind(words("t5"), model.spec), model, [{"text": t} for t in given])
    done = anyformer.task("summarise", model, tokenizer=words("t5"), max_new_tokens=6, prefix="a ")
    assert [one["text"] for one in done(given)] == wanted


def test_what_config_says_to_put_in_front():
    model = built("t5", None, "t5")
    told = {"summarization": {"prefix": "a film "}, "translation_en_to_de": {"prefix": "dull "}}
    model.origin = Origin("t5", "seq2seq-lm", {"task_specific_params": told})
    given = {"tokenizer": words("t5"), "max_new_tokens": 4}
    assert anyformer.task("summarise", model, **given).job.plan.prefix == "a film "
    assert anyformer.task("summarise", model, prefix="", **given).job.plan.prefix == ""
    with pytest.raises(InputError, match="no languages"):
        anyformer.task("translate", model, source="en", target="de", **given)


def test_captions(tmp_path):
    tok = words("roberta")
    sizes = {"dim": 16, "depth": 1, "heads": 2}
    reads = S.override(anyformer.recipe("vit", image=8, patch=4, **sizes), "head", None)
    writes = anyformer.recipe("bert", vocab=len(tok), length=16, **sizes)
    spec = joined(reads, S.override(writes, "head", S.Vocabulary(tied=True)))
    spec = S.check(S.override(S.override(spec, "start", tok.role_ids["bos"]), "pad", 1))
    model = anyformer.build(spec).eval()
    done = anyformer.task("caption", model, tokenizer=tok, max_new_tokens=5, on_error="return")
    images = list(np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8))
    found = list(done(images))
    assert [set(one) for one in found] == [{"text"}] * 3
    assert found == [done(image) for image in images]
    assert "no image" in done(str(tmp_path / "nowhere.png"))["error"]
    with pytest.raises(InputError, match="it can do: caption"):
        anyformer.task("classify-image", model)
