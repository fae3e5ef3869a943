"""Kernels as compiled for a GPU, run without one: an emulator of the PTX of Triton and of NVRTC.

Triton's interpreter runs what a kernel says; a GPU runs what the compiler made of it, inline
assembly included. Here a processor of capability 9.0 is played instruction by instruction, all
threads of a program at once, where their ways don't part, on tensors of the CPU. It stops at what a
GPU would not forgive, or would forgive at random: addresses beyond a tensor or beyond shared
memory, shared memory that nobody has written, or that one warp reads and another one writes with no
barrier between, products that read what they may not see yet, and copies that nobody waits for.
What it can't tell: time, faults of ptxas, and races between programs.

`launch.emulated()` is the way in.
"""
