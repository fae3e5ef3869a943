"""Tasks over many inputs: the same answers as one by one, in order, in constant memory; faults."""

import gc
import io
import tracemalloc

import numpy as np
import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.objectives.base import collate
from anyformer.tasks import TASKS, flow
from anyformer.tasks.flow import batches
from tests.tasks.tiny import built, folder, texts, words

BERT = {"recipe": "bert", "style": "bert", "length": 256}
WORDS = S.Vocabulary(tied=True, bias=True, dense=True)
HEADS = {
    "fill-mask": WORDS,
    "classify": S.Classes(count=3),
    "classify-tokens": S.Project(size=3),
    "answer": S.Span(),
    "choose": S.Choices(),
    "embed": None,
    "detect-replaced": S.Detect(),
}


def tool(name, **options):
    """A task on a tiny encoder."""
    labels = {"classify-tokens": ["O", "B-X", "I-X"], "classify": ["a", "b", "c"]}.get(name)
    model = built(head=HEADS[name], **BERT)
    return anyformer.task(name, model, tokenizer=words("bert"), labels=labels, **options)


def inputs(name, count=60):
    """Inputs of a task, of mixed lengths."""
    found = texts(count)
    if name == "fill-mask":
        return [
            f"[MASK] {text}" if i % 3 else f"{text} [MASK] a [MASK]" for i, text in enumerate(found)
        ]
    if name == "answer":
        return [
            {"question": "who met Bob", "context": t * (1 + i % 4)} for i, t in enumerate(found)
        ]
    if name == "choose":
        return [
            {"question": t, "choices": found[i : i + 2 + i % 3]} for i, t in enumerate(found[:-5])
        ]
    return found


