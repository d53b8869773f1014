"""Elementwise arithmetic: every operation correctly rounded once, in every mode, for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import namespace, on_host
from emu.backends.interface import is_one_number, repeated
from emu.engine.delivery import deliver, encode_write, require_out
from emu.engine.description import Options, UnitDescription, call_of
from emu.engine.exact_register import exact_register
from emu.engine.operands import as_operand, codes_of, require_reachable
from emu.engine.small import small_outcome
from emu.errors import FormatError, ShapeError, nearest_name
from emu.formats import Format, Value
from emu.formats.numbers import as_numbers

Array = NDArray[Any]
#: Operands of each elementwise operation.
OPERANDS = {
    "add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3, "sqrt": 1, "remainder": 2, "round_to_integral": 1,
}  # fmt: skip


def elementwise(
    operation: str,
    operands: tuple[Any, ...],
    formats: tuple[str | Format | None, ...],
    *,
    out_format: str | Format,
    **options: Unpack[Options],
) -> Array:
    """Write `operation` of broadcast operands through the output stage.

    Args:
        operation: add, subtract, multiply, divide, fma, sqrt, remainder or round_to_integral.
        operands: arrays or values that broadcast together.
        formats: format of each operand; None takes floats and integers at their exact values.
        out_format: format written.
        **options: see `emu.engine.Options`.

    Raises:
        FormatError: no such operation, or another number of operands or formats than it has.
        ShapeError: the operands do not broadcast.
        TypeError: no such option; names the nearest one.
    """
    require_operands(operation, len(operands), "operand")
    require_operands(operation, len(formats), "format")
    unit, out, check = call_of(operation, out_format, options)
    arrays: list[Array] = []
    parsed: list[Format | None] = []
    # not strict: "abc" names up to three operands, most operations have fewer
    for x, fmt, name in zip(operands, formats, "abc", strict=False):
        array, own_format = as_operand(x, fmt, name, check=check)
        arrays.append(array)
        parsed.append(own_format)
    shape = arrays[0].shape
    if any(array.shape != shape for array in arrays):
        arrays = _broadcast(operation, arrays)
        shape = arrays[0].shape
    return write_elementwise(unit, operation, arrays, tuple(parsed), require_out(out, shape, unit.stage.format))


def require_operands(operation: str, count: int, what: str) -> None:
    """Raise FormatError unless an operation is elementwise, and has so many operands.

    Args:
        operation: its name.
        count: as given.
        what: of which there are so many, in the singular.
    """
    if operation not in OPERANDS:
        raise FormatError(f"an operation must be elementwise, got {operation!r}{nearest_name(operation, OPERANDS)}")
    needed = OPERANDS[operation]
    if count != needed:
        raise FormatError(f"`{operation}` must be given {needed} {what}{'s' if needed > 1 else ''}, got {count}")


def write_elementwise(
    unit: UnitDescription,
    operation: str,
    arrays: Sequence[Array],
    formats: tuple[Format | None, ...],
    out: Array | None = None,
) -> Array:
    """Write `operation` of operands of any shapes that broadcast, through a unit's output stage.

    Args:
        unit: who computes and writes.
        operation: add, subtract, multiply, divide, fma, sqrt, remainder or round_to_integral.
        arrays: carriers.
        formats: of the operands; None of plain floats.
        out: where to write, of the result's shape and carrier dtype.

    Raises:
        ShapeError: the operands do not broadcast.
    """
    # an array that the caller gave to be written has to be filled by the usual way
    outcome = small_outcome(unit, operation, arrays, formats) if out is None else None
    if outcome is not None:
        return deliver(unit, outcome)
    require_reachable(unit.kernels, *arrays)
    shape = arrays[0].shape
    for array in arrays:
        if array.shape != shape:
            arrays = _broadcast(operation, arrays)
            break
    # kernels read arrays in C order; a number that stands for all elements has strides 0, and stays so
    outcome = unit.kernels.elementwise(
        operation,
        tuple([x if x.flags.c_contiguous or is_one_number(x) else x.copy(order="C") for x in arrays]),
        codes_of(formats),
        encode_write(unit, arrays[0].shape, exact_register(operation, formats)),
        out,
    )
    return deliver(unit, outcome)


def _broadcast(operation: str, arrays: Sequence[Array]) -> list[Array]:
    # one array and single numbers, the usual case, have the array's shape: NumPy's broadcasting would cost more than
    # the arithmetic on a small array
    largest = max(arrays, key=lambda x: x.ndim)
    shape = largest.shape
    # a single number stays a single number: it is repeated by strides of 0, never copied
    if not all(x is largest or x.size == 1 for x in arrays):
        try:
            shape = np.broadcast_shapes(*[array.shape for array in arrays])
        except ValueError:
            shapes = " and ".join(str(array.shape) for array in arrays)
            raise ShapeError(
                f"{operation}: operands must broadcast together, got shapes {shapes}; give axes of size 1 "
                "where they differ"
            ) from None
    return [
        x if x.shape == shape else repeated(x, shape) if x.size == 1 else namespace(x).broadcast_to(x, shape)
        for x in arrays
    ]


def add(
    a: Any,
    b: Any,
    *,
    out_format: str | Format,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return a + b, rounded once into `out_format`. Options: `Options`. Source: docs/concepts/elementwise.md.

    Examples:
        >>> add(1024.0, -(2.0**-24), out_format="fp16", rounding="floor", backend="reference").item()
        1023.5
    """
    return elementwise("add", (a, b), (a_format, b_format), out_format=out_format, **options)


