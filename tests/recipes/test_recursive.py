"""Recursive RoBERTa and GPT-2: counts, and equality with layers written out one after another."""

import pytest
import torch
import torch.nn.functional as F

import anyformer
from anyformer.model.model import build
from anyformer.recipes import recipe
from anyformer.spec import Plain, layout, override
from anyformer.spec.schedule import closing

SIZES = {"dim": 16, "heads": 2, "vocab": 23, "length": 12}
NAMES = ("recursive-roberta", "recursive-gpt2")
KINDS = {  # the four mechanisms
    "one layer": {"depth": 4, "unique": 1},
    "matrices alone": {"depth": 4, "unique": 1, "own_norms": True},
    "each layer in place": {"depth": 4, "unique": 2},
    "superblocks": {"depth": 4, "unique": 2, "superblocks": 2},
    "superblocks of matrices": {"depth": 2, "superblocks": 2, "own_norms": True},
}
cases = pytest.mark.parametrize("kind", KINDS)
both = pytest.mark.parametrize("name", NAMES)
sides = pytest.mark.parametrize("relative", [False, True])


def made(name, kind, relative):
    """A recursive model in float64 with weights away from their start, and ids."""
    torch.manual_seed(0)
    spec = recipe(name, **SIZES, **KINDS[kind], relative=relative)
    model = build(spec).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model, torch.randint(2, 23, (2, 9))


def order(kind):
    """Which layer each application runs, by hand."""
    return {
        "one layer": [0, 0, 0, 0],
        "matrices alone": [0, 0, 0, 0],
        "each layer in place": [0, 0, 1, 1],
        "superblocks": [0, 0, 1, 1, 2, 2, 3, 3],
        "superblocks of matrices": [0, 0, 1, 1],
    }[kind]


def weights(model, kind, i):
    """The weights of application i: shared ones of its layer's first one, others its own."""
    runs, own = order(kind), KINDS[kind].get("own_norms", False)
    state = dict(model.named_parameters())
    first = runs.index(runs[i])
    found = {}
    for j in (0, 1):
        for part in ("norm", "branch"):
            block = (i if part == "norm" else first) if own else runs[i]
            lead = f"stack.blocks.{block}.{j}.{part}."
            found |= {
                f"{j}.{k.removeprefix(lead)}"
                if part == "branch"
                else f"{j}.norm.{k.removeprefix(lead)}": v
                for k, v in state.items()
                if k.startswith(lead)
            }
        if own and f"stack.blocks.{i}.{j}.relative.0.table" in state:
            found[f"{j}.relative.0.table"] = state[f"stack.blocks.{i}.{j}.relative.0.table"]
    return found


def attend(x, w, causal, clip):
    """Attention of one layer, every score written out."""
    heads = SIZES["heads"]
    q, k, v = (
        F.linear(x, w[f"0.{n}.weight"], w[f"0.{n}.bias"]).unflatten(-1, (heads, -1)).transpose(1, 2)
        for n in "qkv"
    )
    n = x.shape[1]
    scores = q @ k.mT
    if clip:
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        rows = w["0.relative.0.table"][clip + j - i]  # (N, N, D)
        scores = scores + torch.einsum("bhid,ijd->bhij", q, rows)
    scores = scores / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    return F.linear(y, w["0.out.weight"], w["0.out.bias"])


def feed(x, w, tanh):
    """The feed-forward of one layer."""
    up = F.gelu(
        F.linear(x, w["1.up.weight"], w["1.up.bias"]), approximate="tanh" if tanh else "none"
    )
    return F.linear(up, w["1.down.weight"], w["1.down.bias"])


def naive(model, ids, name, kind, relative):
    """The last hidden states, layer after layer."""
    eps, gpt = 1e-5, name == "recursive-gpt2"
    norm = lambda x, lead, w: F.layer_norm(
        x, x.shape[-1:], w[f"{lead}weight"], w[f"{lead}bias"], eps
    )
    state = dict(model.named_parameters())
    x = state["embed.token.weight"][ids]
    at = torch.arange(ids.shape[1]) + (0 if gpt else 2)
    x = x if relative else x + state["embed.position.weight"][at]
    if not gpt:
        x = norm(x + state["embed.segment.weight"][0], "embed.norm.", state)
    clip = (SIZES["length"] + (-1 if gpt else 1)) * relative
    span = KINDS[kind]["depth"]
    for i in range(len(order(kind))):
        entered = x if i % span == 0 else entered  # noqa: F821
        w = weights(model, kind, i)
        if gpt:
            x = x + attend(norm(x, "0.norm.", w), w, True, clip)
            x = x + feed(norm(x, "1.norm.", w), w, True)
        else:
            x = norm(x + attend(x, w, False, clip), "0.norm.", w)
            x = norm(x + feed(x, w, False), "1.norm.", w)
        if "superblocks" in kind and (i + 1) % span == 0:
            x = norm(x + entered, f"stack.closing.{i // span}.", state)
    return norm(x, "stack.norm.", state) if gpt else x


