"""What Transformer-XL claims, in miniature: its memory is exact, helps, reaches far and is fast."""

import random
from functools import cache
from pathlib import Path

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.data.prepare import prepare
from anyformer.data.rows import Rows
from anyformer.model.model import build
from anyformer.objectives.base import Trainee
from anyformer.objectives.segments import Segments
from anyformer.recipes import recipe
from anyformer.train import train
from anyformer.train.measure import evaluate
from anyformer.train.settings import Cosine, Saving, Settings
from benchmarks.xl_speed import measured, small, table
from tests.golden.cases import TEXT, tokenizer

SEGMENT, MEMORY = 8, 16
FAR = 256  # 16 times the memory of training
TOK = tokenizer("gpt")
SIZES = {"dim": 48, "depth": 2, "heads": 4, "hidden": 96, "vocab": len(TOK), "dropout": 0.0}


@cache
def text(shuffled: bool) -> tuple[str, str]:
    """The text in two, to learn from and to be measured on; its lines in another order if asked."""
    lines = TEXT.splitlines()
    if shuffled:
        random.Random(0).shuffle(lines)
    whole = "\n".join(lines)
    cut = int(0.9 * len(whole))
    return whole[:cut], whole[cut:]


class Lab:
    """Small models, trained once each."""

    def __init__(self, home: Path):
        self.home = home

    @cache  # noqa: B019
    def shards(self, shuffled: bool, part: int):
        found = [{"text": text(shuffled)[part]}]
        return prepare(found, TOK, self.home / f"shards {shuffled} {part}", workers=1)

    @cache  # noqa: B019
    def folder(
        self, memory: int, shuffled: bool = False, learned: bool = False, steps: int = 150
    ) -> Path:
        """A model trained with so much memory."""
        place = {"table": FAR} if learned else {}
        spec = recipe("transformer-xl", memory=max(memory, 1), **SIZES, **place)
        spec = S.override(spec, "init.std", 0.08)
        plan = Segments(segments=8, memory=memory)
        rows = Rows(self.shards(shuffled, 0), plan.bind(TOK, spec).length(SEGMENT))
        settings = Settings(
            steps=steps, batch=8, lr=6e-3, schedule=Cosine(warmup=10, final=0.1), device="cpu",
            saving=Saving(every=0, keep=1, background=False), log_every=50,
        )  # fmt: skip
        out = self.home / f"{memory} {shuffled} {learned} {steps}"
        return train(spec, rows, plan, out, settings, TOK).folder / "model"

    def loss(self, folder: Path, memory: int, shuffled: bool = False) -> float:
        """Of what wasn't learnt from, long rows in order, with another memory."""
        model = anyformer.load(folder)
        bound = Segments(segments=64, memory=0, eval_memory=memory).bind(TOK, model.spec)
        rows = Rows(self.shards(shuffled, 1), bound.length(SEGMENT), shuffle=False)
        return evaluate(Trainee(model, bound), rows, Settings(batch=8))["loss"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Lab(tmp_path_factory.mktemp("xl"))
    torch.set_num_threads(threads)


# ------------------------------------------------------------------ (a) the memory is exact


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"table": 60}], ids=str)
def test_segments_equal_one_pass_and_no_gradient_flows_back(options):
    model = build(recipe("transformer-xl", memory=48, **SIZES, **options)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(0, len(TOK), (2, 48))
    whole, mems, parts = model(ids).logits, None, []
    for piece in ids.split(8, 1):
        out = model(piece, mems=mems, return_mems=True)
        mems = out.mems
        assert not any(x.requires_grad for x in mems.hidden.values())
        parts.append(out.logits)
    assert (torch.cat(parts, 1) - whole).abs().max() < 1e-5
    alone = torch.cat([model(piece).logits for piece in ids.split(8, 1)], 1)
    assert (alone - whole).abs().max() > 0.1


def test_every_position_sees_as_many_keys_with_same_length():
    model = build(recipe("transformer-xl", memory=8, **SIZES)).eval()
    ids = torch.randint(0, len(TOK), (1, 24))
    mems = model(ids[:, :16], return_mems=True).mems
    asked = {"mems": mems, "return_mems": True, "output_attentions": True}
    seen = lambda **more: (model(ids[:, 16:], **asked, **more).attentions[0] > 0).sum(-1)
    assert (seen(same_length=True) == 8).all()
    assert seen()[0, 0].tolist() == list(range(9, 17))
    assert (seen(same_length=True, mem_len=5) == 5).all()


# ------------------------------------------------------------------ (b) memory helps, and reaches


def test_a_model_is_evaluated_with_other_memories_than_it_was_trained_with(lab):
    folder = lab.folder(MEMORY, steps=70)
    found = {m: lab.loss(folder, m) for m in (0, 8, 32, 64)}
    assert len(set(found.values())) == 4 and min(found, key=found.__getitem__) > 0
    longer = anyformer.load(folder, override={"stack.recurrence": 64})
    assert longer.spec.stack.recurrence == 64 and not longer.report.dropped
    ids = torch.randint(0, len(TOK), (2, 200))
    model, mems, others = anyformer.load(folder), None, None
    for piece in ids.split(SEGMENT, 1):
        one = longer(piece, mems=mems, return_mems=True)
        two = model(piece, mems=others, return_mems=True, mem_len=64)
        mems, others = one.mems, two.mems
        assert torch.equal(one.logits, two.logits)
    assert mems.length == 64


@pytest.mark.slow
def test_memory_helps_and_sinusoids_reach_farther_than_learned_tables(lab):
    paper, apart = lab.folder(MEMORY), lab.folder(0)
    learned = lab.folder(MEMORY, learned=True)
    here = lab.loss(paper, MEMORY)
    assert here < lab.loss(apart, 0) - 0.01  # each as it was trained
    assert here < lab.loss(paper, 0) - 0.03
    flat = lab.loss(paper, FAR) - here
    worse = lab.loss(learned, FAR) - lab.loss(learned, MEMORY)
    assert flat < 0.03
    assert worse > 0.04 and worse > 2 * flat


# ------------------------------------------------------------------ (c) fragmented contexts


@pytest.mark.slow
def test_memory_helps_where_there_is_no_long_context(lab):
    """Shuffled lines: what is gained comes from segments that don't begin from nothing."""
    whole = lab.loss(lab.folder(MEMORY, shuffled=True), MEMORY, shuffled=True)
    assert whole < lab.loss(lab.folder(0, shuffled=True), 0, shuffled=True) - 0.01


# ------------------------------------------------------------------ (d) evaluation is faster


def _in_proportion(found):
    ratios = [one.ratio for one in found]
    return ratios == sorted(ratios) and all(one.ratio > 0.3 * one.length for one in found)


def test_evaluation_is_faster_in_proportion_to_the_attention_length(lab):
    lengths, tries = (64, 128, 256, 512), []
    while len(tries) < 3 and not (tries and _in_proportion(tries[-1])):  # a busy machine: again
        tries.append(measured(small(), lengths, rounds=4))
    found = tries[-1]
    assert _in_proportion(found), [[one.ratio for one in each] for each in tries]
    assert [row[0] for row in table(found).rows] == [str(n) for n in lengths]
