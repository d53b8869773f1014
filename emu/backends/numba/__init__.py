"""The Numba backend: compiled loops over blocks that stay in cache, the same bits as the reference.

compiling.py   how kernels are compiled, cached and spread over threads
bits.py        float bit patterns, error-free transformations
blocks.py      rounding, overflow, register, flags on one block
stage.py       the output stage over a whole array, fused with the operation that feeds it
philox.py      random bits
in_order.py    accumulators that round, saturate or wrap at every add
selection.py   relu, max pooling
table.py       the table of kernels
"""

from emu.backends.numba.table import NumbaKernels

__all__ = ["NumbaKernels"]
