"""Products of matrices, dense and sparse, and the entries of a dense matrix.

A sparse product has the option `entries`, the number of stored entries. Only `..._asks` reads it, because shapes do
not tell; the other functions get every option, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.backends.arrays import namespace
from emu.backends.registry import load
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, as_first, size_of
from emu.operations.row import MOVES, PRODUCTS, DoneBy, Role, Row
from emu.sparse import CSR
from emu.sparse.products import write_sparse
from emu.sparse.value import Everywhere, MadeSparse, SparseValue


def _matmul(role: Role, a: Value, b: Value, addend: Value | None = None) -> Value:
    return role.unit(a.format, b.format).matmul(a, b, addend)


def matmul_float64(xp: Any, a: Any, b: Any, addend: Any = None) -> Any:
    """Return a product of matrices in the arrays' own arithmetic."""
    return a @ b if addend is None else a @ b + addend


def matmul_asks(operands: Sequence[Shape], options: Options) -> Asked:
    """Ask for a product of matrices."""
    a, b = operands[:2]
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    return Asked(shape, multiply_adds=size_of(shape) * a[-1])


def _sparse_entries(role: Role, x: Value) -> Value:
    """The numbers of a matrix other than 0, their places, V1 and V2, in one pass; no number changes."""
    matrix = CSR.from_dense(x.array, x.format, backend=role.backend, check=False)
    # entries where the backend computes, and the structure that says where they lie
    return MadeSparse(load(role.backend).place(matrix.data), x.format, matrix)


def _every_entry(array: Any, fmt: Any) -> Value:
    """Return a result of `_sparse_entries` of which only the shape is known: shapes do not tell which numbers are 0."""
    # every element counts as an entry
    return MadeSparse(array.reshape(-1), fmt, Everywhere(array.shape))


def _sparse_matmul(role: Role, x: Value, w: Value, bias: Value | None = None, *, entries: int) -> Value:
    """Each result is the sum over the entries of its row, in storage order."""
    matrix = _matrix(x)
    # `entries` is not read: the structure knows how many there are
    return role.value(write_sparse(role.unit(x.format, w.format).description, matrix, w, bias, matrix.by_rows))


def _sparse_matmul_float64(xp: Any, x: Any, w: Any, bias: Any = None, *, entries: int) -> Any:
    return matmul_float64(xp, x, w, bias)


def _sparse_matmul_asks(operands: Sequence[Shape], options: Options) -> Asked:
    shape = (operands[0][0], operands[1][1])
    return Asked(shape, multiply_adds=options["entries"] * shape[1])


def _sparse_transposed_matmul(role: Role, x: Value, g: Value, *, entries: int) -> Value:
    """Each result is the sum over the entries of its column, row by row; without entries it is 0."""
    matrix = _matrix(x)
    pattern = matrix.by_columns(role.backend)
    written = write_sparse(role.unit(x.format, g.format).description, matrix, g, None, pattern)
    # the pattern has a result for each column with entries; those of all others are added below
    if pattern.results == matrix.shape[1]:
        return role.value(written)
    xp = namespace(written)
    # columns without entries have +0: an empty sum
    whole = xp.zeros((matrix.shape[1], written.shape[1]), written.dtype)
    whole[xp.asarray(matrix.unique_columns)] = written
    return role.value(whole)


def _sparse_transposed_matmul_float64(xp: Any, x: Any, g: Any, *, entries: int) -> Any:
    return x.T @ g


def _sparse_transposed_matmul_asks(operands: Sequence[Shape], options: Options) -> Asked:
    shape = (operands[0][1], operands[1][1])
    return Asked(shape, multiply_adds=options["entries"] * shape[1])


def _matrix(x: Value) -> CSR:
    """Return the matrix of a sparse value; its entries were checked when they were written."""
    assert isinstance(x, SparseValue), "a sparse product needs a sparse operand"
    # a structure is shared by several arrays of entries: those of this value are joined to it
    return x.structure.with_data(x.array, x.format, check=False)


ROWS = (
    Row("matmul", _matmul, matmul_float64, matmul_asks, DoneBy.UNIT, PRODUCTS),
    Row("sparse_entries", _sparse_entries, lambda xp, x: x, as_first, DoneBy.MOVE, MOVES, takes_any_format=True,
        made=_every_entry, only_chooses=True),
    Row("sparse_matmul", _sparse_matmul, _sparse_matmul_float64, _sparse_matmul_asks, DoneBy.UNIT, PRODUCTS),
    Row("sparse_transposed_matmul", _sparse_transposed_matmul, _sparse_transposed_matmul_float64,
        _sparse_transposed_matmul_asks, DoneBy.UNIT, PRODUCTS),
)  # fmt: skip
