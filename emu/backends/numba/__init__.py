"""The Numba backend: compiled loops over blocks that stay in cache, the same bits as the reference.

machine.py     what the processor can do, and what of it may be used
compiling.py   how kernels are compiled and spread over threads; cache.py: kept on disk
bits.py        float bit patterns, error-free transformations
blocks.py      rounding, overflow, register, flags on one block
prepared.py    a stage as compiled loops take it; operation_loops.py: elementwise operations that feed it
stage.py       the output stage writing one result from any thread, fused with the operation that feeds it
vector/        the same and the products below in vector code, twins of the plain loops
ways/          the ways to compute a product, a file each; contents.py: what their loops leave; ending.py: what ends all
integers.py    exact products by integer dot-product instructions
single_column.py  exact sums over axes, by float64 additions
flushing.py    operands of formats without subnormals
gathering.py   matrices of elements lying anywhere, put together
philox.py      random bits
schedule.py    the adds of an order as a list of events
windows.py     how exact sums wider than float64 are cut; digits.py: carried, divided, wrapped
terms.py       products and stages inside units, one block at a time
infinite_sums.py  which accumulators became infinite by themselves
functions.py   elementary functions of wide inputs; tabled.py: of narrow ones
selection.py   relu, max pooling and its way back
table.py       the table of kernels
"""

from emu.backends.numba.table import NumbaKernels

__all__ = ["NumbaKernels"]
