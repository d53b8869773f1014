"""Values that store some of a tensor's elements; `emu.formats.Value` stores all of them.

SparseValue   the entries of a sparse matrix
MadeSparse    the same, of a matrix that was dense
RowsValue     some rows of a matrix, all others 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from emu.formats import Value

#: Bytes of the column of an entry, also in V1 and V2, and of a row's start.
_INDEX_BYTES, _START_BYTES = 4, 8


@dataclass(frozen=True, eq=False)
class SparseValue(Value):
    """The entries of a sparse matrix.

    Attributes:
        structure: the matrix (`emu.sparse.CSR`) that says where the entries lie; its own entries are not read. If only
            shapes are known, it is `Everywhere`.
    """

    structure: Any = None

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.structure.shape

    @override
    def with_array(self, array: Any) -> Value:
        """Return other entries in the same places."""
        return SparseValue(array, self.format, self.structure)

    @override
    def holding(self, results: Value) -> Value:
        """Return the results of an operation on each entry."""
        return SparseValue(results.array, results.format, self.structure)

    @property
    @override
    def index_bytes(self) -> int:
        """Bytes of columns and row starts."""
        return self.structure.index_bytes


@dataclass(frozen=True, eq=False)
class MadeSparse(SparseValue):
    """The entries of a matrix that was dense: its places, V1 and V2 are written with it."""

    @property
    @override
    def made_index_bytes(self) -> int:
        """Bytes of columns and row starts, of V1, and of V2."""
        return self.structure.index_bytes + self.structure.column_bytes


@dataclass(frozen=True)
class Everywhere:
    """The places of a matrix of which only the shape is known: each number is taken to be an entry.

    Attributes:
        shape: rows, columns.
    """

    shape: tuple[int, int]

    @property
    def index_bytes(self) -> int:
        """Bytes of columns and row starts, as of `CSR`."""
        rows, columns = self.shape
        # every number is an entry with a column of 32 bits; starts have 64
        return _INDEX_BYTES * rows * columns + _START_BYTES * (rows + 1)

    @property
    def column_bytes(self) -> int:
        """Bytes of V1 and V2, as of `CSR`."""
        rows, columns = self.shape
        # V1 has a word for each entry, V2 one for each column
        return _INDEX_BYTES * (rows + 1) * columns


@dataclass(frozen=True, eq=False)
class RowsValue(Value):
    """Some rows of a matrix; all others are 0.

    Attributes:
        rows: integers, ascending: which ones `array` holds.
    """

    rows: Any = None

    @override
    def with_array(self, array: Any) -> Value:
        """Return the same rows with other numbers."""
        return RowsValue(array, self.format, self.rows)

    @override
    def holding(self, results: Value) -> Value:
        """Return the results of an operation on each element of these rows."""
        return RowsValue(results.array, results.format, self.rows)

    @property
    @override
    def index_bytes(self) -> int:
        """Bytes that say which rows."""
        return self.rows.nbytes
