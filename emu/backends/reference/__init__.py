"""The reference backend: NumPy, vectorised over outputs, exact. The executable definition of the arithmetic.

exact.py        exact results: sign, integer significand, exponent
rounding.py     the table of modes, on significands
stage.py        the output stage: observe, round, overflow, flags
arithmetic.py   add .. sqrt, exact before the one rounding
accumulators.py the accumulator between two adds, and how it adds
products.py     the orders; sparse.py: of sparse operands
definition.py   both as the way that every backend ends its lists with
philox.py       random bits
scaled.py       elements that share scales
"""

from emu.backends.reference.table import ReferenceKernels

__all__ = ["ReferenceKernels"]
