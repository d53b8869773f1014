"""The Numba backend: compiled loops over blocks that stay in cache, the same bits as the reference.

machine.py     which instructions the processor has, and which of them may be used
compiling.py   compiles kernels and runs them on threads; cache.py: keeps them on disk
ahead.py       compiles in copies of the process; claims.py: who of them compiles what
bits.py        float bit patterns, error-free transformations
blocks.py      rounding, overflow, register, flags on one block
prepared.py    a stage as compiled loops take it; operation_loops.py: elementwise operations that feed it
in_doubles.py  when a float64 result is written as the exact one would be
stage.py       the output stage writing one result from any thread, fused with the operation that feeds it
small.py       the same for small arrays, asked once for all of a kind
scaled.py      elements that share scales; scaled_loops.py: panels of them
vector/        vector code for the same, and for the products below: twins of the plain loops
ways/          the ways to compute a product, one file each; contents.py: what their loops return; ending.py: writes it
integers.py    exact products by integer dot-product instructions
single_column.py  exact sums over axes, by float64 additions
members.py     whether all numbers of an array belong to a format; centred.py: moves them to the middle of float32
flushing.py    operands of formats that read subnormals as 0
gathering.py   copies elements lying anywhere into a matrix
philox.py      random bits
schedule.py    the adds of an order as a list of events
windows.py     cuts exact sums wider than float64 into windows; digits.py: carries, divides and wraps them
terms.py       products and stages inside units, one block at a time
infinite_sums.py  which accumulators became infinite from finite terms
functions.py   elementary functions of wide inputs; tabled.py: of narrow ones
selection.py   relu, max pooling and its backward pass
codecs.py      gradient codecs; codecs_in_loops.py, codecs_of_sides.py: their columns; column_sums.py: their means
table.py       the table of kernels
"""

from emu.backends.numba.table import NumbaKernels

__all__ = ["NumbaKernels"]
