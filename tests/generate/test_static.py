"""Static decoding equals growing decoding and the full pass, over a product of switches."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import generate, static
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import cache_bytes, check_room
from anyformer.generate.static import Static
from anyformer.laws.cases import perturbed
from anyformer.laws.specs import VOCAB, sample
from anyformer.model.model import Model, build

CLOSE = 1e-9
PROMPT, NEW = 5, 7


def decoder(**attention: Any) -> S.Model:
    """A causal model of three layers, learned positions."""
    stack = attention.pop("stack", {})
    embed = attention.pop("embed", {})
    branch = S.Attention(**{"heads": 4, "causal": True, **attention})
    block = tuple(S.Sublayer(branch=b, norm=S.LayerNorm()) for b in (branch, S.FeedForward()))
    position = None if stack.get("relative") or attention.get("rotary") else S.Learned(length=64)
    return S.Model(
        dim=16,
        embed=S.Embed(**{"source": S.Tokens(vocab=VOCAB), "position": position, **embed}),
        stack=S.Stack(**{"block": block, "depth": 3, "final_norm": S.LayerNorm(), **stack}),
        head=S.Vocabulary(tied=True),
    )


def encoder_decoder() -> S.Model:
    """Cross-attention to an encoder, T5 bias."""
    return anyformer.recipe("t5", dim=16, depth=2, heads=2, vocab=VOCAB, hidden=24)


SWITCHES = {
    "learned": decoder(),
    "rotary": decoder(rotary=S.Rotary()),
    "yarn": decoder(rotary=S.Rotary(scaling=S.Yarn(factor=4.0, length=20), layout="pairs")),
    "alibi": decoder(stack={"relative": (S.ALiBi(),)}),
    "t5 bias": decoder(stack={"relative": (S.Buckets(bidirectional=False),)}),
    "shaw": decoder(relative=(S.Shaw(clip=3, key_side=True),)),
    "xl": decoder(relative=(S.XL(),)),
    "untied": decoder(stack={"untied": S.Untied(length=64)}, embed={"position": None}),
    "window": decoder(window=3),
    "window, t5 bias": decoder(window=4, stack={"relative": (S.Buckets(bidirectional=False),)}),
    "window, untied": decoder(window=3, stack={"untied": S.Untied(length=64)}),
    "window, carried": decoder(window=4, carry=True),
    "memory keys": decoder(memory=2),
    "memory keys, alibi": decoder(memory=2, stack={"relative": (S.ALiBi(),)}),
    "memory keys, window": decoder(memory=2, window=4),
    "one key head": decoder(kv_heads=1),
    "two key heads, rotary": decoder(kv_heads=2, rotary=S.Rotary(dims=2)),
    "talking heads": decoder(talking="both"),
    "residual attention": decoder(carry=True),
    "top-k": decoder(weigh=S.TopK(k=3)),
    "entmax": decoder(weigh=S.Entmax15()),
    "sigmoid": decoder(weigh=S.Sigmoid(bias=-1.0)),
    "soft cap": decoder(mods=(S.SoftCap(value=2.0), S.Temperature(init=1.5))),
    "collaborative": decoder(collaborate=0.5),
    "norms of q and k": decoder(qk_norm=S.RMSNorm()),
    "gate": decoder(gate="glu"),
    "infused": decoder(infused=S.Sinusoidal(), embed={"position": None}),
    "memory tokens": decoder(embed={"memory": 3}),
    "shared blocks": decoder(stack={"depth": 4, "schedule": S.Shared(unique=2)}),
    "recursion": decoder(
        stack={
            "depth": 4,
            "schedule": S.Looped(loops=2),
            "loop": S.Loop(step="learned", keys="first"),
        }
    ),
    "reversible": decoder(stack={"reversible": True}),
    "no place": decoder(embed={"position": S.Sinusoidal(closed=True, offset=2, skip=1)}),
    "encoder": encoder_decoder(),
}


def prompt_of(model: Model, rows: int, padded: bool) -> Prompt:
    """A prompt; padded, its second row is shorter."""
    ids = torch.randint(2, VOCAB, (rows, PROMPT))
    ids[0, 2] = 1
    given: dict[str, Any] = {}
    name = "input_ids"
    if model.encoder is not None:
        name, given = "decoder_input_ids", {"input_ids": torch.randint(2, VOCAB, (rows, 6))}
    if padded:
        mask = torch.ones(rows, PROMPT, dtype=torch.long)
        mask[1, :2] = 0
        given["decoder_attention_mask" if model.encoder is not None else "attention_mask"] = mask
    return Prompt(ids=ids, name=name, given=given)


def trail(decoder: Any, prompt: Prompt, tokens: torch.Tensor) -> torch.Tensor:
    """Logits (B, 1 + NEW, V) of a decoder fed with tokens (B, NEW)."""
    with torch.no_grad():
        logits = [decoder.start(prompt)]
        logits += [decoder.step(token).clone() for token in tokens.unbind(1)]
    return torch.stack(logits, 1)


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Raise unless two tensors agree up to rounding."""
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= CLOSE * wanted.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("buckets", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", SWITCHES)
def test_static_equals_growing_and_the_full_pass(name, padded, buckets, monkeypatch):
    monkeypatch.setattr(static, "SMALLEST", 4)  # several powers of two on the way
    model = perturbed(SWITCHES[name], 3)
    prompt = prompt_of(model, 2, padded)
    tokens = torch.randint(1, VOCAB, (2, NEW))
    grown = trail(Growing(model), prompt, tokens)
    found = trail(Static(model, room=NEW + 2, buckets=buckets), prompt, tokens)
    close(found, grown)
    given = dict(prompt.first)
    given[prompt.name] = torch.cat([prompt.ids, tokens], 1)
    if padded:
        mask = given[prompt.mask_name]
        given[prompt.mask_name] = torch.cat([mask, mask.new_ones(2, NEW)], 1)
    with torch.no_grad():
        close(found, model(**given).logits[:, PROMPT - 1 :])


@pytest.mark.parametrize("seed", range(40))
def test_static_equals_growing_for_drawn_specs(seed, monkeypatch):
    monkeypatch.setattr(static, "SMALLEST", 4)
    spec = sample(seed, causal=True)
    spec = S.override(spec, "head", S.Vocabulary(tied=False))
    spec = S.override(spec, "stack.out", None)
    if not isinstance(spec.embed.source, S.Tokens) or S.problems(spec):
        pytest.skip("not a decoder of tokens")
    if any(leaf.cross and spec.encoder is None for leaf in _leaves(spec)) or spec.stack.primed:
        pytest.skip("needs an encoder's output, or has a segment memory")
    if spec.encoder is not None and not isinstance(spec.encoder.embed.source, S.Tokens):
        pytest.skip("reads images")
    model = perturbed(spec, seed)
    prompt = prompt_of(model, 2, bool(seed % 2))
    tokens = torch.randint(1, VOCAB, (2, NEW))
    grown = trail(Growing(model), prompt, tokens)
    close(trail(Static(model, room=2), prompt, tokens), grown)
    close(trail(Static(model, room=NEW, buckets=True), prompt, tokens), grown)


def _leaves(spec: S.Model) -> list[S.Attention]:
    blocks = (spec.stack.block, *spec.stack.others)
    leaves = [leaf for block in blocks for sub in block for leaf in sub.leaves]
    return [leaf for leaf in leaves if isinstance(leaf, S.Attention)]


@pytest.mark.parametrize("name", ["learned", "window", "encoder", "no place", "rotary"])
@pytest.mark.parametrize("buckets", [False, True])
def test_rows_are_chosen_as_a_growing_cache_does(name, buckets):
    model = perturbed(SWITCHES[name], 1)
    prompt = prompt_of(model, 3, True)
    tokens = torch.randint(2, VOCAB, (4, 4))
    for rows in ([2, 0, 1], [1, 1, 0, 2], [2, 0]):
        pair = [Growing(model), Static(model, room=8, buckets=buckets)]
        with torch.no_grad():
            a, b = (d.start(prompt) for d in pair)
            a, b = (d.step(tokens[:3, 0]) for d in pair)
            for d in pair:
                d.reorder(torch.tensor(rows))
            a, b = (d.step(tokens[: len(rows), 1]) for d in pair)
        close(b, a)


def test_a_window_has_a_cache_of_its_size():
    model = perturbed(SWITCHES["window"], 0)
    fixed = Static(model, room=50)
    fixed.start(prompt_of(model, 2, False))
    assert fixed.held is not None
    assert {k.shape[2] for k, _ in fixed.held.kv.values()} == {3}
    padded = Static(model, room=50)
    padded.start(prompt_of(model, 2, True))
    assert padded.held is not None
    assert {k.shape[2] for k, _ in padded.held.kv.values()} == {PROMPT + 50}


@pytest.mark.parametrize("name", ["learned", "window", "one key head", "collaborative", "gate"])
def test_the_bytes_of_a_cache_are_those_that_it_takes(name):
    spec = SWITCHES[name]
    fixed = Static(build(spec).eval(), room=20)
    fixed.start(prompt_of(fixed.model, 2, False))
    assert fixed.held is not None
    taken = sum(x.numel() * x.element_size() for pair in fixed.held.kv.values() for x in pair)
    assert taken == cache_bytes(spec, 2, PROMPT + 20, torch.float32)


def test_a_cache_that_does_not_fit_is_refused_with_its_size():
    model = build(decoder())
    with pytest.raises(InputError, match=r"takes .* TiB, but .* free"):
        check_room(model, 1 << 30, 1 << 20, torch.float32)


def test_int8_is_near_and_bad_options_are_refused():
    torch.manual_seed(0)
    model = build(decoder()).eval()
    prompt = prompt_of(model, 2, False)
    tokens = torch.randint(1, VOCAB, (2, NEW))
    grown = trail(Growing(model), prompt, tokens)
    found = trail(Static(model, weights="int8"), prompt, tokens).float()
    assert (found - grown).norm() < 0.02 * grown.norm()
    with pytest.raises(InputError, match="int8"):
        Static(model, weights="int4")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="room"):
        Static(model, room=0)
    with pytest.raises(InputError, match="start first"):
        Static(model).step(tokens[:, 0])


