"""Results for some rows of a matrix, and updates of only these rows.

A gradient x^T dy has a row for every column of x. Rows of columns without an entry are 0, and are not stored.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import frozen, is_on_device, lasting, namespace, on_host
from emu.backends.pattern import Indices
from emu.engine import add, multiply
from emu.engine.delivery import require_array, require_writable
from emu.errors import FormatError, ShapeError
from emu.formats import Fixed, Float, Format, parse_number
from emu.formats.integers import as_integer
from emu.formats.numbers import as_numbers
from emu.sparse.structure import as_indices

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Compact:
    """Some rows of a matrix; all others are 0. It holds its own arrays, which are read-only.

    Attributes:
        rows: which rows, ascending, none of them twice, (U,).
        values: carriers of `format`, (U, H).
        height: rows of the whole matrix.
        format: of the values.

    Raises:
        ShapeError: rows outside the matrix, out of order or there twice, or not one row of values for each.
        FormatError: `rows` are not integers, `format` is none, or values of another dtype than its carrier.
    """

    rows: Indices
    values: Array
    height: int
    format: Format

    def __post_init__(self) -> None:
        """Take copies, and check that each row has its values, and that rows can be written in place."""
        # `lasting`: a device copies the rows once, since nobody can write to them
        object.__setattr__(self, "rows", lasting(frozen(np.array(as_indices(self.rows, "rows")))))
        object.__setattr__(self, "height", as_integer("height", self.height, 0, error=ShapeError))
        _require_values(self.values, self.rows.size)
        _require_carriers(self.values, self.format)
        _require_rows(self.rows, self.height)
        values: Any = self.values
        # a device's array has no flag that forbids writing
        object.__setattr__(self, "values", values.copy() if is_on_device(values) else frozen(np.array(values)))

    @classmethod
    def of_result(cls, rows: Indices, values: Array, height: int, fmt: Format, out: Array | None) -> Compact:
        """Return the rows that a product has written; they become read-only unless they are the caller's `out`."""
        # past the checks and copies: the product has made these arrays itself
        compact = object.__new__(cls)
        kept = values if values is out or is_on_device(values) else frozen(values)
        for name, part in (("rows", rows), ("values", kept), ("height", height), ("format", fmt)):
            object.__setattr__(compact, name, part)
        return compact

    def __reduce__(self) -> tuple[Any, ...]:
        # by its parts: what is unpickled is checked, and read-only again
        return type(self), (self.rows, self.values, self.height, self.format)

    def to_dense(self) -> Array:
        """Return the whole matrix, (height, H)."""
        dense = np.zeros((self.height, self.values.shape[1]), self.values.dtype)
        dense[self.rows] = on_host(self.values)
        return dense


def update_rows(
    w: Array,
    gradient: Compact,
    rate: float,
    *,
    w_format: str | Format,
    update_format: str | Format,
    stream: int = 0,
    **options: Any,
) -> None:
    """Add -rate * gradient to the gradient's rows of `w`, in place; no other row is read or written.

    Both operations are those of plain gradient descent: the product is written in `update_format`, the sum in
    `w_format`.

    Args:
        w: carriers of `w_format`, (height, H), written in place.
        gradient: of some rows.
        rate: learning rate; a float32 enters the product, as in the optimisers.
        w_format: format of the weights.
        update_format: format of -rate * gradient.
        stream: stream of Philox of the product; the sum has the next one. Bits are numbered over the compact rows.
        **options: other options of `emu.multiply` and `emu.add`: rounding, overflow, register, flags, backend ...

    Raises:
        ShapeError: the gradient does not fit `w`, or `w` cannot be written.
        FormatError: a value that a format does not hold, or a rate that is no finite float32.

    Source: US 12,008,475.
    """
    if not hasattr(w, "dtype"):  # None too, which is no array to `require_array`
        raise ShapeError(f"`w` must be an array, got {type(w).__name__}; its rows are written in place")
    require_array(w, "w")
    require_writable(w, "w")
    if not isinstance(gradient, Compact):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ShapeError(
            f"`gradient` must be an emu.sparse.Compact, got {type(gradient).__name__}; transposed_matmul returns one"
        )
    expected = (gradient.height, gradient.values.shape[1])
    if w.shape != expected:
        raise ShapeError(f"`w` must have the gradient's shape {expected}, got {w.shape}; choose another `height`")
    carrier = parse_number(w_format).carrier
    if w.dtype != carrier:
        raise ShapeError(
            f"`w` must be a {carrier} array, the carrier of {w_format}, got {w.dtype}; make it by emu.value(w, FORMAT)"
        )
    if not gradient.rows.size:
        return
    xp = namespace(w)
    rows, factor = xp.asarray(gradient.rows), -_factor("rate", rate)
    formats = {"a_format": gradient.format, "out_format": update_format}
    update = multiply(xp.asarray(gradient.values), factor, **formats, stream=stream, **options)
    formats = {"a_format": w_format, "b_format": update_format, "out_format": w_format}
    # NumPy writes each named row once: rows are unique, so no sum is lost
    w[rows] = add(w[rows], update, **formats, stream=stream + 1, **options)


def _require_values(values: object, count: int) -> None:
    """Raise ShapeError unless values are an array with a row for each of `count` rows."""
    if not hasattr(values, "dtype"):
        raise ShapeError(f"`values` must be an array of carriers, got {type(values).__name__}; write np.float32(...)")
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if len(shape) != 2 or shape[0] != count:
        raise ShapeError(
            f"`values` must have a row for each of the {count} `rows`, shape ({count}, H), got {shape}; reshape them"
        )


def _require_carriers(values: Array, fmt: object) -> None:
    """Raise FormatError unless values have the carrier dtype of a format."""
    if not isinstance(fmt, (Fixed, Float)):
        raise FormatError(f"`format` must be a format, got {fmt!r}; emu.parse(text) returns one")
    if values.dtype != fmt.carrier:
        raise FormatError(
            f"`values` must be {fmt.carrier}, the carrier of {fmt}, got dtype {values.dtype}; write "
            "emu.value(x, FORMAT).array"
        )


def _factor(name: str, number: Any) -> np.float32:
    """Return a number as a float32, which the constants of optimisers are.

    Raises:
        FormatError: it is none, or no finite float32.
    """
    array, factor = as_numbers(number, name), np.float32(np.inf)
    if not array.ndim:
        # of Python, float() raises OverflowError for integers beyond float64
        with np.errstate(over="ignore"), suppress(OverflowError):
            factor = np.float32(float(array))
    if not np.isfinite(factor):
        raise FormatError(f"`{name}` must be one finite number of float32, got {number!r}; choose another")
    return factor


def _require_rows(rows: Indices, height: int) -> None:
    """Raise ShapeError unless rows ascend within the matrix: adding to one row twice would keep only the last sum."""
    wrong = np.flatnonzero(rows[1:] <= rows[:-1])
    if wrong.size:
        index = int(wrong[0])
        before, here = rows[index], rows[index + 1]
        trouble = f"row {here} twice" if before == here else f"row {here} behind row {before}"
        raise ShapeError(
            f"`rows` must ascend, none of them twice, got {trouble} at index {index + 1}; sort them, and add up the "
            "values of equal ones"
        )
    if rows.size and not 0 <= rows[0] <= rows[-1] < height:
        index = 0 if rows[0] < 0 else int(np.searchsorted(rows, height))  # rows ascend: the first one beyond
        rule = f"must be rows 0..{height - 1} of the matrix" if height else "must be empty where `height` is 0"
        raise ShapeError(
            f"`rows` {rule}, got {rows[index]} at index {index}; choose rows of the matrix, or another `height`"
        )
