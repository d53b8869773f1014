"""Where the entries of a sparse matrix lie, as a product with a dense one reads them.

Entry p of stored row r takes part in one dot product for every column of the dense operand:

    by rows      y = x w       result r,         beside row index[p] of w
    by columns   P = x^T dy    result index[p],  beside row r of dy

A dot product has its entries in storage order.

Source: US 12,008,475 (transposed sparse products).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.signedinteger[Any]]


class Segments(NamedTuple):
    """The entries of every result, one result after the other.

    Attributes:
        starts: int64, (results + 1,): result r has the positions from `starts[r]` to `starts[r + 1]`.
        entries: at each position the stored entry.
        rows: at each position the row of the dense operand.
    """

    starts: NDArray[np.int64]
    entries: Indices
    rows: Indices


@dataclass(frozen=True, eq=False)
class Pattern:
    """Entries of a sparse matrix, and what they are multiplied with.

    Attributes:
        starts: int64, (rows + 1,): stored row r has the entries from `starts[r]` to `starts[r + 1]`.
        index: int32 or int64, one per entry: by rows the dense operand's row, by columns the result.
        results: rows of the result.
        by_columns: whether a stored row's entries go to different results.
        longest: at least the most entries of a result.
    """

    starts: NDArray[np.int64]
    index: Indices
    results: int
    by_columns: bool
    longest: int

    @cached_property
    def row_of(self) -> Indices:
        """Stored row of each entry."""
        # one number for each stored row, in the dtype of the index
        rows = np.arange(self.starts.size - 1, dtype=self.index.dtype)
        return np.repeat(rows, np.diff(self.starts))

    @property
    def targets(self) -> Indices:
        """Result of each entry."""
        return self.index if self.by_columns else self.row_of

    @property
    def sources(self) -> Indices:
        """Row of the dense operand beside each entry."""
        return self.row_of if self.by_columns else self.index

    @cached_property
    def segments(self) -> Segments:
        """The entries of every result, in storage order."""
        if not self.by_columns:
            return Segments(self.starts, np.arange(self.index.size), self.index)
        starts = np.zeros(self.results + 1, np.int64)
        # how many entries each result has, summed up: where each one begins
        np.cumsum(np.bincount(self.index, minlength=self.results), out=starts[1:])
        entries = np.argsort(self.index, kind="stable")  # stable: the entries of a result stay in storage order
        return Segments(starts, entries, self.row_of[entries])


class Columns(NamedTuple):
    """Which columns have entries.

    Attributes:
        places: of each entry, its column's position in `used` (V1).
        used: the columns with an entry, ascending (V2).
        longest: the most entries of a column.
    """

    places: Indices
    used: Indices
    longest: int
