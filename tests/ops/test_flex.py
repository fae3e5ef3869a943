"""FlexAttention, forward on a CPU, against eager; block masks are kept."""

import pytest
import torch

from anyformer.ops import flex
from anyformer.ops.attend import attend
from anyformer.ops.flex import block_mask
from anyformer.ops.mask import Blocks, Causal, Documents, Padding, Prefix, Window
from anyformer.ops.plan import Mod, Plan
from anyformer.ops.relative import Relative

KEEP = torch.tensor([[True] * 20, [False] * 6 + [True] * 14])
MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Causal() & Window(4),
    "two-sided window": Window(3),
    "padding": Padding(KEEP.flip(1), True, True),
    "left padding": Causal() & Padding(KEEP, True),
    "documents": Causal() & Documents(torch.arange(20)[None].repeat(2, 1) // 7),
    "prefix": Causal() | Prefix(torch.tensor([3, 11])),
    "blocks": Blocks(4, 5),
}
RELATIVES = {
    "none": None,
    "bias": Relative(-4, 4, torch.randn(4, 9)),
    "slope": Relative(0, 0, slope=torch.rand(4)),
    "query": Relative(-4, 4, None, torch.randn(1, 9, 8)),
    "all": Relative(-6, 2, torch.randn(4, 9), torch.randn(4, 9, 8), torch.randn(1, 9, 8)),
}


WIDE = [(name, mask) for name in ("none", "all") for mask in MASKS]
NARROW = [(name, mask) for name in ("bias", "query") for mask in MASKS]
SHIFTS = [(5, 2, mask) for mask in MASKS]
OTHERS = [(start, lead, mask) for start, lead in ((8, 0), (0, 3)) for mask in MASKS]
USUAL = ("causal", "padding", "documents")


def thinned(cases):
    """Cases that cases of the whole product cover as well: all of them in the slow run."""
    return [c if c[-1] in USUAL else pytest.param(*c, marks=pytest.mark.slow) for c in cases]


def same(plan, queries=20, keys=20, groups=2):
    q = torch.randn(2, 4, queries, 8)
    k, v = torch.randn(2, 2, groups, keys, 8).unbind()
    ours, theirs = (attend(q, k, v, plan, name) for name in ("flex", "eager"))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    return bool(ours.isfinite().all())


@pytest.mark.parametrize(("relative", "mask"), WIDE + thinned(NARROW))
def test_flex_equals_eager(relative, mask):
    assert same(Plan(0.4, mask=MASKS[mask], relative=RELATIVES[relative]))


@pytest.mark.parametrize(("start", "lead", "mask"), SHIFTS + thinned(OTHERS))
def test_after_a_cache_and_persistent_keys(start, lead, mask):
    plan = Plan(0.4, mask=MASKS[mask], relative=RELATIVES["all"], start=start, lead=lead)
    assert same(plan, queries=20 - start, keys=20 + lead)


def test_mods_come_after_the_relative_terms():
    cap = Mod(lambda s, b, h, q, k: torch.tanh(s) + 0.1 * h - 0.01 * (q - k))
    twice = Mod(lambda s, b, h, q, k: 2 * s)
    assert same(Plan(0.4, relative=RELATIVES["bias"], mods=(cap, twice), start=3, lead=2), 15, 20)


def test_values_narrower_than_keys():
    q, k, v = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 4)
    out = attend(q, k, v, Plan(0.4), "flex")
    assert out.shape == (1, 2, 5, 4)
    torch.testing.assert_close(out, attend(q, k, v, Plan(0.4), "eager"))


def test_block_masks_are_made_once():
    block_mask.cache_clear()
    device = torch.device("cpu")
    shape = (2, 4, 256, 256)
    one = block_mask(Causal() & Window(9), shape, 0, 0, device)
    assert block_mask(Causal() & Window(9), shape, 0, 0, device) is one
    assert block_mask(Causal() & Window(8), shape, 0, 0, device) is not one
    assert block_mask(Causal() & Window(9), shape, 1, 0, device) is not one
    keep = torch.ones(2, 256, dtype=torch.bool)
    padding = Padding(keep)
    assert block_mask(padding, shape, 0, 0, device) is block_mask(padding, shape, 0, 0, device)
    assert block_mask(Padding(keep), shape, 0, 0, device) is not block_mask(
        padding, shape, 0, 0, device
    )
    assert one.sparsity() > 20  # blocks above the diagonal are left out


def test_no_kind_of_plan_is_one_too_many_to_compile(monkeypatch):
    """Torch compiles a function eight times by itself, and then runs it as it is."""
    counts, before = torch._dynamo.utils.counters["stats"], torch._dynamo.config.recompile_limit
    made = torch.compile(lambda x, kind: x * kind, backend="eager", dynamic=False)
    monkeypatch.setattr(flex, "_compiled", lambda: made)
    start = counts["unique_graphs"]
    for kind in range(2, 2 + before + 5):
        assert flex._fused(torch.ones(3), kind=kind).eq(kind).all()
    assert counts["unique_graphs"] - start == before + 5
    assert torch._dynamo.config.recompile_limit == before
