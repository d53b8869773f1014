"""The accumulator of a multiply-accumulate unit between two adds, and how it adds.

`Rounded` is the definition: every product and every sum passes the output stage's `write`. The other three are
shortcuts by the processor's IEEE arithmetic or by plain integers, taken where the results are proved the same:

    NativeFloat32   fp32 accumulator, nearest_even; products exact in 24 bits or rounded to fp32
    NativeFloat16   fp16 accumulator, nearest_even, fused: float64 and one conversion
    Integer         fixed accumulator whose adds never round

Source: docs/concepts/products.md, "Rounding twice".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import FormatCode, MacCode, RandomCode, StageCode, encode_format
from emu.backends.modes import moves_exact
from emu.backends.product import Formats
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, leading_bound, significand_bits
from emu.backends.reference import arithmetic
from emu.backends.reference.exact import FINITE, INT64_BITS, NAN, NEW_NAN, Exact, sum_to_odd
from emu.backends.reference.raws import raw_of
from emu.backends.reference.stage import draw_bits, write
from emu.formats import PRESETS

Array = NDArray[Any]
Mask = NDArray[np.bool_]
FP16, FP32 = encode_format(PRESETS["fp16"]), encode_format(PRESETS["fp32"])
#: Only the sign rule of exact sums is read from it.
EXACT_SUM = StageCode(FP32, k.NEAREST_EVEN, k.IEEE, 1)
#: Rules that write a finite number for a finite result beyond the range, and mark it; `wrap` marks nothing.
_SATURATING = (k.SATURATE, k.SATURATE_SYMMETRIC, k.SATURATE_ZERO, k.SATFINITE, k.SATPROPAGATE)


class Rounded:
    """The definition: products and sums are exact, then written into their formats.

    States and terms are exact results. `touched` marks each output whose saturating accumulator touched a limit, or in
    which a finite product or sum became infinite.
    """

    def __init__(self, mac: MacCode, formats: Formats, random: RandomCode) -> None:
        # if both were exact, `exact_sums` would add the products without an accumulator
        assert mac.accumulator is not None or mac.product is not None
        self.mac, self.formats, self.random = mac, formats, random
        a, b, _ = formats
        # a product of two such operands has at most 53 bits, so that only its exponent can leave float64
        self.exact_product_in_float64 = (
            not (a.carries_raws or b.carries_raws) and significand_bits(a) + significand_bits(b) <= 53
        )
        self.touched: Mask | None = None

    def zero(self, shape: tuple[int, ...]) -> Exact:
        """Return +0."""
        return Exact.from_float(np.zeros(shape, np.float32))

    def addend(self, addend: Array) -> Exact:
        """Return an addend as it is."""
        return arithmetic.exact_of(addend, self.formats[2])

    def term(self, a: Array, b: Array, draw: int) -> Exact:
        """Return the products of broadcast operands, rounded into the product format if there is one."""
        a, b = np.broadcast_arrays(a, b)
        stage = self.mac.product
        if stage is None and self.exact_product_in_float64 and np.isfinite(a).all() and np.isfinite(b).all():
            a64, b64 = (
                arithmetic.flush_operands(x, f).astype(np.float64)
                for x, f in ((a, self.formats[0]), (b, self.formats[1]))
            )
            # A product has at most 53 bits, is a multiple of 2**-999 (float64 goes down to 2**-1074), and lies below
            # 2**(SAFE_EXPONENT + 1): float64 holds it.
            if leading_bound(a64) + leading_bound(b64) < SAFE_EXPONENT and self._lowest() > -1000:
                return Exact.from_float(a64 * b64)
        # `compute` asks the stage only for a zero sum's sign and for sticky bits, which a product has not.
        any_stage = stage or self.mac.accumulator
        assert any_stage is not None
        product = arithmetic.compute("multiply", (a, b), self.formats[:2], any_stage)
        if stage is None:
            return product
        rounded, overflow = self._write(product, stage, draw)
        # a saturated product marks nothing, an infinite product does
        if stage.overflow == k.IEEE:
            self.touched = either(self.touched, overflow & became_infinite(product, rounded, stage))
        return rounded

    def _lowest(self) -> int:
        return self.formats[0].quantum + self.formats[1].quantum

    def add(self, state: Exact, term: Exact, draw: int) -> Exact:
        """Return R(state + term)."""
        stage = self.mac.accumulator
        # products are rounded, sums are not
        if stage is None:
            total = arithmetic.add([state, term], EXACT_SUM)
            return arithmetic.with_specials("add", [state, term], total)
        return self._accumulate(_sum(state, term, stage), stage, draw)

    def round(self, term: Exact, draw: int) -> Exact:
        """Return R(term): what an accumulator holds that receives only this product or addend."""
        stage = self.mac.accumulator
        return term if stage is None else self._accumulate(term, stage, draw)

    def _accumulate(self, exact: Exact, stage: StageCode, draw: int) -> Exact:
        content, overflow = self._write(exact, stage, draw)
        if stage.overflow in _SATURATING:
            self.touched = either(self.touched, overflow)
        elif stage.overflow == k.IEEE:
            self.touched = either(self.touched, overflow & became_infinite(exact, content, stage))
        return content

    def _write(self, exact: Exact, stage: StageCode, draw: int) -> tuple[Exact, NDArray[np.bool_]]:
        u = draw_bits(exact.kind.shape, stage, self.random._replace(draw=draw))
        values, flags = write(exact, stage, u)
        # DAZ is about operands: a subnormal inside the unit stays.
        return arithmetic.exact_of(values, stage.format._replace(daz=0)), flags[k.OVERFLOW_FLAG]

    def result(self, state: Exact) -> Exact:
        """Return the accumulator's content; the zero of an exact accumulator is +0."""
        if self.mac.accumulator is None:
            # IEEE 754 makes -0 of zeros that are all -0; an exact sum of 0 is +0
            state.negative = state.negative & ((state.significand != 0).astype(bool) | (state.kind != 0))
        return state


