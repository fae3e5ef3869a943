"""One call of heads that talk: how its kernels are cut and compiled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anyformer.ops.kernels.launch import Facts, Size, power
from anyformer.ops.kernels.launch_rows import early
from anyformer.ops.kernels.launch_strips import Piece, grain, long_rows
from anyformer.ops.kernels.strips import Shape

RUN = 512  # keys of a program that multiplies; twice as many where rows are long
TILES = {  # queries or heads by keys, and how a kernel is compiled, for the least heads
    "products": Size(128, 64, 8, 2),
    "sums": Size(64, 64, 4, 4),
    "turned": Size(64, 128, 8, 3),
    "talk": Size(16, 128, 4, 3),
    "talk_back": Size(16, 128, 4, 3),
}
LONG = {  # where rows are long, in 16 bits
    "products": Size(128, 128, 8, 3, registers=128),  # two programs to a processor
    "sums": Size(64, 128, 4, 3),
    "turned": Size(64, 128, 8, 4),
    "talk_back": Size(16, 128, 4, 4, registers=128),  # four
}
SLOTS = 264  # programs that sum at a time, two on each processor of an H200
SHARE = 8  # keys of a share of a row, at least, for each channel: with 2 its sums still find room
CHUNK = 1024  # keys of a program that mixes, at least, where rows are long
CHUNKS = 8  # of a row, at most


@dataclass(frozen=True, eq=False)
class Talk:
    """One call: q (B, H, Q, D), k (B, G, K, D), v (B, G, K, E), mixes (H, H) and keys to keep."""

    q: Tensor
    k: Tensor
    v: Tensor
    mix: Tensor  # float32; empty: none
    remix: Tensor
    keep: Tensor  # (B or 1, K - lead) int8; empty: all
    scale: float
    facts: Facts

    @property
    def chunk(self) -> int:
        """Keys that a program which mixes has; 0: all."""
        return max(CHUNK, power(-(-self.k.shape[2] // CHUNKS))) if long_rows(self) else 0

    def chunks(self, piece: Piece) -> int:
        """Programs that mix for each query."""
        return -(-piece.size[3] // self.chunk) if self.chunk else 1

    def shares(self, piece: Piece, size: Size, width: int) -> int:
        """Programs for each tile that is summed over keys."""
        rows, heads, count, wide = piece.size
        tiles = rows * heads * -(-count // size.m)
        most = min(SLOTS // tiles, wide // (SHARE * power(width)))
        return max(1, most) if self.chunk else 1

    def run(self, size: Size) -> int:
        """Tiles of keys of a program that multiplies."""
        return max(1, RUN * (2 if self.chunk else 1) // size.n)

    def size(self, kernel: str, width: int) -> Size:
        """The tiles of a kernel for this type, and rows so wide or heads so many."""
        exact = self.q.dtype == torch.float32
        size = (TILES | LONG if long_rows(self) and not exact else TILES)[kernel]
        mixes = kernel.startswith("talk")
        more = power(self.q.shape[1]) // 16 if mixes else max(1, power(width) // 64)
        more *= 4 if exact and mixes else 2 if exact else 1
        least = 16 if mixes or exact else 32
        n = min(size.n, max(least, size.n // more))
        stages = 1 if exact else max(1, size.stages - more + 1)
        registers = size.registers if more == 1 else 0
        return size._replace(n=n, stages=stages, registers=registers, early=early(self.q))

    def shape(self, size: Size, *widths: int, adds: bool = False) -> Shape:
        """What a kernel with such tiles is compiled for, where rows are so wide."""
        f, wide, fine = self.facts, (*widths, *widths), grain(self)
        return Shape(
            M=size.m,
            N=size.n,
            D=wide[0],
            E=wide[1],
            BD=power(wide[0]),
            BE=power(wide[1]),
            A=power(self.q.shape[1]),
            block=fine.block,
            even=fine.even,
            causal=bool(f.causal),
            window=f.width > 0,
            pads=self.keep.numel() > 0,
            mix=self.mix.numel() > 0,
            remix=self.remix.numel() > 0,
            jobs=len(widths),
            adds=adds,
            chunk=self.chunk,
            parts=1 << ((self.k.shape[2] - 1) // self.chunk).bit_length() if self.chunk else 1,
            early=size.early,
        )

    def mixes(self) -> tuple[Tensor, Tensor]:
        """Both matrices; in place of one that isn't there the other, which isn't used so."""
        there = self.mix if self.mix.numel() else self.remix
        return there, self.remix if self.remix.numel() else there
