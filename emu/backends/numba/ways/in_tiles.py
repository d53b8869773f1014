"""Sequential accumulators in vector code: which units the adders of `ordered_tiles` emulate, and products of matrices.

    fused        fp32 accumulator, exact products, any operands carried by float32
    float32      fp32 accumulator and products
    binary16     fp16 accumulator and products, operands whose products are exact in float32
    fused16      fp16 accumulator, exact products, the same operands
    half         as binary16, of operands that are binary16 numbers, on processors that compute with them
    fused_half   as fused16, the same
    words        saturating signed accumulator of W <= 32 bits, operands of together at most W bits
    marked       the same of W <= 30 bits
    saturating   saturating accumulator whose sums stay within 2**24

All round to nearest even. Their rules are `ieee` and `saturate`; the last also takes `saturate_symmetric`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered, as_gathered
from emu.backends.interface import FormatCode, MacCode, StageCode, Write, carrier_of, encode_format
from emu.backends.memory import empty
from emu.backends.modes import moves_exact
from emu.backends.numba.compiling import only_read
from emu.backends.numba.contents import Contents
from emu.backends.numba.gathering import materialised
from emu.backends.numba.machine import has_dot_products, has_half_arithmetic, has_vectors
from emu.backends.numba.vector import batched_products, transposed_products
from emu.backends.numba.vector.ordered_products import as_lines_of, over_row_blocks, packed_panels, room_for, row_loops
from emu.backends.numba.vector.ordered_tiles import FEWEST_MARK_BITS, HALF, ROWS, TOUCHING, line_dtype
from emu.backends.product import Formats, Product, ProductCode
from emu.backends.proofs import (
    FLOAT32_QUANTUM,
    FLOAT32_TOP,
    SAFE_EXPONENT,
    is_plain,
    largest_exponent,
    significand_bits,
)
from emu.formats import PRESETS

Array = NDArray[Any]
FP16, FP32 = encode_format(PRESETS["fp16"]), encode_format(PRESETS["fp32"])
#: Magnitudes from 2**16 on are beyond binary16.
BINARY16_TOP = bounded(16, 1, 16, "binary16 holds no larger power of two than 2**15")
#: Integers up to 2**24 are exact in float32.
FLOAT32_INTEGER_BITS = bounded(24, 1, 24, "float32 holds no wider integer")
#: A lane is a word of 32 bits; the instruction multiplies its halves.
HALF_BITS, WORD_BITS = 16, 32
#: Binary points of words and saturating sums lie nearer to 0 than this.
WORD_CENTRAL = bounded(
    SAFE_EXPONENT // 4, 1, 126, "a unit of the last place and its inverse are normal float32 numbers"
)
#: Bits of an addend in last places of the accumulator.
ADDEND_BITS = bounded(52, 1, 53, "float64 holds the addend's integer")
#: Numbers from here on are beyond float32.
FLOAT32_END = 2.0**128
#: Multiply-adds below this are not worth a second thread.
GRAIN_MACS = 1 << 23
#: See `Way.speed`.
SPEED = 30.0


class TileAccumulator(NamedTuple):
    """An accumulator as the tiles take it.

    Attributes:
        adder: a key of `ordered_tiles.ADDERS`.
        left_scale: what left operands are multiplied by.
        right_scale: what right operands are multiplied by.
        sum_scale: what the addend is multiplied by.
        low: smallest sum of a saturating accumulator, in its last places.
        high: its largest sum.
        drop_bits: bits of a word below the accumulator's last place.
        lsb: value of the accumulator's last place; 1 for floats.
    """

    adder: str
    left_scale: float = 1.0
    right_scale: float = 1.0
    sum_scale: float = 1.0
    low: float = 0.0
    high: float = 0.0
    drop_bits: int = 0
    lsb: float = 1.0


@lru_cache(maxsize=1024)
def unit_for(mac: MacCode, formats: Formats) -> TileAccumulator | None:
    """Return the accumulator of a Mac as the tiles take it, or None if only plain loops compute it."""
    if not has_vectors() or mac.order != k.SEQUENTIAL or mac.accumulator is None:
        return None
    if any(carrier_of(f) != np.float32 or f.daz for f in formats[:2]) or (formats[2] is not None and formats[2].daz):
        return None
    if mac.accumulator.format.is_float:
        return _float_unit(mac, mac.accumulator, formats)
    if mac.product is not None or any(f is not None and (f.is_float or f.carries_raws) for f in formats):
        return None
    return _fixed_unit(mac.accumulator, formats)


def _float_unit(mac: MacCode, accumulator: StageCode, formats: Formats) -> TileAccumulator | None:
    if formats[2] is not None and formats[2].carries_raws:
        return None
    if is_plain(accumulator, FP32):
        if mac.product is None:
            return TileAccumulator("fused")
        return TileAccumulator("float32") if is_plain(mac.product, FP32) else None
    a, b = formats[:2]
    exact = (
        significand_bits(a) + significand_bits(b) <= FLOAT32_INTEGER_BITS and a.quantum + b.quantum >= FLOAT32_QUANTUM
    )
    if not is_plain(accumulator, FP16) or not exact or largest_exponent(a) + largest_exponent(b) > FLOAT32_TOP:
        return None
    half = has_half_arithmetic() and _is_within_binary16(a) and _is_within_binary16(b)
    if mac.product is None:
        return TileAccumulator("fused_half" if half else "fused16")
    return TileAccumulator("half" if half else "binary16") if is_plain(mac.product, FP16) else None


def _is_within_binary16(fmt: FormatCode) -> bool:
    # The lowest signed integer is a power of two; the largest magnitude of other formats is below one.
    top = largest_exponent(fmt) - (fmt.is_float or not fmt.signed)
    return significand_bits(fmt) <= FP16.precision and fmt.quantum >= FP16.quantum and top < BINARY16_TOP


def _fixed_unit(stage: StageCode, formats: Formats) -> TileAccumulator | None:
    (a, b, c), fmt = formats, stage.format
    shift = a.quantum + b.quantum - fmt.quantum
    if stage.overflow not in (k.SATURATE, k.SATURATE_SYMMETRIC) or shift < 0 or moves_exact(stage):
        return None
    if any(f is not None and abs(f.quantum) >= WORD_CENTRAL for f in (*formats, fmt)) or shift > WORD_BITS:
        return None
    if c is not None and (c.quantum < fmt.quantum or c.width_bits + c.quantum - fmt.quantum > ADDEND_BITS):
        return None
    high = fmt.max_significand
    low = stage.lowest
    lsb = math.ldexp(1.0, fmt.quantum)
    words = _word_shifts(a, b, fmt, shift) if stage.overflow == k.SATURATE else None
    if words is not None:
        drop = WORD_BITS - fmt.width_bits
        # Raws, shifted left: the product of both stands at the top of 32 bits.
        left, right = (math.ldexp(1.0, s - f.quantum) for s, f in zip(words, (a, b), strict=True))
        adder = "marked" if drop >= FEWEST_MARK_BITS else "words"
        return TileAccumulator(adder, left, right, math.ldexp(1.0, drop - fmt.quantum), low, high, drop, lsb)
    # Raws of w bits and a sign are at most 2**w in magnitude: so is their product, in last places of the accumulator,
    # 2**(sum of the bits + shift). It and any content must add up exactly in float32.
    largest_product = 1 << (a.width_bits - a.signed + b.width_bits - b.signed + shift)
    if max(high, -low) + largest_product > 1 << FLOAT32_INTEGER_BITS:
        return None
    left, right = math.ldexp(1.0, shift - a.quantum), math.ldexp(1.0, -b.quantum)
    return TileAccumulator("saturating", left, right, 1.0 / lsb, low, high, 0, lsb)


def _word_shifts(a: FormatCode, b: FormatCode, fmt: FormatCode, shift: int) -> tuple[int, int] | None:
    """Return how far operands are shifted left to put products at the top of 32 bits; None if they do not fit."""
    if not (has_dot_products() and a.signed and b.signed and fmt.signed and fmt.width_bits <= WORD_BITS):
        return None
    # A product's last place is `shift` above the accumulator's, which stands `WORD_BITS - width` above the lane's.
    wanted, room = WORD_BITS - fmt.width_bits + shift, HALF_BITS - a.width_bits
    left = min(wanted, max(room, 0))
    fits = room >= 0 and b.width_bits + wanted - left <= HALF_BITS
    return (left, wanted - left) if fits else None


def declines(product: ProductCode, stage: StageCode) -> str | None:
    """Return None for units that the tiles emulate, else "": plain loops compute the others."""
    return "" if product.is_exact or unit_for(product.mac, product.formats) is None else None


def contents(product: Product, write: Write) -> Contents:
    """Return the accumulators' (B, M, N) contents, and where they touched a limit."""
    unit = unit_for(product.code.mac, product.code.formats)
    assert unit is not None
    batches, rows, columns = product.shape
    largest = max(-unit.low, unit.high)
    # Float32 holds contents of up to 24 bits below its end.
    wide = unit.adder in TOUCHING and (largest > 1 << FLOAT32_INTEGER_BITS or largest * unit.lsb >= FLOAT32_END)
    out = empty((batches, rows, columns), np.float64 if wide else np.float32)
    touched = empty(out.shape if unit.adder in TOUCHING else (1, 1, 1), np.uint8)
    first, outside = _first_sums(product.addend, unit)
    limits = (unit.low, unit.high, unit.drop_bits, unit.lsb)
    scales = unit.left_scale, unit.right_scale, unit.sum_scale
    if batched_products.applies(product.left, product.right, product.addend):
        assert isinstance(product.right, Gathered)
        batched_products.add_batch(unit.adder, product.left, product.right, scales, limits, first[0], out, touched)
    elif transposed_products.applies(product.left, product.right):
        transposed_products.add_transposed(unit.adder, *product.gathered(), scales, limits, first, out, touched)
    else:
        _add_panels(product.left, product.right, unit, limits, first, out, touched)
    if unit.adder not in TOUCHING:
        return Contents(out)
    return Contents(out, touched if outside is None else touched | outside)


