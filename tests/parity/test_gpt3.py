"""GPT-3, which has no public code: against a restatement of its equations, row by row."""

import math

import pytest
import torch

import anyformer


def norm(x, weights, name):
    centred = x - x.mean(-1, keepdim=True)
    root = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / root * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def line(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attend(x, weights, at, heads, window):
    """Every row by itself: the keys up to it, or the last `window` of them."""
    q, k, v = (line(x, weights, f"{at}.{name}") for name in "qkv")
    size, rows = q.shape[-1] // heads, []
    for i in range(len(x)):
        first, parts = 0 if window is None else max(0, i - window + 1), []
        for h in range(heads):
            cut = slice(h * size, (h + 1) * size)
            scores = k[first : i + 1, cut] @ q[i, cut] / math.sqrt(size)
            weight = scores.exp() / scores.exp().sum()
            parts.append(weight @ v[first : i + 1, cut])
        rows.append(torch.cat(parts))
    return line(torch.stack(rows), weights, f"{at}.out")


def logits(ids, weights, depth, heads, window):
    x = weights["embed.token.weight"][ids] + weights["embed.position.weight"][: len(ids)]
    for i in range(depth):
        at, band = f"stack.blocks.{i}", window if i % 2 else None
        x = x + attend(norm(x, weights, f"{at}.0.norm"), weights, f"{at}.0.branch", heads, band)
        inner = gelu(line(norm(x, weights, f"{at}.1.norm"), weights, f"{at}.1.branch.up"))
        x = x + line(inner, weights, f"{at}.1.branch.down")
    return norm(x, weights, "stack.norm") @ weights["embed.token.weight"].T


@pytest.mark.parametrize(("depth", "heads", "head_dim", "window"), [(4, 3, 5, 3), (3, 2, None, 1)])
def test_gpt3_is_what_the_paper_says(depth, heads, head_dim, window):
    torch.manual_seed(0)
    sizes = {"dim": 12, "depth": depth, "heads": heads, "head_dim": head_dim, "window": window}
    model = anyformer.build(anyformer.recipe("gpt3", vocab=31, length=20, **sizes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    ids = torch.randint(0, 31, (2, 13))
    with torch.no_grad():
        found, weights = model(ids).logits, model.state_dict()
        wanted = torch.stack([logits(row, weights, depth, heads, window) for row in ids])
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-10)
