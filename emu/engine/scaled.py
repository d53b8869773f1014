"""Quantize into a scaled format, in two passes: scales from the numbers of each block, then elements.

    x ──► register observes ──► as the rule reads it ──► `Kernels.quantize_blocks` ──► elements and scales, flags

Scales have no random bits and raise no flags; elements are numbered as those of `x`, for random bits. The definition is
in `emu/backends/reference/scaled.py`; it also writes elements by given scales, and those with zero points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous, on_host
from emu.backends.interface import OVERFLOW_FLAG, Outcome, Write, encode_stage
from emu.backends.kernels import Kernels
from emu.datapath import Flags, OutputStage, Overflow, Rounding, ScaleCounts
from emu.datapath.cast import Magnitudes
from emu.engine.delivery import deliver, encode_write, place_register
from emu.engine.description import OPTIONS, UNSEEDED, UnitDescription, call_of
from emu.engine.operands import as_operand, code_of
from emu.errors import FormatError, ShapeError
from emu.formats import PRESETS, Fixed, Float, Format, Scaled, ScaledValue, parse
from emu.formats.arrays import require_all
from emu.formats.scaled import as_zero_points
from emu.formats.tiles import Tiles, axis_of, require_whole_blocks

if TYPE_CHECKING:
    from emu.backends.reference.scaled import Scales

Array = NDArray[Any]
FLOAT32 = PRESETS["fp32"]


def scaled_or(fmt: str | Format | Scaled) -> str | Format | Scaled:
    """Return the scaled format that a text names; anything else as it is, since a text may bring modes."""
    if not isinstance(fmt, str):
        return fmt
    parsed = parse(fmt)
    return parsed if isinstance(parsed, Scaled) else fmt


@lru_cache(maxsize=256)
def stage_of_elements(fmt: Scaled) -> OutputStage:
    """Return the output stage of elements unless another one is given.

    They have the rounding mode of the format's rule, and saturate to the largest magnitude of their sign, as OCP
    requires. Elements with a zero point have no sign of their own: all their codes serve.
    """
    overflow = Overflow.SATFINITE
    if not isinstance(fmt.element, Float):
        is_whole = fmt.has_zero or not fmt.element.signed
        # of signed elements without zero points -2**(n-1) is left out: magnitudes are alike on both sides
        overflow = Overflow.SATURATE if is_whole else Overflow.SATURATE_SYMMETRIC
    return OutputStage(fmt.element, Rounding.parse(fmt.rule.rounding), overflow)


def unit_of_elements(
    fmt: Scaled, options: Mapping[str, Any], operation: str = "quantize", known: frozenset[str] = OPTIONS
) -> tuple[UnitDescription, bool]:
    """Return the unit that options describe for the elements of a scaled format, and whether operands are checked.

    Args:
        fmt: the scaled format.
        options: of a call of `operation`.
        operation: what is called, for the error.
        known: its options.

    Raises:
        ShapeError: `out` is given, which holds no scales.
        TypeError, FormatError: as `call_of`.
    """
    if options.get("out") is not None:
        raise ShapeError(f"`out` must be left out for {fmt}: a result is elements and scales; take both from it")
    overflow, rounding = options.get("overflow"), options.get("rounding")
    usual = stage_of_elements(fmt)
    chosen = {
        **options,
        "overflow": usual.overflow if overflow is None else overflow,
        "rounding": usual.rounding if rounding is None else rounding,
    }
    unit, _, check = call_of(operation, fmt.element, chosen, known)
    if fmt.has_zero and unit.stage.overflow is Overflow.WRAP:
        raise FormatError(
            f"`overflow` must saturate elements with a zero point, got wrap for {fmt}; leave it out for saturate"
        )
    return unit, check


def as_scaled(given: Any, fmt: Scaled, axis: int, *, check: bool) -> ScaledValue:
    """Return numbers, or elements and scales, as a value of a scaled format.

    Args:
        given: numbers that the rule writes exactly; or a tuple of elements and the scales of each level.
        fmt: the scaled format.
        axis: along which blocks lie.
        check: whether to check elements, scales and numbers.

    Raises:
        FormatError: a number that the rule's scales cannot write, an element or scale outside its format.
        ShapeError: no such axis, blocks that do not divide it, or scales of another shape.
    """
    if isinstance(given, ScaledValue):
        if given.format != fmt:
            raise FormatError(f"`array` must be a value of {fmt}, got one of {given.format}; quantize its numbers")
        return given.along(axis)
    if isinstance(given, tuple):
        if not given:
            raise ShapeError(f"a value of {fmt} must be given elements, then their scales, got (); give both")
        elements, *rest = cast("tuple[Any, ...]", given)
        scales: list[Any] = rest
        zero: Any = None
        # zero points come last, after the scales of all levels; `ScaledValue.of` says so if they are missing
        if fmt.has_zero and len(scales) > len(fmt.levels):
            *scales, zero = scales
            zero = as_zero_points(fmt, zero)
        parts = [as_operand(elements, fmt.element, "elements", check=check)[0]]
        parts += [
            as_operand(scale, level.scale, f"scales of {level.tiling}", check=check)[0]
            for scale, level in zip(scales, fmt.levels, strict=False)
        ]
        # copies: a value holds arrays of its own
        array, *levels = (np.array(on_host(part)) for part in parts)
        return ScaledValue.of(array, (*levels, *scales[len(levels) :]), fmt, axis, zero)
    x, source = as_operand(given, None, "array", check=check)
    unit = unit_of_elements(fmt, {})[0]
    # with flags of its own, NaN that elements do not have are counted instead of warned of: the check below names them
    written = write_scaled(unit._replace(flags=Flags()), fmt, x, source, axis)
    if check:
        numbers, decoded = np.asarray(on_host(x)), np.asarray(written)
        require_all(fmt, numbers, (decoded == numbers) | (np.isnan(decoded) & np.isnan(numbers)))
    return written


def write_scaled(
    unit: UnitDescription,
    fmt: Scaled,
    x: Array,
    source: Format | None,
    axis: int,
    *,
    pad: bool = False,
    counts: ScaleCounts | None = None,
    given: tuple[Any, Any] | None = None,
    magnitudes: Magnitudes | None = None,
) -> ScaledValue:
    """Write `x` in a scaled format, elements through a unit's output stage.

    Args:
        unit: who writes; its stage is that of the elements.
        fmt: the scaled format.
        x: carriers, any shape with an axis.
        source: their format; None of plain floats.
        axis: along which blocks lie.
        pad: whether the last block along an axis may be short.
        counts: gets the counts of blocks; None counts nothing.
        given: scales and zero points in place of those that the rule chooses; zero points may be None.
        magnitudes: of delayed scaling: the rule chooses the scale by the magnitude that it assumes, and the largest
            magnitude of `x` is noted in it; None: the scale follows from `x`.

    Raises:
        ShapeError: no such axis, or blocks that do not divide it.
        FormatError: numbers that no float64 holds; given scales that cannot be, or that the rule does not take.
    """
    # blocks are made on the host, from contiguous memory
    x = contiguous(on_host(x))
    axis = axis_of(axis, x.shape, fmt)
    if not pad:
        require_whole_blocks(fmt, x.shape, axis)
    numbers = as_read(unit.kernels, fmt, x, source)
    # the register observes the numbers; divided by their scales they would be counted a second time
    unseen = unit._replace(register=None)
    write, counted = encode_write(unseen, x.shape, None), unit.flags is not None or counts is not None
    scales: Scales | None = None
    # scales that the rule alone decides: one pass of the backend makes them and the elements
    if given is None and magnitudes is None and not fmt.has_zero:
        outcome, stored = unit.kernels.quantize_blocks(numbers, fmt, axis, write, counted=counted)
    else:
        # a delayed scale follows from `assumed`, whatever this array holds; its own largest magnitude is noted for
        # later
        scales = (
            _scales(unit.kernels, fmt, numbers, axis, magnitudes and magnitudes.assumed)
            if given is None
            else given_scales(fmt, *given, numbers, axis)
        )
        outcome, stored = _elements_by(unit.kernels, numbers, fmt, axis, write, scales), scales.stored
    # here, where nothing can fail any more: a call that was refused has counted nothing
    if unit.register is not None:
        observe(unit, x, source)
    if magnitudes is not None and scales is not None:
        # noted after the elements were made: it is what later casts assume
        magnitudes.note(scales.names["amax"])
    elements = deliver(unseen, outcome)
    if counts is not None:
        # `quantize_blocks` returns what is stored alone; counts ask for each block's range, too, so the definition is
        # run once more
        scales = scales or _scales(unit.kernels, fmt, numbers, axis)
        counts.add(_counted(unit, fmt, numbers, scales, np.asarray(elements), int(outcome.flags[OVERFLOW_FLAG]), axis))
    return ScaledValue.of(elements, stored, fmt, axis, None if scales is None else scales.zero)


def _scales(kernels: Kernels, fmt: Scaled, numbers: Array, axis: int, amax: float | None = None) -> Scales:
    from emu.backends.reference.scaled import scales_of

    return scales_of(kernels, fmt, numbers, axis, amax)


def _elements_by(kernels: Kernels, numbers: Array, fmt: Scaled, axis: int, write: Write, scales: Scales) -> Outcome:
    from emu.backends.reference.scaled import elements_by

    return elements_by(kernels, numbers, fmt, axis, write, scales)


def given_scales(fmt: Scaled, scale: Any, zero: Any, numbers: Array, axis: int) -> Scales:
    """Return scales and zero points that a caller has chosen.

    Args:
        fmt: a format of one level whose rule divides by the scale alone.
        scale: numbers that broadcast to the blocks.
        zero: integers that broadcast to the blocks; None is 0.
        numbers: what is divided.
        axis: along which blocks lie, counted from the end.

    Raises:
        FormatError: a scale that is 0, negative, NaN, infinite or subnormal, or no number of the scale format; a zero
            point that is no element; or a rule that needs more than scales.
        ShapeError: scales or zero points that do not broadcast.
    """
    from emu.backends.reference.scaled import Scales, extents_of

    finest, *outer = fmt.levels
    if fmt.rule.element.reads - {"x", "s"} or outer:
        raise FormatError(
            f"`scale` must be left to the rule {fmt.rule.name} of {fmt}, which divides by more than a scale; name a "
            "format with another rule, as int8_tensor or mxfp8_e4m3"
        )
    stored = scales_that_divide(scale, finest.scale, "scale")
    if not fmt.has_zero and zero is not None:
        raise FormatError(f"`zero` must be left out for {fmt}, which has no zero points; name uint8_affine")
    points = as_zero_points(fmt, 0 if zero is None else zero) if fmt.has_zero else None
    tiles = Tiles(fmt.tiling, numbers.shape, axis)
    counts = tiles.counts
    try:
        # copies: broadcast arrays would share their elements
        stored = np.array(np.broadcast_to(stored, counts))
        points = None if points is None else np.array(np.broadcast_to(points, counts))
    except ValueError:
        raise ShapeError(
            f"`scale` and `zero` must broadcast to the shape {counts} of the scales of {fmt}: blocks, with the axis "
            f"last, got {np.shape(scale)} and {np.shape(0 if zero is None else zero)}"
        ) from None
    names = {**extents_of(fmt, tiles, numbers), "s": stored}
    return Scales((stored,), names, np.zeros(counts, np.bool_), points)


def scales_that_divide(given: Any, fmt: Float, name: str) -> Array:
    """Return scales as carriers of their format.

    Raises:
        FormatError: one that is 0, negative, NaN, infinite or subnormal, or no number of the format.
    """
    numbers = np.asarray(on_host(as_operand(given, None, name, check=False)[0]))
    if fmt == FLOAT32:  # 0.02, as people write a scale, is the binary32 next to it
        with np.errstate(over="ignore", under="ignore"):
            numbers = numbers.astype(np.float32)
    scales = np.array(as_operand(numbers, fmt, name, check=True)[0])
    # a comparison with NaN is false, so NaN is wrong as well
    wrong = ~(np.isfinite(scales) & (scales >= fmt.smallest_normal))
    if wrong.any():
        raise FormatError(
            f"`{name}` must be positive, finite and normal, got {scales[wrong].flat[0]!s}; give the scale of a tensor "
            "that is not all 0"
        )
    return scales


def _counted(
    unit: UnitDescription, fmt: Scaled, numbers: Array, scales: Scales, elements: Array, clipped: int, axis: int
) -> ScaleCounts:
    """Return the counts of blocks of one array; `clipped`: elements beyond the largest one."""
    tiles, stored, amax = Tiles(fmt.tiling, numbers.shape, axis), scales.stored[0], scales.names["amax"]
    # blocks whose scale is NaN have a count of their own; the counts of blocks below leave them out
    known = ~scales.lost
    is_zero = known & (amax == 0)
    vanished = elements == (0 if scales.zero is None else tiles.spread(scales.zero))
    vanished &= numbers != 0
    if not known.all():
        vanished &= tiles.spread(known)
    # a NaN may be written as 0, which is no loss of a small number; few elements are asked
    count = np.count_nonzero(vanished)
    count -= np.count_nonzero(np.isnan(numbers[vanished])) if count else 0
    limit = fmt.levels[0].scale
    # the largest scale; and the smallest one, which is 0 if the format has it
    ends = [limit.max, limit.smallest_positive if not limit.zero else 0.0]
    at_limit = known & ~is_zero & np.isin(stored, ends)
    # frexp has its fraction in 1/2..1, so floor(log2) is its exponent less 1
    leading = np.frexp(stored[known & (stored != 0)].astype(np.float64))[1] - 1
    exponents, blocks = np.unique(leading, return_counts=True)
    return ScaleCounts(
        blocks=stored.size,
        elements=numbers.size,
        clipped=clipped,
        clipped_largest=int((_clips_largest(unit, fmt, scales) & known).sum()),
        vanished=int(count),
        zero_blocks=int(is_zero.sum()),
        at_limit=int(at_limit.sum()),
        nan_scales=int(scales.lost.sum()),
        exponents={int(e): int(n) for e, n in zip(exponents, blocks, strict=True)},
    )


def _clips_largest(unit: UnitDescription, fmt: Scaled, scales: Scales) -> NDArray[np.bool_]:
    """Return which blocks have a number at an end of their range that is rounded beyond the elements."""
    if scales.zero is None:
        return _rounded_quotients(unit, fmt, scales.names["amax"], scales) > fmt.largest
    low, high = (_rounded_quotients(unit, fmt, scales.names[end], scales) + scales.zero for end in ("lo", "hi"))
    return (low < float(fmt.element.min)) | (high > float(fmt.element.max))


def _rounded_quotients(unit: UnitDescription, fmt: Scaled, x: Array, scales: Scales) -> Array:
    """Return a number of each block divided and rounded as elements are, but without bound."""
    from emu.backends.reference.scaled import WHOLE, elements_of, names_of_blocks

    # as the elements were divided: in float64 if the rule says so
    x = x.astype(np.float64) if fmt.rule.divides_exactly else x
    y = elements_of(fmt, x, names_of_blocks(fmt, scales))
    # each element draws bits of its own: no single rounding stands for the block, so its quotient does
    if unit.stage.rounding.draws:
        return y
    wide = WHOLE if fmt.has_zero else _continued(fmt.element)  # the same grid, continued
    return _rounded(unit.kernels, _unbounded(unit.stage, wide), y)


@lru_cache(maxsize=256)
def _unbounded(stage: OutputStage, wide: Fixed | Float) -> Any:
    """Return the code of a stage that writes another format."""
    return encode_stage(replace(stage, format=wide, overflow=None))


def _continued(element: Fixed | Float) -> Fixed | Float:
    """Return a format whose grid is that of elements, up to more than twice the largest one."""
    if isinstance(element, Fixed):
        # two bits more: four times the range, in the same steps
        return replace(element, width_bits=element.width_bits + 2)
    # the bias stays, so that the steps of all smaller numbers do
    bits = element.exponent_bits + 1
    return Float(bits, element.fraction_bits, element.bias, ftz=element.ftz)


def as_read(kernels: Kernels, fmt: Scaled, x: Array, source: Format | None) -> Array:
    """Return numbers as a rule reads them: float32, or float64 that are exact; subnormals of a DAZ format are 0.

    Raises:
        FormatError: a number of fixed point that no float64 holds.
    """
    # rules read carriers, not codes: what a decoder of the format would flush is flushed here
    if isinstance(source, Float) and source.daz:
        from emu.backends.reference.arithmetic import flush_operands

        x = flush_operands(x, code_of(source))
    if fmt.rule.reads != "exact":
        return x if x.dtype == np.float32 else _rounded(kernels, _FLOAT32_STAGE, x, source)
    if x.dtype.kind == "f":
        return x
    floats = _rounded(kernels, _FLOAT64_STAGE, x, source)
    frac_bits = source.frac_bits if isinstance(source, Fixed) else 0
    # of a number beyond float64 infinity comes back, or NaN; where 2**frac_bits is beyond it, ldexp is still exact
    back = np.ldexp(floats, frac_bits)
    # integers are compared as Python's: a comparison in float64 would round both sides
    for f, e in zip(back.flat, x.flat, strict=True):
        if not np.isfinite(f) or int(f) != int(e):
            lost = f"{e}" if frac_bits == 0 else f"{e} * 2**{-frac_bits}"
            raise FormatError(
                f"numbers that share scales must be float64, got {lost}, which it does not hold, for {fmt}; round them "
                "first, by emu.quantize(x, 'fp64')"
            )
    return floats


def observe(unit: UnitDescription, x: Array, source: Format | None) -> None:
    """Have the unit's register observe the numbers before they are scaled."""
    exact = source if isinstance(source, Fixed) else None
    # what is written goes nowhere: only the register's counts are of interest
    write = Write(_FLOAT64_STAGE, UNSEEDED, place_register(unit, exact))
    outcome = unit.kernels.quantize(x, code_of(source), write, None)
    # binary64 has NaN: so nothing is lost, and no warning is due
    deliver(unit._replace(flags=None, code=_FLOAT64_STAGE), outcome)


def _rounded(kernels: Kernels, stage: Any, x: Array, source: Format | None = None) -> Array:
    return kernels.quantize(contiguous(x), code_of(source), Write(stage, UNSEEDED, None), None).values


_FLOAT32_STAGE = encode_stage(OutputStage(FLOAT32, overflow=Overflow.IEEE))
_FLOAT64_STAGE = encode_stage(OutputStage(PRESETS["fp64"], overflow=Overflow.IEEE))
