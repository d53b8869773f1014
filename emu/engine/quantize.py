"""Quantize: write any real array in a format, through the output stage."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from emu.backends.arrays import contiguous
from emu.datapath import ScaleCounts
from emu.datapath.rounding import is_two_s_complement
from emu.engine.delivery import deliver, encode_write, require_array, require_out, require_writable
from emu.engine.description import Options, UnitDescription, call_of
from emu.engine.exact_register import exact_register
from emu.engine.operands import as_operand, code_of, require_reachable
from emu.engine.scaled import scaled_or, unit_of_elements, write_scaled
from emu.engine.small import small_outcome
from emu.errors import FormatError
from emu.formats import Fixed, Format, Scaled
from emu.formats.arrays import code_dtype_for

Array = NDArray[Any]


#: Widest integers that kernels write raws to.
MAX_RAW_BITS = 32


def quantize(
    x: Any,
    fmt: str | Format | Scaled,
    *,
    x_format: str | Format | None = None,
    axis: int | None = None,
    pad: bool = False,
    counts: ScaleCounts | None = None,
    scale: Any = None,
    zero: Any = None,
    **options: Unpack[Options],
) -> Any:
    """Round every element of `x` once into `fmt`, apply the overflow rule, and count.

    Args:
        x: real numbers, any shape; float16/32/64 or integers, taken at their exact values; or an `emu.value`.
        fmt: format written. Elements of a scaled one (`mxfp8_e4m3`) are rounded after they are divided by the scales
            that its rule gives.
        x_format: format of `x`, needed if its carrier holds raws.
        axis: of scaled formats: the axis along which blocks lie; None is the last.
        pad: of scaled formats: whether the last block of a row may be short.
        counts: of scaled formats: counts blocks that clip, vanish, or have a scale at a limit.
        scale: of scaled formats: scales in place of those that the rule chooses, as calibration gives them; what
            broadcasts to the blocks, with the axis last.
        zero: of formats with zero points, beside `scale`: the elements that stand for 0; None is 0.
        **options: see `emu.engine.Options`: rounding, overflow, random bits, register, flags, backend. `out` may also
            be raws of a fixed-point format in a signed integer dtype at least as wide, or codes in the unsigned dtype
            of `fmt.encode`.

    Returns:
        `out`, or a carrier array of `fmt`, in the shape of `x`. NaN: NaN, or 0 and flag `invalid` where the
        format has none. Infinities: docs/concepts/overflow.md. In a scaled format a `ScaledValue`: elements and scales.

    Raises:
        FormatError: an impossible format, rule or mode, or random bits out of range.
        ShapeError: `rbits` or `out` has another shape, or blocks do not divide an axis.
        BackendUnavailable: the backend cannot compute here.

    Exactness: equals the rounding of the real value, once.

    Examples:
        >>> quantize([1.26, -9.0, 0.03], "fix8f4", backend="reference").tolist()
        [1.25, -8.0, 0.0]
        >>> quantize([3.0, 900.0], "mxfp8_e4m3", pad=True, backend="reference")
        ScaledValue([  3., 896.], 'mxfp8_e4m3', axis=-1)

    Source: docs/concepts/rounding.md and docs/concepts/overflow.md.
    """
    fmt = scaled_or(fmt)
    if isinstance(fmt, Scaled):
        unit, check = unit_of_elements(fmt, options)
        if counts is not None and not isinstance(counts, ScaleCounts):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FormatError(f"`counts` must be an emu.ScaleCounts, got {counts!r}; write emu.ScaleCounts()")
        # without a format every real number is taken at its exact value: there is nothing to check against
        array, source = as_operand(x, x_format, "x", check=check and x_format is not None)
        if scale is None and zero is not None:
            raise FormatError(f"`zero` must be given with `scale`, got {zero!r} alone; give both, or neither")
        given = None if scale is None else (scale, zero)
        return write_scaled(unit, fmt, array, source, -1 if axis is None else axis, pad=pad, counts=counts, given=given)
    if axis is not None or pad or any(option is not None for option in (counts, scale, zero)):
        raise FormatError(
            "`axis`, `pad`, `counts`, `scale` and `zero` must be left out for a format whose elements share no scales, "
            f"got {fmt}; name a scaled format, as mxfp8_e4m3"
        )
    unit, out, check = call_of("quantize", fmt, options)
    array, source = as_operand(x, x_format, "x", check=check and x_format is not None)
    # None means two things: no `out`, or an `out` of codes or raws that no kernel writes, which is filled below
    target = None if out is None else _require_target(out, array.shape, unit.stage.format)
    values = write_quantized(unit, array, source, target)
    if out is None or target is not None:
        return values if out is None else out
    written = unit.stage.format
    # signed integers receive raws, unsigned ones codes: for signed formats both differ below 0
    out[...] = (
        written.to_raw(values) if isinstance(written, Fixed) and out.dtype.kind == "i" else written.encode(values)
    )
    return out


def write_quantized(unit: UnitDescription, x: Array, source: Format | None, out: Array | None = None) -> Array:
    """Write `x` through a unit's output stage.

    Args:
        unit: who writes.
        x: carriers, any shape.
        source: their format; None of plain floats.
        out: where to write: carriers or raws, shape of `x`.
    """
    outcome = small_outcome(unit, "quantize", (x,), (source,)) if out is None else None
    if outcome is None:
        require_reachable(unit.kernels, x)
        write = encode_write(unit, x.shape, exact_register("quantize", (source,)))
        outcome = unit.kernels.quantize(contiguous(x), code_of(source), write, out)
    return deliver(unit, outcome)


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
    # raws of two's complement are its codes, extended by the sign: a kernel writes them, if at most 32 bits wide. An
    # unsigned format's raws fit a signed dtype that is one bit wider; they are made from values afterwards.
    if out.dtype.kind == "i" and isinstance(fmt, Fixed) and fmt.width_bits + (not fmt.signed) <= bits:
        return out if fmt.signed and bits <= MAX_RAW_BITS else None
    # codes of a two's complement format of 8, 16 or 32 bits are its raws: the same memory, read with a sign
    if out.dtype == code_dtype_for(fmt.width_bits):
        whole = fmt.signed and is_two_s_complement(fmt) and fmt.width_bits == bits <= MAX_RAW_BITS
        return out.view(out.dtype.str.replace("u", "i")) if whole else None
    return require_out(out, shape, fmt)
