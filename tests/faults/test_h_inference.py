"""Group H: prompts, options and texts at the edge, and two threads at once."""

import threading
from itertools import pairwise

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import generate, stream
from anyformer.generate.telling import Telling
from tests.faults.helping import SIZES, assert_refused, words
from tests.tasks.tiny import built
from tests.tasks.tiny import words as task_words

PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6]]
SHAPE = "of shape (batch, length)"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    spec = anyformer.recipe("gpt2", **(SIZES | {"length": 64}))
    return anyformer.build(S.override(spec, "init.std", 0.5)).eval()


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([[]], SHAPE),
        ([], SHAPE),
        (torch.zeros(1, 0, dtype=torch.long), SHAPE),
        (torch.ones(3, dtype=torch.long), SHAPE),
        ([list(range(30)) * 3], "but the model has 64"),
        ([[31]], "input_ids hold 31, outside 0..30"),
        ([[-1]], "input_ids hold -1, outside 0..30"),
        (torch.ones(1, 3), "integers"),
        ([[1.5]], "integers"),
    ],
)
def test_h77_prompts(model, ids, says):
    with assert_refused(says, error=InputError, remedy="outside" not in says):
        generate(model, ids, 2)


def test_h77_nothing_but_padding(model):
    hidden = torch.zeros(1, 4, dtype=torch.long)
    with assert_refused(
        "attention_mask hides the last id", "pad prompts", error=InputError, remedy=False
    ):
        generate(model, hidden, 2, attention_mask=hidden)
    assert model(hidden, attention_mask=hidden).logits.isfinite().all()


def test_h77_prompts_of_the_command(writer, command):
    command.assert_fails(["generate", writer, ""], "the prompt is empty", "give a text")
    command.assert_fails(["generate", writer, "x" * 100], "the model has 16", "shorten the prompt")


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0}, {"temperature": -1.0}, {"temperature": float("nan")},
        {"temperature": float("inf")}, {"temperature": "hot"}, {"top_p": 0.0}, {"top_p": 2.0},
        {"top_k": 0}, {"top_k": -1}, {"num_beams": 0}, {"max_new_tokens": 0},
        {"max_new_tokens": -3}, {"max_new_tokens": 1.5}, {"max_new_tokens": 10**9}, {"seed": -1},
    ],
    ids=str,
)  # fmt: skip
def test_h78_options(model, options):
    drawn = {"do_sample": True} if {"temperature", "top_p", "top_k"} & set(options) else {}
    (name,) = options
    with assert_refused(name, error=InputError):
        generate(model, PROMPTS, **{"max_new_tokens": 2, **drawn, **options})


def test_h78_more_candidates_than_tokens(model):
    told = {"do_sample": True, "seed": 3, "max_new_tokens": 4}
    found = generate(model, PROMPTS, top_k=10**9, **told)
    assert torch.equal(found, generate(model, PROMPTS, **told))


@pytest.mark.parametrize(
    "words",
    [["--temperature", "0"], ["--temperature", "nan"], ["--top-p", "2"], ["--top-k", "0"],
     ["--num-beams", "0"], ["--max-new-tokens", "0"], ["--max-new-tokens", "x"]],
    ids=" ".join,
)  # fmt: skip
def test_h78_options_of_the_command(writer, command, words):
    err = command.assert_fails(["generate", writer, "hi", *words])
    assert words[0].strip("-").replace("-", "_") in err.replace("-", "_")


def test_h78_more_tokens_than_there_is_room_for(writer, command):
    code, _, err = command.ends(["generate", writer, "hi", "--max-new-tokens", "1000000000"])
    assert code == 0
    assert "room for 15 new tokens" in err


def test_h79_nothing_left_to_choose_from(model):
    every = [[i] for i in range(31)]
    with assert_refused("leave no token for row 0, new token 0", error=InputError, remedy=False):
        generate(model, PROMPTS, 2, bad_words_ids=every)
    only = generate(model, PROMPTS, 2, bad_words_ids=every[:7] + every[8:])
    assert only[:, -2:].eq(7).all()


