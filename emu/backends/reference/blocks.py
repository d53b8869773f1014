"""Blocks of products, the way matrix units add: aligned to the largest exponent, cut, summed, rounded once.

    terms       significand * 2**(exponent - point), as registers hold them: subnormals keep their leading zeros
    last        the largest exponent of a nonzero term - fraction_bits
    groups      of operands that share scales: products in a row, summed exactly, are one term
    block       R(sum of the terms, each cut toward zero to a multiple of 2**last); zero is +0

Source: docs/concepts/matrix-units.md, "Matrix units"; Khattak & Mikaitis, "Accurate Models of NVIDIA Tensor Cores",
2025.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import BlocksCode, FormatCode, MacCode, RandomCode, StageCode
from emu.backends.product import Alignment
from emu.backends.reference import arithmetic
from emu.backends.reference.accumulators import either
from emu.backends.reference.exact import FINITE, INFINITE, INT64_BITS, NAN, Exact
from emu.backends.reference.stage import draw_bits, write
from emu.formats.arrays import as_float64

Array = NDArray[Any]
Mask = NDArray[np.bool_]
#: Exponent of a zero, below every other, so that it never is the largest.
NOWHERE = -(1 << 40)


class Term(NamedTuple):
    """Finite numbers significand * 2**(exponent - point); the exponent of a zero is NOWHERE.

    Infinities and NaN are zeros here.
    """

    significand: Array
    exponent: NDArray[np.int64]
    point: int

    @classmethod
    def of(cls, x: Array, fmt: FormatCode, *, wide: bool) -> Term:
        """Return carriers of a float format as its codes hold them; `wide`: as Python integers."""
        finite = np.where(np.isfinite(x), as_float64(x), 0.0)
        # frexp gives x = m * 2**e with 0.5 <= |m| < 1: the exponent of 1 <= |significand| < 2 is e - 1.
        exponent = np.maximum(np.frexp(finite)[1].astype(np.int64) - 1, fmt.emin)
        return cls.at(finite, exponent, fmt.precision - 1, wide=wide)

    @classmethod
    def at(cls, x: Array, exponent: NDArray[np.integer[Any]], point: int, *, wide: bool) -> Term:
        """Return carriers whose exponents are given; `wide`: as Python integers."""
        finite = np.where(np.isfinite(x), as_float64(x), 0.0)
        shift = np.where(finite == 0, 0, point - exponent)
        half = (shift // 2).astype(np.int32)  # in two steps: one would overflow at the ends of float64
        # whole: numbers of the format are multiples of 2**(exponent - point)
        significand = np.ldexp(np.ldexp(finite, half), (shift - half).astype(np.int32)).astype(np.int64)
        integers = significand.astype(object) if wide else significand
        return cls(integers, np.where(finite == 0, NOWHERE, exponent.astype(np.int64, copy=False)), point)

    def take(self, where: Any) -> Term:
        """Return the numbers at an index."""
        return Term(self.significand[where], self.exponent[where], self.point)

    def times(self, other: Term) -> Term:
        """Return the products of broadcast numbers, not normalised."""
        product = self.significand * other.significand
        exponent = np.where((product == 0).astype(bool), NOWHERE, self.exponent + other.exponent)
        return Term(product, exponent, self.point + other.point)

    @classmethod
    def total(cls, terms: list[Term]) -> Term:
        """Return the exact sum of terms of one exponent, which a sum that cancels keeps; of zeros alone a zero."""
        significand: Any = sum(term.significand for term in terms)
        # zeros are NOWHERE, so that the maximum is the exponent that the others share
        exponent = np.maximum.reduce([term.exponent for term in terms])
        return cls(significand, exponent, terms[0].point)

    def cut_to(self, last: NDArray[np.int64]) -> Array:
        """Return the numbers in multiples of 2**last, cut toward zero."""
        shift = np.where(self.exponent == NOWHERE, 0, self.exponent - self.point - last)
        # 63 places leave nothing of an int64 magnitude. The sign is put back afterwards: `>>` alone rounds down.
        left, right = np.maximum(shift, 0), np.clip(-shift, 0, INT64_BITS + 1)
        if self.significand.dtype == object:
            # Python's integers take shifts of any length
            left, right = left.astype(object), np.maximum(-shift, 0).astype(object)
        return np.sign(self.significand) * ((abs(self.significand) << left) >> right)


def block_sums(
    a: Array,
    b: Array,
    addend: Array | None,
    formats: tuple[FormatCode, FormatCode, FormatCode | None],
    mac: MacCode,
    random: RandomCode,
    alignment: Alignment | None = None,
) -> tuple[Exact, Mask | None]:
    """Return the accumulator's (B, M, N) contents after all blocks, and where it touched a limit.

    Args:
        a: float carriers, (B, M, K), flushed where their format is DAZ.
        b: float carriers, (B, K, N), likewise.
        addend: exact addend's carriers, broadcast to (B, M, N), or None.
        formats: formats of the three.
        mac: a unit of blocks.
        random: source of stochastic rounding.
        alignment: exponents of operands that share scales.
    """
    unit = _BlockAdder(a, b, formats, mac, random, alignment)
    # float64 holds each number of the accumulator's format
    state = np.zeros((a.shape[0], a.shape[1], b.shape[2]))
    # period by period; a period may have several blocks, in the order of `indices`
    depth, indices = a.shape[2], np.array(unit.blocks.indices)
    if addend is not None:
        # numbered as in `ordered_sums`: sums 2 + 2 k, the addend after all of them
        state = unit.round(arithmetic.exact_of(addend, formats[2]), 2 * depth + 1)
    for start in range(0, depth, indices.size):
        # if it adds after, blocks sum up from 0 and an IEEE adder adds their
        # sum; else the running sum is a term of each block
        total = np.zeros_like(state) if unit.blocks.adds_after else state
        for first in range(0, indices.size, unit.blocks.n):
            block = start + indices[first : first + unit.blocks.n]
            # zero products beyond K change nothing, so they are left out;
            # the draw's number counts their places all the same
            total = unit.add_block(total, block[block < depth], 2 + 2 * (start + first))
        state = unit.add_after(state, total) if unit.blocks.adds_after else total
    return Exact.from_float(state), unit.touched


class _BlockAdder:
    """The unit: operands as registers hold them, and the rounding into its accumulator."""

    def __init__(
        self,
        a: Array,
        b: Array,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        random: RandomCode,
        alignment: Alignment | None,
    ) -> None:
        assert mac.accumulator is not None
        assert mac.blocks is not None
        self.a, self.b = a, b
        self.stage: StageCode = mac.accumulator
        self.blocks: BlocksCode = mac.blocks
        self.random = random
        # most operands are finite: then only the accumulator can become infinite
        self.finite = bool(np.isfinite(a).all() and np.isfinite(b).all())
        # A term is below 4 * 2**largest exponent, so 2**(fraction_bits + 2) when cut; n products and the accumulator
        # are n + 1 <= 2**n.bit_length() terms.
        product_bits = formats[0].precision + formats[1].precision
        sum_bits = mac.blocks.fraction_bits + 2 + mac.blocks.n.bit_length()
        if alignment is not None:
            product_bits, sum_bits = aligned_bits(a, b, alignment, mac.blocks)
        self.wide = max(product_bits, sum_bits, self.stage.format.precision) > INT64_BITS
        if alignment is None:
            self.left, self.right = (
                Term.of(x, fmt, wide=self.wide) for x, fmt in zip((a, b), formats[:2], strict=True)
            )
        else:
            self.left, self.right = (
                Term.at(x, exponent, point, wide=self.wide)
                for x, exponent, point in zip((a, b), alignment[:2], alignment.points, strict=True)
            )
        self.touched: Mask | None = None

    def add_block(self, state: Array, block: Array, draw: int) -> Array:
        """Return R(state + the products of the k in `block`), all cut at the same place."""
        terms = [self._product(index) for index in block]
        # the end of K may cut the last group short
        if self.blocks.group > 1:
            firsts = range(0, len(terms), self.blocks.group)
            terms = [Term.total(terms[first : first + self.blocks.group]) for first in firsts]
        # aligned as a term; its exponent is that of its own leading bit, or emin
        terms.append(Term.of(state, self.stage.format, wide=self.wide))
        largest = np.maximum.reduce([term.exponent for term in terms])
        # if all terms are zeros, any place will do
        largest = np.where(largest == NOWHERE, 0, np.maximum(largest, self.blocks.min_exponent))
        last = largest - self.blocks.fraction_bits
        total: Any = sum(term.cut_to(last) for term in terms)
        negative = (total < 0).astype(bool)
        # an exact sum of 0 is not negative
        exact = Exact(negative, abs(total), last, np.full(last.shape, FINITE, np.uint8))
        return self.round(self._with_specials(exact, state, block), draw) + 0.0  # -0 + 0.0 is +0

    def _product(self, index: int) -> Term:
        return self.left.take(np.s_[:, :, index, None]).times(self.right.take(np.s_[:, index, None, :]))

    def _with_specials(self, exact: Exact, state: Array, block: Array) -> Exact:
        """Replace sums that have an infinity or NaN among their terms; a finite term, however large, makes none."""
        if self.finite and np.isfinite(state).all():
            return exact
        with np.errstate(invalid="ignore"):
            # added up over all k: infinities of the same sign stay, and of both signs they give NaN
            special = np.where(np.isfinite(state), 0.0, state)
            for index in block:
                # Of signs: a product of large finite numbers is no infinity here, though it may be beyond float64.
                product = _sign(self.a[:, :, index, None]) * _sign(self.b[:, index, None, :])
                special = special + np.where(np.isfinite(product), 0.0, product)
        kind = np.where(np.isnan(special), NAN, np.where(np.isinf(special), INFINITE, FINITE)).astype(np.uint8)
        negative = np.where(kind == FINITE, exact.negative, np.signbit(special))
        return Exact(negative, np.where(kind == FINITE, exact.significand, 0), exact.exponent, kind)

    def add_after(self, state: Array, total: Array) -> Array:
        """Return state + total as an IEEE adder rounds it, to nearest even."""
        stage = self.stage._replace(rounding=k.NEAREST_EVEN)
        # a block's sum is already rounded into the accumulator format
        parts = [Exact.from_float(state), Exact.from_float(total)]
        return self._written(arithmetic.with_specials("add", parts, arithmetic.add(parts, stage)), stage, 0)

    def round(self, exact: Exact, draw: int) -> Array:
        """Return R: cut or rounded, and infinite beyond the largest."""
        return self._written(exact, self.stage, draw)

    def _written(self, exact: Exact, stage: StageCode, draw: int) -> Array:
        u = draw_bits(exact.kind.shape, stage, self.random._replace(draw=draw))
        values, flags = write(exact, stage, u)
        overflow = flags[k.OVERFLOW_FLAG]
        # a rule that saturates marks each overflow
        if stage.overflow != k.IEEE:
            self.touched = either(self.touched, overflow)
            return as_float64(values)
        if overflow.any():
            self.touched = either(self.touched, overflow & (exact.kind == FINITE))
        # A mode that stops at the largest number does not stop inside the unit: every overflow is infinite.
        return np.where(overflow, self._beyond(values), as_float64(values))

    def _beyond(self, values: Array) -> Array:
        """Return infinities of the signs; NaN, or else 0, if the format has none."""
        if self.stage.format.has_infinity:
            return np.copysign(np.inf, as_float64(values))
        return np.full(values.shape, np.nan if self.stage.format.has_nan else 0.0)


def aligned_bits(a: Array, b: Array, alignment: Alignment, blocks: BlocksCode) -> tuple[int, int]:
    """Return how many bits the sum of a group has whose exponents are given, and that of a block, without a sign."""
    bits = [_bits_of(x, e, p) for x, e, p in zip((a, b), alignment[:2], alignment.points, strict=True)]
    group_bits = sum(bits) + blocks.group.bit_length()
    # Bits of a group's sum above its exponent; at least 2, since a product of two significands below 2 is below 4.
    above = max(group_bits - sum(alignment.points), 2)
    return group_bits, blocks.fraction_bits + above + blocks.n.bit_length()


def _bits_of(x: Array, exponent: NDArray[np.integer[Any]], point: int) -> int:
    """Return how many bits the integers of an operand have whose exponents are given."""
    finite = np.where(np.isfinite(x), np.abs(as_float64(x)), 0.0)
    length = np.where(finite == 0, 0, np.frexp(finite)[1] - exponent + point)
    return int(length.max(initial=0))


def _sign(x: Array) -> Array:
    """Return numbers with the same zeros, infinities and NaNs; each other one is 1 or -1."""
    return np.where(np.isfinite(x), np.sign(x), x)
