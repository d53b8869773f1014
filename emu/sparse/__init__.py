"""Sparse matrices, their products and gradients, without a transpose.

>>> from emu import sparse
>>> x = sparse.CSR.from_dense([[0, 2, 0], [0, 1, 4]], "fix8f0")
>>> dw = sparse.transposed_matmul(x, [[1], [3]], dy_format="fix8f0", out_format="fix8f0")
>>> dw.rows.tolist(), dw.values.tolist()
([1, 2], [[5.0], [12.0]])
"""

from emu.sparse.compact import Compact, update_rows
from emu.sparse.csr import CSR
from emu.sparse.products import compact_matmul, matmul, transposed_matmul

__all__ = ["CSR", "Compact", "compact_matmul", "matmul", "transposed_matmul", "update_rows"]