def subtract(
    a: Any,
    b: Any,
    *,
    out_format: str | Format,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return a - b, rounded once into `out_format`. Options: `Options`. Source: docs/concepts/elementwise.md."""
    return elementwise("subtract", (a, b), (a_format, b_format), out_format=out_format, **options)


def multiply(
    a: Any,
    b: Any,
    *,
    out_format: str | Format,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return a * b, rounded once into `out_format`. Options: `Options`. Source: docs/concepts/elementwise.md.

    Examples:
        >>> multiply(3.1416015625, -0.71875, out_format="fix16f10", backend="reference").item() * 2**10
        -2312.0
    """
    return elementwise("multiply", (a, b), (a_format, b_format), out_format=out_format, **options)


def divide(
    a: Any,
    b: Any,
    *,
    out_format: str | Format,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return a / b, rounded once into `out_format`; x/0 is an infinity, 0/0 NaN and invalid.

    Options: `Options`. Source: docs/concepts/elementwise.md.
    """
    return elementwise("divide", (a, b), (a_format, b_format), out_format=out_format, **options)


def fma(
    a: Any,
    b: Any,
    c: Any,
    *,
    out_format: str | Format,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    c_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return a * b + c, rounded once into `out_format` (fused). Options: `Options`.

    Source: docs/concepts/elementwise.md.
    """
    return elementwise("fma", (a, b, c), (a_format, b_format, c_format), out_format=out_format, **options)


def sqrt(
    a: Any, *, out_format: str | Format, a_format: str | Format | None = None, **options: Unpack[Options]
) -> Array:
    """Return the square root, rounded once into `out_format`; of a negative number NaN and invalid.

    Options: `Options`. Source: docs/concepts/elementwise.md.
    """
    return elementwise("sqrt", (a,), (a_format,), out_format=out_format, **options)


def remainder(
    a: Any,
    b: Any,
    *,
    out_format: str | Format,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return a - b*n, n the integer nearest to a/b (ties to even), rounded once into `out_format`.

    Exact before the output stage; between -|b|/2 and |b|/2. A zero result has the sign of `a`. remainder(a, inf) is a;
    remainder(a, 0) and remainder(inf, b) are NaN and invalid. Options: `Options`.

    Examples:
        >>> remainder([5.0, 6.0, -7.0, -8.0], 4.0, out_format="fp16", backend="reference")
        array([ 1., -2.,  1., -0.], dtype=float32)

    Source: docs/concepts/elementwise.md, "Remainder"; IEEE 754-2019 section 5.3.1.
    """
    return elementwise("remainder", (a, b), (a_format, b_format), out_format=out_format, **options)


def round_to_integral(
    a: Any, *, out_format: str | Format, a_format: str | Format | None = None, **options: Unpack[Options]
) -> Array:
    """Return `a` rounded to an integer in the mode `rounding`, written into `out_format`.

    An integer that `out_format` does not hold is rounded once more, by the same mode and the same random bits. A zero
    result has the sign of `a`; infinities stay. The flag `inexact` counts every result that differs from `a`, as
    IEEE 754's roundToIntegralExact does; a number that becomes 0 raises no underflow. Options: `Options`.

    Examples:
        >>> round_to_integral([2.5, 3.5, -0.25], out_format="fp16", backend="reference")
        array([ 2.,  4., -0.], dtype=float32)
        >>> round_to_integral(2.5, out_format="fix8f4", rounding="ceil", backend="reference").item()
        3.0

    Source: docs/concepts/elementwise.md, "Rounding to an integer"; IEEE 754-2019 section 5.9.
    """
    return elementwise("round_to_integral", (a,), (a_format,), out_format=out_format, **options)


def compare(
    a: Any,
    b: Any,
    *,
    a_format: str | Format | None = None,
    b_format: str | Format | None = None,
    backend: str = "auto",
    check: bool = True,
) -> NDArray[np.int8]:
    """Return -1 where a < b, 0 where a = b, 1 where a > b, 2 where either is NaN. Exact; -0 equals +0.

    Args:
        a: values of `a_format`, any shape that broadcasts with `b`.
        b: values of `b_format`.
        a_format: format of `a`; None takes floats and integers at their exact values.
        b_format: format of `b`.
        backend: who computes.
        check: whether to check that operands hold values of their formats.

    Examples:
        >>> compare([1.0, 2.0, np.nan], [1, 3, 0], backend="reference").tolist()
        [0, -1, 2]

    Source: docs/concepts/elementwise.md; IEEE 754-2019 section 5.11.
    """
    # The sign of the difference decides. Rounded to odd, a difference other than 0 never becomes 0, however small; inf
    # - inf is NaN, although equal infinities are equal.
    a, b = (x.with_array(on_host(x.array)) if isinstance(x, Value) else on_host(x) for x in (a, b))
    # infinities are compared by NumPy below: so both operands were brought to the host
    formats: dict[str, Any] = {"a_format": a_format, "b_format": b_format}
    difference = subtract(a, b, out_format="fp32", **formats, rounding="to_odd", backend=backend, check=check)
    left, right = (_floats_of(x) for x in (a, b))
    # int8 first: a difference of two bools is no operation of NumPy
    order = (difference > 0).astype(np.int8) - (difference < 0)
    ordered = np.where(np.isnan(difference), 2, order)
    # `_floats_of` gives 0 for integers and raws: equal zeros are not infinite, so they change nothing here
    return np.where(np.isinf(left) & (left == right), 0, ordered).astype(np.int8)


def _floats_of(x: Any) -> Array:
    """Return floats as they are, and zeros for all other numbers: none of them is infinite."""
    array = x.array if isinstance(x, Value) else as_numbers(x, "x")
    return array if array.dtype.kind == "f" else np.zeros(array.shape, np.float32)
