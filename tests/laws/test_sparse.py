"""The laws on rows that block-sparse attention leaves gaps in.

Those of padding and packing are not said of them: blocks lie over the row as it is given, padding
included, as in transformers, so that a row alone has others.
"""

from __future__ import annotations

import pytest
import torch

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.laws import backends as law_backends
from anyformer.laws.cases import case, each
from anyformer.laws.order import paths_of_attentions
from anyformer.laws.specs import sample
from anyformer.laws.table import LAWS
from anyformer.laws.training import without_dropout
from anyformer.spec.walk import selves

HELD = ("5 backends", "7 round trips", "7 folder", "8 masked row", "9 parameters", "9 flops")
BLOCKS = "stack.block.0.branch.blocks"
PLAIN = S.Model(
    dim=8,
    embed=S.Embed(source=S.Tokens(vocab=29), position=S.Learned(length=40)),
    stack=S.Stack(block=(S.Sublayer(branch=S.Attention(heads=2)),), depth=2),
)


def drawing(random: int, seed: int = 0) -> S.BlockSparse:
    """Blocks of one position, which the laws' short rows are long enough for."""
    return S.BlockSparse(size=1, random=random, always=True, seed=seed)


def sparse(seed: int, blocks: S.BlockSparse) -> S.Model:
    """A drawn spec whose self-attentions are all sparse."""
    for other in range(seed, seed + 10**6, 1000):
        spec = sample(other, causal=False)
        found = selves(spec.stack)
        if (
            found
            and not any(a.causal for a in found)
            and not isinstance(spec.embed.source, S.Patches)
        ):
            break
    for path in paths_of_attentions(spec, cross=False):
        spec = S.override(spec, f"{path}.blocks", blocks)
    return S.check(spec)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*HELD, "5 flex"])
def test_law(name, seed, monkeypatch):
    whole = law_backends._masks
    undocumented = lambda c: {k: v for k, v in whole(c).items() if k != "document_ids"}
    monkeypatch.setattr(law_backends, "_masks", undocumented)
    assert LAWS[name].check(sparse(seed, drawing(seed % 2)), seed) is None


def answers(blocks: S.BlockSparse | None) -> torch.Tensor:
    """What a row of twelve says."""
    with torch.no_grad():
        return each(case(S.override(PLAIN, BLOCKS, blocks), 1, length=12)())[0]


@pytest.mark.parametrize("random", [0, 1])
def test_rows_are_sparse_and_draws_follow_the_seed(random):
    full, found = answers(None), answers(drawing(random))
    assert not torch.allclose(full, found)
    assert torch.equal(found, answers(drawing(random)))
    assert torch.allclose(found, answers(drawing(random, seed=5))) == (random == 0)
    assert torch.equal(answers(S.BlockSparse(size=4)), full)


@pytest.mark.parametrize("always", [True, False])
def test_training_sees_what_evaluation_sees_where_it_always_draws(always):
    blocks = S.override(drawing(2), "always", always)
    c = case(S.override(without_dropout(PLAIN), BLOCKS, blocks), 0, length=12)
    with torch.no_grad():
        evaluated, trained = each(c())[0], each((c.model.train() and c)())[0]
    assert torch.equal(evaluated, trained) == always


def test_what_lies_over_no_whole_row_is_refused():
    c = case(S.override(PLAIN, BLOCKS, drawing(0)), 0, length=12)
    with pytest.raises(InputError, match="document_ids"):
        c(document_ids=torch.zeros(2, 12, dtype=torch.long))
    past = c(at=slice(0, 4), use_cache=True).past_key_values
    with pytest.raises(InputError, match="past_key_values"):
        c(at=slice(4, None), past_key_values=past)