def _add_panels(
    a: Array | Gathered,
    b: Array | Gathered,
    unit: TileAccumulator,
    limits: tuple[float, float, int, float],
    first: Array,
    out: Array,
    touched: Array,
) -> None:
    """Write the accumulators' (B, M, N) contents, and where they touched a limit.

    Args:
        a: float32, (B or 1, M, K).
        b: float32, (B or 1, K, N).
        unit: from `unit_for`.
        limits: of the unit, as `row_loops` takes them.
        first: R(addend), (B or 1, M or 1, N or 1).
        out: the contents.
        touched: uint8, of their shape; (1, 1, 1) of units that touch nothing.
    """
    left, right = as_gathered(a), materialised(b) if isinstance(b, Gathered) else b
    panels = packed_panels(right, line_dtype(unit.adder), unit.right_scale)
    panels = as_lines_of(unit.adder, panels)
    loop, height = row_loops(unit.adder), ROWS[unit.adder]
    data, step, place = only_read(left.data), left.step, (left.rows, left.columns, unit.left_scale)

    def work(batch: int, start: int, stop: int) -> None:
        sums = first[batch % len(first)]
        here = touched[batch] if unit.adder in TOUCHING else touched[0]
        panel = panels[batch % len(panels)]
        room = room_for(unit.adder, 1, left.columns.size)
        loop(*room, data, batch * step, *place, panel, sums, unit.sum_scale, *limits, out[batch], here, start, stop)

    grain = max(1, GRAIN_MACS // max(height * left.columns.size * out.shape[2], 1))
    over_row_blocks(work, out.shape[0], out.shape[1], height, grain)


def _first_sums(addend: Array | None, unit: TileAccumulator) -> tuple[Array, Array | None]:
    """Return R(addend), (B or 1, M or 1, N or 1), and where that touched a limit."""
    if addend is None:
        return np.zeros((1, 1, 1), np.float64 if unit.adder in TOUCHING else np.float32), None
    if unit.adder in ("binary16", "fused16", *HALF):
        with np.errstate(over="ignore", invalid="ignore"):
            return addend.astype(np.float16).astype(np.float32), None
    if unit.adder not in TOUCHING:
        with np.errstate(over="ignore", invalid="ignore"):
            return addend.astype(np.float32), None
    # Limits are in last places; an addend is compared with their values.
    exact = addend.astype(np.float64)
    # A NaN cannot occur: units that touch a limit take fixed-point addends.
    bounded = np.clip(exact, unit.low * unit.lsb, unit.high * unit.lsb)
    return bounded, (bounded != exact).astype(np.uint8)
