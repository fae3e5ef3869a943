"""Tokens and places by one kernel equal torch's own sums."""

import pytest
import torch

pytest.importorskip("triton", reason="entry: Triton isn't installed")
from anyformer.ops.entry import run_entry

WHERE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows, together", [(1, True), (5, True), (5, False)])
@pytest.mark.parametrize("wide, offset", [(8, 0), (37, 2)])
def test_equals_torch(rows, together, wide, offset, dtype):
    tokens, places = (torch.randn(n, wide, device=WHERE).to(dtype) for n in (30, 12))
    ids = torch.randint(0, 30, (rows, 1), device=WHERE)
    at = torch.randint(-2, 10, (1 if together else rows, 1), device=WHERE)
    wanted = tokens[ids] + places[at.clamp(min=0) + offset]
    found = run_entry(ids, at, [tokens, places], offset)
    near = 0.0 if dtype == torch.float32 or WHERE == "cuda" else 1e-2  # cut where a GPU rounds
    torch.testing.assert_close(found, wanted, rtol=near, atol=near)


def test_a_graph_knows_its_shape():
    torch.library.opcheck(
        run_entry,
        (torch.tensor([[1]], device=WHERE), torch.tensor([[2]], device=WHERE),
         [torch.randn(4, 8, device=WHERE), torch.randn(4, 8, device=WHERE)], 1),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip
