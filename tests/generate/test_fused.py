"""Sublayers of few kernels say what plain ones say; those made otherwise stay as they are."""

import dataclasses

import pytest
import torch

from anyformer import override
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import fused as module
from anyformer.generate import generate
from anyformer.generate.decoder import Growing
from anyformer.generate.fused import Fused
from anyformer.generate.prompt import Prompt
from anyformer.generate.static import Static
from anyformer.generate.stepping import Entering
from anyformer.laws import specs as laws
from anyformer.laws.cases import perturbed
from anyformer.model.model import build
from anyformer.ops import rows as ops_rows
from tests.generate.test_static import SWITCHES, prompt_of, trail

pytest.importorskip("triton", reason="fused: Triton isn't installed")
from anyformer.ops.kernels import launch_entry, launch_rows, launch_step

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB = 24
PLAIN = {"heads": 2, "causal": True}


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Wide tiles: the interpreter's time is that of its programs."""
    monkeypatch.setattr(launch_rows, "PROGRAMS", 1)
    for kind in ("ALONE", "CROWDED", "TOGETHER"):  # 16 keys a tile
        tile = getattr(launch_step, kind)
        monkeypatch.setattr(launch_step, kind, tile._replace(scores=64, programs=264))


@pytest.fixture
def stepped(monkeypatch):
    """The shapes of caches that the kernel for one step was launched over."""
    found, run = [], launch_step.run
    note = lambda y, cache, *rest: (found.append(cache[0].shape), run(y, cache, *rest))[1]
    monkeypatch.setattr(launch_step, "run", note)
    return found


def spec_of(attention=PLAIN, feed=None, stack=None, **sub):
    """A decoder of two blocks, everything in them alike but what is asked for."""
    branches = S.Attention(**{**PLAIN, **attention}), S.FeedForward(**(feed or {}))
    block = tuple(S.Sublayer(**{"branch": b, "norm": S.LayerNorm(), **sub}) for b in branches)
    return S.Model(
        dim=16,
        embed=S.Embed(source=S.Tokens(vocab=VOCAB), position=S.Learned(length=64)),
        stack=S.Stack(**{"block": block, "depth": 2, "final_norm": S.LayerNorm(), **(stack or {})}),
        head=S.Vocabulary(tied=True),
    )


def made(spec):
    """A model whose norms, biases and gains aren't those of the start."""
    torch.manual_seed(0)
    model = build(spec).eval().to(WHERE)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3).add_(0.2 if weight.dim() == 1 else 0.0)
    return model


def both(spec, rows=2, given=None):
    """Logits of three steps by a growing cache and by fused sublayers, and the fused decoder."""
    model = made(spec)
    ids = torch.randint(0, VOCAB, (rows, 6), device=WHERE)
    plain, fused = Growing(model), Static(model, room=8, buckets=True, fused=True)
    found = []
    for decoder in (plain, fused):
        decoder.start(Prompt(ids=ids[:, :3], given=given or {}))
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
    "two streams": spec_of(stack={"reversible": True}),
    "keys of the first turn": spec_of(
        stack={"depth": 4, "schedule": S.Looped(loops=2), "loop": S.Loop(keys="first")}
    ),
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


