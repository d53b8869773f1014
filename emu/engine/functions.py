"""Elementary functions of arrays: tables for inputs of up to 16 bits, a fixed sequence of doubles for wider ones."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from emu.datapath import Flags, Overflow, RandomSource, Rounding, StatisticsRegister
from emu.engine.elementwise import require_options
from emu.engine.quantize import require_out
from emu.engine.request import Request, as_array, as_operand, code_of
from emu.errors import FormatError, nearest_name
from emu.formats import Format, parse

Array = NDArray[Any]


def function(
    name: str,
    x: Any,
    *,
    x_format: str | Format | None = None,
    out_format: str | Format,
    rounding: str | Rounding = "nearest_even",
    overflow: str | Overflow | None = None,
    n_rbits: int = 24,
    rbits: Array | None = None,
    seed: int = 0,
    stream: int = 0,
    step: int = 0,
    random: RandomSource | None = None,
    register: StatisticsRegister | None = None,
    flags: Flags | None = None,
    out: Array | None = None,
    backend: str = "auto",
    check: bool = True,
) -> Array:
    """Return an elementary function of `x`, written through the output stage.

    Args:
        name: exp, log, tanh, sigmoid, erf, gelu or rsqrt.
        x: values of `x_format`, any shape.
        x_format: format of `x`; None is fp32 for float32 and float16 arrays, fp64 for everything else.
        out_format: format written.
        rounding: mode.
        overflow: rule.
        n_rbits: random bits of stochastic rounding.
        rbits: recorded random bits.
        seed: key of Philox.
        stream: stream of Philox.
        step: step of Philox.
        random: the source itself: `emu.Philox`, `emu.RecordedBits` or `emu.LFSR`, instead of the four above.
        register: observes the exact function value (a table) or its double (wider inputs).
        flags: counts what happened.
        out: where to write, in the carrier dtype and shape.
        backend: who computes.
        check: whether to check that `x` holds values of its format.

    Returns:
        Carrier array of `out_format`, the shape of `x`.

    Raises:
        FormatError: no such function, an impossible option, or an element that is not a value of its format.
        ShapeError: `rbits` or `out` has another shape.

    Exactness: correctly rounded once for inputs of up to 16 bits; for wider ones the rounding of a double within one
    ulp of the function, the same double on every backend.

    Source: docs/concepts/functions.md.
    """
    from emu.backends.functions import FUNCTIONS

    if name not in FUNCTIONS:
        raise FormatError(f"a function must be one of the known ones, got {name!r}{nearest_name(name, FUNCTIONS)}")
    array, fmt = as_operand(x, _format_of(x) if x_format is None else x_format, "x", check=check)
    assert fmt is not None
    request = Request.of(
        out_format,
        rounding,
        overflow,
        n_rbits,
        rbits,
        seed,
        stream,
        step,
        register,
        flags,
        backend,
        array.shape,
        random,
    )
    return _into(require_out(out, array.shape, request.stage.format), write_function(name, array, fmt, request))


def write_function(name: str, array: Array, fmt: Format, request: Request) -> Array:
    """Write a function of carriers as the request says.

    Args:
        name: exp, log, tanh, sigmoid, erf, gelu or rsqrt.
        array: carriers, any shape.
        fmt: their format.
        request: stage, random bits, register, flags, backend.

    Raises:
        FormatError: the carriers are raws beyond float64.
    """
    from emu.backends.functions import function_table, is_tabled

    place = request.place(None)
    kernels, rest = request.kernels, (request.stage_code, request.random, place)
    if is_tabled(fmt):
        table = function_table(name, fmt, request.stage, tininess=request.stage_code.tininess)
        outcome = kernels.tabled(table, array, *rest)
    elif fmt.carries_raws:
        raise FormatError(
            f"{name}: operands beyond float64 have no functions, got {fmt}; quantize to at most 53 bits first"
        )
    else:
        outcome = kernels.function(name, array, code_of(fmt), *rest)
    return request.account(outcome)


def _format_of(x: Any) -> Format:
    dtype = as_array(x).dtype
    return parse("fp32" if dtype.kind == "f" and dtype.itemsize <= 4 else "fp64")


def _into(out: Array | None, values: Array) -> Array:
    if out is None:
        return values
    out[...] = values
    return out


def exp(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return e to the power x, rounded into `out_format`. Options as in `quantize`.

    See `function` for formats and exactness.

    Examples:
        >>> exp([0.0, 1.0], x_format="fp16", out_format="fp16").tolist()
        [1.0, 2.71875]
    """
    require_options("exp", options)
    return function("exp", x, x_format=x_format, out_format=out_format, **options)


def log(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return the natural logarithm, rounded into `out_format`; of 0 -inf, of less NaN. Options as in `quantize`.

    See `function` for formats and exactness.
    """
    require_options("log", options)
    return function("log", x, x_format=x_format, out_format=out_format, **options)


def tanh(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return the hyperbolic tangent, rounded into `out_format`. Options as in `quantize`.

    See `function` for formats and exactness.
    """
    require_options("tanh", options)
    return function("tanh", x, x_format=x_format, out_format=out_format, **options)


def sigmoid(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return 1 / (1 + exp(-x)), rounded into `out_format`. Options as in `quantize`.

    See `function` for formats and exactness.
    """
    require_options("sigmoid", options)
    return function("sigmoid", x, x_format=x_format, out_format=out_format, **options)


def gelu(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return x * Phi(x), Phi the normal distribution function, rounded into `out_format`. Options as in `quantize`.

    See `function` for formats and exactness.
    """
    require_options("gelu", options)
    return function("gelu", x, x_format=x_format, out_format=out_format, **options)


def erf(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return the error function, rounded into `out_format`. Options as in `quantize`.

    See `function` for formats and exactness.
    """
    require_options("erf", options)
    return function("erf", x, x_format=x_format, out_format=out_format, **options)


def rsqrt(x: Any, *, out_format: str | Format, x_format: str | Format | None = None, **options: Any) -> Array:
    """Return 1 / sqrt(x), rounded into `out_format`; of a negative number NaN. Options as in `quantize`.

    See `function` for formats and exactness.
    """
    require_options("rsqrt", options)
    return function("rsqrt", x, x_format=x_format, out_format=out_format, **options)
