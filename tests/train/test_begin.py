"""From names to runs: what is chosen fits together, and what doesn't is refused with a remedy."""

import json
from dataclasses import replace

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import AnyformerError, TrainError
from anyformer.train import run as runs
from anyformer.train.begin import Wish, again, begin, gather
from anyformer.train.settings import Evaluation, Saving, Settings

SMALL = {"dim": 16, "depth": 2, "heads": 2}
TEXT = "The cat sat on the mat. The dog ran to the door. A bird sang. Why did it sing? " * 12


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "texts"
    home.mkdir()
    for i in range(6):
        (home / f"{i}.txt").write_text(TEXT + f" It was number {i}.")
    return str(home)


def wish(texts, model="gpt2", **changes):
    settings = Settings(steps=3, batch=2, evaluation=Evaluation(every=2), saving=Saving(every=2))
    return Wish(
        model, dict(SMALL), (texts,), tokenizer="bpe:300", context=24, settings=settings, **changes
    )


FAMILIES = {
    "gpt2": ("Causal", "bpe:300"),
    "bert": ("NextSentence", "wordpiece:120"),
    "roberta": ("Masked", "wordpiece:120"),
    "albert": ("SentenceOrder", "wordpiece:120"),
    "electra": ("ReplacedToken", "wordpiece:120"),
    "t5": ("SpanCorruption", "unigram:160"),
    "bart": ("Denoising", "bpe:300"),
    "transformer-xl": ("Segments", "characters"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_begins_with_its_own_objective(name, texts, tmp_path):
    objective, tokenizer = FAMILIES[name]
    asked = replace(wish(texts, name), tokenizer=tokenizer, source={"held_out": 0.4})
    done = begin(asked, tmp_path / "run")
    assert done.steps == 3 and done.validation["loss"] > 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["objective"]["is"] == objective
    model, words = done.model(), done.tokenizer()
    assert model.spec.embed.source.vocab == len(words)
    assert anyformer.tokenizer(tmp_path / "run" / "model").encode("cat") == words.encode("cat")


def test_pairs_of_too_few_documents_are_refused_before_there_is_a_run(texts, tmp_path):
    asked = replace(wish(texts, "bert"), tokenizer="wordpiece:120")  # a tenth of six is one
    with pytest.raises(AnyformerError, match=r"2 documents to validate on.*--split block"):
        begin(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_as_if_it_had_not_stopped(texts, tmp_path, monkeypatch):
    whole = begin(wish(texts), tmp_path / "whole")
    broken = runs.Loop.save

    def stops(loop):
        broken(loop)
        if loop.at.step == 2:
            loop.saver.wait()
            raise KeyboardInterrupt

    monkeypatch.setattr(runs.Loop, "save", stops)
    with pytest.raises(KeyboardInterrupt):
        begin(wish(texts), tmp_path / "part")
    monkeypatch.setattr(runs.Loop, "save", broken)
    resumed = again(tmp_path / "part")
    assert resumed.history == whole.history
    pairs = zip(whole.model().parameters(), resumed.model().parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_texts_that_changed_are_refused(texts, tmp_path):
    begin(wish(texts), tmp_path / "run")
    with open(f"{texts}/0.txt", "a") as file:
        file.write("And one sentence more.")
    with pytest.raises(TrainError, match="not what the run began with"):
        again(tmp_path / "run")


def test_a_model_folder_is_trained_further_with_its_tokenizer(texts, tmp_path):
    first = begin(wish(texts), tmp_path / "first")
    folder = str(first.folder / "model")
    settings = replace(wish(texts), model=folder, options={}, tokenizer=None)
    found = gather(settings)
    assert found.model.spec == first.model().spec
    assert begin(found, tmp_path / "second").steps == 3


def test_several_texts_are_mixed(texts, tmp_path):
    asked = wish(texts)
    both = gather(replace(asked, data=(texts, f"{texts}/1.txt"), source={"weights": (0.5, 0.5)}))
    assert both.samples[0].shares == [2048, 2048]
    assert both.samples[1] is not None
    with pytest.raises(AnyformerError, match="1 weights for 2"):
        gather(replace(asked, data=(texts, texts), source={"weights": (1.0,)}))


WRONG = {
    "no such data": (dict(data=("nowhere",)), "nowhere is not there"),
    "a tokenizer's kind": (dict(tokenizer="bpee:300"), "did you mean 'bpe'"),
    "a tokenizer's size": (dict(tokenizer="bpe:many"), "is a number"),
    "a tokenizer's folder": (dict(tokenizer="no/such"), "no folder of a tokenizer"),
    "an objective": (dict(objective="maskd"), "did you mean 'masked'"),
    "a direction": (dict(objective="masked"), "for encoders"),
    "an objective's setting": (dict(asks={"rate": 2}), "rate"),
    "records": (dict(objective="translation"), "records|folder|fields|source"),
    "a recipe": (dict(model="gpt22"), "did you mean"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_before_anything_is_written(name, texts, tmp_path):
    changes, told = WRONG[name]
    with pytest.raises(AnyformerError, match=told):
        begin(replace(wish(texts), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_kept(texts, tmp_path):
    begin(wish(texts), tmp_path / "run")
    with pytest.raises(TrainError, match="resume it"):
        begin(wish(texts), tmp_path / "run")


def test_material_is_plain_data(texts):
    found = gather(wish(texts))
    assert S.from_dict(S.to_dict(found.material)) == found.material
    assert found.material.end == "eos" and found.material.context == 24