def same(found, wanted):
    """Equal, numbers nearly."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            same(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        assert found == (pytest.approx(wanted, abs=2e-5) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize("name", HEADS)
def test_many_inputs_give_what_each_gives(name):
    done, given = tool(name), inputs(name)
    many = done(iter(given))
    assert iter(many) is many
    for found, one in zip(many, given, strict=True):
        same(found, done(one))


WRITERS = {"generate": ("gpt2", "gpt"), "summarise": ("t5", "t5"), "translate": ("gpt2", "gpt")}


@pytest.mark.parametrize("name", WRITERS)
def test_written_texts_are_those_of_one_by_one(name):
    recipe, style = WRITERS[name]
    more = {} if recipe == "t5" else {"length": 256}
    done = anyformer.task(
        name, built(recipe, None, style, **more), tokenizer=words(style), max_new_tokens=6
    )
    given = texts(8, high=12)
    assert list(done(given)) == [done(one) for one in given]
    assert set(done(given[0])) == {"text"}


def test_files_generators_and_lists_alike():
    done, given = tool("classify"), texts(5)
    wanted = list(done(given))
    assert list(done(io.StringIO("\n".join(given) + "\n"))) == wanted
    assert list(done(one for one in given)) == wanted
    assert list(done({"text": one} for one in given)) == wanted
    assert list(done([])) == []


def test_results_come_while_inputs_are_read():
    taken = []

    def endless():
        for number in range(10**9):
            taken.append(number)
            yield f"film {number}"

    found = tool("classify")(endless())
    assert [next(found) for _ in range(40)]
    assert len(taken) < 2000
    one = tool("classify", batch=1)(endless())
    taken.clear()
    next(one)
    assert len(taken) == 1


def test_batches_hold_like_lengths_within_the_budget():
    job = tool("classify", tokens=200, batch=7).job
    rows = [
        {"input_ids": np.zeros(n, np.int64)} for n in np.random.default_rng(0).integers(3, 90, 300)
    ]
    found = list(batches(job, rows))
    assert sorted(at for batch in found for at in batch) == list(range(300))
    for batch in found:
        sizes = [len(rows[at]["input_ids"]) for at in batch]
        assert len(batch) <= 7 and max(sizes) * len(sizes) <= 200
        assert max(sizes) * len(sizes) - sum(sizes) <= job.spare
    alike = [rows[at] for at in found[0]][:1] * 3
    assert "attention_mask" not in collate(alike, 0)  # nothing is masked where nothing is padded


def test_memory_stays_constant_over_many_inputs(monkeypatch):
    monkeypatch.setattr(flow, "MOST", 64)  # of a window: many of them, in few inputs
    model = built(head=S.Classes(count=2), **{**BERT, "dim": 8, "depth": 1})
    done, some = anyformer.task("classify", model, tokenizer=words("bert")), texts(50, high=3)
    stream = lambda count: done(some[i % 50] + f" {i}" for i in range(count))
    peaks = []
    assert sum(1 for _ in stream(300)) == 300  # what is imported and kept once
    for count in (300, 3000):
        gc.collect()
        tracemalloc.start()
        assert sum(1 for _ in stream(count)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2.5 * peaks[0], peaks  # 4.2 times if all were kept


# -------------------------------------------------------------------------- faults


BAD = {
    "empty": ("", "empty"),
    "spaces": (" \n", "empty"),
    "number": (3, "must be a text"),
    "nothing": (None, "must be a text"),
    "no field": ({"body": "x"}, "no 'text' but body"),
    "long": ("film " * 400, "tokens, and the model reads 256"),
    "surrogate": ("a \ud800 b", "input 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_input_is_named_and_the_others_are_answered(name):
    bad, said = BAD[name]
    fine = texts(4)
    given = [*fine[:2], bad, *fine[2:]]
    found = tool("classify")(given)
    wanted = list(tool("classify")(fine))
    assert [next(found), next(found)] == wanted[:2]
    with pytest.raises(InputError, match="input 3") as error:
        next(found)
    assert said in str(error.value)
    assert list(tool("classify", on_error="skip")(given)) == wanted
    told = list(tool("classify", on_error="return")(given))
    assert told[2]["input"] == 3 and "error" in told[2]
    same([told[i] for i in (0, 1, 3, 4)], wanted)


def test_text_that_is_too_long_is_cut_where_asked_or_read_in_windows():
    long = " ".join(texts(40))
    assert tool("classify", truncate=True)(long)["label"] in "abc"
    found = tool("classify-tokens", aggregate="none", outside=())(long)
    assert len(found) == len(words("bert").encode(long)) > 256
    assert [one["start"] for one in found] == sorted(one["start"] for one in found)
    assert all(long[a["start"] : a["end"]] == a["text"] for a in found)
    short = tool("detect-replaced", length=40)(long)
    assert [(a["start"], a["end"]) for a in short] == [(b["start"], b["end"]) for b in found]


def test_nan_is_told_of_its_input_alone():
    model = built(head=S.Classes(count=2), **BERT)
    tok = words("bert")
    with torch.no_grad():
        model.embed.token.weight[tok.encode("London")[0]] = float("nan")
    done = anyformer.task("classify", model, tokenizer=tok, on_error="return")
    found = list(done(["a film", "London was fine", "a book"]))
    assert "NaN" in found[1]["error"] and "label" in found[0] and "label" in found[2]


def test_a_model_without_the_head_says_what_it_can_do(tmp_path):
    home = folder(tmp_path / "m", built(head=WORDS, **BERT), "bert")
    with pytest.raises(InputError, match="has the head Vocabulary; it can do: fill-mask, embed"):
        anyformer.task("classify", home)
    assert len(anyformer.task("fill-mask", home)("the [MASK] was")) == 5
    with pytest.raises(InputError, match=r"no \[MASK\]"):
        anyformer.task("fill-mask", home)("the film")


@pytest.mark.parametrize(
    ("name", "near"),
    [("clasify", "classify"), ("text-classification", "classify"), ("ner", "classify-tokens"),
     ("summarize", "summarise")],
)  # fmt: skip
def test_an_unknown_task_names_the_nearest(name, near):
    with pytest.raises(InputError, match=f"did you mean '{near}'"):
        anyformer.task(name, built(head=S.Classes(count=2), **BERT))


def test_what_is_asked_wrongly():
    model = built(head=S.Classes(count=2), **BERT)
    with pytest.raises(InputError, match="without a tokenizer"):
        anyformer.task("classify", model)
    with pytest.raises(InputError, match="did you mean 'truncate'"):
        anyformer.task("classify", model, tokenizer=words("bert"), truncat=True)
    with pytest.raises(InputError, match="batch must be"):
        anyformer.task("classify", model, tokenizer=words("bert"), batch=0)
    with pytest.raises(InputError, match="3 labels are given"):
        anyformer.task("classify", model, tokenizer=words("bert"), labels=["a", "b", "c"])
    with pytest.raises(InputError, match="needs an input"):
        tool("classify")()
    with pytest.raises(InputError, match="'context'"):
        tool("answer")(question="who?")
    with pytest.raises(InputError, match="mapping with 'question', 'context'"):
        tool("answer")("who?")
    assert len(TASKS) == 12


def test_a_bar_where_asked_for(capsys):
    assert len(list(tool("classify", progress=True)(texts(3)))) == 3
    assert "classify" in capsys.readouterr().err
    assert len(list(tool("classify")(texts(3)))) == 3
    assert capsys.readouterr().err == ""


def test_training_mode_is_left_as_it_was():
    done = tool("classify")
    done.job.model.train()
    found = done("a film")
    assert done.job.model.training and found == done("a film")