@both
@cases
@sides
def test_equal_to_layers_written_out(name, kind, relative):
    model, ids = made(name, kind, relative)
    expected = naive(model, ids, name, kind, relative)
    found = model(ids).last_hidden_state
    assert (found - expected).abs().max() < 1e-9
    chosen = [p for n, p in model.named_parameters() if n.startswith("stack")]
    sums = [(y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() for y in (expected, found)]
    a, b = (torch.autograd.grad(total, chosen) for total in sums)
    assert all((x - y).abs().max() < 1e-8 for x, y in zip(a, b, strict=True))
    assert all(x.abs().max() > 0 for x in a)


@both
@cases
@sides
def test_parameters(name, kind, relative):
    spec = recipe(name, **SIZES, **KINDS[kind], relative=relative)
    dim, options = SIZES["dim"], KINDS[kind]
    matrices = 4 * (dim**2 + dim) + 2 * 4 * dim**2 + 5 * dim
    clip = SIZES["length"] + (1 if name == "recursive-roberta" else -1)
    small = 4 * dim + (2 * clip + 1) * (dim // 2) * relative  # norms, and the table by distance
    unique, runs = len(set(order(kind))), len(order(kind))
    expected = unique * matrices + (runs if options.get("own_norms") else unique) * small
    ends = 2 * dim * options.get("superblocks", 1) if "superblocks" in kind else 0
    final = 2 * dim if name == "recursive-gpt2" else 0
    found = {part.name: part.parameters for part in anyformer.count(spec).parts}
    stack = ("attention", "feedforward", "norms", "positions", "residuals")
    assert sum(found.get(part, 0) for part in stack) == expected + ends + final
    assert anyformer.count(spec).parameters == sum(p.numel() for p in build(spec).parameters())


def test_published_sizes():
    """Millions of parameters of the TSBpt models, whose files hold an unused table by position."""
    unused = 514 * 768
    count = lambda **given: anyformer.count(recipe("recursive-roberta", **given)).parameters
    assert round((count() + unused) / 1e6, 1) == 31.6
    assert round((count(unique=6) + unused) / 1e6, 1) == 67.4
    gpt = anyformer.count(recipe("recursive-gpt2", unique=12)).parameters
    assert abs(gpt / 1e6 - 124.2) < 1.0


@both
def test_recursion_costs_what_its_layers_cost(name):
    flops = lambda **given: anyformer.count(recipe(name, **SIZES, depth=4, **given), 8).flops
    assert flops(unique=1) == flops(unique=4) == flops(unique=1, own_norms=True)


@both
@cases
def test_a_cache_is_kept_by_application(name, kind):
    model, ids = made(name, kind, True)
    spec = override(model.spec, "stack.block.0.branch.causal", True)
    causal = build(spec).double().eval()
    causal.load_state_dict(model.state_dict())
    whole = causal(ids).logits
    first = causal(ids[:, :4], use_cache=True)
    rest = causal(ids[:, 4:], past_key_values=first.past_key_values)
    assert len(
        rest.past_key_values.kv if rest.past_key_values else first.past_key_values.kv
    ) == len(order(kind))
    assert (torch.cat([first.logits, rest.logits], 1) - whole).abs().max() < 1e-9


@both
def test_own_parts_of_unshared_layers_are_all_parts(name):
    """With a layer for each application, own norms are those of the layers."""
    spec = recipe(name, **SIZES, depth=3, unique=3, own_norms=True)
    plain = override(override(spec, "stack.own", ()), "stack.schedule", Plain())
    assert layout(spec.stack).lenders == (0, 1, 2)
    assert not closing(spec.stack)
    assert anyformer.count(spec).parameters == anyformer.count(plain).parameters


@both
def test_layers_without_feed_forward(name):
    spec = recipe(name, **SIZES, depth=3, feedforward=False)
    assert [sub.kind for sub in spec.stack.block] == ["attention"]
    assert anyformer.count(spec).parameters < anyformer.count(recipe(name, **SIZES)).parameters
