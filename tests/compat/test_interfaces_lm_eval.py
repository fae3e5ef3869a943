"""Scores and texts for lm-eval equal those computed one request at a time."""

import json
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

from anyformer.compat.lm_eval import AnyformerLM, Wish
from anyformer.data.train_tokenizer import train
from anyformer.errors import AnyformerError
from anyformer.model.model import build
from anyformer.recipes import recipe

LENGTH = 40
TEXTS = ["to be or not to be", "that is the question", "whether 'tis nobler", "a", "be  "]


@dataclass
class Request:
    """What lm-eval hands over, as far as it is read."""

    args: tuple


@pytest.fixture(scope="module")
def tokenizer():
    return train("bytes", style="gpt", vocab=300)


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    spec = recipe("decoder", dim=16, depth=2, heads=2, vocab=len(tokenizer), length=LENGTH)
    built = build(spec).double()
    with torch.no_grad():
        for p in built.parameters():
            p.mul_(8)  # so that answers differ clearly
    return built


@pytest.fixture
def lm(model, tokenizer):
    return AnyformerLM(model, tokenizer, batch_size=3)


def alone(model, ids, asked):
    """The log-probability of the last ids of one row, and whether each is the likeliest."""
    logits = model(torch.tensor([ids[:-1]])).logits[0, -asked:]
    want = torch.tensor(ids[-asked:])
    return -F.cross_entropy(logits, want, reduction="sum").item(), bool(
        (logits.argmax(-1) == want).all()
    )


def test_scores_in_batches_are_those_of_single_rows(lm, model, tokenizer):
    pairs = [(a, " " + b) for a in TEXTS[:4] for b in ("is", "nobler", "x")]
    got = lm.loglikelihood([Request(pair) for pair in pairs])
    for (context, continuation), (score, greedy) in zip(pairs, got, strict=True):
        ids = tokenizer.encode(context + continuation)
        asked = len(ids) - len(tokenizer.encode(context))
        expected = alone(model, ids, asked)
        assert (score, greedy) == (pytest.approx(expected[0], abs=1e-9), expected[1])


def test_what_the_model_would_write_is_greedy(lm, model, tokenizer):
    ids = tokenizer.encode("to be")
    made = model.generate(torch.tensor([ids]), max_new_tokens=3)[0].tolist()
    other = [*made[:-1], (made[-1] + 1) % len(tokenizer)]
    scores = lm.scores([(ids, made[len(ids) :]), (ids, other[len(ids) :])])
    assert [greedy for _, greedy in scores] == [True, False]


def test_spaces_before_a_continuation_belong_to_it(lm):
    assert lm._pair("be  ", "so") == lm._pair("be", "  so")
    given, asked = lm._pair("  ", "so")
    assert (given, len(asked)) == ([lm.prefix], 4)


def test_long_contexts_are_cut_on_the_left(lm, model, tokenizer):
    context = "so " * 40
    ids = tokenizer.encode(context + "end")[-LENGTH - 1 :]
    (score, _), *_ = lm.loglikelihood([Request((context, "end")), Request(("a", "b"))])
    assert score == pytest.approx(alone(model, ids, 4)[0], abs=1e-9)  # the space is scored too
    with pytest.raises(AnyformerError, match="reads 40"):
        lm.loglikelihood([Request(("a", "so " * 40))])


@pytest.mark.parametrize("length", [0, 1, LENGTH, LENGTH + 1, 3 * LENGTH - 5])
def test_rolling_scores_each_token_once(lm, model, tokenizer, length):
    text = ("that is the question " * 9)[:length]
    ids = [lm.prefix, *tokenizer.encode(text)]
    total, done = 0.0, 1
    while done < len(ids):
        stop = min(done + LENGTH, len(ids))
        total += alone(model, ids[max(0, stop - LENGTH - 1) : stop], stop - done)[0]
        done = stop
    (got,) = lm.loglikelihood_rolling([Request((text,))])
    assert got == pytest.approx(total, abs=1e-8)


def test_texts_are_those_of_single_prompts(lm, model, tokenizer):
    asked = [(text, {"until": [], "max_gen_toks": 5}) for text in TEXTS]
    asked += [("so", {"until": "\n", "max_gen_toks": 3, "temperature": 0.0, "do_sample": False})]
    got = lm.generate_until([Request(one) for one in asked])
    for (text, wish), made in zip(asked, got, strict=True):
        ids = tokenizer.encode(text)
        more = model.generate(
            torch.tensor([ids]), max_new_tokens=wish["max_gen_toks"], eos_token_id=lm.end
        )[0, len(ids) :].tolist()
        more = more[: more.index(lm.end)] if lm.end in more else more
        assert made == Wish.of(wish).cut(tokenizer.decode(more))


