"""Elements that share scales, by definition: the rule's steps on arrays, then the output stage of the elements.

    x ──► largest magnitude of each block ──► the rule's steps ──► scales, stored
    x ──► divided by its scale, as the rule says ──► output stage of the elements ──► elements, flags

The steps run in NumPy, which rounds each operation once; what rounds to a format is the `quantize` of a backend. So the
definition serves every backend, and each of them takes it where it has no faster way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous
from emu.backends.interface import (
    INEXACT_FLAG,
    OVERFLOW_FLAG,
    Outcome,
    RandomCode,
    StageCode,
    Write,
    encode_format,
    encode_stage,
)
from emu.backends.kernels import Kernels
from emu.backends.reference.stage import writing_integers
from emu.datapath import OutputStage, Overflow, Rounding
from emu.formats import PRESETS, Fixed, Float, Scaled
from emu.formats.tiles import Tiles

Array = NDArray[Any]
FLOAT32 = PRESETS["fp32"]
#: The largest binary32.
MAX = FLOAT32.max
_NO_BITS = RandomCode(0, 0, 0, 0, None)


class Scales(NamedTuple):
    """The scales of an array, and what its numbers are divided by.

    Attributes:
        stored: the numbers that the rule stores, an array for each level.
        names: what the rule's steps have computed for each block, by name.
        lost: which blocks have a scale that is NaN.
        zero: zero points, int32; None of formats without.
    """

    stored: tuple[Array, ...]
    names: dict[str, Array]
    lost: NDArray[np.bool_]
    zero: NDArray[np.int32] | None = None


def quantize_blocks(
    kernels: Kernels, x: Array, fmt: Scaled, axis: int, write: Write
) -> tuple[Outcome, tuple[Array, ...]]:
    """Return elements and scales, as `Kernels.quantize_blocks` does; what rounds is the `quantize` of `kernels`."""
    scales = scales_of(kernels, fmt, x, axis)
    return elements_by(kernels, x, fmt, axis, write, scales), scales.stored


#: Integers that quotients are rounded to before their zero points are added: float32 holds them, and sums with points.
WHOLE = Fixed(24, 0)


def elements_by(kernels: Kernels, x: Array, fmt: Scaled, axis: int, write: Write, scales: Scales) -> Outcome:
    """Return the elements of numbers by their scales, as the output stage writes them.

    Where blocks have zero points, quotients are rounded to integers, zero points are added, and the stage bounds the
    sums. The saturation of the integers is without effect: elements have at most 16 bits, so that what is beyond 24
    bits is beyond them too.
    """
    # kernels take contiguous arrays
    divided = contiguous(quotients_of(fmt, x, scales, axis))
    if scales.zero is None:
        return kernels.quantize(divided, None, write, None)
    # the format's bounds come after the zero point
    stage = write.stage._replace(format=encode_format(WHOLE), overflow=Overflow.SATURATE.number)
    whole = kernels.quantize(divided, None, write._replace(stage=stage), None)
    points = Tiles(fmt.tiling, x.shape, axis).spread(scales.zero)
    sums = contiguous(np.asarray(whole.values) + points.astype(np.float32))
    # sums are integers, so that random bits decide nothing; a mode that moves integers has moved the quotients already
    bounded = kernels.quantize(sums, None, Write(writing_integers(write.stage), _NO_BITS, None), None)
    # overflow is that of the sums, all other flags are those of the rounding
    flags = np.array(whole.flags)
    flags[OVERFLOW_FLAG] = bounded.flags[OVERFLOW_FLAG]
    if flags[OVERFLOW_FLAG]:  # what was whole, and then bounded, is inexact too
        flags[INEXACT_FLAG] += np.count_nonzero((divided == whole.values) & (sums != bounded.values))
    return Outcome(bounded.values, flags, None, whole.max_exponent)


@lru_cache(maxsize=256)
def constants_of(fmt: Scaled, number: Any) -> Mapping[str, Any]:
    """Return the constants of a format's rule in a number type, by name."""
    return MappingProxyType({"M": number(fmt.largest), "P": number(2.0**fmt.element_exponent), "MAX": number(MAX)})


