"""What no release has right equals an implementation of its own, written out score by score.

It shares no code with anyformer: weights are read from the state dict, everything else is loops.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyformer.compat import x_transformers as xt
from anyformer.compat.words import switch
from anyformer.model.model import build
from anyformer.recipes import recipe
from tests.parity.carry import disturb

DIM, HEADS, SIZE, LENGTH = 24, 3, 8, 8
SIZES = {"dim": DIM, "depth": 2, "heads": HEADS, "attn_dim_head": SIZE}
TOLERANCE = 1e-9  # everything is float64
Weights = dict[str, Tensor]
Score = Callable[[Weights, int, Tensor, Tensor, int, int, int], Tensor]  # …, block, q, k, h, i, j


def _made(layers: str, **words: Any) -> nn.Module:
    made = getattr(xt, layers)(**SIZES, **words).double().eval()
    disturb(made)
    return made


def _norm(x: Tensor, w: Weights, at: str) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    spread = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(spread + 1e-5) * w[f"{at}.weight"] + w[f"{at}.bias"]


def _linear(x: Tensor, w: Weights, at: str) -> Tensor:
    y = x @ w[f"{at}.weight"].T
    return y + w[f"{at}.bias"] if f"{at}.bias" in w else y


def _attend(x: Tensor, w: Weights, block: int, score: Score, causal: bool, seen: int = 0) -> Tensor:
    """The attention of one row x (K, d); the first `seen` positions don't ask."""
    at = f"stack.blocks.{block}.0.branch"
    q, k, v = (_linear(x, w, f"{at}.{n}").unflatten(-1, (HEADS, -1)) for n in "qkv")
    rows = []
    for i in range(seen, len(x)):
        last = i + 1 if causal else len(x)
        heads = []
        for h in range(HEADS):
            scores = [score(w, block, q[i, h], k[j, h], h, i, j) for j in range(last)]
            weights = torch.softmax(torch.stack(scores), 0)
            heads.append(sum(weights[j] * v[j, h] for j in range(last)))
        rows.append(torch.cat(heads))
    return _linear(torch.stack(rows), w, f"{at}.out")


def _feed(x: Tensor, w: Weights, block: int, act: Callable[[Tensor], Tensor]) -> Tensor:
    at = f"stack.blocks.{block}.1.branch"
    return _linear(act(_linear(x, w, f"{at}.up")), w, f"{at}.down")


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _encode(x: Tensor, w: Weights, score: Score, causal: bool = False) -> Tensor:
    """A pre-norm stack over one row (K, d)."""
    for block in range(2):
        at = f"stack.blocks.{block}"
        x = x + _attend(_norm(x, w, f"{at}.0.norm"), w, block, score, causal)
        x = x + _feed(_norm(x, w, f"{at}.1.norm"), w, block, _gelu)
    return x


def _agree(made: nn.Module, score: Score, causal: bool = False) -> None:
    x = torch.randn(2, LENGTH, DIM, dtype=torch.float64)
    weights = dict(made.model.named_parameters())
    expected = torch.stack([_encode(row, weights, score, causal) for row in x])
    found = made(x)
    assert (found - expected).abs().max() < TOLERANCE
    chosen = [p for p in made.parameters() if p.requires_grad]
    grads = [torch.autograd.grad(y.square().sum(), chosen) for y in (expected, found)]
    assert all((a - b).abs().max() < 1e-7 for a, b in zip(*grads, strict=True))


# ---------------------------------------------------------------- TUPE (arXiv:2006.15595)


