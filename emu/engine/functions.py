"""Elementary functions of arrays: tables for inputs of up to 16 bits, a fixed sequence of doubles for wider ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Unpack

from numpy.typing import NDArray

from emu.backends.arrays import is_on_device
from emu.engine.delivery import deliver, encode_write, require_out, written_to
from emu.engine.description import Options, UnitDescription, call_of
from emu.engine.operands import code_of, in_format, require_reachable
from emu.errors import FormatError, nearest_name
from emu.formats import Fixed, Format, Value
from emu.formats.arrays import MAX_ENUMERABLE_BITS
from emu.formats.numbers import as_numbers

Array = NDArray[Any]

#: Doubles are normal from 2**-1022 on and end below 2**1024: a format's step may not be smaller, and the leading bits
#: of its values have at most the exponent 1023.
_MOST_FRAC_BITS, _LARGEST_EXPONENT = 1022, 1023


def function(
    name: str,
    x: Any,
    *,
    out_format: str | Format,
    x_format: str | Format | None = None,
    **options: Unpack[Options],
) -> Array:
    """Return an elementary function of `x`, written through the output stage.

    Args:
        name: exp, log, tanh, sigmoid, erf, gelu or rsqrt.
        x: values of `x_format`, any shape; or an `emu.value`.
        out_format: format written.
        x_format: format of `x`; None is fp32 for float32 and float16 arrays, fp64 for everything else.
        **options: see `emu.engine.Options`. The register observes the exact function value (a table) or its double
            (wider inputs).

    Returns:
        Carrier array of `out_format`, the shape of `x`.

    Raises:
        FormatError: no such function, an impossible option, or an element that is not a value of its format.
        ShapeError: `rbits` or `out` has another shape.

    Exactness: correctly rounded once for inputs of up to 16 bits; for wider ones the rounding of a double within one
    ulp of the function, the same double on every backend.

    Source: docs/concepts/functions.md.
    """
    unit, out, check = call_of(name, out_format, options)
    array, fmt = carrier_of_function(name, x, x_format, check=check)
    # asked first: a wrong `out` fails before anything is computed
    require_out(out, array.shape, unit.stage.format)
    return written_to(out, write_function(unit, name, array, fmt))


@lru_cache(maxsize=1)
def _functions() -> Any:
    """Return the package of functions, imported with the first one: an engine without functions needs no tables."""
    # once: an `import` within a function takes a microsecond each time
    from emu.backends import functions

    return functions


def carrier_of_function(name: str, x: Any, fmt: str | Format | None, *, check: bool) -> tuple[Array, Format]:
    """Return the carrier and format of a function's operand; an array without one is fp32 or fp64, by its dtype.

    Raises:
        FormatError: no such function, or an element that is not a value of its format.
    """
    known = _functions().FUNCTIONS
    if not isinstance(name, str) or name not in known:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormatError(f"a function must be one of the known ones, got {name!r}{nearest_name(name, known)}")
    # a value of plain floats has no format: it is read as the array in it
    if isinstance(x, Value) and x.format is None:
        x = x.array
    if fmt is None and not isinstance(x, Value):
        x = x if is_on_device(x) else as_numbers(x, "x")
        fmt = "fp32" if x.dtype.kind == "f" and x.dtype.itemsize <= 4 else "fp64"
    return in_format(x, fmt, "x", check=check)


def write_function(unit: UnitDescription, name: str, array: Array, fmt: Format) -> Array:
    """Write a function of carriers through a unit's output stage.

    Args:
        unit: who computes and writes.
        name: exp, log, tanh, sigmoid, erf, gelu or rsqrt.
        array: carriers, any shape.
        fmt: their format.

    Raises:
        FormatError: the carriers are raws beyond float64, or function values are doubles and the format written is
            fixed point beyond them.
    """
    require_reachable(unit.kernels, array)
    functions = _functions()
    # None, as for floats: function values have endless digits, and no fixed-point register holds them exactly
    kernels, write = unit.kernels, encode_write(unit, array.shape, None)
    # a table is made for this output stage: rounding, overflow and flags are those of the exact function value
    if functions.is_tabled(fmt):
        table = functions.function_table(name, fmt, unit.stage, tininess=unit.code.tininess)
        outcome = kernels.tabled(table, array, write)
    # raws of more than 53 bits are integers of 64 bits: their value is no double, on which the sequence of doubles
    # works
    elif fmt.carries_raws:
        raise FormatError(
            f"{name}: operands of functions must fit float64, got {fmt}; quantize to at most 53 bits first"
        )
    else:
        _require_within_doubles(name, fmt, unit.stage.format)
        outcome = kernels.function(name, array, code_of(fmt), write)
    return deliver(unit, outcome)


def _require_within_doubles(name: str, fmt: Format, written: Format) -> None:
    """Refuse fixed point that has values beyond doubles: what a double could not say would be written there."""
    if not isinstance(written, Fixed):
        return
    # no value's magnitude has a higher leading bit: of unsigned raws it is that of the largest, of signed ones that of
    # the lowest, -2**(width - 1)
    largest_exponent = written.width_bits - 1 - written.frac_bits
    if written.frac_bits > _MOST_FRAC_BITS or largest_exponent > _LARGEST_EXPONENT:
        raise FormatError(
            f"{name}: a function of operands of more than {MAX_ENUMERABLE_BITS} bits is a double, and its out_format "
            f"must have at most {_MOST_FRAC_BITS} fraction bits and magnitudes below 2**{_LARGEST_EXPONENT + 1}, got "
            f"{written} for operands of {fmt}; choose such a format, or quantize operands to {MAX_ENUMERABLE_BITS} bits"
        )


def exp(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]) -> Array:
    """Return e to the power x, rounded into `out_format`. Options: `Options`.

    See `function` for formats and exactness.

    Examples:
        >>> exp([0.0, 1.0], x_format="fp16", out_format="fp16").tolist()
        [1.0, 2.71875]
    """
    return function("exp", x, x_format=x_format, out_format=out_format, **options)


def log(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]) -> Array:
    """Return the natural logarithm, rounded into `out_format`; of 0 -inf, of less NaN. Options: `Options`.

    See `function` for formats and exactness.
    """
    return function("log", x, x_format=x_format, out_format=out_format, **options)


def tanh(
    x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]
) -> Array:
    """Return the hyperbolic tangent, rounded into `out_format`. Options: `Options`.

    See `function` for formats and exactness.
    """
    return function("tanh", x, x_format=x_format, out_format=out_format, **options)


def sigmoid(
    x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]
) -> Array:
    """Return 1 / (1 + exp(-x)), rounded into `out_format`. Options: `Options`.

    See `function` for formats and exactness.
    """
    return function("sigmoid", x, x_format=x_format, out_format=out_format, **options)


def gelu(
    x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]
) -> Array:
    """Return x * Phi(x), Phi the normal distribution function, rounded into `out_format`. Options: `Options`.

    See `function` for formats and exactness.
    """
    return function("gelu", x, x_format=x_format, out_format=out_format, **options)


def erf(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]) -> Array:
    """Return the error function, rounded into `out_format`. Options: `Options`.

    See `function` for formats and exactness.
    """
    return function("erf", x, x_format=x_format, out_format=out_format, **options)


def rsqrt(
    x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Unpack[Options]
) -> Array:
    """Return 1 / sqrt(x), rounded into `out_format`; of a negative number NaN. Options: `Options`.

    See `function` for formats and exactness.
    """
    return function("rsqrt", x, x_format=x_format, out_format=out_format, **options)