def scales_of(kernels: Kernels, fmt: Scaled, numbers: Array, axis: int, amax: float | None = None) -> Scales:
    """Return the scales of an array by the format's rule.

    Args:
        kernels: of the backend that rounds scales.
        fmt: the scaled format.
        numbers: float32 or float64, as the rule reads them.
        axis: along which blocks lie, counted from the end.
        amax: what scales follow from in place of the largest magnitude of each block; None is that. Of formats with
            one level and no zero points.
    """
    rule, number = fmt.rule, numbers.dtype.type
    tiles = [Tiles(level.tiling, numbers.shape, axis) for level in fmt.levels]
    magnitudes = np.abs(numbers)
    names: dict[str, Any] = {**constants_of(fmt, number)}
    # a scale that is given from outside is that of no NaN
    ignores_nan = fmt.ignores_nan or amax is not None
    largest = tiles[0].largest(magnitudes)
    # NaNs show in the largest numbers of their blocks: most arrays have none, and are not read again
    is_nan = np.isnan(magnitudes) if np.isnan(largest).any() else None
    if ignores_nan and is_nan is not None:
        # NaNs do not count for their block's largest number: 0 stands for them
        magnitudes = np.where(is_nan, number(0), magnitudes)
        largest = tiles[0].largest(magnitudes)
    names["amax"] = largest
    lost = ~np.isfinite(names["amax"]) & (not ignores_nan)
    if rule.outer is not None:
        names["top"] = tiles[1].largest(magnitudes)
        lost = lost | (~np.isfinite(names["top"]) & (not fmt.ignores_nan))
        # names and what the outer steps add: `t`, and what elements need
        names = rule.outer.run(names, number)
    if fmt.has_zero:
        names |= _ends_of(tiles[0], numbers if is_nan is None else np.where(is_nan, number(0), numbers))
        names |= {"LO": number(fmt.element.min), "HI": number(fmt.element.max)}
        if rule.reads == "double":
            # as the source computes: scale and zero point in binary64
            number = np.float64
            names = {name: np.asarray(value, number) for name, value in names.items()}
    if amax is not None:
        names["amax"] = np.full_like(largest, amax)
    # the block's own largest number stays in `amax`: `quotients_of` compares it with the scale
    names = rule.steps.run(names, number, _Rounding(kernels, fmt).functions) | {"amax": largest}
    shape = tiles[0].counts
    stored = np.broadcast_to(names["s"], shape).astype(fmt.levels[0].scale.carrier)
    if rule.reads == "double":  # a scale of binary64 that binary32 has no number for
        stored = np.where(stored == 0, np.float32(1), stored)
    if fmt.ignores_nan and rule.divides_exactly and amax is None and is_nan is not None:
        # of NaNs alone: no other number to scale by
        empty = tiles[0].largest((~is_nan).astype(np.int8)) == 0
        stored = np.where(empty, np.nan, stored).astype(stored.dtype)
    # a rule's arithmetic may give NaN itself
    lost = lost | np.isnan(stored)
    stored = np.where(lost, np.nan, stored).astype(stored.dtype)
    # elements are divided by the scale that is stored, not by the one that was computed
    names["s"] = stored
    outer = () if rule.outer is None else (np.asarray(names["t"], np.float32),)
    zero = np.where(lost, 0, names["z"]).astype(np.int32) if fmt.has_zero else None
    return Scales((stored, *outer), names, lost, zero)


def extents_of(fmt: Scaled, tiles: Tiles, numbers: Array) -> dict[str, Array]:
    """Return the largest magnitude of each block that is no NaN, and of formats with zero points its ends."""
    kept = np.where(np.isnan(numbers), numbers.dtype.type(0), numbers)
    return {"amax": tiles.largest(np.abs(kept))} | (_ends_of(tiles, kept) if fmt.has_zero else {})


def _ends_of(tiles: Tiles, numbers: Array) -> dict[str, Array]:
    """Return the smallest and the largest of 0 and the numbers of each block; none is NaN."""
    return {"lo": -tiles.largest(-numbers), "hi": tiles.largest(numbers)}


