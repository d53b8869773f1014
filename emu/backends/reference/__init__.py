"""The reference backend: NumPy, vectorised over outputs, exact. The executable definition of the arithmetic.

exact.py        exact results: sign, integer significand, exponent
rounding.py     the table of modes, on significands
stage.py        the output stage: observe, round, overflow, flags
arithmetic.py   add .. sqrt, exact before the one rounding
accumulators.py the accumulator between two adds, and how it adds
products.py     the orders; blocks.py: of matrix units; sparse.py: of sparse operands
definition.py   dense and sparse products as the way that every backend ends its lists with
philox.py       random bits; lfsr.py: those of a shift register
codecs.py       gradient codecs; column_sums.py: the order of their sums
raws.py         raw integers of fixed-point carriers
table.py        the table of kernels
scaled.py       elements that share scales
"""

from emu.backends.reference.table import ReferenceKernels

__all__ = ["ReferenceKernels"]
