"""Sequential accumulators that round, saturate or wrap at each add.

In order along k, vectorised over the columns of the result:

    for each row:  acc[0..N-1] = R(acc + a[row, k] * b[k, 0..N-1])   for k = 0, 1, ... K-1

Four units, each a loop the compiler vectorises, chosen by `unit_for`:

    FLOAT32   the machine's float32 addition; products exact in float32 or rounded to it
    WIDE32    float32 accumulator, products exact only in float64: rounded twice, which changes nothing
    FLOAT     any float accumulator, nearest_even: float64, rounded to odd unless docs/concepts/products.md shows that
              it need not be
    FIXED     fixed accumulator that never rounds: integers in float64, clamped or wrapped

Source: docs/concepts/products.md, "Rounding twice", and docs/concepts/fast-paths.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import MacCode, StageCode, Write, carrier_of, encode_format
from emu.backends.modes import moves_exact
from emu.backends.numba.bits import BIAS, FIELD, add_to_odd, bits_of, float_of
from emu.backends.numba.compiling import kernel, over_ranges
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised
from emu.backends.product import Formats, Product, ProductCode
from emu.backends.proofs import (
    FLOAT32_QUANTUM,
    FLOAT32_TOP,
    SAFE_EXPONENT,
    decides_in_float64,
    has_normals,
    largest_exponent,
    significand_bits,
)
from emu.formats import PRESETS

Array = NDArray[Any]
FLOAT32, WIDE32, FLOAT, FIXED = range(4)
FP16, FP32 = encode_format(PRESETS["fp16"]), encode_format(PRESETS["fp32"])
SATURATE_ZERO, WRAP = k.SATURATE_ZERO, k.WRAP
#: Largest exponent field of a rounding constant.
TOP_FIELD = bounded(2046, 1, 2046, "the next one is that of infinities and NaN")
#: Bits of fixed accumulators, products and addends.
FIXED_BITS = bounded(52, 1, 52, "two numbers of so many bits add up below 2**53")
#: Contents are returned as float32 if float64 has at least so many bits more than the accumulator, and its smallest
#: exponent lies above this one.
NARROW_TAIL = bounded(29, 53 - 24, 52, "float32 has 24 bits")
NARROW_EMIN = bounded(-120, -126, 0, "down to the last place of this exponent, float32 has 24 bits")
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 17
#: See `Way.speed`.
SPEED = 0.7


class Accumulator(NamedTuple):
    """An accumulator as the loops take it."""

    kind: int
    needs_odd: int
    tail: int  # 53 - precision: from the exponent of a sum to that of its rounding constant
    emin_field: int
    # the largest of sums that are rounded at their own last place, TOP_FIELD - tail; larger ones overflow
    top_field: int
    largest: float
    infinite: float
    has_negative_zero: int
    overflow: int
    high: float
    low: float
    modulus: float
    product_scale: float


def unit_for(mac: MacCode, formats: Formats) -> Accumulator | None:
    """Return the accumulator of a Mac as a loop here takes it, or None if none does."""
    if mac.order != k.SEQUENTIAL or mac.accumulator is None:
        return None
    if not mac.accumulator.format.is_float:
        return _fixed_unit(mac, mac.accumulator, formats)
    return _float_unit(mac, mac.accumulator, formats)


def _float_unit(mac: MacCode, stage: StageCode, formats: Formats) -> Accumulator | None:
    fmt = stage.format
    if stage.rounding != k.NEAREST_EVEN or stage.overflow != k.IEEE or any(f is not None and f.daz for f in formats):
        return None
    if any(f is not None and carrier_of(f) != np.float32 for f in formats) or fmt.ftz or not fmt.has_nan:
        return None
    if abs(fmt.quantum) >= SAFE_EXPONENT or fmt.precision == 1 or not has_normals(fmt):
        return None
    infinite = math.inf if fmt.has_infinity else math.nan
    largest = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
    tail, emin_field = 53 - fmt.precision, fmt.emin + BIAS
    top_field = TOP_FIELD - tail
    make = Accumulator(
        FLOAT, 1, tail, emin_field, top_field, largest, infinite, fmt.has_negative_zero, 0, 0.0, 0.0, 0.0, 1.0
    )
    significant = significand_bits(formats[0]) + significand_bits(formats[1])
    # Products of 24 bits are exact in float32 within its exponents, else in float64, where a sum with them may be
    # rounded first: 53 >= 2 * 24 + 2.
    if fmt == FP32:
        if mac.product is not None:
            same = (
                mac.product.format == FP32 and mac.product.rounding == k.NEAREST_EVEN and mac.product.overflow == k.IEEE
            )
            return make._replace(kind=FLOAT32) if same else None
        if significant <= 24:
            lowest = formats[0].quantum + formats[1].quantum
            highest = largest_exponent(formats[0]) + largest_exponent(formats[1])
            return make._replace(kind=FLOAT32 if lowest >= FLOAT32_QUANTUM and highest <= FLOAT32_TOP else WIDE32)
    if mac.product is not None or significant > 53 or not decides_in_float64(stage, 0):
        return None
    assert 0 < emin_field <= math.frexp(largest)[1] - 1 + BIAS <= top_field  # `decides_in_float64` ends at 2**960
    # Binary16 products and sums: "Rounding twice" shows that float64 without rounding to odd gives the same.
    fused_half = fmt == FP16 and all(f == FP16 for f in formats[:2])
    return make._replace(needs_odd=int(not fused_half))


def _fixed_unit(mac: MacCode, stage: StageCode, formats: Formats) -> Accumulator | None:
    fa, fb, fc = formats
    fmt = stage.format
    if moves_exact(stage):
        return None
    if mac.product is not None or fa.is_float or fb.is_float or (fc is not None and (fc.is_float or fc.carries_raws)):
        return None
    shift = fa.quantum + fb.quantum - fmt.quantum
    product_bits = fa.width_bits + fb.width_bits + shift
    addend_fits = fc is None or (fc.quantum >= fmt.quantum and fc.width_bits + fc.quantum - fmt.quantum <= FIXED_BITS)
    if (
        shift < 0
        or product_bits > FIXED_BITS
        or fmt.width_bits > FIXED_BITS
        or fa.carries_raws
        or fb.carries_raws
        or not addend_fits
    ):
        return None
    if any(f is not None and abs(f.quantum) >= SAFE_EXPONENT for f in (*formats, fmt)):
        return None
    high = float(fmt.max_significand)
    low = float(stage.lowest)
    scale = math.ldexp(1.0, -fmt.quantum)
    return Accumulator(
        FIXED, 0, 0, 0, 0, 0.0, 0.0, 0, stage.overflow, high, low, math.ldexp(1.0, fmt.width_bits), scale
    )


@kernel
def _float32_rows(a: Any, b: Any, addend: Any, out: Any, start: int, stop: int) -> None:
    depth, columns = b.shape[1], b.shape[2]
    acc = np.empty(columns, np.float32)
    for row in range(start, stop):
        batch, m = row // a.shape[1], row % a.shape[1]
        for j in range(columns):
            acc[j] = addend[batch % addend.shape[0], m % addend.shape[1], j % addend.shape[2]]
        for k_index in range(depth):
            left = a[batch, m, k_index]
            for j in range(columns):
                acc[j] += left * b[batch, k_index, j]
        for j in range(columns):
            out[batch, m, j] = acc[j]


@kernel
def _wide32_rows(a: Any, b: Any, addend: Any, out: Any, start: int, stop: int) -> None:
    depth, columns = b.shape[1], b.shape[2]
    acc = np.empty(columns, np.float32)
    for row in range(start, stop):
        batch, m = row // a.shape[1], row % a.shape[1]
        for j in range(columns):
            acc[j] = addend[batch % addend.shape[0], m % addend.shape[1], j % addend.shape[2]]
        for k_index in range(depth):
            left = np.float64(a[batch, m, k_index])
            for j in range(columns):
                acc[j] = np.float32(np.float64(acc[j]) + left * np.float64(b[batch, k_index, j]))
        for j in range(columns):
            out[batch, m, j] = acc[j]


@kernel
def _nearest_even(s: float, unit: Any) -> float:
    """Round a float64 into the accumulator, to nearest even; beyond the largest number it is infinite.

    Adding 1.5 * 2**(last + 52), whose last place is 2**last, rounds to a multiple of that; subtracting it is exact.
    """
    # The last place is that of the sum's own exponent, not below emin's. Above `top_field` the constant would not be
    # finite; such sums are beyond the largest number, however they are rounded.
    field = min(max((bits_of(s) >> 52) & FIELD, unit.emin_field), unit.top_field)
    big = float_of(((field + unit.tail) << 52) | (1 << 51))
    y = math.copysign((s + big) - big, s)  # the difference of -0 is +0
    if abs(y) > unit.largest:
        y = math.copysign(unit.infinite, s)
    return y


@kernel
def added(acc: float, product: float, unit: Any) -> float:
    """Return a sum as the loops of a float unit add it, before it is rounded into the accumulator."""
    if unit.kind == FLOAT and unit.needs_odd:
        return add_to_odd(acc, product)
    return acc + product


@kernel
def rounded(s: float, unit: Any) -> float:
    """Round a float64 as the loops of a float unit do."""
    return _nearest_even(s, unit) if unit.kind == FLOAT else np.float64(np.float32(s))


@kernel
def _float_rows(a: Any, b: Any, addend: Any, out: Any, unit: Any, start: int, stop: int) -> None:
    depth, columns = b.shape[1], b.shape[2]
    acc = np.empty(columns, np.float64)
    for row in range(start, stop):
        batch, m = row // a.shape[1], row % a.shape[1]
        for j in range(columns):
            acc[j] = _nearest_even(
                np.float64(addend[batch % addend.shape[0], m % addend.shape[1], j % addend.shape[2]]), unit
            )
        if unit.needs_odd:
            for k_index in range(depth):
                left = np.float64(a[batch, m, k_index])
                for j in range(columns):
                    acc[j] = _nearest_even(add_to_odd(acc[j], left * np.float64(b[batch, k_index, j])), unit)
        else:
            for k_index in range(depth):
                left = np.float64(a[batch, m, k_index])
                for j in range(columns):
                    acc[j] = _nearest_even(acc[j] + left * np.float64(b[batch, k_index, j]), unit)
        for j in range(columns):
            # Only the sign of a zero may differ, and no later sum sees it: it changes at the end.
            out[batch, m, j] = acc[j] if unit.has_negative_zero else acc[j] + 0.0


@kernel
def limit(s: float, unit: Any) -> float:
    """Return what the accumulator's rule makes of a sum, both in units of the accumulator's last place."""
    if unit.overflow == WRAP:  # the modulus is a power of two, and the sum below 2**53: all of it is exact
        s = s - np.floor(s / unit.modulus) * unit.modulus
        return s - unit.modulus if s > unit.high else s
    if unit.overflow == SATURATE_ZERO:
        return 0.0 if s > unit.high or s < unit.low else s
    return min(max(s, unit.low), unit.high)


@kernel
def _fixed_rows(a: Any, b: Any, addend: Any, out: Any, touched: Any, unit: Any, start: int, stop: int) -> None:
    depth, columns = b.shape[1], b.shape[2]
    acc = np.empty(columns, np.float64)
    hit = np.empty(columns, np.uint8)
    back = 1.0 / unit.product_scale  # of a power of two: exact
    for row in range(start, stop):
        batch, m = row // a.shape[1], row % a.shape[1]
        for j in range(columns):
            first = (
                np.float64(addend[batch % addend.shape[0], m % addend.shape[1], j % addend.shape[2]])
                * unit.product_scale
            )
            acc[j] = limit(first, unit)
            hit[j] = acc[j] != first
        for k_index in range(depth):
            # Scaled by the left operand alone: a product is then in last places of the accumulator.
            left = np.float64(a[batch, m, k_index]) * unit.product_scale
            for j in range(columns):
                s = acc[j] + left * np.float64(b[batch, k_index, j])
                w = limit(s, unit)
                hit[j] |= w != s
                acc[j] = w
        for j in range(columns):
            out[batch, m, j] = acc[j] * back
            # Wrapping is no limit that is touched.
            touched[batch, m, j] = hit[j] and unit.overflow != WRAP


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None for units that have a loop here, else "": `ordered` computes the others."""
    return "" if product.is_exact or unit_for(product.mac, product.formats) is None else None