def quotients_of(fmt: Scaled, numbers: Array, scales: Scales, axis: int) -> Array:
    """Return what the output stage of the elements rounds: `y` of the rule, 0 in blocks whose scale is NaN."""
    tiles, rule = Tiles(fmt.tiling, numbers.shape, axis), fmt.rule
    # Divided by a power of two in float64, a float32 is exact; its own format may have no such small number, or none
    # so large. Only a scale above 1 makes a quotient small, and only one that was given a quotient beyond float32.
    stored = scales.stored[0].astype(np.float64)
    is_wide = rule.divides_exactly and bool(((stored > 1) | (scales.names["amax"] > stored * float(MAX))).any())
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes quiet
        x = numbers.astype(np.float64) if is_wide else numbers
    y = elements_of(fmt, x, {name: tiles.spread(block) for name, block in names_of_blocks(fmt, scales).items()})
    return np.where(tiles.spread(scales.lost), x.dtype.type(0), y) if scales.lost.any() else y


def names_of_blocks(fmt: Scaled, scales: Scales) -> dict[str, Array]:
    """Return what elements need of each block, shape of the finest scales, by name."""
    shape = scales.stored[0].shape
    return {name: np.broadcast_to(scales.names[name], shape) for name in fmt.rule.element.reads - {"x"}}


def elements_of(fmt: Scaled, x: Array, names: dict[str, Array]) -> Array:
    """Return numbers divided by scales as the rule says: what the output stage rounds."""
    return fmt.rule.element.run({"x": x, **names}, x.dtype.type)["y"]


def rounded(kernels: Kernels, stage: StageCode, x: Array) -> Array:
    """Return what a stage without random bits writes of floats."""
    return kernels.quantize(contiguous(x), None, Write(stage, _NO_BITS, None), None).values


@lru_cache(maxsize=256)
def _stage(fmt: Float, rounding: Rounding, overflow: Overflow) -> Any:
    return encode_stage(OutputStage(fmt, rounding, overflow))


class _Rounding:
    """The operations of a rule's steps that round to a format."""

    def __init__(self, kernels: Kernels, fmt: Scaled) -> None:
        self._kernels, self._format, self._scale = kernels, fmt, fmt.levels[0].scale

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The operations by their names in steps."""
        own = {name: getattr(self, name) for name in ("up", "down", "scale", "digits", "away")}
        return {**own, "even": np.rint, "abs": np.abs}

    @staticmethod
    def away(x: Array) -> Array:
        """Return `x` rounded to an integer, ties away from zero; `x` is below 2**16, so that halves are exact."""
        whole = np.trunc(x)
        return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0)

    def up(self, x: Array) -> Array:
        """Return the power of two of the scale format that is not below `x`; the largest or smallest beyond them."""
        return self._power(x, up=True)

    def down(self, x: Array) -> Array:
        """Return the power of two of the scale format that is not above `x`; the largest or smallest beyond them."""
        return self._power(x, up=False)

    def scale(self, x: Array) -> Array:
        """Return `x` rounded to the scale format, nearest even; the largest beyond it."""
        return self._to(self._scale, Rounding.NEAREST_EVEN, Overflow.SATFINITE, x)

    def digits(self, x: Array) -> Array:
        """Return `x` rounded to binary32's exponents and the element's significand, ties away from zero."""
        digits = Float(FLOAT32.exponent_bits, self._format.element_digits - 1)
        return self._to(digits, Rounding.NEAREST_AWAY, Overflow.IEEE, x)

    def _power(self, x: Array, *, up: bool) -> Array:
        """Return powers of two beside numbers that are not negative; of infinity the largest, or NaN."""
        x = np.asarray(x)
        # 0 has the smallest power; infinities and NaN are replaced below
        known = np.isfinite(x) & (x > 0)
        # frexp gives x = m * 2**e with 0.5 <= m < 1, where 0.5 is that of powers of two
        significand, exponent = np.frexp(np.where(known, x, 1))
        exponent = np.clip(exponent - 1 + (up & (significand > 0.5)), self._scale.emin, self._scale.emax)
        powers = np.ldexp(x.dtype.type(1), np.where(known, exponent, self._scale.emin)).astype(x.dtype)
        infinite = x.dtype.type(self._scale.max if self._format.ignores_nan else np.nan)
        return np.where(np.isnan(x), x, np.where(np.isinf(x), infinite, powers))

    def _to(self, fmt: Float, rounding: Rounding, overflow: Overflow, x: Array) -> Array:
        x = np.asarray(x)
        # the next step computes in the type of x
        return rounded(self._kernels, _stage(fmt, rounding, overflow), x).astype(x.dtype, copy=False)
