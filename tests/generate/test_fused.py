"""Sublayers of few kernels say what plain ones say; those made otherwise stay as they are."""

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import fused as module
from anyformer.generate.decoder import Growing
from anyformer.generate.fused import Fused
from anyformer.generate.prompt import Prompt
from anyformer.generate.static import Static
from anyformer.model.model import build

pytest.importorskip("triton", reason="fused: Triton isn't installed")
WHERE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB = 24
PLAIN = {"heads": 2, "causal": True}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Wide tiles: the interpreter's time is that of its programs."""
    from anyformer.ops.kernels import launch_rows

    monkeypatch.setattr(launch_rows, "PROGRAMS", 1)


def spec_of(attention=PLAIN, feed=None, stack=None, **sub):
    """A decoder of two blocks, everything in them alike but what is asked for."""
    branches = S.Attention(**{**PLAIN, **attention}), S.FeedForward(**(feed or {}))
    block = tuple(S.Sublayer(**{"branch": b, "norm": S.LayerNorm(), **sub}) for b in branches)
    return S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=VOCAB), position=S.Learned(length=32)),
        stack=S.Stack(**{"block": block, "depth": 2, "final_norm": S.LayerNorm(), **(stack or {})}),
        head=S.Vocabulary(tied=True),
    )


def both(spec, rows=2):
    """Logits of three steps by a growing cache and by fused sublayers, and the fused decoder."""
    torch.manual_seed(0)
    model = build(spec).eval().to(WHERE)
    with torch.no_grad():  # norms, biases and gains that aren't those of the start
        for weight in model.parameters():
            weight.normal_(std=0.3).add_(0.2 if weight.dim() == 1 else 0.0)
    ids = torch.randint(0, VOCAB, (rows, 6), device=WHERE)
    plain, fused = Growing(model), Static(model, room=8, buckets=True, fused=True)
    found = []
    for decoder in (plain, fused):
        decoder.start(Prompt(ids=ids[:, :3]))
        found.append(torch.stack([decoder.step(tokens) for tokens in ids[:, 3:].T]))
    return *found, fused


def kinds(decoder):
    """Whether each sublayer of the first block is fused."""
    return [isinstance(sub, Fused) for sub in decoder.twin.stack.blocks[0]]


FUSED = {
    "plain": spec_of(),
    "no norm": spec_of(norm=None),
    "RMSNorm": spec_of(norm=S.RMSNorm()),
    "RMSNorm, offset": spec_of(norm=S.RMSNorm(offset=True)),
    "norm without a shift": spec_of(norm=S.LayerNorm(bias=False)),
    "gate": spec_of(feed={"act": "silu", "gated": True}),
    "no biases": spec_of({"bias": False}, {"bias": False, "act": "relu2"}),
    "rotary, shared keys": spec_of({"rotary": S.Rotary(), "kv_heads": 1}),
    "talking heads, memory": spec_of({"talking": "both", "memory": 2}),
    "bias by distance": spec_of(stack={"relative": (S.Buckets(),)}),
}
OTHERWISE = {
    "norms last": spec_of(place="post"),
    "sandwich": spec_of(place="sandwich"),
    "ScaleNorm": spec_of(norm=S.ScaleNorm()),
    "gated residual": spec_of(residual=S.Gated()),
    "scaled residual": spec_of(residual=S.Add(branch=0.5)),
    "shared weights, own norms": spec_of(
        stack={"schedule": S.Shared(unique=1), "own": ("norm",)},
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_sublayers_equal_plain_ones(name):
    wanted, found, decoder = both(FUSED[name])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [True, True]


@pytest.mark.parametrize("name", OTHERWISE)
def test_others_stay_as_they_are(name):
    wanted, found, decoder = both(OTHERWISE[name])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [False, False]


def test_an_attention_with_a_gate_of_its_own_stays_beside_a_fused_feedforward():
    wanted, found, decoder = both(spec_of({"gate": "glu"}))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [False, True]


def test_more_rows_than_the_kernels_are_meant_for_take_the_plain_way(monkeypatch):
    monkeypatch.setattr(module, "MOST", 1)
    monkeypatch.setattr(module.Rows, "__call__", lambda *a: pytest.fail("a kernel was asked"))
    wanted, found, decoder = both(spec_of())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [True, True]


def test_a_sublayer_that_is_listened_to_stays():
    model = build(spec_of()).eval().to(WHERE)
    model.stack.blocks[0][0].branch.out.register_forward_hook(lambda *a: None)
    assert kinds(Static(model, fused=True)) == [False, True]


def test_a_twin_that_is_there_is_not_made_again():
    model = build(spec_of()).eval().to(WHERE)
    with pytest.raises(InputError, match="a twin is made already"):
        Static(model, fused=True, twin=Static(model).twin)


def test_what_kernels_cannot_read_is_refused():
    with pytest.raises(InputError, match="float32, bfloat16 or float16: leave it out"):
        Static(build(spec_of()).double(), fused=True)
    if WHERE == "cpu":
        with pytest.raises(InputError, match="int8"):
            Static(build(spec_of()), weights="int8", fused=True)