def contents(product: Product, write: Write) -> Contents:
    """Return the accumulators' (B, M, N) contents, and where they touched a limit."""
    unit = unit_for(product.code.mac, product.code.formats)
    assert unit is not None
    (a, b), addend = product.stacks(materialised), product.addend
    shape = (a.shape[0], a.shape[1], b.shape[2])
    third = np.zeros((1, 1, 1), np.float32) if addend is None else np.ascontiguousarray(addend)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    narrow = unit.kind in (FLOAT32, WIDE32) or (
        unit.kind == FLOAT
        and unit.largest < 2.0**127
        and unit.tail >= NARROW_TAIL
        and unit.emin_field - BIAS > NARROW_EMIN
    )
    out = np.empty(shape, np.float32 if narrow else np.float64)
    touched = np.zeros(shape, np.uint8) if unit.kind == FIXED else None
    rows = shape[0] * shape[1]

    def work(index: int, start: int, stop: int) -> None:
        if unit.kind == FLOAT32:
            _float32_rows(a, b, third, out, start, stop)
        elif unit.kind == WIDE32:
            _wide32_rows(a, b, third, out, start, stop)
        elif unit.kind == FLOAT:
            _float_rows(a, b, third, out, unit, start, stop)
        else:
            _fixed_rows(a, b, third, out, touched, unit, start, stop)

    over_ranges(work, rows, 1, max(1, GRAIN_MACS // max(a.shape[2] * shape[2], 1)))
    return Contents(out, touched)