def few(names, *kept):
    """Names, of which the default run has some."""
    return [n if n in kept else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize(
    "name",
    few(FUSED, "plain", "RMSNorm, offset", "gate", "rotary, shared keys", "two streams"),
)
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
    monkeypatch.setattr(ops_rows, "FEW", 1)
    monkeypatch.setattr(module.Rows, "__call__", lambda *a: pytest.fail("a kernel was asked"))
    wanted, found, decoder = both(spec_of())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [True, True]


@pytest.mark.parametrize("name", ["plain", "no biases", "RMSNorm"])
def test_rows_of_many_take_torchs_products_and_the_kernel_of_a_step(name, stepped, monkeypatch):
    monkeypatch.setattr(ops_rows, "FEW", 1)
    monkeypatch.setattr(module.Rows, "__call__", lambda *a: pytest.fail("a kernel was asked"))
    wanted, found, decoder = both(FUSED[name])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [True, True] and stepped


def test_on_a_gpu_sublayers_are_fused_unless_told_otherwise():
    model = build(spec_of()).eval().to(WHERE)
    assert kinds(Static(model)) == [WHERE == "cuda"] * 2
    assert kinds(Static(model, fused=False)) == [False] * 2


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
        Static(build(spec_of()).double().to(WHERE), fused=True)
    if WHERE == "cpu":
        with pytest.raises(InputError, match="int8"):
            Static(build(spec_of()), weights="int8", fused=True)


STEPPED = {
    "plain": {},
    "no biases": {"bias": False},
    "shared keys": {"heads": 4, "kv_heads": 2},
    "rotary": {"rotary": S.Rotary()},
    "rotary, one key head": {"heads": 4, "kv_heads": 1, "rotary": S.Rotary(layout="pairs")},
    "rotary, some channels": {"rotary": S.Rotary(dims=4)},
    "rotary, slower": {"rotary": S.Rotary(scaling=S.Linear(factor=4.0))},
    "rotary, yarn": {"rotary": S.Rotary(scaling=S.Yarn(factor=4.0, length=16))},
    "window": {"window": 2},
    "wide window": {"window": 40},
    "own scale, wide heads": {"scale": 0.7, "head_dim": 24},
}


PADDED = ("plain", "rotary", "window")


@pytest.mark.parametrize("name", few(PADDED, "rotary"))
def test_an_attention_of_one_kernel_leaves_out_padding(name, stepped):
    assert_stepped(name, True, stepped)


@pytest.mark.parametrize(
    "name", few(STEPPED, "plain", "rotary, one key head", "rotary, some channels", "window")
)
def test_an_attention_of_one_kernel_equals_a_plain_one(name, stepped):
    assert_stepped(name, False, stepped)


def assert_stepped(name, padded, stepped):
    keep = torch.tensor([[1, 1, 1], [0, 0, 1]], device=WHERE)
    given = {"attention_mask": keep} if padded else None
    wanted, found, _ = both(spec_of(STEPPED[name]), given=given)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert len(stepped) == 6 or WHERE == "cuda"  # two layers, three steps; a graph is launched once
    ring = name == "window" and not padded
    assert all(shape[2] == (2 if ring else 16) for shape in stepped)


UNKNOWN = {
    "norms of q and k": {"qk_norm": S.RMSNorm()},
    "persistent keys": {"memory": 2},
    "talking heads": {"talking": "both"},
    "soft cap": {"mods": (S.SoftCap(value=5.0),)},
    "top-k": {"weigh": S.TopK(k=2)},
    "backend by name": {"backend": "eager"},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_attention_that_the_kernel_does_not_know_goes_its_own_way(name, stepped):
    wanted, found, decoder = both(spec_of(UNKNOWN[name]))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert kinds(decoder) == [True, True] and not stepped


def test_relative_terms_go_their_own_way(stepped):
    both(spec_of(stack={"relative": (S.Buckets(),)}))
    assert not stepped


ENTRIES = {
    "learned": (spec_of(), True),
    "an offset": (override(spec_of(), "embed.position.offset", 2), True),
    "a scale": (override(spec_of(), "embed.scale", 2.0), False),
    "a norm": (override(spec_of(), "embed.norm", S.LayerNorm()), False),
    "no places": (override(spec_of(), "embed.position", None), False),
    "waves": (override(spec_of(), "embed.position", S.Sinusoidal()), False),
}


@pytest.mark.parametrize("name", few(ENTRIES, "learned", "an offset", "a norm"))
def test_tokens_and_places_are_one_kernel_where_nothing_else_is(name, monkeypatch):
    spec, fits = ENTRIES[name]
    model, asked, run = made(spec), [], launch_entry.run
    monkeypatch.setattr(launch_entry, "run", lambda *a: (asked.append(1), run(*a))[1])
    ids = torch.randint(0, VOCAB, (3, 4), device=WHERE)
    wanted = generate(model, ids, 4, decoder=Growing(model))
    decoder = Static(model, room=8, buckets=True, fused=True)
    assert generate(model, ids, 4, decoder=decoder).tolist() == wanted.tolist()
    assert isinstance(decoder.twin.embed, Entering) == fits
    assert len(asked) == (3 if fits else 0)  # the first new token is the prompt's


def test_an_embedding_that_is_listened_to_stays():
    model, heard = made(spec_of()), []
    model.embed.token.register_forward_hook(lambda *a: heard.append(1))
    assert not isinstance(Static(model, room=8, buckets=True, fused=True).twin.embed, Entering)


HEADS = {
    "tied": spec_of(),
    "own weights": dataclasses.replace(spec_of(), head=S.Vocabulary(tied=False, bias=True)),
    "no last norm": spec_of(stack={"final_norm": None}),
    "RMSNorm": spec_of(stack={"final_norm": S.RMSNorm()}),
    "cap": dataclasses.replace(spec_of(), head=S.Vocabulary(cap=1.0)),
    "ScaleNorm": spec_of(stack={"final_norm": S.ScaleNorm()}),
}
LOGITS = {"cap", "ScaleNorm"}  # whose likeliest tokens are read from logits


@pytest.mark.parametrize("name", few(HEADS, "tied", "own weights", "cap"))
@pytest.mark.parametrize("rows", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_the_likeliest_tokens_without_logits_are_those_with(name, rows, monkeypatch):
    chosen, choose = [], launch_rows.choose
    monkeypatch.setattr(launch_rows, "choose", lambda *a: (chosen.append(1), choose(*a))[1])
    model = made(HEADS[name])
    ids = torch.randint(0, VOCAB, (rows, 3), device=WHERE)
    wanted = generate(model, ids, 4, decoder=Growing(model))
    found = generate(model, ids, 4, decoder=Static(model, room=8, buckets=True, fused=True))
    assert found.tolist() == wanted.tolist()
    assert bool(chosen) == (name not in LOGITS)


def test_other_picks_read_the_logits():
    model = made(spec_of())
    least = lambda logits: logits.argmin(-1)
    found = []
    for fused in (False, True):
        decoder = Static(model, room=8, buckets=True, fused=fused)
        decoder.start(Prompt(ids=torch.tensor([[1, 2]], device=WHERE)))
        found.append(decoder.write(torch.tensor([3], device=WHERE), 4, least).tolist())
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_told(value):
    model = made(spec_of())
    decoder = Static(model, room=8, buckets=True, fused=True)
    ids = torch.tensor([[1, 2], [3, 4]], device=WHERE)
    first = generate(model, ids, 1, decoder=decoder)[:, -1]
    with torch.no_grad():  # the head's row of a token that is not read
        model.embed.token.weight[int((set(range(VOCAB)) - set(first.tolist())).pop())] = value
    decoder.start(Prompt(ids=ids))
    decoder.write(first, 1)
    assert decoder.broken.tolist() == [True, True]


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6])
def test_kernels_that_start_early_say_the_same(rows, monkeypatch):
    model = made(spec_of({"rotary": S.Rotary(), "heads": 4, "kv_heads": 2}))
    ids = torch.randint(0, VOCAB, (rows, 3), device=WHERE)
    monkeypatch.setattr(launch_rows, "EARLY", False)
    late = generate(model, ids, 60, decoder=Static(model, room=64, fused=True))
    monkeypatch.setattr(launch_rows, "EARLY", True)
    decoder = Static(model, room=64, fused=True)
    for _ in range(5):
        assert generate(model, ids, 60, decoder=decoder).tolist() == late.tolist()


def test_a_model_that_is_listened_to_keeps_its_ending():
    model = made(spec_of())
    model.stack.norm.register_forward_hook(lambda *a: None)
    assert Static(model, fused=True).ending is None
    head = made(spec_of())
    head.head.register_forward_hook(lambda *a: None)
    assert Static(head, fused=True).ending is None and head.head.map is None


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SWITCHES if n != "reversible"])
@pytest.mark.parametrize("padded", [False, True])
def test_every_switch_says_what_a_growing_cache_says(name, padded):
    model = perturbed(SWITCHES[name], 3).float().to(WHERE)
    drawn = prompt_of(model, 2, padded)
    given = {k: v.to(WHERE) for k, v in drawn.given.items()}
    prompt = dataclasses.replace(drawn, ids=drawn.ids.to(WHERE), given=given)
    tokens = torch.randint(1, laws.VOCAB, (2, 4), device=WHERE)
    wanted = trail(Growing(model), prompt, tokens)
    fused = Static(model, room=3, buckets=True, fused=True)  # grows on the way
    torch.testing.assert_close(trail(fused, prompt, tokens), wanted, rtol=1e-4, atol=1e-4)
