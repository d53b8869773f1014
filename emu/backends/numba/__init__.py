"""The Numba backend: compiled loops over blocks that stay in cache, the same bits as the reference.

machine.py     what the processor can do, and what of it may be used
compiling.py   how kernels are compiled and spread over threads; cache.py: kept on disk
bits.py        float bit patterns, error-free transformations
blocks.py      rounding, overflow, register, flags on one block
stage.py       the output stage writing one result from any thread, fused with the operation that feeds it
vector/        the same and the products below in vector code, twins of the plain loops
integers.py    exact products by integer dot-product instructions; speculation.py: of saturating accumulators
single_column.py  exact sums over axes, by float64 additions
in_tiles.py    sequential accumulators in vector code
flushing.py    operands of formats without subnormals
gathering.py   matrices of elements lying anywhere, put together
philox.py      random bits
in_order.py    accumulators that round, saturate or wrap at every add: the fast ones
dot_add.py     blocks of products, as matrix units add; blocks_in_tiles.py: of binary16 and FP8, in vector code
ordered.py     every other order, mode and rule, add by add; schedule.py: the adds as a list of events
halves.py      exact products of words of up to 32 bits, by those of their halves
wide_sums.py   exact sums wider than float64; windows.py: how they are cut; digits.py: carried, divided, wrapped
terms.py       products and stages inside these units, one block at a time
functions.py   elementary functions of wide inputs; tabled.py: of narrow ones
selection.py   relu, max pooling and its way back
table.py       the table of kernels
"""

from emu.backends.numba.table import NumbaKernels

__all__ = ["NumbaKernels"]
