"""A step of every switch reuses its cache: its work grows by attention over the keys alone."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from anyformer import spec as S
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import Prompt
from anyformer.generate.room import seats
from anyformer.generate.static import Static
from anyformer.laws.specs import VOCAB
from anyformer.model.model import build
from anyformer.spec.walk import head_dim, qk_dim
from tests.generate.test_static import SWITCHES

SHORT, LONG = 32, 128
DECODERS = {
    "growing": Growing,
    "static": lambda model: Static(model, room=8),
    "buckets": lambda model: Static(model, room=8, buckets=True),
}


def fused(q, k, v, *args, out_shape=None, **kwargs):
    """The products of the CPU's fused attention, which torch does not count."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


COUNTED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused}


def longer(spec: S.Model) -> S.Model:
    """The same with positions for long texts."""
    return S.from_json(S.to_json(spec).replace('"length": 64', '"length": 256'))


def cost(model, kind, length):
    """FLOPs of a step behind a text: the least of three, since tables grow by powers of two."""
    ids = torch.randint(2, VOCAB, (1, length))
    name, given = "input_ids", {}
    if model.encoder is not None:
        name, given = "decoder_input_ids", {"input_ids": torch.randint(2, VOCAB, (1, 6))}
    decoder, found = DECODERS[kind](model), list[int]()
    with torch.no_grad():
        decoder.start(Prompt(ids=ids, name=name, given=given))
        for _ in range(3):
            with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
                decoder.step(ids[:, 0])
            found.append(counter.get_total_flops())
    return min(found)


def allowed(spec: S.Model, more: int) -> int:
    """FLOPs that attention has for more keys, with what is said of distances and heads.

    Values are as wide as queries at least, as the fused kernel wants them.
    """
    total, layers = 0, 0
    for _, leaf in seats(spec.stack):
        if leaf.cross:
            continue
        layers += 1
        wide = qk_dim(leaf, spec.dim) * (layers if leaf.carry else 1)
        wide += qk_dim(leaf, spec.dim) * (bool(leaf.relative) + (spec.stack.untied is not None))
        talks = {"no": 0, "both": 2}.get(leaf.talking, 1) * leaf.heads
        total += 2 * leaf.heads * (wide + max(wide, head_dim(leaf, spec.dim)) + talks)
    reads = spec.stack.loop is not None and spec.stack.loop.keys == "first"
    return more * total * (2 if reads else 1)  # turns that read the first one's keys


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("name", SWITCHES)
def test_work_of_a_step_grows_by_attention_alone(name, kind):
    spec = longer(SWITCHES[name])
    torch.manual_seed(0)
    model = build(spec).eval()
    short, long = (cost(model, kind, length) for length in (SHORT, LONG))
    live = LONG - SHORT if kind != "buckets" else 2 * LONG - SHORT  # powers of two
    assert 0 <= long - short <= allowed(spec, live), f"grows by {long - short}"
    if kind == "static" and name == "window":
        assert long == short  # a ring of the window's size
    if kind == "growing" and name == "learned":
        assert long - short == allowed(spec, live)  # the bound is what attention takes


def test_the_count_would_find_a_map_that_is_made_again():
    spec = longer(SWITCHES["xl"])
    one = LONG - SHORT
    again = 3 * 2 * one * spec.dim**2  # the distances of three layers, mapped in every step
    assert again > allowed(spec, one)