def _bucket(distance: int, count: int, furthest: int) -> int:
    """T5's two-sided bucket of key minus query."""
    half = count // 2
    first = half if distance > 0 else 0
    distance = abs(distance)
    if distance < half // 2:
        return first + distance
    far = math.log(distance / (half // 2)) / math.log(furthest / (half // 2)) * (half - half // 2)
    return first + min(half // 2 + int(far), half - 1)


def _tupe(cls: bool, buckets: bool) -> Score:
    def score(w: Weights, block: int, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
        shrink = math.sqrt(2 * SIZE)
        placed = _norm(w["stack.untied.position.weight"], w, "stack.untied.norm")
        ask = _linear(placed[i], w, "stack.untied.q")[h * SIZE : (h + 1) * SIZE]
        answer = _linear(placed[j], w, "stack.untied.k")[h * SIZE : (h + 1) * SIZE]
        place = ask @ answer / shrink
        if buckets:
            place = place + w["stack.relative.0.table"][_bucket(j - i, 32, 128), h]
        if cls and i == 0:
            place = w["stack.untied.row"][h]
        elif cls and j == 0:
            place = w["stack.untied.column"][h]
        return q @ k / shrink + place

    return score


@pytest.mark.parametrize("layers", ["Encoder", "Decoder"])
@pytest.mark.parametrize("cls", [False, True])
def test_tupe(layers: str, cls: bool):
    made = _made(layers, tupe=LENGTH, tupe_cls=cls)
    _agree(made, _tupe(cls, buckets=False), causal=layers == "Decoder")


@pytest.mark.parametrize("cls", [False, True])
def test_tupe_with_t5_buckets(cls: bool):
    made = _made("Encoder", tupe=LENGTH, tupe_cls=cls, rel_pos_bias=True)
    _agree(made, _tupe(cls, buckets=True))


# ---------------------------------------------------------------- Shaw (arXiv:1803.02155)


def _shaw(clip: int, key_side: bool) -> Score:
    def score(w: Weights, block: int, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
        table = w[f"stack.blocks.{block}.0.branch.relative.0.table"]
        vector = table[clip + max(-clip, min(clip, j - i))]
        total = q @ k + q @ vector
        return (total + k @ vector if key_side else total) / math.sqrt(SIZE)

    return score


@pytest.mark.parametrize("clip", [3, LENGTH + 3])
@pytest.mark.parametrize("layers", ["Encoder", "Decoder"])
@pytest.mark.parametrize("word", ["relative_key", "relative_key_query"])
def test_shaw(word: str, layers: str, clip: int):
    made = _made(layers, **{word: clip})
    _agree(made, _shaw(clip, word == "relative_key_query"), causal=layers == "Decoder")


# ---------------------------------------------------------------- reversible (arXiv:2001.04451)


def _plain(w: Weights, block: int, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    return q @ k / math.sqrt(SIZE)


def _two_streams(x: Tensor, w: Weights, causal: bool) -> Tensor:
    one = two = x
    for block in range(2):
        at = f"stack.blocks.{block}"
        one = one + _attend(_norm(two, w, f"{at}.0.norm"), w, block, _plain, causal)
        two = two + _feed(_norm(one, w, f"{at}.1.norm"), w, block, _gelu)
    return (one + two) / 2


@pytest.mark.parametrize("layers", ["Encoder", "Decoder"])
def test_reversible_with_its_gradients(layers: str):
    made = _made(layers, reversible=True).train()
    x = torch.randn(2, LENGTH, DIM, dtype=torch.float64, requires_grad=True)
    weights = dict(made.model.named_parameters())
    expected = torch.stack([_two_streams(row, weights, layers == "Decoder") for row in x])
    found = made(x)
    assert (found - expected).abs().max() < TOLERANCE
    chosen = [x, *made.parameters()]
    grads = [torch.autograd.grad(y.square().sum(), chosen) for y in (expected, found)]
    assert all(g.abs().max() > 0 for g in grads[0])
    assert all((a - b).abs().max() < 1e-7 for a, b in zip(*grads, strict=True))


# ---------------------------------------------------------------- Transformer-XL (arXiv:1901.02860)


def _waves(distance: int) -> Tensor:
    steps = torch.arange(0, DIM, 2, dtype=torch.float64) / DIM
    angle = distance * 10000.0**-steps
    return torch.cat([angle.sin(), angle.cos()])


def _xl(w: Weights, block: int, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    at = f"stack.blocks.{block}.0.branch.relative.0"
    place = (w[f"{at}.project.weight"] @ _waves(i - j))[h * SIZE : (h + 1) * SIZE]
    words = (q + w[f"{at}.content_bias"][h]) @ k
    return (words + (q + w[f"{at}.position_bias"][h]) @ place) / math.sqrt(SIZE)


def _xl_shared(w: Weights, block: int, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    """One u and v for all layers."""
    at = f"stack.blocks.{block}.0.branch.relative.0"
    place = (w[f"{at}.project.weight"] @ _waves(i - j))[h * SIZE : (h + 1) * SIZE]
    u, v = (w[f"stack.relative.0.{name}_bias"][h] for name in ("content", "position"))
    return ((q + u) @ k + (q + v) @ place) / math.sqrt(SIZE)


def _xl_table(w: Weights, block: int, q: Tensor, k: Tensor, h: int, i: int, j: int) -> Tensor:
    """Learned rows for distances up to 6, and a scalar each, as labml.ai has it."""
    at, row = f"stack.blocks.{block}.0.branch.relative.0", 6 - min(i - j, 6)
    place = q @ w[f"{at}.table"][row, h] + w[f"{at}.scalars"][row, h]
    return ((q + w[f"{at}.content_bias"][h]) @ k + place) / math.sqrt(SIZE)


def _segments(rows: Tensor, w: Weights, size: int, kept: int, score: Score = _xl) -> Tensor:
    """A post-norm stack over one row (N, d), a segment at a time, with `kept` old positions."""
    old = [rows.new_zeros(0, DIM), rows.new_zeros(0, DIM)]
    done = []
    for x in rows.split(size):
        for block in range(2):
            at, seen = f"stack.blocks.{block}", len(old[block])
            whole = torch.cat([old[block], x])
            old[block] = whole[-kept:].detach()
            x = _norm(x + _attend(whole, w, block, score, True, seen), w, f"{at}.0.norm")
            x = _norm(x + _feed(x, w, block, torch.relu), w, f"{at}.1.norm")
        done.append(x)
    return torch.cat(done)


XL = {
    "own": ({}, _xl),
    "shared": ({"shared": True}, _xl_shared),
    "table": ({"table": 6}, _xl_table),
}


@pytest.mark.parametrize("variant", XL)
def test_transformer_xl_with_memory(variant):
    options, score = XL[variant]
    sizes = {"dim": DIM, "depth": 2, "heads": HEADS, "hidden": 40, "vocab": 30, "dropout": 0.0}
    model = build(recipe("transformer-xl", memory=5, **sizes, **options)).double().eval()
    disturb(model)
    weights = dict(model.named_parameters())
    ids = torch.randint(0, 30, (2, 12))
    rows = weights["embed.token.weight"][ids] * math.sqrt(DIM)
    expected = torch.stack([_segments(row, weights, 4, 5, score) for row in rows])
    memory, found = None, []
    for segment in ids.split(4, 1):
        out = model(segment, mems=memory, return_mems=True)
        memory = out.mems
        found.append(out.last_hidden_state)
    assert (torch.cat(found, 1) - expected).abs().max() < 1e-5  # sinusoids are float32


def test_transformer_xl_attention_without_memory():
    spec = switch(recipe("transformer-xl", dim=DIM, depth=2, heads=HEADS), max_mem_len=0)
    model = build(spec).double().eval()
    ids = torch.randint(0, 204, (1, 9))
    weights = dict(model.named_parameters())
    rows = weights["embed.token.weight"][ids[0]] * math.sqrt(DIM)
    expected = _segments(rows, weights, 9, 1)
    assert (model(ids).last_hidden_state[0] - expected).abs().max() < 1e-5
