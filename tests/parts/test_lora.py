"""LoRA by application: what each adds to the maps of the block that it shares."""

import copy

import pytest
import torch

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.parts import build as build_part
from anyformer.parts.init import initialise
from anyformer.parts.state import Call
from anyformer.recipes import recipe

TINY = {"dim": 8, "depth": 3, "heads": 2, "vocab": 11, "length": 9}
ONCE = {"stack.schedule": S.Shared(unique=1)}
IDS = torch.arange(12).view(2, 6) % 11


def made(name="decoder", changes=ONCE, **options):
    torch.manual_seed(0)
    return build(recipe(name, **TINY, **changes, **{"stack.lora": S.Lora(**options)})).eval()


@torch.no_grad()
def moved(model):
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("alpha", [None, 3.0])
@pytest.mark.parametrize("bias", [False, True])
def test_an_update_is_two_products(alpha, bias):
    spec = S.Lora(rank=2, alpha=alpha, bias=bias, on=("up",))
    lora = build_part(spec, S.FeedForward(hidden=5), 4)
    initialise(lora, S.Init(), 4)  # a part by itself holds whatever was in memory
    lora = moved(lora)
    up, x = torch.nn.Linear(4, 5), torch.randn(2, 3, 4)
    call = Call(length=3, positions=torch.arange(3)[None], lora=(lora,))
    scale = 1.0 if alpha is None else 1.5
    wanted = up(x) + scale * x @ lora["up"].a.T @ lora["up"].b.T
    wanted = wanted + lora["up"].bias if bias else wanted
    torch.testing.assert_close(call.linear("up", up, x), wanted)
    assert torch.equal(call.linear("down", up, x), up(x)), "a map that is not named is left alone"


@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_it_starts_as_no_change_and_learns(name):
    model = made(name, rank=2, bias=True)
    plain = build(S.override(model.spec, "stack.lora", None)).eval()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if ".lora." not in k})
    assert torch.equal(model(IDS).last_hidden_state, plain(IDS).last_hidden_state)
    model(IDS).last_hidden_state.sin().sum().backward()
    own = {n: p for n, p in model.named_parameters() if ".lora." in n}
    assert all(p.any() and not p.grad.any() for n, p in own.items() if n.endswith(".a"))
    learning = [n for n in own if not n.endswith((".a", "k.bias"))]  # keys' biases change nothing
    assert all(own[n].grad.abs().max() > 1e-9 for n in learning)


def test_each_application_computes_with_its_own_weights():
    model = moved(made(rank=2, alpha=3.0, bias=True))
    spec = S.override(S.override(model.spec, "stack.lora", None), "stack.schedule", S.Plain())
    layers, state = build(spec).eval(), model.state_dict()
    whole = {}
    for key in layers.state_dict():
        first = "stack.blocks.0" if key.startswith("stack.blocks") else ""
        whole[key] = state[first + key[len(first) :]].clone()
        at = key.replace(".branch.", ".lora.0.").rpartition(".")
        if ".branch." in key:
            a, b, bias = (state[f"{at[0]}.{part}"] for part in ("a", "b", "bias"))
            whole[key] += bias if at[2] == "bias" else 1.5 * b @ a
    layers.load_state_dict(whole)
    torch.testing.assert_close(model(IDS).logits, layers(IDS).logits)


def test_a_rank_ends_at_the_smaller_side():
    shapes = {n: tuple(p.shape) for n, p in made(rank=100).named_parameters() if ".lora." in n}
    assert shapes["stack.blocks.2.0.lora.0.q.a"] == (8, 8)
    assert shapes["stack.blocks.2.1.lora.0.up.a"] == (8, 8)
    assert shapes["stack.blocks.2.1.lora.0.up.b"] == (32, 8)


def test_branches_side_by_side_have_one_each():
    both = S.Parallel(branches=(S.FeedForward(hidden=5), S.Attention(heads=2, causal=True)))
    model = moved(made(changes=ONCE | {"stack.block": (S.Sublayer(branch=both),)}, on=("q", "up")))
    names = {n.split("lora.")[1] for n, _ in model.named_parameters() if ".lora." in n}
    assert names == {"0.up.a", "0.up.b", "1.q.a", "1.q.b"}
    before = model(IDS).logits
    for name in names:
        again = copy.deepcopy(model)
        again.get_parameter(f"stack.blocks.1.0.lora.{name}").data.zero_()
        assert not torch.allclose(again(IDS).logits, before), name


def test_a_decoder_reads_its_encoder_through_updates():
    model = moved(made("encoder-decoder", on=("k",), rank=1))
    keys = [n for n, _ in model.named_parameters() if ".lora." in n and not n.startswith("enc")]
    assert len([n for n in keys if ".1.lora." in n]) == 2 * 3  # of cross-attention
    out = model(IDS, decoder_input_ids=IDS, use_cache=True)
    before = model(IDS, decoder_input_ids=IDS[:, :4], use_cache=True).past_key_values
    rest = model(decoder_input_ids=IDS[:, 4:], past_key_values=before)
    torch.testing.assert_close(rest.logits, out.logits[:, 4:])


def test_numbers_of_less_precision():
    model = moved(made(rank=2))
    with torch.autocast("cpu", torch.bfloat16):
        found = model(IDS).logits
    torch.testing.assert_close(found.float(), model(IDS).logits, rtol=0.1, atol=0.2)
    assert model.to(torch.bfloat16)(IDS).logits.dtype == torch.bfloat16
