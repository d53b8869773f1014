"""A sparse matrix by rows, with an index of its columns: products with its transpose need no transposed copy.

    data             2 5 1 3 4 7      values, row after row
    indices          1 4 0 1 4 5      their columns
    indptr           0 2 2 4 6        where each row begins
    unique_columns   0 1 4 5          V2: columns that have entries, ascending
    transpose_index  1 2 0 1 2 3      V1: of each entry, its column's place in V2

Every stored number is an entry: explicit zeros are entries, and a column that a row has twice is two entries.

Source: US 12,008,475.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import frozen, is_on_device, lasting, on_host
from emu.backends.pattern import Columns, Indices, Pattern
from emu.backends.registry import load
from emu.engine.operands import as_operand
from emu.errors import ShapeError
from emu.formats import Format, parse_number
from emu.sparse.structure import as_indices, require_canonical, require_fitting, require_single, rows_and_columns

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class CSR:
    """A sparse matrix whose entries are values of a format.

    Make one by `CSR.of`, `from_dense` or `from_scipy`, which also check the entries. A matrix holds its own arrays,
    which are read-only: if those it was made from change, its entries, their places, V1 and V2 stay.

    Attributes:
        data: carriers of `format`, (entries,).
        indices: column of each entry, int32 or int64.
        indptr: int64, (rows + 1,): row r has the entries from `indptr[r]` to `indptr[r + 1]`.
        shape: rows, columns.
        format: of the entries.
        known: V1, V2 and the longest column, once they are built.

    Raises:
        ShapeError: lengths that do not fit together, rows that do not ascend, or a column outside the matrix.
        FormatError: places that are not integers, or no such format.
    """

    data: Array
    indices: Indices
    indptr: NDArray[np.int64]
    shape: tuple[int, int]
    format: Format
    known: Columns | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Take copies, and check that they fit together: compiled loops would read beyond their ends."""
        # the dataclass is frozen
        put, fmt = partial(object.__setattr__, self), parse_number(self.format)
        data = as_operand(self.data, fmt, "data", check=False)[0]
        put("format", fmt)
        # copies, read-only: V1, V2 and patterns are built from these arrays once, and must stay true
        put("data", data.copy() if is_on_device(data) else frozen(np.array(data)))
        put("indices", _kept(np.array(as_indices(self.indices, "indices"))))
        put("indptr", _kept(as_indices(self.indptr, "indptr").astype(np.int64)))
        put("shape", rows_and_columns(self.shape))
        require_fitting(self)

    @classmethod
    def _made(
        cls, data: Array, indices: Indices, starts: Array, shape: tuple[int, int], fmt: Format, known: Columns | None
    ) -> CSR:
        """Return the matrix of arrays that nobody else writes to, and that fit together."""
        # past the checks: for results of methods of this class, whose arrays fit together
        matrix, kept = object.__new__(cls), data if is_on_device(data) else frozen(data)
        given = (kept, _kept(indices), _kept(starts), shape, fmt, known)
        for item, part in zip(fields(cls), given, strict=True):
            object.__setattr__(matrix, item.name, part)
        return matrix

    def __reduce__(self) -> tuple[Any, ...]:
        # V1 and V2 are built again where they are needed
        return type(self), (self.data, self.indices, self.indptr, self.shape, self.format)

    @classmethod
    def of(
        cls,
        data: Any,
        indices: Any,
        indptr: Any,
        shape: tuple[int, int],
        fmt: str | Format,
        *,
        canonical: bool = False,
        check: bool = True,
    ) -> CSR:
        """Return the matrix of these three arrays.

        Args:
            data: values of `fmt`, (entries,).
            indices: column of each entry, integers.
            indptr: where each row begins, and the end, integers, (rows + 1,).
            shape: rows, columns.
            fmt: of the entries.
            canonical: whether columns must ascend in each row, none of them twice.
            check: whether to check that the entries are values of the format; their places are always checked.

        Raises:
            ShapeError: lengths that do not fit together, rows that do not ascend, a column outside the matrix, or, with
                `canonical`, one that is out of order or there twice.
            FormatError: a value that the format does not hold.
        """
        parsed = parse_number(fmt)
        values = as_operand(data, parsed, "data", check=check)[0]
        matrix = cls(values, indices, indptr, shape, parsed)
        if canonical:
            require_canonical(matrix, "canonical=True")
        return matrix

    @classmethod
    def from_dense(cls, x: Any, fmt: str | Format, *, backend: str = "auto", check: bool = True) -> CSR:
        """Return the entries of a dense matrix other than 0, with V1 and V2.

        Args:
            x: values of `fmt`, (rows, columns); NaN is an entry, -0 is none.
            fmt: of the values.
            backend: the backend that counts the columns.
            check: whether to check that `x` holds values of the format.

        Raises:
            ShapeError: `x` is no matrix.
            FormatError: a value that the format does not hold.

        Examples:
            >>> CSR.from_dense([[0, 2, 0], [1, 0, 3]], "fix8f0").unique_columns.tolist()
            [0, 1, 2]
        """
        values, parsed = as_operand(x, parse_number(fmt), "x", check=check)
        assert parsed is not None
        values = on_host(values)
        if values.ndim != 2:
            raise ShapeError(f"`x` must be a matrix (rows, columns), got shape {values.shape}; reshape it")
        flat = np.ascontiguousarray(values).reshape(-1)
        entries = np.flatnonzero(flat)  # for NumPy NaN is nonzero and -0 is not: as promised above
        # at least 1: a matrix without columns has no entries to divide
        rows, indices = np.divmod(entries, max(values.shape[1], 1))
        starts = _row_starts(rows, values.shape[0])
        # 32 bits whenever columns fit: kernels read half as much
        narrow = indices.astype(np.int32 if values.shape[1] < 2**31 else np.int64)
        matrix = cls._made(flat[entries], narrow, starts, values.shape, parsed, None)
        # V1 and V2 at once, by the backend that the caller names
        matrix.columns(backend)
        return matrix

    @classmethod
    def from_scipy(cls, x: Any, fmt: str | Format, *, canonical: bool = False, check: bool = True) -> CSR:
        """Return a SciPy container (csr, csc, coo, or what turns into one) with all its stored entries.

        Explicit zeros and duplicates of csr, csc and coo stay; another container is first turned into coo by SciPy,
        which leaves zeros on the diagonals of dia out. Entries of a row are in the order of the container.

        Args:
            x: a matrix or array of `scipy.sparse`.
            fmt: of the entries.
            canonical: whether columns must ascend in each row, none of them twice.
            check: whether to check that the entries are values of the format.

        Raises:
            ShapeError: `x` is no SciPy container, or not canonical.
            FormatError: a value that the format does not hold.
        """
        kind = getattr(x, "format", None)
        if not hasattr(x, "tocoo") or not isinstance(kind, str) or len(x.shape) != 2:
            raise ShapeError(
                f"`x` must be a matrix of scipy.sparse, got {type(x).__name__}; CSR.from_dense takes arrays"
            )
        if kind == "csr":
            return cls.of(x.data, x.indices, x.indptr, x.shape, fmt, canonical=canonical, check=check)
        entries = x.tocoo()
        # stable: entries of a row keep the container's order, which is the order of the sums
        order = np.argsort(entries.row, kind="stable")
        starts = _row_starts(entries.row[order], x.shape[0])
        given = (entries.data[order], entries.col[order], starts, x.shape, fmt)
        return cls.of(*given, canonical=canonical, check=check)

    def to_scipy(self) -> Any:
        """Return a `scipy.sparse.csr_array` with the same entries, in the same order; it needs SciPy."""
        from scipy.sparse import csr_array  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

        data = on_host(self.data).copy()
        return csr_array((data, self.indices.copy(), self.indptr.copy()), shape=self.shape)

    def to_dense(self) -> Array:
        """Return the matrix as an array of carriers, in the host's memory.

        Raises:
            ShapeError: a row has a column twice; the sum of the two would need a format.
        """
        require_single(self)
        dense = np.zeros(self.shape, self.data.dtype)
        dense[self.rows, self.indices] = on_host(self.data)
        return dense

    def __len__(self) -> int:
        """Rows."""
        return self.shape[0]

    def __getitem__(self, chosen: Any) -> CSR:
        """Return some rows, in the order asked for; entries of a row keep their order.

        Args:
            chosen: a slice, or an array of row numbers, as NumPy takes them: repeated, negative, or a mask.

        Raises:
            IndexError: a row that is not there.
            ShapeError: `chosen` does not name rows in one dimension, such as a single number.

        Examples:
            >>> x = CSR.from_dense([[0, 2, 0], [1, 0, 3]], "fix8f0")
            >>> x[[1, 1, 0]].to_dense().tolist()
            [[1.0, 0.0, 3.0], [1.0, 0.0, 3.0], [0.0, 2.0, 0.0]]
        """
        # NumPy resolves slices, masks and negative numbers, and raises IndexError
        begins, ends = self.indptr[:-1][chosen], self.indptr[1:][chosen]
        if begins.ndim != 1:
            raise ShapeError(
                f"rows must be chosen by a slice or by a vector of integers, got {chosen!r}; `x[3:4]` is one row"
            )
        starts = np.zeros(begins.size + 1, np.int64)
        np.cumsum(ends - begins, out=starts[1:])
        if isinstance(chosen, slice) and (begins[1:] == ends[:-1]).all():  # neighbouring rows: one piece, as a view
            entries = slice(int(begins[0]), int(ends[-1])) if begins.size else slice(0)
        else:  # entry p of the result, in its row i, is entry begins[i] + (p - starts[i])
            entries = np.repeat(begins - starts[:-1], ends - begins) + np.arange(int(starts[-1]))
        shape = (begins.size, self.shape[1])
        return self._made(self.data[entries], self.indices[entries], starts, shape, self.format, None)

    def with_data(self, data: Any, fmt: str | Format, *, check: bool = True) -> CSR:
        """Return a matrix with other entries in the same places; V1, V2 and patterns that are built are shared.

        Args:
            data: values of `fmt`, (entries,).
            fmt: of the entries.
            check: whether to check that they are values of the format.

        Raises:
            ShapeError: not one value per entry.
            FormatError: a value that the format does not hold.
        """
        parsed = parse_number(fmt)
        values = as_operand(data, parsed, "data", check=check)[0]
        if values.shape != self.indices.shape:
            raise ShapeError(f"`data` must have one element per entry, shape {self.indices.shape}, got {values.shape}")
        matrix = self._made(values.copy(), self.indices, self.indptr, self.shape, parsed, self.known)
        # cached properties lie in `__dict__`: those that are built say where entries lie, not what they are
        matrix.__dict__.update({name: built for name, built in self.__dict__.items() if name not in matrix.__dict__})
        return matrix

    def used(self, backend: str = "auto") -> CSR:
        """Return the columns that have entries, side by side: x w of these rows of w is x w of all of them."""
        # V1 becomes the columns, so V2 is 0, 1, 2 ... of these
        places, used, longest = self.columns(backend)
        known = Columns(places, _kept(np.arange(used.size, dtype=used.dtype)), longest)
        return self._made(self.data, places, self.indptr, (self.shape[0], used.size), self.format, known)

    @property
    def nnz(self) -> int:
        """Stored entries, explicit zeros and duplicates included."""
        return self.indices.size

    @property
    def size(self) -> int:
        """Numbers that are stored: `nnz`, as of SciPy's containers."""
        return self.nnz

    @property
    def index_bytes(self) -> int:
        """Bytes of columns and row starts."""
        return self.indices.nbytes + self.indptr.nbytes

    @property
    def column_bytes(self) -> int:
        """Bytes of V1 and V2."""
        places, used, _ = self.columns()
        return places.nbytes + used.nbytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the entries' carriers."""
        return self.data.dtype

    @cached_property
    def rows(self) -> Indices:
        """Row of each entry."""
        return frozen(Pattern(self.indptr, self.indices, self.shape[0], False, 0).row_of)

    def columns(self, backend: str = "auto") -> Columns:
        """Return V1, V2 and the longest column, built once by a backend; every backend builds the same."""
        if self.known is None:
            counted = load(backend).columns(self.indices, self.shape[1])
            known = Columns(_kept(counted.places), _kept(counted.used), counted.longest)
            object.__setattr__(self, "known", known)
            return known
        return self.known

    @property
    def transpose_index(self) -> Indices:
        """V1: for each entry, the row of x^T dy to which its product is added."""
        return self.columns().places

    @property
    def unique_columns(self) -> Indices:
        """V2: the columns that have entries, ascending."""
        return self.columns().used

    @cached_property
    def unique_rows(self) -> Indices:
        """The rows that have entries, ascending: what V2 is for columns."""
        return frozen(np.flatnonzero(np.diff(self.indptr)).astype(self.indices.dtype))

    @cached_property
    def row_index(self) -> Indices:
        """For each entry, the position of its row among the rows that have entries: what V1 is for columns."""
        return frozen(np.searchsorted(self.unique_rows, self.rows).astype(self.indices.dtype))

    @property
    def index_words(self) -> int:
        """Words of V1 and V2: entries + used columns; an explicit transpose takes 2 * entries + columns + 1."""
        return self.transpose_index.size + self.unique_columns.size

    @cached_property
    def by_rows(self) -> Pattern:
        """The entries as x w reads them: by rows."""
        longest = int(np.diff(self.indptr).max(initial=0))
        return Pattern(self.indptr, self.indices, self.shape[0], False, longest)

    @cached_property
    def by_used_rows(self) -> Pattern:
        """The entries as the rows of x w that have entries read them."""
        # rows without entries take no place in storage: leaving their starts out joins the others seamlessly
        starts = self.indptr[np.append(self.unique_rows, self.shape[0])]
        return Pattern(starts, self.indices, self.unique_rows.size, False, self.by_rows.longest)

    def by_columns(self, backend: str = "auto") -> Pattern:
        """Return the entries as x^T dy reads them: by columns."""
        places, used, longest = self.columns(backend)
        return Pattern(self.indptr, places, used.size, True, longest)


def _row_starts(rows: Indices, count: int) -> NDArray[np.int64]:
    """Return where each of `count` rows begins among entries in the order of rows, and the end."""
    starts: Any = np.searchsorted(rows, np.arange(count + 1))
    return starts.astype(np.int64)


def _kept(x: Array) -> Array:
    """Return an array of the host that nobody can write to: a device copies it once."""
    return lasting(frozen(x))
