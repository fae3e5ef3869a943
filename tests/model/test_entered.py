"""Compiled blocks with kernels of ours: the same gradients, and where the kernels stay out."""

import pytest
import torch

from anyformer import spec as S
from anyformer.model import entered
from anyformer.model.model import build
from anyformer.ops import fusing
from anyformer.ops.tiles import INSTALLED, interpreted
from anyformer.parts import attention
from anyformer.parts.state import Call
from anyformer.recipes import recipe
from anyformer.train.prepare import prepare
from anyformer.train.settings import Settings

IDS = torch.randint(0, 50, (4, 12), generator=torch.Generator().manual_seed(0))
SIZES = {"dim": 24, "depth": 1, "heads": 4, "vocab": 50}
GPT2 = recipe("gpt2", length=12, dropout=0.0, **SIZES)
LLAMA = recipe("llama", kv_heads=2, **SIZES)
NORM, SIDES = "anyformer.norm_backward", "anyformer.sides_joined"
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),  # dynamo's own look
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
]


def steps(spec, monkeypatch, devices, **more):
    """The gradients of a model of compiled blocks, and what their graphs call."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    calls, plain = [], torch.compile

    def kept(graph, inputs):
        calls.extend(str(n.target) for n in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=kept, bw_compiler=kept)
    monkeypatch.setattr(fusing, "DEVICES", devices)
    monkeypatch.setattr(attention, "JOINING", ("cpu",))
    monkeypatch.setattr(attention, "CROWD", 48)
    monkeypatch.setattr(torch, "compile", lambda f: plain(f, backend=backend))
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = build(spec).train()
    for p in model.parameters():  # no bias and no weight of a norm as it begins
        torch.nn.init.normal_(p, std=0.3)
    prepare(model, Settings(steps=1, batch=4, compile=True, precision="bfloat16", **more))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(IDS).logits
    logits.float().square().mean().backward()
    monkeypatch.undo()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    return {"logits": logits.detach().float(), **found}, calls


@pytest.fixture(autouse=True)
def kernels():
    if not INSTALLED or not interpreted():
        pytest.skip("kernel: TRITON_INTERPRET=1 runs it on a CPU")


def many(calls, name):
    return sum(call.startswith(name) for call in calls)


def assert_near(found, wanted):
    """Within bfloat16's rounding; a bias of keys has no gradient but rounding, as softmax shows."""
    for name, value in wanted.items():
        if not name.endswith("branch.k.bias"):
            assert (found[name] - value).norm() <= 4e-2 * value.norm(), name


@pytest.mark.parametrize(
    ("spec", "sides", "stream"),
    [
        (GPT2, 2, "bfloat16"),
        (GPT2, 2, "float32"),
        (LLAMA, 0, "float32"),
    ],
    ids=["gpt2", "gpt2, 32 bits", "llama"],
)
def test_gradients_are_those_of_torchs_own_path(spec, sides, stream, monkeypatch):
    wanted, plain = steps(spec, monkeypatch, (), stream=stream)
    found, calls = steps(spec, monkeypatch, ("cpu",), stream=stream)
    blocks = (many(calls, NORM) - 1) // 2  # two norms each, and the last
    assert blocks >= 1 and many(plain, "anyformer") == 0
    assert many(calls, SIDES) == (blocks if sides else 0)
    assert not any("layer_norm_backward" in call for call in calls)
    assert_near(found, wanted)


@pytest.mark.parametrize("stream", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_streams_are_handed_on_from_block_to_block(name, stream, monkeypatch):
    """What a block said last is added where the next norm reads it; the last norm has its own."""
    spec = S.override(GPT2 if name == "gpt2" else LLAMA, "stack.depth", 3)
    wanted, _ = steps(spec, monkeypatch, (), stream=stream)
    found, calls = steps(spec, monkeypatch, ("cpu",), stream=stream)
    assert many(calls, NORM) == 5  # of the first block, of the others, and the last norm
    assert_near(found, wanted)


HANDED = {
    "gpt2": (GPT2, {}, True),
    "hidden states": (GPT2, {"hidden": []}, False),
    "a position that asks": (GPT2, {"asking": torch.zeros(1)}, False),
    "blocks left out": (S.override(GPT2, "stack.layer_dropout", 0.5), {}, False),
}


@pytest.mark.parametrize("name", HANDED)
def test_only_where_nobody_else_touches_the_stream(name):
    spec, asks, wanted = HANDED[name]
    stack = build(spec).train().stack
    call = Call(length=1, positions=torch.zeros(1, 1), **asks)
    assert not entered.hands(stack, call)  # nobody asked
    stack.hands = True
    assert entered.hands(stack, call) == wanted
    stack.blocks[0].register_forward_hook(lambda *_: None)
    assert not entered.hands(stack, call)


def test_a_pair_is_a_stream_to_whoever_takes_it():
    model, x = build(GPT2).eval(), torch.randn(1, 4, 24)
    call = lambda: Call(length=4, positions=torch.arange(4)[None])
    block, pair = model.stack.blocks[0], (x, torch.randn(1, 4, 24))
    torch.testing.assert_close(block(pair, call(), "0"), block(sum(pair), call(), "0"))
    torch.testing.assert_close(model.stack.ended(pair), model.stack.ended(sum(pair)))


def test_a_bias_is_summed_by_no_other_kernel(monkeypatch):
    _, plain = steps(GPT2, monkeypatch, ())
    _, calls = steps(GPT2, monkeypatch, ("cpu",))
    assert many(plain, "aten.sum") > 0 and many(calls, "aten.sum") == 0


OTHERS = {
    "a norm behind": S.override(GPT2, "stack.block.*.place", "post"),
    "a scaled branch": S.override(GPT2, "stack.block.*.residual", S.Add(branch=0.5)),
    "another norm": S.override(GPT2, "stack.block.*.norm", S.ScaleNorm()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_blocks_stay_torchs(name, monkeypatch):
    wanted, _ = steps(OTHERS[name], monkeypatch, ())
    found, calls = steps(OTHERS[name], monkeypatch, ("cpu",))
    assert many(calls, NORM) == 0
    assert_near(found, wanted)


def test_dropout_keeps_the_bias_apart(monkeypatch):
    spec = S.override(GPT2, "stack.block.*.dropout", 0.5)
    _, calls = steps(spec, monkeypatch, ("cpu",))
    assert many(calls, NORM) >= 2 and many(calls, "aten.sum") > 0


def test_a_hook_on_a_norm_is_heard(monkeypatch):
    heard = []
    model = build(GPT2).train()
    block = model.stack.blocks[0]
    block[0].norm.register_forward_hook(lambda *_: heard.append(1))
    monkeypatch.setattr(fusing, "DEVICES", ("cpu",))
    compiled = torch.compile(lambda ids: model(ids).logits, backend="eager")
    compiled(IDS)
    assert heard