def test_h80_a_stop_that_is_split_over_tokens(model):
    letters = lambda ids: "".join(chr(97 + i % 26) for i in ids)
    new = generate(model, [PROMPTS[0]], 12)[0, 5:].tolist()
    stop = letters(new[4:7])
    assert len(stop) == 3
    found = generate(model, [PROMPTS[0]], 12, stop_strings=stop, decode=letters)[0, 5:].tolist()
    first = next(n for n in range(1, 13) if stop in letters(new[:n]))
    assert found == new[:first]


def test_h80_an_end_at_once(model):
    first = int(generate(model, [PROMPTS[0]], 1)[0, -1])
    found = generate(model, PROMPTS[:2], 6, eos_token_id=first)
    assert found[0, 5].item() == first
    assert found[0, 5:].eq(first).all()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_h80_rows_of_unequal_length_equal_single_ones(name):
    torch.manual_seed(2)
    size = {"dim": 16, "depth": 2, "heads": 2, "vocab": 31}
    made = anyformer.build(S.override(anyformer.recipe(name, **size), "init.std", 0.5)).eval()
    found = generate(made, PROMPTS, 7)
    for row, prompt in zip(found, PROMPTS, strict=True):
        alone = generate(made, [prompt], 7)[0]
        assert row[-len(alone) :].tolist() == alone.tolist()
    longest = max(map(len, PROMPTS))
    for left in (True, False):
        pad = lambda p, left=left: [0] * (longest - len(p)) + p if left else p + [0] * (5 - len(p))
        mask = torch.tensor([pad([1] * len(p)) for p in PROMPTS])
        both = made(torch.tensor([pad(p) for p in PROMPTS]), attention_mask=mask).logits
        for row, prompt, keep in zip(both, PROMPTS, mask.bool(), strict=True):
            alone = made(torch.tensor([prompt])).logits[0]
            torch.testing.assert_close(row[keep], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bart"])
def test_h81_a_cache_changes_nothing(name):
    torch.manual_seed(3)
    size = {"dim": 16, "depth": 2, "heads": 2, "vocab": 31}
    spec = S.override(anyformer.recipe(name, **size), "init.std", 0.5)
    made = anyformer.build(spec).double().eval()
    pair = made.encoder is not None
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    given = {"input_ids": ids} if pair else {}
    start = {"decoder_start_token_id": 0} if pair and spec.start is None else {}
    found = generate(made, ids, 8, **start)
    text = found[:, :1] if pair else ids
    key = "decoder_input_ids" if pair else "input_ids"
    for _ in range(8):
        last = made(**(given | {key: text})).logits[:, -1].argmax(-1)
        text = torch.cat([text, last[:, None]], 1)
    assert text.tolist() == found.tolist()


def test_h82_a_stream_is_the_text():
    for text in ("naïve café 👩‍👩‍👧 日本語 \u0301", "\U0001f600" * 5):
        ids = words().encode(text)
        telling = Telling(words().decode, ())
        pieces = [telling.add(i) for i in ids] + [telling.end()]
        assert "".join(pieces) == text == words().decode(ids)
        assert not any("\ufffd" in piece for piece in pieces)


def test_h82_a_stream_is_what_generate_returns(model):
    told = [step.tokens.tolist() for step in stream(model, PROMPTS, max_new_tokens=6)]
    assert list(map(list, zip(*told, strict=True))) == generate(model, PROMPTS, 6)[:, 5:].tolist()
    assert all(len(a) == len(b) == 3 for a, b in pairwise(told))


def test_h83_answers_and_labels():
    bert = {"recipe": "bert", "style": "bert", "length": 64}
    made = built(head=S.Span(), **bert)
    answer = anyformer.task("answer", made, tokenizer=task_words("bert"))
    with assert_refused("context", error=InputError, remedy=False):
        answer({"question": "who met Bob?", "context": ""})
    made = built(head=S.Classes(count=3), **bert)
    found = anyformer.task("classify", made, tokenizer=task_words("bert"))("a fine day")
    assert found["label"] in ("LABEL_0", "LABEL_1", "LABEL_2")


def test_h84_two_threads_at_once(model):
    wanted = {n: generate(model, [PROMPTS[n]], 12).tolist() for n in range(3)}
    found, errors = {}, []

    def work(n):
        try:
            for _ in range(4):
                found.setdefault(n, []).append(generate(model, [PROMPTS[n]], 12).tolist())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert found == {n: [rows] * 4 for n, rows in wanted.items()}
    assert not model.training
