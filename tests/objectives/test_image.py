"""Images in every form as pixels, their classes, and texts about them."""

import numpy as np
import pytest

from anyformer import recipe
from anyformer.errors import InputError
from anyformer.objectives.image import Captioning, ImageClassification
from anyformer.objectives.task import evaluate, predict
from anyformer.recipes.pair import joined
from anyformer.spec import check, override
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, check_step, finetuned, trainee_of

VIT = {"dim": 16, "depth": 1, "heads": 2, "image": 8, "patch": 4}
PLAN = ImageClassification(labels=("dark", "light"))
DRAW = np.random.default_rng(0)
RECORDS = T.Records(
    [
        {"image": DRAW.integers(128 * k, 128 * k + 128, (8, 8, 3), np.uint8), "label": k}
        for k in (0, 1, 0, 1)
    ]
)


def task_of(plan=PLAN):
    spec = plan.fit(recipe("vit", **VIT))
    return plan.bind(None, spec), spec


def test_a_model_learns_classes():
    task, spec = task_of()
    assert spec.head.count == 2
    check_step(trainee_of(task, spec), batch_of(task, RECORDS))
    model = finetuned(task, spec, RECORDS)
    assert evaluate(task, model, RECORDS)["accuracy"] == 1.0
    assert predict(task, model, RECORDS) == ["dark", "light"] * 2


def test_pixels_whatever_the_image_is_given_as(tmp_path):
    task, _ = task_of()
    image = RECORDS[0]["image"]
    want = (image.astype(np.float32) / 255 - 0.5).transpose(2, 0, 1) / 0.5
    np.save(tmp_path / "one.npy", image)
    forms = (image, image.transpose(2, 0, 1), image.tolist(), tmp_path / "one.npy", image / 255)
    for form in forms:
        found = task.features({"image": form})[0]["pixel_values"]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, atol=1e-6)
    alpha = np.concatenate([image, image[..., :1]], -1)
    np.testing.assert_allclose(task.features({"image": alpha})[0]["pixel_values"], want, atol=1e-6)


def test_grey_flat_and_other_sizes():
    task, _ = task_of(ImageClassification(labels=("a", "b"), white=16.0, mean=(0.0,), std=(1.0,)))
    grey = np.full(16, 8)
    found = task.features({"image": grey})[0]["pixel_values"]
    assert found.shape == (3, 8, 8)
    np.testing.assert_allclose(found, 0.5)


def test_mirrored_images_are_a_share_of_those_of_training():
    task, _ = task_of(ImageClassification(labels=("a", "b"), flip=0.5))
    plain = task.features(RECORDS[0])[0]["pixel_values"]
    drawn = [task.example(RECORDS, 0, T.rng(0, i))["pixel_values"] for i in range(60)]
    mirrored = sum(np.array_equal(x, plain[..., ::-1]) for x in drawn)
    assert 15 < mirrored < 45 and all(
        np.array_equal(x, plain) or np.array_equal(x, plain[..., ::-1]) for x in drawn
    )


def test_captions_are_learnt_from_images():
    tok = T.tokenizer("bart")
    plan = Captioning(answer=8)
    sizes = {"dim": 16, "depth": 1, "heads": 2, "vocab": len(tok), "length": 16, "dropout": 0.0}
    reads = override(recipe("vit", **VIT), "head", None)
    writes = override(recipe("bert", **sizes), "head", None)
    spec = joined(reads, writes)
    spec = check(plan.fit(override(override(spec, "start", 2), "pad", 1)))
    task = plan.bind(tok, spec)
    told = {0: "a class", 1: "the value"}
    records = T.Records([{"image": r["image"], "text": [told[r["label"]]]} for r in RECORDS])
    check_step(trainee_of(task, spec), batch_of(task, records))
    model = finetuned(task, spec, records, steps=60, lr=1e-2)
    found = predict(task, model, records, batch=3)
    assert found[0] == found[2] and all(isinstance(text, str) for text in found)
    assert 0.0 <= task.score(found, records)["bleu"] <= 100.0


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("nowhere.png", "there is no image nowhere.png"),
        (np.zeros((8, 8, 7)), r"has the shape \(7, 8, 8\)"),
        ([["a"]], "must be numbers"),
        ([[1], [1, 2]], "must be numbers"),
        (b"no image", "can't be read|need Pillow"),
    ],
)
def test_bad_images_are_named(image, told):
    with pytest.raises(InputError, match=told):
        task_of()[0].features({"id": 3, "image": image})


def test_what_it_needs_is_told():
    bert = recipe("bert", dim=16, depth=1, heads=2, vocab=9, length=8)
    with pytest.raises(InputError, match="doesn't read patches"):
        PLAN.bind(None, PLAN.fit(bert))
    with pytest.raises(InputError, match="known labels: 'dark', 'light'"):
        task_of()[0].example(T.Records([{**RECORDS[0], "label": "grey"}]), 0, T.rng())
    with pytest.raises(InputError, match="give one number"):
        task_of(ImageClassification(labels=("a", "b"), mean=(0.1, 0.2)))
