"""Triton kernels, one file each; `anyformer.ops.tiles` launches them, `eager` is their twin."""
