"""Quantize: write any real array in a format, through the output stage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous
from emu.datapath import Flags, Overflow, RandomSource, Rounding, StatisticsRegister
from emu.engine.request import Request, as_operand, code_of
from emu.errors import ShapeError
from emu.formats import Fixed, Format
from emu.formats.arrays import code_dtype_for

Array = NDArray[Any]


#: Widest integers that kernels write raws to.
MAX_RAW_BITS = 32


def quantize(
    x: Any,
    fmt: str | Format,
    *,
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
    x_format: str | Format | None = None,
    backend: str = "auto",
) -> Array:
    """Round every element of `x` once into `fmt`, apply the overflow rule, and count.

    Args:
        x: real numbers, any shape; float16/32/64 or integers, taken at their exact values.
        fmt: format written.
        rounding: a mode of `emu.Rounding`.
        overflow: rule; None is `saturate` for fixed, `ieee` for float.
        n_rbits: random bits r of stochastic rounding, 1..32.
        rbits: the random integers themselves, below 2**n_rbits, in the shape of `x`; else Philox draws them.
        seed: key of Philox.
        stream: stream of Philox.
        step: step of Philox.
        random: the source itself: `emu.Philox`, `emu.RecordedBits` or `emu.LFSR`, instead of the four above.
        register: observes the exact values.
        flags: counts what happened.
        out: where to write, in the shape of `x`: values in the carrier dtype; raws of a fixed-point format in a signed
            integer dtype at least as wide; codes in the unsigned dtype of `fmt.encode`.
        x_format: format of `x`, needed where its carrier holds raws.
        backend: "auto", "reference" or "numba".

    Returns:
        `out`, or a carrier array of `fmt`, in the shape of `x`. NaN: NaN, or 0 and flag `invalid` where the
        format has none. Infinities: docs/concepts/overflow.md.

    Raises:
        FormatError: an impossible format, rule or mode, or random bits out of range.
        ShapeError: `rbits` or `out` has another shape.
        BackendUnavailable: the backend cannot compute here.

    Exactness: equals the rounding of the real value, once.

    Examples:
        >>> quantize([1.26, -9.0, 0.03], "fix8f4", backend="reference").tolist()
        [1.25, -8.0, 0.0]

    Source: docs/concepts/.
    """
    array, source = as_operand(x, x_format, "x", check=x_format is not None)
    request = Request.of(
        fmt, rounding, overflow, n_rbits, rbits, seed, stream, step, register, flags, backend, array.shape, random
    )
    target = _require_target(out, array.shape, request.stage.format)
    values = write_quantized(array, source, request, target)
    if out is None or target is not None:
        return values if out is None else out
    encoded = request.stage.format.encode(values)
    out[...] = encoded if out.dtype.kind == "u" else np.ldexp(values, -request.stage_code.format.quantum)
    return out


def write_quantized(x: Array, source: Format | None, request: Request, out: Array | None = None) -> Array:
    """Write `x` as the request says.

    Args:
        x: carriers, any shape.
        source: their format; None of plain floats.
        request: stage, random bits, register, flags, backend.
        out: where to write: carriers or raws, shape of `x`.
    """
    outcome = request.kernels.quantize(
        contiguous(x),
        code_of(source),
        request.stage_code,
        request.random,
        request.place(source if isinstance(source, Fixed) else None),
        out,
    )
    return request.account(outcome)


def _require_target(out: Array | None, shape: tuple[int, ...], fmt: Format) -> Array | None:
    """Return what a kernel writes to: `out`, the same memory as raws, or None if `out` is filled afterwards.

    Raises:
        ShapeError: another shape, or a dtype that holds neither values nor raws nor codes.
    """
    require_array(out)
    if out is None or out.dtype == fmt.carrier or out.dtype.kind not in "iu" or out.shape != shape:
        return require_out(out, shape, fmt)
    require_writable(out)
    bits = 8 * out.itemsize
    if out.dtype.kind == "i" and isinstance(fmt, Fixed) and fmt.width_bits + (not fmt.signed) <= bits:
        return out if fmt.signed and bits <= MAX_RAW_BITS else None
    if out.dtype == code_dtype_for(fmt.width_bits):
        whole = isinstance(fmt, Fixed) and fmt.signed and fmt.width_bits == bits <= MAX_RAW_BITS
        return out.view(out.dtype.str.replace("u", "i")) if whole else None
    return require_out(out, shape, fmt)


def require_out(out: Array | None, shape: tuple[int, ...], fmt: Format) -> Array | None:
    """Return `out` if it can receive the result.

    Raises:
        ShapeError: another shape or dtype than the result's.
    """
    if out is None:
        return None
    require_array(out)
    if out.shape != shape or out.dtype != fmt.carrier:
        raise ShapeError(f"`out` must be a {fmt.carrier} array of shape {shape}, got {out.dtype} of shape {out.shape}")
    require_writable(out)
    return out


def require_array(out: object) -> None:
    """Raise ShapeError unless `out` is None or an array."""
    if out is not None and not hasattr(out, "dtype"):
        raise ShapeError(f"`out` must be an array, got {type(out).__name__}; results are written to its memory")


def require_writable(out: Array) -> None:
    """Raise ShapeError unless compiled code may write to `out`."""
    if not out.flags.writeable or not out.dtype.isnative:
        flaw = "is read-only" if out.dtype.isnative else f"holds {out.dtype.str} in foreign byte order"
        raise ShapeError(
            f"`out` must be writable in this machine's byte order, got an array that {flaw}; copy it first"
        )