def either(touched: Mask | None, more: Mask) -> Mask:
    """Return where either mask holds; `touched` is None before anything was marked."""
    return more if touched is None else touched | more


def became_infinite(exact: Exact, written: Exact, stage: StageCode) -> Mask:
    """Return where a finite result was written as infinity, or as what stands for infinity.

    Call it only where the result overflowed.
    """
    if not stage.format.has_nan and not stage.format.has_infinity:  # 0 stands for infinity
        return (exact.kind == FINITE) & (written.significand == 0).astype(bool)
    return (exact.kind == FINITE) & (written.kind != FINITE)


def _sum(x: Exact, y: Exact, stage: StageCode) -> Exact:
    """Return x + y exactly, or rounded to odd in float64 if the stage writes both the same."""
    # FINITE is 0: some operand is infinite or NaN
    if (x.kind | y.kind).any():
        return arithmetic.with_specials("add", [x, y], arithmetic.add([x, y], stage))
    narrow = x.significand.dtype != object and y.significand.dtype != object
    if narrow and int(max(x.bit_length.max(initial=0), y.bit_length.max(initial=0))) <= 53:
        leading = (
            max((int(p.leading[p.significand != 0].max()) for p in (x, y) if (p.significand != 0).any()), default=0) + 1
        )
        lowest = min(
            (int(p.exponent[p.significand != 0].min()) for p in (x, y) if (p.significand != 0).any()), default=0
        )
        # Float64 holds both terms (53 bits, multiples of 2**-1069) and, as a sum of two of its numbers is exact when
        # it is subnormal, the error of the sum too.
        if leading <= SAFE_EXPONENT and lowest > -1070 and decides_in_float64(stage, leading):
            total = sum_to_odd(_to_float64(x), _to_float64(y))
            result = Exact.from_float(total)
            # float64 gives +0 for x - x; under floor it is -0 (IEEE 754-2019 section 6.3)
            both = x.negative & y.negative
            sign_of_zero = x.negative | y.negative if stage.rounding == k.FLOOR else both
            return Exact(
                np.where(total == 0, sign_of_zero, result.negative), result.significand, result.exponent, result.kind
            )
    return arithmetic.add([x, y], stage)


def _to_float64(x: Exact) -> NDArray[np.float64]:
    value = np.ldexp(x.significand.astype(np.float64), x.exponent.astype(np.int32))
    return np.where(x.negative, -value, value)