def test_long_prompts_leave_room_for_an_answer(lm):
    request = Request(("so " * 40, {"until": ["\n"], "max_gen_toks": 10}))
    assert isinstance(lm.generate_until([request])[0], str)
    greedy = Request(("so", {"until": [], "max_gen_toks": 10**6}))
    assert isinstance(lm.generate_until([greedy])[0], str)


def test_texts_end_at_the_first_of_the_strings():
    assert Wish.of({"until": ["b", "c"]}).cut("xxcyyb") == "xx"
    assert Wish.of({"until": "\n\n"}).cut("a\nb") == "a\nb"
    drawn = Wish.of({"do_sample": True, "temperature": 0.5, "top_k": 3})
    assert (drawn.temperature, drawn.top_k) == (0.5, 3)
    with pytest.raises(AnyformerError, match="num_beams"):
        Wish.of({"num_beams": 4})


def test_the_mode_of_the_model_stays(lm, model):
    model.train()
    model.embed.eval()
    lm.loglikelihood([Request(("a", "b"))])
    assert (model.training, model.embed.training, model.stack.training) == (True, False, True)
    model.eval()


def test_from_a_folder(tmp_path, model, tokenizer, lm):
    model.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    again = AnyformerLM(tmp_path, batch_size="auto")
    again.model.double()
    requests = [Request((text, " so")) for text in TEXTS]
    for one, two in zip(again.loglikelihood(requests), lm.loglikelihood(requests), strict=True):
        assert one == (pytest.approx(two[0], abs=1e-9), two[1])


def test_models_that_predict_no_next_token_are_refused(tokenizer, model):
    spec = recipe("encoder", dim=8, depth=1, heads=2, vocab=len(tokenizer))
    with pytest.raises(AnyformerError, match="causal"):
        AnyformerLM(build(spec), tokenizer)
    with pytest.raises(AnyformerError, match="tokenizer"):
        AnyformerLM(model)


TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{target}"
{more}
metric_list: [{{metric: {metric}}}]
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_harness_itself(tmp_path, lm, monkeypatch):
    """Needs lm-eval (over 600 MB with what it brings), so it is no dependency of the tests."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    rows = [{"question": "to be", "a": " or", "b": " and", "gold": i % 2} for i in range(6)]
    rows = [{**row, "question": text} for row, text in zip(rows, TEXTS, strict=False)]
    file = tmp_path / "rows.json"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    kinds = {
        "pick": ("multiple_choice", "{{gold}}", "acc", 'doc_to_choice: "{{[a, b]}}"'),
        "roll": ("loglikelihood_rolling", "{{question}}", "bits_per_byte", ""),
        "write": (
            "generate_until",
            "{{a}}",
            "exact_match",
            'generation_kwargs: {until: ["\\n"], max_gen_toks: 4}',
        ),
    }
    (tmp_path / "tasks").mkdir()
    for name, (kind, target, metric, more) in kinds.items():
        filled = {"name": name, "file": file, "kind": kind, "target": target}
        text = TASK.format(**filled, metric=metric, more=more)
        (tmp_path / "tasks" / f"{name}.yaml").write_text(text)
    manager = pytest.importorskip("lm_eval.tasks").TaskManager(
        include_path=str(tmp_path / "tasks"), include_defaults=False
    )
    found = lm_eval.simple_evaluate(
        model=lm, tasks=list(kinds), task_manager=manager, bootstrap_iters=0
    )["results"]
    right = 0
    for row in rows:
        pair = lm.loglikelihood([Request((row["question"], " " + row[c])) for c in "ab"])
        right += (pair[1][0] > pair[0][0]) == row["gold"]
    assert found["pick"]["acc,none"] == pytest.approx(right / len(rows))
    nats = sum(lm.loglikelihood_rolling([Request((row["question"],)) for row in rows]))
    size = sum(len(row["question"].encode()) for row in rows)
    bits = -nats / size / torch.log(torch.tensor(2.0)).item()
    assert found["roll"]["bits_per_byte,none"] == pytest.approx(bits)
    assert found["write"]["exact_match,none"] == 0
    lm.model.save_pretrained(tmp_path / "model")
    lm.tokenizer.save(tmp_path / "model")
    named = lm_eval.simple_evaluate(
        model="anyformer",
        model_args=f"pretrained={tmp_path / 'model'}",
        tasks=["roll"],
        task_manager=manager,
        bootstrap_iters=0,
        device="cpu",
    )["results"]
    assert named["roll"]["bits_per_byte,none"] == pytest.approx(bits, abs=1e-4)
