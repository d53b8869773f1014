"""Values that store some of a tensor's elements; `emu.formats.Value` stores all of them.

SparseValue   the entries of a sparse matrix
RowsValue     some rows of a matrix, all others 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from emu.formats import Value


@dataclass(frozen=True, eq=False)
class SparseValue(Value):
    """The entries of a sparse matrix.

    Attributes:
        structure: the matrix (`emu.sparse.CSR`) that says where the entries lie; its own entries are not read.
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
        return self.structure.indices.nbytes + self.structure.indptr.nbytes


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