class NativeFloat32:
    """float32 accumulators, by the processor's IEEE addition."""

    def __init__(self, mac: MacCode, formats: Formats, random: RandomCode) -> None:
        a, b, _ = formats
        # Every product is a multiple of 2**lowest, and below 2**highest.
        lowest, highest = (
            a.quantum + b.quantum,
            a.max_exponent + b.max_exponent + significand_bits(a) + significand_bits(b),
        )
        # Float32 holds such a product of 24 bits: its smallest number is 2**-149, its numbers reach 2**128.
        in_float32 = mac.product is not None or (lowest >= -149 and highest <= 127)
        self.wide = np.float32 if in_float32 else np.float64
        self.rounds_products = mac.product is not None
        self.formats = formats
        self.touched: Mask | None = None

    @staticmethod
    def applies(mac: MacCode, formats: Formats) -> bool:
        """Return whether products are exact in 24 bits or rounded to fp32, and every add is an IEEE fp32 addition."""
        a, b, _ = formats
        rounded = mac.product is not None and _is_ieee(mac.product, FP32)
        operands_fit = _in_float32(formats)
        exact = mac.product is None and significand_bits(a) + significand_bits(b) <= 24
        return mac.accumulator is not None and _is_ieee(mac.accumulator, FP32) and operands_fit and (rounded or exact)

    def zero(self, shape: tuple[int, ...]) -> Array:
        """Return +0."""
        return np.zeros(shape, np.float32)

    def addend(self, addend: Array) -> Array:
        """Return an addend as it is."""
        assert self.formats[2] is not None
        return arithmetic.flush_operands(addend, self.formats[2]).astype(np.float64)

    def round(self, term: Array, draw: int) -> Array:
        """Return R(term)."""
        # the term is also the only operand, so that an infinite one marks nothing
        return self._rounded(term, term)

    def term(self, a: Array, b: Array, draw: int) -> Array:
        """Return the products."""
        product = a.astype(self.wide, copy=False) * b.astype(self.wide, copy=False)
        return self._marked(product, a, b) if self.rounds_products else product

    def add(self, state: Array, term: Array, draw: int) -> Array:
        """Return R(state + term).

        A sum of terms of 24 bits may be rounded to float64 first, which has 53 >= 2 * 24 + 2 bits (Figueroa 1995).
        """
        return self._rounded(state + term, state, term)

    def _rounded(self, exact: Array, *operands: Array) -> Array:
        return self._marked(exact.astype(np.float32, copy=False), *operands)

    def _marked(self, result: Array, *operands: Array) -> Array:
        """Return the result; mark where it is not finite although all its operands are."""
        if not np.isfinite(result).all():
            # an infinite or NaN operand explains the result; without one, the accumulator has overflowed
            finite = np.logical_and.reduce([np.isfinite(np.broadcast_to(x, result.shape)) for x in operands])
            self.touched = either(self.touched, finite & ~np.isfinite(result))
        return result

    def result(self, state: Array) -> Exact:
        """Return the accumulator's content."""
        return Exact.from_float(state)


class NativeFloat16(NativeFloat32):
    """binary16 accumulators, fused: float64 sums and one direct conversion."""

    def __init__(self, mac: MacCode, formats: Formats, random: RandomCode) -> None:
        super().__init__(mac, formats, random)
        self.wide = np.float64

    @staticmethod
    def applies(mac: MacCode, formats: Formats) -> bool:
        """Return whether this is a binary16 fused multiply-add chain on binary16 operands."""
        # operands have been flushed already, and FTZ says nothing about operands
        is_half = all(f._replace(daz=0, ftz=0) == FP16 for f in formats[:2]) and _in_float32(formats)
        return mac.product is None and mac.accumulator is not None and _is_ieee(mac.accumulator, FP16) and is_half

    def _rounded(self, exact: Array, *operands: Array) -> Array:
        # NumPy converts float64 to binary16 in one rounding, not by way of float32.
        return self._marked(exact.astype(np.float16).astype(np.float32), *operands)


def _in_float32(formats: Formats) -> bool:
    """Return whether every operand has at most 24 bits.

    With a wider addend, a sum rounded to float64 and then to float32 could differ from the sum rounded once.
    """
    return all(k.carrier_of(fmt) == np.float32 for fmt in formats if fmt is not None)


def _is_ieee(stage: StageCode, fmt: FormatCode) -> bool:
    return stage.format == fmt and stage.rounding == k.NEAREST_EVEN and stage.overflow == k.IEEE


