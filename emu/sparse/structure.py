"""Where the entries of a sparse matrix (`CSR`) lie: checks of the three arrays that say it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from emu.backends.arrays import on_host
from emu.backends.pattern import Indices
from emu.errors import FormatError, ShapeError
from emu.formats.integers import as_integer

if TYPE_CHECKING:  # which checks itself by these functions
    from emu.sparse.csr import CSR

#: Rows and columns that an index names.
LARGEST_SIZE = 2**63 - 1
_INDEX_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))


def as_indices(x: Any, name: str) -> Indices:
    """Return an index array of the host, int32 or int64.

    Raises:
        ShapeError: not one dimension.
        FormatError: no integers, or one beyond int64.
    """
    try:
        array = np.asarray(on_host(x))
    except ValueError:  # NumPy's, of nested lists
        raise ShapeError(
            f"`{name}` must have one dimension, got lists of different lengths; give one list of integers"
        ) from None
    if array.ndim != 1:
        raise ShapeError(f"`{name}` must have one dimension, got shape {array.shape}; flatten it")
    # an empty list is float64 for NumPy
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise FormatError(f"`{name}` must hold integers, got dtype {array.dtype}; give int32 or int64")
    # of uint64 alone: wrapped around, it would be another number in every message
    if array.dtype.kind == "u" and int(array.max(initial=0)) > LARGEST_SIZE:
        raise FormatError(f"`{name}` must hold integers below 2**63, got {array.max()}; give int32 or int64")
    # unsigned and narrow integers: kernels have code for 32 and 64 bits with a sign
    if array.dtype not in _INDEX_DTYPES:
        array = array.astype(np.int64)
    return np.ascontiguousarray(array)


def rows_and_columns(shape: object) -> tuple[int, int]:
    """Return a shape, as two Python integers."""
    given: tuple[Any, ...] = tuple(cast("Iterable[Any]", shape)) if isinstance(shape, Iterable) else (shape,)
    try:
        # unpacking fails, too, if there are not two
        rows, columns = (as_integer("shape", size, 0, LARGEST_SIZE, error=ShapeError) for size in given)
    except ValueError:  # ours, or not two
        shown = ", ".join(map(repr, given)) + ("," if len(given) == 1 else "")
        raise ShapeError(f"`shape` must be rows and columns, 0 or more, got ({shown}); write (rows, columns)") from None
    return rows, columns


def require_fitting(x: CSR) -> None:
    """Raise ShapeError unless the arrays fit together."""
    rows, columns = x.shape
    if x.data.ndim != 1 or x.data.shape != x.indices.shape:
        raise ShapeError(
            f"`data` and `indices` must have one element per entry, got shapes {x.data.shape} and {x.indices.shape}; "
            "give a column for each"
        )
    if x.indptr.size != rows + 1:
        raise ShapeError(
            f"`indptr` must have rows + 1 = {rows + 1} elements, got {x.indptr.size}; say where each row begins, and "
            "the end"
        )
    if x.indptr[0] != 0 or x.indptr[-1] != x.indices.size:
        raise ShapeError(
            f"`indptr` must begin with 0 and end with the number of entries, {x.indices.size}, got "
            f"{x.indptr[0]} and {x.indptr[-1]}; say where each row begins, and the end"
        )
    # indptr begins at 0, does not fall, and ends at the entries: then every row lies inside
    falls = np.flatnonzero(x.indptr[1:] < x.indptr[:-1])
    if falls.size:
        row = int(falls[0])
        raise ShapeError(
            f"`indptr` must not descend, got {x.indptr[row]} and then {x.indptr[row + 1]} at row {row}; sort the rows"
        )
    if x.indices.size and not 0 <= x.indices.min() <= x.indices.max() < columns:
        # the first wrong entry, for the message
        entry = int(np.argmax((x.indices < 0) | (x.indices >= columns)))
        rule = f"must be columns 0..{columns - 1}" if columns else "must be empty where `shape` has no columns"
        raise ShapeError(
            f"`indices` {rule}, got {x.indices[entry]} at entry {entry}, row {_rows(x)[entry]}; choose another `shape`"
        )


def require_canonical(x: CSR, asked: str) -> None:
    """Raise ShapeError unless columns ascend in each row."""
    rows = _rows(x)
    # neighbours in storage: an entry and the one before it in its row
    same_row = rows[1:] == rows[:-1]
    wrong = np.flatnonzero(same_row & (x.indices[1:] <= x.indices[:-1]))
    if not wrong.size:
        return
    entry = int(wrong[0])
    row, before, here = rows[entry], x.indices[entry], x.indices[entry + 1]
    trouble = f"column {here} twice" if before == here else f"column {here} behind column {before}"
    raise ShapeError(
        f"columns must ascend in each row, none of them twice ({asked}), got {trouble} in row {row}; sort and "
        "merge them"
    )


def require_single(x: CSR) -> None:
    """Raise ShapeError if a row has a column twice."""
    rows = _rows(x)
    order = np.lexsort((x.indices, rows))  # by row, then by column: equal places become neighbours
    rows, columns = rows[order], x.indices[order]
    twice = np.flatnonzero((rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1]))
    if twice.size:
        entry = int(twice[0])
        raise ShapeError(
            f"a dense matrix has one value per place, got column {columns[entry]} twice in row {rows[entry]}; multiply "
            "by an identity matrix to add the entries up in a format"
        )


def _rows(x: CSR) -> Indices:
    """Return the row of each entry."""
    return np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