def test_write_picks_and_goes_on():
    model = perturbed(decoder(), 0)
    prompt = prompt_of(model, 2, False)
    wanted = model.generate(prompt.ids, max_new_tokens=9)[:, PROMPT:]
    for buckets in (False, True):
        fixed = Static(model, room=3, buckets=buckets)
        first = fixed.start(prompt).argmax(-1)
        found = fixed.write(first, 8)
        assert torch.equal(torch.cat([first[:, None], found], 1), wanted)


def test_a_twin_shares_weights_and_hears_hooks():
    model = build(decoder()).eval()
    heard: list[str] = []
    model.stack.blocks[0][1].register_forward_hook(lambda *_: heard.append("here"))  # type: ignore[index]
    fixed = Static(model)
    assert fixed.twin.embed.position is not model.embed.position
    assert fixed.twin.embed.position.weight is model.embed.position.weight  # type: ignore[union-attr]
    fixed.start(prompt_of(model, 2, False))
    heard.clear()
    fixed.step(torch.tensor([3, 4]))
    assert heard == ["here"]
    assert dataclasses.is_dataclass(fixed.held)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [n for n in SWITCHES if n != "reversible"])
def test_graphs_on_a_gpu_equal_growing(name):
    model = perturbed(SWITCHES[name], 3).cuda()
    made = prompt_of(model, 2, True)
    given = {k: v.cuda() for k, v in made.given.items()}
    prompt = Prompt(ids=made.ids.cuda(), name=made.name, given=given)
    tokens = torch.randint(1, VOCAB, (2, NEW)).cuda()
    grown = trail(Growing(model), prompt, tokens)
    fixed = Static(model, room=20)
    close(trail(fixed, prompt, tokens), grown)
    captured = set(map(id, fixed.captured.values()))
    close(trail(fixed, prompt, tokens), grown)  # the same graphs, filled anew
    assert set(map(id, fixed.captured.values())) == captured


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # of what torch compiles
@pytest.mark.filterwarnings("ignore:\\s*Online softmax is disabled")
@pytest.mark.parametrize("name", ["learned", "two key heads, rotary", "t5 bias", "encoder"])
def test_compiled_graphs_equal_growing(name):
    model = perturbed(SWITCHES[name], 3).float().cuda()
    made = prompt_of(model, 2, True)
    given = {k: v.cuda() for k, v in made.given.items()}
    prompt = Prompt(ids=made.ids.cuda(), name=made.name, given=given)
    tokens = torch.randint(1, VOCAB, (2, NEW)).cuda()
    grown = trail(Growing(model), prompt, tokens)
    found = trail(Static(model, room=20, compile=True), prompt, tokens)
    assert (found - grown).abs().max() <= 1e-4 * grown.abs().max().clamp(min=1.0)


def test_compiling_is_for_a_gpu():
    with pytest.raises(InputError, match="GPU"):
        Static(build(decoder()), compile=True)


@pytest.mark.parametrize("ends", [(), (5, 9), tuple(range(0, VOCAB, 2))])
@pytest.mark.parametrize("count", [1, 7, 40])
def test_stretches_equal_steps(ends, count):
    model = perturbed(decoder(), 3).float()
    given = {"eos_token_id": ends or None, "pad_token_id": 1}
    ids = torch.randint(2, VOCAB, (3, PROMPT))
    found = generate(model, ids, count, decoder=Static(model, room=4), **given)
    assert torch.equal(found, generate(model, ids, count, decoder=Growing(model), **given))


def test_stretches_say_where_logits_are_no_numbers():
    model = build(decoder()).eval()
    fixed = Static(model, room=8)
    ids = torch.randint(2, VOCAB, (2, PROMPT))
    generate(model, ids, 3, decoder=fixed)
    with torch.no_grad():
        model.stack.norm.weight.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(InputError, match="row 0, new token 0 hold NaN"):
        generate(model, ids, 3, decoder=fixed)
    first = torch.tensor([3, 4])
    fixed.write(first, 2)
    assert fixed.broken.all()
