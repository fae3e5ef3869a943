"""Branches side by side: what they say is summed, each behind its own norm where it has one."""

import torch

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.parts.state import Call

BRANCHES = (S.Attention(heads=2, causal=True), S.FeedForward(hidden=7))


def sublayer(norms=(), norm=None):
    torch.manual_seed(0)
    branch = S.Parallel(branches=BRANCHES, norms=norms)
    stack = S.Stack(block=(S.Sublayer(branch=branch, norm=norm),), depth=1)
    model = build(S.Model(dim=6, embed=S.Embed(source=S.Tokens(vocab=5)), stack=stack))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.stack.blocks[0][0]


def test_branches_read_the_same_and_are_summed():
    x = torch.randn(2, 5, 6)
    call = Call(length=5, positions=torch.arange(5)[None])
    for one in (sublayer(norm=S.LayerNorm()), sublayer(norms=(S.RMSNorm(), S.LayerNorm()))):
        read = x if one.norm is None else one.norm(x)
        wanted = x
        for i, branch in enumerate(one.branch.branches):
            y = one.branch.norms[i](read) if len(one.branch.norms) else read
            wanted = wanted + branch(y, call, "")
        torch.testing.assert_close(one(x, call, "0.0"), wanted)


def test_fresh_outputs_of_branches_are_smaller_with_depth():
    branch = S.Parallel(branches=(S.Attention(heads=2), S.FeedForward(hidden=512)))
    stack = S.Stack(block=(S.Sublayer(branch=branch),), depth=8)
    init = S.Init(std=0.5, depth_scaled=True)
    embed = S.Embed(source=S.Tokens(vocab=5))
    inner = build(S.Model(dim=256, embed=embed, stack=stack, init=init)).stack.blocks[0][0].branch
    for last in (inner.branches[0].out, inner.branches[1].down):
        assert abs(last.weight.std().item() - 0.5 / 4) < 0.01
    assert abs(inner.branches[1].up.weight.std().item() - 0.5) < 0.02
