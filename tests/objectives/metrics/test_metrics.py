"""Scores against those of seqeval, sacreBLEU, rouge-score, scikit-learn and scipy.

The golden numbers come from seqeval 1.2.2 (zero_division=0; by a scheme: mode="strict"),
sacrebleu 2.6.0 corpus_bleu, rouge-score 0.1.2 (means of fmeasure), scikit-learn 1.9.1 and scipy
1.17.1, called with what `drawn` gives; pip install --target … them to compute them again.
"""

import math

import pytest

from anyformer.errors import InputError
from anyformer.objectives import metrics as M
from tests.objectives.metrics import drawn

SCORES = ("precision", "recall", "f1", "f1 macro", "accuracy")
SPANS = {
    ("IB", 0, None): (0.807692, 0.677419, 0.736842, 0.74375, 0.777778),
    ("IB", 0, "IOB1"): (0.733333, 0.55, 0.628571, 0.625874, 0.777778),
    ("IB", 0, "IOB2"): (0.823529, 0.823529, 0.823529, 0.835088, 0.777778),
    ("IB", 1, None): (0.555556, 0.625, 0.588235, 0.597826, 0.638889),
    ("IB", 1, "IOB1"): (0.6, 0.428571, 0.5, 0.533333, 0.638889),
    ("IB", 1, "IOB2"): (0.473684, 0.529412, 0.5, 0.538961, 0.638889),
    ("IB", 2, None): (0.458333, 0.458333, 0.458333, 0.449735, 0.638889),
    ("IB", 2, "IOB1"): (0.5, 0.4, 0.444444, 0.403409, 0.638889),
    ("IB", 2, "IOB2"): (0.388889, 0.5, 0.4375, 0.4375, 0.638889),
    ("IBES", 0, None): (0.774194, 0.8, 0.786885, 0.784615, 0.694444),
    ("IBES", 0, "IOBES"): (0.818182, 0.818182, 0.818182, 0.803571, 0.694444),
    ("IBES", 1, None): (0.6875, 0.814815, 0.745763, 0.748252, 0.694444),
    ("IBES", 1, "IOBES"): (0.636364, 0.636364, 0.636364, 0.542857, 0.694444),
    ("IBES", 2, None): (0.62069, 0.666667, 0.642857, 0.642857, 0.583333),
    ("IBES", 2, "IOBES"): (0.4, 0.857143, 0.545455, 0.545455, 0.583333),
}
BLEU = (
    (67.33572, 5.897406),
    (89.957798, 8.261798),
    (82.637987, 14.479662),
    (75.245139, 7.619686),
)
ROUGE = (
    (0.248592, 0.034432, 0.180973),
    (0.420676, 0.187115, 0.35581),
    (0.476905, 0.228385, 0.347405),
    (0.429793, 0.10303, 0.33764),
)
CLASSES = (  # accuracy, micro, macro, F1 of a, Matthews
    (0.65, 0.65, 0.625038, 0.4, 0.47113),
    (0.7, 0.7, 0.689755, 0.857143, 0.549258),
    (0.9, 0.9, 0.899074, 0.888889, 0.856692),
    (0.55, 0.55, 0.500366, 0.615385, 0.285749),
)
NUMBERS = (  # Pearson, Spearman
    (0.841916, 0.829914),
    (0.905404, 0.901488),
    (0.916809, 0.899515),
    (0.871867, 0.845788),
)
near = lambda value: pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("case", "want"), SPANS.items(), ids=str)
def test_span_scores_are_those_of_seqeval(case, want):
    letters, seed, scheme = case
    found = M.span_scores(*drawn.tags(seed, letters), scheme)
    assert tuple(found[name] for name in SCORES) == near(want)


@pytest.mark.parametrize("seed", range(4))
def test_texts_score_as_in_sacrebleu_and_rouge_score(seed):
    found, right = drawn.texts(seed)
    second = [pair[1] for pair in right]
    assert (M.bleu(found, right), M.bleu(found, second)) == near(BLEU[seed])
    assert tuple(M.rouge(found, second).values()) == near(ROUGE[seed])


@pytest.mark.parametrize("seed", range(4))
def test_classes_and_numbers_score_as_in_scikit_learn_and_scipy(seed):
    pair = drawn.classes(seed)
    of_a = M.f1(*pair, "binary", positive="a")
    shares = (M.accuracy(*pair), M.f1(*pair, "micro"), M.f1(*pair), of_a, M.matthews(*pair))
    assert shares == near(CLASSES[seed])
    pair = drawn.numbers(seed)
    assert (M.pearson(*pair), M.spearman(*pair)) == near(NUMBERS[seed])


@pytest.mark.parametrize(
    ("scheme", "tags", "want"),
    [
        (None, "I-A I-A B-A O I-B", [("A", 0, 2), ("A", 2, 3), ("B", 4, 5)]),
        (None, "B-A I-B S-B E-B", [("A", 0, 1), ("B", 1, 2), ("B", 2, 3), ("B", 3, 4)]),
        ("IOB1", "I-A I-A B-A O I-B", [("A", 0, 2), ("A", 2, 3), ("B", 4, 5)]),
        ("IOB2", "I-A I-A B-A I-A I-B", [("A", 2, 4)]),
        ("IOBES", "B-A E-A S-B B-A I-A", [("A", 0, 2), ("B", 2, 3)]),
        ("IOB2", "", []),
    ],
)
def test_spans_of_tags(scheme, tags, want):
    assert M.spans(tags.split(), scheme) == want


def test_sets_of_labels_are_scored_one_by_one():
    found, right = [{"a"}, {"a", "b"}, set()], [{"a"}, {"b"}, {"c"}]
    assert M.accuracy(found, right) == near(1 / 3)
    assert M.f1(found, right, "micro") == near(2 * 2 / (3 + 3))
    assert M.f1(found, right, "macro", labels=["a", "b", "c"]) == near((2 / 3 + 1 + 0) / 3)


def test_perfect_and_hopeless_texts():
    assert M.bleu(["a b c d e"], ["a b c d e"]) == near(100.0)
    assert M.bleu(["x y"], ["a b c d e"]) == M.bleu([""], ["a"]) == 0.0
    assert M.rouge([""], ["a"]) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    assert M.rouge(["running dogs"], ["runn dog"], stem=lambda w: w[:4])["rouge1"] == near(0.5)


def test_numbers_that_do_not_vary_have_no_correlation():
    assert M.pearson([1, 1, 1], [1, 2, 3]) == M.matthews(["a", "a"], ["a", "b"]) == 0.0


def test_perplexity_and_bits_per_byte():
    assert M.perplexity(10 * math.log(7), 10) == near(7.0)
    assert M.perplexity(1e9, 1) == math.inf
    assert M.bits_per_byte(24 * math.log(2), 8) == near(3.0)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="2 predictions for 1 records"):
        M.accuracy(["a", "b"], ["a"])
    with pytest.raises(InputError, match="0 predictions for 0 records"):
        M.bleu([], [])
    with pytest.raises(InputError, match="sentence 1: 1 tags for 2 words"):
        M.span_scores([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(InputError, match="'X-PER' doesn't begin with"):
        M.spans(["X-PER"])
    with pytest.raises(InputError, match="'S-PER' doesn't begin with one of I, O, B"):
        M.spans(["S-PER"], "IOB2")