class Integer:
    """Fixed-point accumulators at least as fine as the products: integer adds, saturated or wrapped each time."""

    def __init__(self, mac: MacCode, formats: Formats, random: RandomCode) -> None:
        assert mac.accumulator is not None
        self.stage, self.formats = mac.accumulator, formats
        # an exact product is a raw times 2**(quantum of a + quantum of b); the shift makes accumulator raws of it
        self.product_shift = formats[0].quantum + formats[1].quantum - self.stage.format.quantum
        self.touched: Mask | None = None
        self.high, self.low = self.stage.format.max_significand, self.stage.lowest

    @staticmethod
    def applies(mac: MacCode, formats: Formats) -> bool:
        """Return whether operands and accumulator are fixed-point, nothing rounds, and every sum fits int64."""
        a, b, c = formats
        if (
            mac.product is not None
            or mac.accumulator is None
            or a.is_float
            or b.is_float
            or mac.accumulator.format.is_float
            or moves_exact(mac.accumulator)
        ):
            return False
        target = mac.accumulator.format
        shift = a.quantum + b.quantum - target.quantum
        # Products and states stay below 2**61 in magnitude, so their sum does below 2**62.
        fits = (
            shift >= 0 and a.width_bits + b.width_bits + shift < INT64_BITS - 1 and target.width_bits < INT64_BITS - 1
        )
        if c is None:
            return fits
        addend_shift = c.quantum - target.quantum
        # an addend is not bounded by the accumulator's width, so its own raw must stay below 2**62
        return fits and not c.is_float and addend_shift >= 0 and c.width_bits + addend_shift < INT64_BITS

    def zero(self, shape: tuple[int, ...]) -> Array:
        """Return 0."""
        return np.zeros(shape, np.int64)

    def addend(self, addend: Array) -> Array:
        """Return an addend in the accumulator's last places."""
        fmt = self.formats[2]
        assert fmt is not None
        return raw_of(addend, fmt) << (fmt.quantum - self.stage.format.quantum)

    def round(self, term: Array, draw: int) -> Array:
        """Return R(term)."""
        return self._limit(term)

    def term(self, a: Array, b: Array, draw: int) -> Array:
        """Return exact products in the accumulator's last places."""
        return (raw_of(a, self.formats[0]) * raw_of(b, self.formats[1])) << self.product_shift

    def add(self, state: Array, term: Array, draw: int) -> Array:
        """Return R(state + term)."""
        return self._limit(state + term)

    def _limit(self, total: Array) -> Array:
        if self.stage.overflow == k.WRAP:
            width = self.stage.format.width_bits
            # the sign stays, and the magnitude loses its high bits
            if self.stage.format.sign_magnitude:
                return np.sign(total) * (np.abs(total) & self.high)
            # `&` reads int64 as two's complement: the residue is not negative.
            wrapped = total & ((1 << width) - 1)
            return np.where(wrapped > self.high, wrapped - (1 << width), wrapped)
        # marked by the sum itself, before it is bounded
        outside = (total > self.high) | (total < self.low)
        self.touched = either(self.touched, outside)
        if self.stage.overflow == k.SATURATE_ZERO:
            return np.where(outside, 0, total)
        return np.clip(total, self.low, self.high)

    def result(self, state: Array) -> Exact:
        """Return the accumulator's content."""
        return Exact.from_integers(state, self.stage.format.quantum)


def choose(mac: MacCode, formats: Formats, random: RandomCode) -> Any:
    """Return the accumulator of a Mac: a shortcut if one applies, else the definition."""
    # their accumulators differ (fp32, fp16, fixed), so that at most one applies
    for shortcut in (NativeFloat32, NativeFloat16, Integer):
        if shortcut.applies(mac, formats):
            return shortcut(mac, formats, random)
    return Rounded(mac, formats, random)


def any_operand(
    is_special: Callable[[Array], Mask], a: Array, b: Array, addend: Array | None, shape: tuple[int, ...]
) -> Mask:
    """Return, for each output of a product, whether any of its operands is special."""
    # (B, M, 1) or (B, 1, N): over all k
    seen: Any = is_special(a).any(axis=2, keepdims=True) | is_special(b).any(axis=1, keepdims=True)
    if addend is not None:
        seen = seen | is_special(addend)
    return np.broadcast_to(seen, shape)


def nan_among(a: Array, b: Array, addend: Array | None, shape: tuple[int, ...]) -> Mask:
    """Return, for each output of a product, whether any of its operands is NaN."""
    return any_operand(np.isnan, a, b, addend, shape)


def mark_new_nans(exact: Exact, propagated: NDArray[np.bool_]) -> Exact:
    """Return results whose NaNs raise `invalid` unless an operand was NaN (IEEE 754-2019 section 7.2)."""
    kind = np.where(exact.kind >= NAN, np.where(propagated, NAN, NEW_NAN), exact.kind).astype(np.uint8)
    return Exact(exact.negative, exact.significand, exact.exponent, kind)
