"""One step of each objective with a small model of its family: sums, counts, finite gradients."""

import pickle

import numpy as np
import pytest
import torch

from anyformer.model.model import build
from anyformer.objectives.base import IGNORED, Trainee
from anyformer.objectives.causal import Causal, PrefixLM
from anyformer.objectives.control import ControlCodes
from anyformer.objectives.denoise import Denoising
from anyformer.objectives.masked import NGRAMS, Masked
from anyformer.objectives.sentences import NextSentence, SentenceOrder
from anyformer.objectives.spans import SpanCorruption
from anyformer.objectives.text_to_text import TextToText
from anyformer.objectives.translation import Translation, TranslationLM
from anyformer.recipes import recipe
from tests.objectives.samples import Documents, Records, rng, text_rows, tokenizer

CASES = {  # objective, recipe and its options, tokenizer
    "causal": (Causal(), "gpt2", {}, "gpt2"),
    "causal, adaptive": (Causal(cross=True), "transformer-xl", {}, "gpt2"),
    "llama": (Causal(), "llama", {}, "gpt2"),
    "prefix": (PrefixLM(), "gpt2", {}, "gpt2"),
    "prefix of T5": (PrefixLM(), "t5", {}, "t5"),
    "masked": (Masked(dynamic=False), "bert", {}, "bert"),
    "apart": (Masked(cross=False), "roberta", {}, "roberta"),
    "n-grams": (NGRAMS, "albert", {"width": 8}, "albert"),
    "next": (NextSentence(context=24), "bert", {}, "bert"),
    "order": (SentenceOrder(context=24), "albert", {"width": 8}, "albert"),
    "translation LM": (TranslationLM(languages=("en", "fr")), "xlm", {"langs": 2}, "xlm"),
    "spans": (SpanCorruption(), "t5", {}, "t5"),
    "denoising": (Denoising(), "bart", {}, "bart"),
    "translation": (Translation(), "m2m-100", {}, "m2m_100"),
    "text to text": (TextToText(), "t5-1-1", {}, "t5"),
    "control codes": (ControlCodes(context=24, code="Books"), "ctrl", {}, "ctrl"),
}
PAIR = {"source_lang": "en", "target_lang": "fr", "task": "copy"}


def samples_for(objective, tok):
    if objective.reads == "records":
        texts = ("the name", "a value of the class", "is")
        return Records([{"source": t, "input": t, "target": t * 2, **PAIR} for t in texts])
    rows = text_rows(tok, objective.length(24), 8)
    if objective.reads == "rows":
        for i, documents in enumerate(rows.documents):
            documents[5 + i :] += 1
        return rows
    return Documents([[row[i : i + 4] for i in range(0, 24, 4)] for row in rows.rows])


def made(name):
    plan, family, options, kind = CASES[name]
    tok = tokenizer(kind)
    sizes = {"dim": 16, "depth": 2, "heads": 2, "vocab": len(tok), **options}
    spec = plan.fit(recipe(family, **sizes))
    torch.manual_seed(0)
    return plan.bind(tok, spec), build(spec), tok


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_each_family(name):
    objective, model, tok = made(name)
    samples = samples_for(objective, tok)
    examples = [objective.example(samples, i, rng(0, i)) for i in range(4)]
    batch = objective.collate(examples)
    trainee = Trainee(model, objective)
    counts, result = objective.counts(batch), trainee(batch)
    assert set(result.losses) == set(counts) == set(objective.weights)
    assert all(int(count) > 0 for count in counts.values())
    for sum_, count in result.metrics.values():
        assert 0 <= int(sum_) <= int(count) and int(count) > 0
    loss = sum(w * result.losses[k] / counts[k] for k, w in objective.weights.items())
    loss.backward()
    assert torch.isfinite(loss) and 1 < loss < 20
    grads = {k: p.grad for k, p in model.named_parameters()}
    assert not [k for k, g in grads.items() if g is None or not torch.isfinite(g).all()]


@pytest.mark.parametrize("name", CASES)
def test_sums_of_parts_are_the_sums_of_the_whole(name):
    objective, model, tok = made(name)
    model.eval()
    samples = samples_for(objective, tok)
    examples = [objective.example(samples, i, rng(0, i)) for i in range(4)]
    trainee = Trainee(model, objective)
    with torch.no_grad():
        whole = objective.collate(examples)
        parts = [objective.collate(examples[i : i + 2]) for i in (0, 2)]
        found, wanted = trainee(whole), [trainee(part) for part in parts]
    for term in objective.weights:
        total = sum(part.losses[term] for part in wanted)
        torch.testing.assert_close(found.losses[term], total, rtol=1e-5, atol=1e-4)
        counts = [int(objective.counts(part)[term]) for part in parts]
        assert int(objective.counts(whole)[term]) == sum(counts)


@pytest.mark.parametrize("name", CASES)
def test_an_example_depends_on_seed_and_index_alone(name):
    objective, _, tok = made(name)
    samples = samples_for(objective, tok)
    other = pickle.loads(pickle.dumps(objective))  # as a worker has it
    for i in range(3):
        one, two = (o.example(samples, i, rng(7, i)) for o in (objective, other))
        assert one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)
        assert all(array.dtype == np.int64 for array in one.values())
        assert one["labels"].max() > IGNORED


def test_labels_are_what_the_model_itself_would_count():
    """The sum over the count is the loss that the model gives for the same labels."""
    for name in ("masked", "spans", "next"):
        objective, model, tok = made(name)
        model.eval()
        samples = samples_for(objective, tok)
        batch = objective.collate([objective.example(samples, i, rng(0, i)) for i in range(4)])
        result, counts = Trainee(model, objective)(batch), objective.counts(batch)
        ours = sum(w * result.losses[k] / counts[k] for k, w in objective.weights.items())
        torch.testing.assert_close(ours, model(**batch).loss)
