"""Attention that leaves most blocks of a long row out."""

from __future__ import annotations

from anyformer.spec.node import Natural, Positive, node


@node
class BlockSparse:
    """BigBird: blocks of positions see their neighbours, both ends and a few others (2007.14062).

    Rows of up to (5 + 2 · random) · size positions see everything. As in transformers, `random`
    blocks are drawn in training alone, by the layer's number; in evaluation the first block
    stands for each of them, and counts as often. No weights are dropped where it is sparse.
    """

    size: Positive = 64  # positions of a block
    random: Natural = 3  # drawn blocks that a block sees
    always: bool = False  # draw in evaluation too
    seed: Natural = 0  # of the draws, beside the layer's number
    longest: Positive = 4096  # row for which draws at 1024, 3072 and 4096 positions are planned
