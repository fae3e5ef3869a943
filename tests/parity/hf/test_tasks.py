"""Tasks against transformers' pipelines: labels, scores and spans of random tiny models."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
import transformers

import anyformer
from tests.parity.hf.compare import SEEDS, shake
from tests.tasks.tiny import texts, words

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
STYLES = {"bert": "Bert", "roberta": "Roberta"}
cases = pytest.mark.parametrize(("style", "seed"), [(s, k) for s in STYLES for k in SEEDS])


def folder(path, style, kind, seed, **more):
    """A random tiny model of transformers with its tokenizer in a folder."""
    tok = words(style)
    fields = {
        "vocab_size": len(tok),
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2 + seed % 2,
        "intermediate_size": 37,
        "max_position_embeddings": 130,
        "type_vocab_size": 2 if style == "bert" else 1,
        "pad_token_id": tok.role_ids["pad"],
    }
    torch.manual_seed(seed)
    config = getattr(transformers, f"{STYLES[style]}Config")(**fields, **more)
    shake(getattr(transformers, f"{STYLES[style]}{kind}")(config), seed).save_pretrained(path)
    tok.save(path)
    return str(path)


def pipe(name, home, **options):
    """Their pipeline of a folder, on the CPU."""
    tok = transformers.AutoTokenizer.from_pretrained(home)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.pipeline(name, home, tokenizer=tok, device="cpu", **options)


def close(found, wanted):
    assert found == pytest.approx(wanted, abs=1e-4)


@cases
def test_text_classification(style, seed, tmp_path):
    problems = ("single_label_classification", "multi_label_classification")
    more = {"num_labels": 4, "problem_type": problems[seed % 2]}
    home, given = (
        folder(tmp_path, style, "ForSequenceClassification", seed, **more),
        texts(9, 2, 20),
    )
    theirs = pipe("text-classification", home, top_k=None)(given)
    for found, wanted in zip(
        anyformer.task("classify", home, top=None)(given), theirs, strict=True
    ):
        assert [one["label"] for one in found] == [one["label"] for one in wanted]
        close([one["score"] for one in found], [one["score"] for one in wanted])


def test_pairs_and_numbers(tmp_path):
    home = folder(tmp_path, "bert", "ForSequenceClassification", 0, num_labels=1)
    given = [{"text": a, "text_pair": b} for a, b in zip(texts(5), texts(5, seed=1), strict=True)]
    theirs = pipe("text-classification", home, function_to_apply="none")(given)
    done = anyformer.task("classify", home, fields={"pair": "text_pair"})
    close([one["number"] for one in done(given)], [one["score"] for one in theirs])


@cases
def test_fill_mask(style, seed, tmp_path):
    home = folder(tmp_path, style, "ForMaskedLM", seed)
    mask = words(style).roles["mask"]
    given = [f"{mask} {t}" if i % 2 else f"{t} {mask} film" for i, t in enumerate(texts(6))]
    theirs = pipe("fill-mask", home)(given)
    for found, wanted in zip(anyformer.task("fill-mask", home)(given), theirs, strict=True):
        assert [one["id"] for one in found] == [one["token"] for one in wanted]
        close([one["score"] for one in found], [one["score"] for one in wanted])
        assert [one["text"].strip() for one in found] == [o["sequence"].strip() for o in wanted]


@pytest.mark.parametrize("how", ["none", "simple", "first", "average", "max"])
@cases
def test_token_classification(style, seed, how, tmp_path):
    named = {"id2label": dict(enumerate(LABELS)), "label2id": {n: i for i, n in enumerate(LABELS)}}
    home = folder(tmp_path, style, "ForTokenClassification", seed, **named)
    given = [f"{text} finebook Annas" for text in texts(6, 2, 20)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that words are told by spaces alone
        theirs = pipe("token-classification", home, aggregation_strategy=how)(given)
    ours = anyformer.task("classify-tokens", home, aggregate=how)
    key, total = "entity" if how == "none" else "entity_group", 0
    for text, found, wanted in zip(given, ours(given), theirs, strict=True):
        bare = lambda one, text=text: one["start"] + (text[one["start"]] == " ")  # spaces left out
        assert [(one["label"], one["start"], one["end"]) for one in found] == [
            (one[key], bare(one), one["end"]) for one in wanted
        ]
        close([one["score"] for one in found], [one["score"] for one in wanted])
        total += len(found)
    assert total


@cases
def test_feature_extraction(style, seed, tmp_path):
    home, given = folder(tmp_path, style, "Model", seed), texts(6)
    theirs = [np.array(one)[0] for one in pipe("feature-extraction", home)(given)]
    asked = {"none": lambda x: x, "cls": lambda x: x[0], "mean": lambda x: x.mean(0)}
    for pool, wanted in asked.items():
        found = list(anyformer.task("embed", home, pool=pool, arrays=True)(given))
        assert all(np.abs(a - wanted(b)).max() < 1e-4 for a, b in zip(found, theirs, strict=True))
    unit = anyformer.task("embed", home, normalise=True)(given[0])
    mean = theirs[0].mean(0)
    close(unit, (mean / np.linalg.norm(mean)).tolist())


@cases
def test_question_answering_in_windows(style, seed, tmp_path):
    """There is no such pipeline any more: every span of every window is looked at here."""
    home = folder(tmp_path, style, "ForQuestionAnswering", seed)
    hf = transformers.AutoModelForQuestionAnswering.from_pretrained(home).eval()
    tok = transformers.AutoTokenizer.from_pretrained(home)
    question, context = "who met Bob", " ".join(texts(12, 10, 30, seed=seed))
    room, stride, longest = 64, 16, 9
    rows = tok(question, context, truncation="only_second", max_length=room, stride=stride,
               return_overflowing_tokens=True, return_offsets_mapping=True)  # fmt: skip
    best, none = [], 1.0
    for at in range(len(rows["input_ids"])):
        row = {n: torch.tensor([rows[n][at]]) for n in rows if n in ("input_ids", "token_type_ids")}
        with torch.no_grad():
            out = hf(**row)
        inside = [i for i, side in enumerate(rows.sequence_ids(at)) if side == 1]
        chance = lambda logits, keep=inside: logits[0, [0, *keep]].softmax(0).tolist()
        start, end = chance(out.start_logits), chance(out.end_logits)
        none = min(none, start[0] * end[0])
        offsets = [(a + (context[a : a + 1] == " "), b) for a, b in rows["offset_mapping"][at]]
        best += [
            (start[i + 1] * end[j + 1], offsets[inside[i]][0], offsets[inside[j]][1])
            for i in range(len(inside))
            for j in range(i, min(i + longest, len(inside)))
        ]
    assert len(rows["input_ids"]) > 3
    asked = {"length": room, "stride": stride, "longest": longest}
    found = anyformer.task("answer", home, **asked)(question=question, context=context)
    score, start, end = max(best)
    assert (found["start"], found["end"]) == (start, end)
    assert found["answer"] == context[start:end]
    close(found["score"], score)
    several = anyformer.task("answer", home, top=3, impossible=True, **asked)
    told = several({"question": question, "context": context})
    scores = [*{(s, e): p for p, s, e in sorted(best)}.values(), none]
    close([one["score"] for one in told], sorted(scores)[::-1][:3])


def test_image_classification(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
        image_size=16, patch_size=4, num_labels=5,
    )  # fmt: skip
    hf = shake(transformers.ViTForImageClassification(config), 0)
    hf.save_pretrained(tmp_path)
    scale = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(scale))
    rng = np.random.default_rng(0)
    given = [pil.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)) for _ in range(4)]
    mean, std = (torch.tensor(scale[k]).view(3, 1, 1) for k in ("image_mean", "image_std"))
    pixels = [torch.from_numpy(np.array(i)).permute(2, 0, 1) / 255 for i in given]
    with torch.no_grad():
        wanted = hf(torch.stack([(p - mean) / std for p in pixels])).logits.softmax(-1)
    done = anyformer.task("classify-image", tmp_path, top=None)
    for found, row in zip(done(given), wanted, strict=True):
        best = row.argsort(descending=True).tolist()
        assert [one["label"] for one in found] == [f"LABEL_{i}" for i in best]
        close([one["score"] for one in found], row[best].tolist())
    given[0].save(tmp_path / "a.png")
    one = done(given[0])
    assert (
        done(np.array(given[0])) == one == done(tmp_path / "a.png") == done(str(tmp_path / "a.png"))
    )
    assert done((tmp_path / "a.png").read_bytes()) == one
    assert len(list(done(given[0].convert("RGBA") for _ in range(2)))) == 2
